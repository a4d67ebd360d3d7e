"""The plane's picture: exact labels during a slider's move, finer layers once it rests."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Any

import numpy as np
import torch
import xarray as xr

from flowsim.explorer import layers
from flowsim.explorer.page.messages import describe_cursor, describe_window, legend
from flowsim.explorer.view import View
from flowsim.interface import theta_at

#: Milliseconds after which a slider rests, and after which labels that do not come are greyed out.
REST, _GREY = 180, 120
_NOTHING = layers.Cells(np.full((2, 2), layers.UNKNOWN, np.int8), "")


class Picture:
    """Basins and curves in the plane of a page.

    Labels that take no time come at once, on the page's own thread. Else a thread makes a first
    look; a slider that moves on meanwhile does not interrupt it, so that the picture follows the
    slider, and gets its own first look afterwards.
    """

    def __init__(self, visit: Any) -> None:
        self.visit = visit
        self.cells, self.border = _NOTHING, layers.Border()
        self.landscape: xr.Dataset | None = None
        self._not_before = 0.0
        self._looking = self._waiting = self._again = False

    @property
    def early(self) -> int:
        """Milliseconds to wait, so that drawing takes at most half of the page's time."""
        return int(1000 * (self._not_before - monotonic()))

    def outdate(self, altogether: bool) -> None:
        """Cancel finer labels and, if ``altogether``, a slow model's coarse first picture."""
        self.visit.jobs.stop("plane")
        if altogether:
            self.visit.jobs.stop("first look")
            self._looking = self._waiting = self._again = False
            self.landscape = None  # which may have other axes

    def draw(self) -> None:
        """Draw exact labels at once, and the rest once the sliders rest."""
        if not self.visit.view.at_once:
            self._look()
            return
        view, began = self.visit.view, monotonic()
        self._show_cells(view, layers.cells_at_once(view))
        if layers.has_border(view):  # which takes longer than a closed form: labels go ahead
            self.visit.soon("curves", 0, self._draw_curves)
        else:
            self._draw_curves()
        self.visit.soon("rest", REST, self._refine)
        now = monotonic()  # leave as much time again for what else the page has to do
        self._not_before = now + (now - began)

    def _draw_curves(self) -> None:
        """Draw coarse curves, arrows and boundaries, of a model whose labels come at once."""
        view = self.visit.view
        if not view.at_once:
            return
        self._show_landscape(view, layers.landscape(view, fine=False))
        known = not layers.has_border(view)
        line = layers.Border() if known else layers.border(view, self.cells, lambda: False)
        self._show_border(line)
        self.show_legend()

    def show_legend(self) -> None:
        """Write the legend, once curves are known."""
        visit = self.visit
        if self.landscape is not None:
            visit.controls.legend.text = legend(
                visit.view, self.cells, self.border, self.landscape, bool(visit.runs),
                visit.plane.laid,
            )  # fmt: skip

    def show_under(self, at: tuple[float, float] | None) -> None:
        """Say the loss at a place (y, x) and the end of its cell; nothing for None."""
        view, text = self.visit.view, ""
        if at is not None:
            y, x = (torch.tensor([value]).double() for value in at)
            theta = theta_at(view.model.plane, x, y, view.fixed_values)
            text = describe_cursor(view, self.cells, *at, float(view.model.loss(theta)[0]))
        self.visit.controls.cursor_text.text = text

    def _look(self) -> None:
        """Draw coarse labels, then curves, as a thread finds them; then begin finer labels.

        If this is already under way, it is done again afterwards.
        """
        self._again = self._looking
        if self._looking:
            return
        self._looking = self._waiting = True
        view = self.visit.view
        self.visit.soon("grey", _GREY, self._grey)

        def show(found: layers.Cells | xr.Dataset) -> None:
            """Show coarse labels, or, once they are found, curves; then begin what follows."""
            if isinstance(found, layers.Cells):
                self._waiting = False
                self._show_cells(view, found)
                return
            self._looking = False
            self._show_border(layers.Border())
            self._show_landscape(view, found)
            self.show_legend()
            if self._again:
                self._look()
            elif (now := self.visit.view).flow_key == view.flow_key and now.window == view.window:
                self._refine(self.cells)  # else another look is on its way

        def done() -> None:
            self._looking = self._waiting = False

        self.visit.jobs.start("first look", partial(layers.first_look, view), show, done=done)

    def _grey(self) -> None:
        """Draw empty cells until the labels of a new model, chain or window arrive."""
        if self._waiting:
            self._show_border(layers.Border())
            self._show_cells(self.visit.view, _NOTHING)
            self.show_legend()

    def _refine(self, first: layers.Cells | None = None) -> None:
        """Begin to draw ever finer labels, boundaries and curves, as a thread finds them.

        ``first`` are the coarse labels of a slow model, which it cannot begin without.
        """
        view = self.visit.view
        if first is None and not view.at_once:
            return

        def show(layer: layers.Layer) -> None:
            """Show labels, boundaries or curves, whichever have been found."""
            if isinstance(layer, layers.Cells):
                self._show_cells(view, layer)
            elif isinstance(layer, layers.Border):
                self._show_border(layer)
            else:
                self._show_landscape(view, layer)
            self.show_legend()

        self.visit.jobs.start("plane", partial(layers.at_rest, view, first=first), show)

    def _show_landscape(self, view: View, record: xr.Dataset) -> None:
        """Draw a record's curves and arrows, and keep it for the legend."""
        self.landscape = record
        self.visit.plane.show_landscape(view, record)

    def _show_border(self, line: layers.Border) -> None:
        """Draw the boundaries, and keep them for the legend."""
        self.border = line
        self.visit.plane.show_border(line)

    def _show_cells(self, view: View, cells: layers.Cells) -> None:
        """Draw labelled cells, say their shares, and keep them."""
        self.cells = cells
        self.visit.plane.show_cells(view, cells)
        self.visit.controls.window_text.text = describe_window(view, cells)
