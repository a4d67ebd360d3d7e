"""The boundary of the basins between the cells of the plane, where no closed form has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

from flowsim.explorer.plane_layers import (
    Cells,
    Stop,
    centres,
    ends_of,
    followed,
    landscape,
    levels,
    refined,
)
from flowsim.explorer.view import View
from flowsim.labels import Label
from flowsim.portraits.in_plane import HALVINGS, with_boundary
from flowsim.records.netcdf import flags

#: Halvings of an edge within a slider's move, between cells of the coarsest level and others.
_FIRST, _QUICK = 2, 4

#: y and x along a curve, NaN where it is not drawn.
Curve = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Border:
    """Curves around the basin of the global minima, or around all, each (y, x) along it.

    Attributes:
        basins: towards trapped or unresolved starts, or between ends that were found.
        saddles: towards starts that end in a saddle.
        within: how far a point may be from the boundary along the edge on which it lies, in parts
            of a cell.
    """

    basins: tuple[Curve, ...] = ()
    saddles: tuple[Curve, ...] = ()
    within: float = 0.0


#: One part of what a plane shows.
Layer = Cells | Border | xr.Dataset


class _StoppedEarlyError(Exception):
    """Nobody waits for the line any more."""


def has_border(view: View) -> bool:
    """Whether the view's boundary is found numerically, for want of a closed form."""
    return view.model.basin(torch.zeros(1, len(view.model.coordinates))) is None


def border(view: View, cells: Cells, stop: Stop) -> Border | None:
    """The boundary between labelled cells, each point by bisection; None if stopped.

    Between cells that are still to be refined edges are halved fewer times.
    """

    def label(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        found = followed(view, y, x, stop)
        if found is None:
            raise _StoppedEarlyError
        return found

    y, x = centres(view, cells.label.shape[0])
    halvings = HALVINGS if cells.final else _FIRST if len(y) == levels(view)[0] else _QUICK
    ends, names = ends_of(view), (view.y, view.x)
    record = xr.Dataset(
        {"label": (names, cells.label, flags(ends.names))},
        dict(zip(names, (y, x), strict=True)),
        {} if ends.named else {"ends": "found"},
    )
    try:
        record = with_boundary(record, label, halvings)
    except _StoppedEarlyError:
        return None
    if "boundary_curve" not in record:
        return Border(within=0.5**halvings)
    columns = (*names, "curve", "side")
    y, x, curve, side = (record[f"boundary_{name}"].to_numpy() for name in columns)
    unstable = (side == Label.SADDLE) & ends.named
    parts = [np.flatnonzero(curve == number) for number in np.unique(curve)]
    both = [tuple(_curves(y, x, parts, on)) for on in (_and_beside(~unstable, curve), unstable)]
    return Border(both[0], both[1], 0.5**halvings)


def _and_beside(on: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """The points that are on and their neighbours along the same curve, so that none is cut off."""
    joined = curve[1:] == curve[:-1]
    found = on.copy()
    found[1:] |= on[:-1] & joined
    found[:-1] |= on[1:] & joined
    return found


def _curves(
    y: np.ndarray, x: np.ndarray, parts: list[np.ndarray], on: np.ndarray
) -> Iterator[Curve]:
    """The curves, NaN where they are not on, but for those that are so nowhere."""
    for part in parts:
        if on[part].any():
            yield np.where(on, y, np.nan)[part], np.where(on, x, np.nan)[part]


def at_rest(view: View, stop: Stop, first: Cells | None = None) -> Iterator[Layer]:
    """What a plane shows once its sliders rest, from coarse to fine: cells, border, landscape.

    Args:
        view: what is looked at.
        stop: ends it early.
        first: cells that are shown already, whose border comes first, and finer ones then.
    """
    numerical = has_border(view)
    if first is not None:
        line = border(view, first, stop)
        if line is not None:
            yield line
    if not stop():
        yield landscape(view, fine=True)
    for cells in refined(view, stop, 0 if first is None else len(first.label)):
        yield cells
        line = border(view, cells, stop) if numerical else None
        if line is not None:
            yield line
