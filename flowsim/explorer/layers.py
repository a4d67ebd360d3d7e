"""Layers of the plane: labelled cells, coarse and fine, the border of basins, and curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from threading import Lock
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr

from flowsim.curves import curves_of
from flowsim.drawing.boundary_lines import boundary_pieces
from flowsim.explorer.view import CELLS_AT_ONCE, Stop, Stopped, View
from flowsim.flow.options import Limits
from flowsim.flow.orbits import find_limits
from flowsim.flow.solver import solver_of
from flowsim.interface import Model, closed_basin, theta_at, theta_on_grid
from flowsim.labels import Label
from flowsim.landscape.ends import Ends
from flowsim.portraits.in_plane import HALVINGS, in_plane, with_boundary, with_landscape
from flowsim.portraits.phase_curves import nullclines
from flowsim.records.netcdf import flags
from flowsim.scan.starts import cell_centres

#: The code of a cell that is not decided yet, beside those of ends.
UNKNOWN = -1
#: Starts a side from which the ends of a model that names none are found.
_LOOK = 12
#: Cells a side that are decided by the closed form within a slider's move.
_CLOSED = 128
#: Seconds of one call of an engine, which lets nothing else run meanwhile, and its first starts.
_SLICE, _FIRST = 0.008, 8
#: Starts of one call where all rows of a call are followed together.
_TOGETHER = 1024
#: Points of curves and arrows a side, while a slider moves and at rest.
_QUICK, _FINE = (241, 15), (601, 19)

#: Held while the ends of a model are looked up, so that two threads get the same.
_ONE = Lock()


@dataclass(frozen=True)
class Cells:
    """The end of every cell of the window: codes of ``ends_of`` or ``UNKNOWN``, axes (y, x).

    ``decided_by`` is "closed form", "flow" or ""; ``final`` says that no finer cells follow.
    """

    label: np.ndarray
    decided_by: str
    final: bool = False

    def shares(self, names: Sequence[str]) -> dict[str, float]:
        """The share of every end among the decided cells, by the names of their codes."""
        known = self.label[self.label != UNKNOWN]
        found = {name: float((known == code).mean()) for code, name in enumerate(names)
                 if (known == code).any()}  # fmt: skip
        return dict(sorted(found.items(), key=lambda item: item[0] == "unresolved"))


class KnownEnds:
    """The ends that orbits of a model can have, with the same codes on all pages.

    The ends of a model that names none are found by following starts. A code is an index of
    ``names``; ``captions`` describes found ends by name.
    """

    def __init__(self, model: Model) -> None:
        self._lock, self._ends = Lock(), Ends(model)
        self.named, self.names = self._ends.named, self._ends.names
        self.captions: dict[str, str] = {}

    def identify(self, limits: Limits) -> np.ndarray:
        """Return the code of the end that each of n limits is, (n,)."""
        ends = self._ends
        with self._lock:
            if not self.named and not ends.found:
                plane = ends.model.plane
                x, y = (cell_centres(*plane.window[name], _LOOK) for name in (plane.x, plane.y))
                first = find_limits(ends.model, theta_on_grid(plane, x, y, {}).flatten(0, 1))
                ends.identify(first)
            found: np.ndarray = ends.identify(limits).numpy()
            self.captions = {x.name: x.caption(ends.model.coordinates) for x in ends.found}
            self.names = ends.names
            return found


_known_ends = lru_cache(maxsize=64)(KnownEnds)


def ends_of(view: View) -> KnownEnds:
    """Return the ends of the view's model, to which the codes of its cells refer."""
    with _ONE:
        return _known_ends(view.model)


def resolutions(view: View) -> tuple[int, ...]:
    """Cells a side, from coarse to fine, that the flow decides once the sliders rest."""
    defaults = solver_of(view.model).defaults
    if view.at_once:
        return (defaults.resolution,)
    return (6, 16, 32, 64) if 64**2 * defaults.cost < 10 else (4, 8, 16, 32)


def cells_at_once(view: View) -> Cells:
    """Return labels that are ready while a slider moves, all unknown for a slow model.

    They are by a closed form or a quick flow.
    """
    model = view.model
    y, x = centres(view, _CLOSED)
    inside = closed_basin(model, theta_on_grid(model.plane, x, y, view.fixed_values))
    if inside is not None:
        outside = np.int8(Label.LOCAL_MINIMUM)
        label = np.where(inside.numpy(), np.int8(Label.GLOBAL_MINIMUM), outside)
        label[y == 0] = UNKNOWN  # starts that never move are no basin's
        return Cells(label, "closed form")
    if view.at_once:
        y, x = centres(view, CELLS_AT_ONCE)
        theta = theta_on_grid(model.plane, x, y, view.fixed_values).flatten(0, 1)
        label = ends_of(view).identify(find_limits(model, theta))
        return Cells(label.reshape(CELLS_AT_ONCE, CELLS_AT_ONCE), "flow")
    return Cells(np.full((2, 2), UNKNOWN, np.int8), "")


def refined(view: View, stop: Stop, beyond: int = 0) -> Iterator[Cells]:
    """Yield ever finer labels by the flow, of more than ``beyond`` cells a side.

    Raises ``Stopped``.
    """
    sizes = resolutions(view)
    for size in (size for size in sizes if size > beyond):
        y, x = (v.ravel() for v in np.meshgrid(*centres(view, size), indexing="ij"))
        label = followed(view, y, x, stop).reshape(size, size)
        yield Cells(label, "flow", final=size == sizes[-1])


def first_look(view: View, stop: Stop) -> Iterator[Cells | xr.Dataset]:
    """Yield the coarsest of the labels that the flow decides, and then the curves."""
    yield from islice(refined(view, stop), 1)
    if not stop():
        yield landscape(view, fine=False)


def followed(view: View, y: np.ndarray, x: np.ndarray, stop: Stop) -> np.ndarray:
    """Follow starts at y and x, (n,) each, and return the codes of their ends, (n,).

    One of two mirror images is followed. Raises ``Stopped``.
    """
    model = view.model
    mirrored = model.plane.mirrored(view.fixed_values)
    place = np.round(np.abs(y) if mirrored else y, 12) + 1j * np.round(x, 12)
    _, first, back = np.unique(place, return_index=True, return_inverse=True)
    one_y, one_x = (torch.from_numpy(np.ascontiguousarray(v[first])) for v in (y, x))
    rows, ends = theta_at(model.plane, one_x, one_y, view.fixed_values), ends_of(view)
    parts: list[np.ndarray] = []
    together = solver_of(model).batched
    done, count = 0, _TOGETHER if together else _FIRST
    while done < len(rows):
        if stop():
            raise Stopped
        began = perf_counter()
        parts.append(ends.identify(find_limits(model, rows[done : done + count])))
        done += count
        took = max(perf_counter() - began, 1e-6)
        count = count if together else max(1, min(int(count * min(_SLICE / took, 8.0)), 8192))
    return np.concatenate(parts)[back] if parts else np.empty(0, np.int8)


def centres(view: View, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres of size × size cells of the window: along y, (size,), and along x."""
    x_low, x_high, y_low, y_high = view.window
    return cell_centres(y_low, y_high, size), cell_centres(x_low, x_high, size)


def landscape(view: View, fine: bool) -> xr.Dataset:
    """Return a record with the curves and arrows of the window.

    Unless ``fine``, what is slow to find is left out.
    """
    x_low, x_high, y_low, y_high = view.window
    points, arrows = _FINE if fine else _QUICK
    plane = view.model.plane
    window = {plane.x: (x_low, x_high), plane.y: (y_low, y_high)}
    held = view.fixed_values
    record = with_landscape(xr.Dataset(), plane, window, held, points, arrows, quick=not fine)
    if view.nullclines and fine:
        curves = [*nullclines(plane, window, held), *curves_of(record, plane.x, plane.y)]
        record = in_plane(record, plane, curves)
    return record


def runs(on: np.ndarray) -> np.ndarray:
    """Return the runs of true cells along each row of a mask (rows, columns).

    Each is (row, first column, column after the last) in an array (n, 3).
    """
    padded = np.zeros((on.shape[0], on.shape[1] + 2), np.int8)
    padded[:, 1:-1] = on
    change = np.diff(padded, axis=1)
    rows, first = np.nonzero(change == 1)
    _, end = np.nonzero(change == -1)
    return np.stack([rows, first, end], axis=1)


def warm(view: View) -> None:
    """Follow one orbit, so that its engine is compiled before anybody waits for it."""
    y, x = torch.tensor([0.7]).double(), torch.tensor([-1.1]).double()
    find_limits(view.model, theta_at(view.model.plane, x, y, view.fixed_values))


#: Halvings of an edge within a slider's move, between cells of the coarsest level and others.
_ROUGH, _FINER = 2, 4


class Border(NamedTuple):
    """Boundaries as straight pieces (n, 2, 2): number, first and last point, (y, x).

    ``basins`` are around basins, ``saddles`` beside starts that end in a saddle.
    """

    basins: np.ndarray = np.empty((0, 2, 2))
    saddles: np.ndarray = np.empty((0, 2, 2))


#: One part of what a plane shows.
Layer = Cells | Border | xr.Dataset


def has_border(view: View) -> bool:
    """Return whether the view's boundary is found numerically, for lack of a closed form."""
    return closed_basin(view.model, torch.zeros(1, len(view.model.coordinates))) is None


def border(view: View, cells: Cells, stop: Stop) -> Border:
    """Return the boundary between labelled cells, each point by bisection; raise ``Stopped``."""
    y, x = centres(view, cells.label.shape[0])
    halvings = HALVINGS if cells.final else _ROUGH if len(y) == resolutions(view)[0] else _FINER
    ends, names = ends_of(view), (view.y, view.x)
    record = xr.Dataset(
        {"label": (names, cells.label, flags(ends.names, cells.label.dtype))},
        dict(zip(names, (y, x), strict=True)),
        {} if ends.named else {"ends": "found"},
    )
    record = with_boundary(record, view.model, lambda y, x: followed(view, y, x, stop), halvings)
    if "boundary_curve" not in record:
        return Border()
    points, pieces, beside = boundary_pieces(record, names)
    return Border(points[pieces[~beside]], points[pieces[beside]])


def at_rest(view: View, stop: Stop, first: Cells | None = None) -> Iterator[Layer]:
    """Yield all layers of a plane once its sliders rest, its labels from coarse to fine.

    ``first`` are labels that are drawn already.
    """
    if first is not None:
        yield border(view, first, stop)
    if not stop():
        yield landscape(view, fine=True)
    for cells in refined(view, stop, 0 if first is None else len(first.label)):
        yield cells
        if has_border(view):
            yield border(view, cells, stop)
