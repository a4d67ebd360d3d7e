"""Clicks, drags, wheels and buttons that change what is looked at."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bokeh.events import (
    DoubleTap,
    Pan,
    PanEnd,
    PanStart,
    PressUp,
    RangesUpdate,
    Tap,
    ValueSubmit,
)
from bokeh.models import CustomJS

from flowsim.errors import InputError
from flowsim.explorer.page.controls import CLOUD, ZOOM
from flowsim.explorer.page.page_parts import Page
from flowsim.explorer.view import FARTHEST, NARROWEST, Puff, Start, View, Window

#: Milliseconds within which a second click makes a double click of the first.
_DOUBLE = 320
#: In the browser, so that no drag comes too early for the choice of what drags do.
_CHOOSE_DRAG = f"bar.active_drag = cb_obj.active == {ZOOM} ? zoom : null"
_MOST_UNDONE, _MOST_WINDOWS = 50, 50


class Gestures:
    """What a visitor does with mouse and keyboard.

    Args:
        visit: the page.
    """

    def __init__(self, visit: Page) -> None:
        self.visit = visit
        self._undone: list[View] = []
        self._windows: list[Window] = []
        self._click: Any = None
        self._clicked: View | None = None  # the view that the last click made, if it made one
        self._grip: tuple[float, float] | None = None
        figure, c = visit.plane.figure, visit.controls
        figure.on_event(Tap, self._tapped)
        figure.on_event(PressUp, self._tapped)  # a click that was held for long
        figure.on_event(DoubleTap, self._double_tapped)
        figure.on_event(RangesUpdate, self._ranges_moved)
        for event, call in ((PanStart, self._pan_start), (Pan, self._pan), (PanEnd, self._pan_end)):
            figure.on_event(event, call)
        tools = {"bar": figure.toolbar, "zoom": visit.plane.zoom}
        c.drag.js_on_change("active", CustomJS(args=tools, code=_CHOOSE_DRAG))
        c.back.on_click(self.zoom_back)
        c.closer.on_click(lambda: self.zoom_to(visit.view.zoomed(2).window))
        c.undo.on_click(self.undo)
        c.clear.on_click(self._clear)
        c.go.on_click(self._typed)
        c.place.on_event(ValueSubmit, lambda _: self._typed())

    @property
    def can_undo(self) -> bool:
        return bool(self._undone or self.visit.view.starts)

    def start(self, y: float, x: float) -> None:
        """Start an orbit, or choose the one whose start was clicked."""
        visit = self.visit
        near = visit.start_at(y, x)
        if near is not None:
            visit.choose(near)
            return
        self._remember()
        visit.try_to(lambda: visit.view.with_start(y, x))

    def undo(self) -> None:
        """Take back the last orbit, cloud or clearing; then the orbits of the link."""
        visit = self.visit
        if self._undone:
            last = self._undone.pop()
            visit.try_to(lambda: replace(visit.view, starts=last.starts, puff=last.puff))
        elif visit.view.starts:
            visit.try_to(visit.view.without_last)

    def zoom_to(self, window: Window) -> None:
        """Look at another window; the former one is kept for the way back."""
        visit = self.visit
        if window != visit.view.window:
            self._windows = [*self._windows, visit.view.window][-_MOST_WINDOWS:]
            visit.try_to(lambda: replace(visit.view, window=window))

    def zoom_back(self) -> None:
        """The window before, or the usual one."""
        window = self._windows.pop() if self._windows else self.visit.view.usual_window
        self.visit.try_to(lambda: replace(self.visit.view, window=window))

    def closer(self, y: float, x: float) -> None:
        """A window of half the size around a point."""
        x_low, x_high, y_low, y_high = self.visit.view.window
        half = (x_high - x_low) / 4, (y_high - y_low) / 4
        self._zoom_within([x - half[0], x + half[0], y - half[1], y + half[1]])

    def throw(self, y: float, x: float) -> None:
        """The cloud around a point, as wide as before."""
        puff, window = self.visit.view.puff, self.visit.view.window
        self._remember()
        self._puff(Puff(y, x, puff.sigma if puff else (window.x_high - window.x_low) / 20))

    def spread(self, factor: float) -> None:
        """The cloud so many times as wide."""
        puff = self.visit.view.puff
        if puff is not None:
            self._remember()
            self._puff(puff._replace(sigma=puff.sigma * factor))

    def _remember(self) -> None:
        self._undone = [*self._undone, self.visit.view][-_MOST_UNDONE:]

    def _tapped(self, event: Tap | PressUp) -> None:
        """A click, once it is sure that it is no half of a double click."""
        if event.x is None or event.y is None:
            return
        y, x = float(event.y), float(event.x)

        def begin() -> None:
            self._click, before = None, self.visit.view
            self.start(y, x)
            self._clicked = self.visit.view if self.visit.view != before else None

        self._forget_click()
        self._clicked = None
        self._click = self.visit.document.add_timeout_callback(begin, _DOUBLE)

    def _forget_click(self) -> None:
        if self._click is not None:
            with suppress(ValueError):
                self.visit.document.remove_timeout_callback(self._click)
            self._click = None

    def _double_tapped(self, _event: DoubleTap) -> None:
        self._forget_click()
        if self._clicked is not None and self._clicked == self.visit.view:
            self.undo()  # while the server was busy the first half was taken for a click
        self._clicked = None
        self.zoom_back()

    def _ranges_moved(self, event: RangesUpdate) -> None:
        """A zoom by box or wheel has ended."""
        sides = (event.x0, event.x1, event.y0, event.y1)
        if not all(isinstance(side, (int, float)) and math.isfinite(side) for side in sides):
            return
        self._zoom_within([float(side) for side in sides])

    def _zoom_within(self, sides: list[float]) -> None:
        bounded = _rounded([min(max(side, -FARTHEST), FARTHEST) for side in sides])
        self.zoom_to(Window(*bounded))
        if self.visit.view.window != Window(*bounded):  # refused: put the axes back
            self.visit.plane.show_window(self.visit.view.window)

    @property
    def throws(self) -> bool:
        """Whether a drag throws a cloud."""
        return self.visit.controls.drag.active == CLOUD

    def _pan_start(self, event: PanStart) -> None:
        """A drag begins: inside the ring it moves the cloud, elsewhere it makes a new one."""
        if not self.throws or event.x is None or event.y is None:
            return
        self._remember()
        puff, y, x = self.visit.view.puff, float(event.y), float(event.x)
        inside = puff is not None and (y - puff.y) ** 2 + (x - puff.x) ** 2 < 4 * puff.sigma**2
        self._grip = (puff.y - y, puff.x - x) if inside and puff is not None else None
        if self._grip is None:
            side = self.visit.view.window.x_high - self.visit.view.window.x_low
            self._puff(Puff(y, x, max(side / 200, NARROWEST)))

    def _pan(self, event: Pan) -> None:
        puff = self.visit.view.puff
        if not self.throws or event.x is None or event.y is None or puff is None:
            return
        y, x = float(event.y), float(event.x)
        if self._grip is not None:
            self._puff(Puff(y + self._grip[0], x + self._grip[1], puff.sigma))
        else:
            reach = ((y - puff.y) ** 2 + (x - puff.x) ** 2) ** 0.5
            self._puff(Puff(puff.y, puff.x, max(reach / 2, NARROWEST)))

    def _pan_end(self, event: PanEnd) -> None:
        self._grip = None

    def _puff(self, puff: Puff) -> None:
        sigma = max(float(f"{puff.sigma:.3g}"), NARROWEST)
        puff = Puff(round(puff.y, 4), round(puff.x, 4), sigma)
        self.visit.try_to(lambda: replace(self.visit.view, puff=puff))

    def _clear(self) -> None:
        self._remember()
        self.visit.try_to(lambda: replace(self.visit.view, starts=(), puff=None))

    def _typed(self) -> None:
        """A start written as two numbers, the horizontal one first."""
        words = str(self.visit.controls.place.value)[:60].replace(";", ",").split(",")
        try:
            x, y = (float(word) for word in words)
            start = Start(y, x)
        except ValueError:
            view = self.visit.view
            self.visit.say_problem(
                f"Write a start as two numbers, {view.x} and {view.y}, like -1.2, 0.5"
            )
            return
        with suppress(InputError):
            self.start(*start)


def _rounded(sides: list[float]) -> list[float]:
    """A window's sides to a thousandth of it, so that links and commands stay short."""
    least = min(sides[1] - sides[0], sides[3] - sides[2])
    digits = 3 - math.floor(math.log10(least)) if least > 0 else 12
    return [round(side, digits) for side in sides]
