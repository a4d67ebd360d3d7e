"""What the plane shows: labels of cells, coarse and at once or fine and later, and its curves.

Every label is decided by the flow from the middle of its cell, or by the closed form where the
model has one; cells that are not decided yet carry ``UNKNOWN`` and never a neighbour's label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from time import perf_counter

import numpy as np
import torch
import xarray as xr

from flowsim.explorer.view import View
from flowsim.flow.limits import find_limits
from flowsim.landscape.basins import analytic_basin
from flowsim.landscape.labels import Label
from flowsim.models.rank_one import RankOneModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.portraits.curves import with_landscape
from flowsim.portraits.starts_in_plane import grid_starts, plane_starts
from flowsim.scan.starts import cell_centres

#: The code of a cell that is not decided yet, beside those of ``Label``.
UNKNOWN = len(Label)
#: Cells a side that are decided by the closed form, or by the flow within a slider's move.
_CLOSED, _AT_ONCE = 128, 40
#: Seconds of one call of an engine, which lets nothing else run meanwhile, and its first starts.
_SLICE, _FIRST = 0.008, 8
#: Points of curves and arrows a side, while a slider moves and at rest.
_QUICK, _FINE = (241, 15), (601, 19)

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Cells:
    """Labels of a grid of cells.

    Attributes:
        label: int8, axes (e, w), codes of ``Label`` or ``UNKNOWN``.
        how: "closed form", "flow", or "" while nothing is known.
        final: whether these are the finest that the page computes.
    """

    label: np.ndarray
    how: str
    final: bool = False

    @property
    def shares(self) -> dict[str, float]:
        """The share of every label among the decided cells, by name."""
        known = self.label[self.label != UNKNOWN]
        return {x.name.lower(): float((known == x).mean()) for x in Label if (known == x).any()}


def levels(view: View) -> tuple[int, ...]:
    """Cells a side, from coarse to fine, that the flow decides once the sliders rest."""
    model = view.model
    if model.loss_of_gap:
        return (208,)
    if isinstance(model, RankOneModel) and model.attention:
        return (4, 8, 16, 32)  # an orbit takes four times as long as elsewhere
    return (6, 16, 32, 64)


def cells_at_once(view: View) -> Cells:
    """What can be shown within a slider's move: exact labels, or none."""
    model, oracle = view.model, analytic_basin(view.model)
    if oracle is not None:
        e, w = centres(view, _CLOSED)
        inside = oracle(grid_starts(model, e, w, view.held)).numpy()
        outside = np.int8(Label.LOCAL_MINIMUM)
        label = np.where(inside, np.int8(Label.GLOBAL_MINIMUM), outside)
        label[e == 0] = UNKNOWN  # starts that never move are no basin's
        return Cells(label, "closed form")
    if model.loss_of_gap:
        e, w = centres(view, _AT_ONCE)
        theta = grid_starts(model, e, w, view.held)
        return Cells(find_limits(model, theta).label.numpy(), "flow")
    return Cells(np.full((2, 2), UNKNOWN, np.int8), "")


def refined(view: View, stop: Stop, beyond: int = 0) -> Iterator[Cells]:
    """Ever finer labels by the flow; ends early once ``stop`` says so.

    Each call of an engine is kept short, so that pages and sliders stay quick meanwhile. Only
    levels of more than ``beyond`` cells a side are computed.
    """
    sizes = levels(view)
    for size in (size for size in sizes if size > beyond):
        e, w = (x.ravel() for x in np.meshgrid(*centres(view, size), indexing="ij"))
        label = followed(view, e, w, stop)
        if label is None:
            return
        yield Cells(label.reshape(size, size), "flow", final=size == sizes[-1])


def first_look(view: View, stop: Stop) -> Iterator[Cells | xr.Dataset]:
    """The coarsest of the labels that the flow decides, and then the curves."""
    yield from islice(refined(view, stop), 1)
    if not stop():
        yield landscape(view, fine=False)


def followed(view: View, e: np.ndarray, w: np.ndarray, stop: Stop) -> np.ndarray | None:
    """Labels of starts, each array (n,), by the flow; None if stopped.

    Starts at e and −e have mirrored orbits, unless the unembedding is held, and are followed once.
    """
    model = view.model
    mirrored = "u" not in view.held
    place = np.round(np.abs(e) if mirrored else e, 12) + 1j * np.round(w, 12)
    _, first, back = np.unique(place, return_index=True, return_inverse=True)
    one_e, one_w = (torch.from_numpy(np.ascontiguousarray(x[first])) for x in (e, w))
    rows = plane_starts(model, one_e, one_w, view.held)
    parts: list[np.ndarray] = []
    done, count = 0, _FIRST
    while done < len(rows):
        if stop():
            return None
        began = perf_counter()
        parts.append(find_limits(model, rows[done : done + count]).label.numpy())
        done += count
        took = max(perf_counter() - began, 1e-6)
        count = max(1, min(int(count * min(_SLICE / took, 8.0)), 8192))
    return np.concatenate(parts)[back] if parts else np.empty(0, np.int8)


def centres(view: View, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The middles of the window's cells along e and along w."""
    w_low, w_high, e_low, e_high = view.window
    return cell_centres(e_low, e_high, size), cell_centres(w_low, w_high, size)


def landscape(view: View, fine: bool, line: bool = True) -> xr.Dataset:
    """Separatrix, minima, critical line, saddles and arrows of the window, as ``with_landscape``.

    Args:
        view: what is looked at.
        fine: with more points and arrows; what is not fine leaves out the critical line and the
            saddles where they are slow to find.
        line: find the critical line and the saddles.
    """
    w_low, w_high, e_low, e_high = view.window
    points, arrows = _FINE if fine else _QUICK
    model = view.model
    slow = isinstance(model, AttentionModel) or (
        isinstance(model, RankOneModel) and model.attention
    )
    critical = line and (fine or not slow)
    sides = (w_low, w_high), (e_low, e_high)
    record = xr.Dataset()
    return with_landscape(record, model, *sides, view.held, points, arrows, critical)


def line_key(view: View) -> tuple[object, ...] | None:
    """What the critical line depends on where L = ℓ(Δ): the sign of Δ* alone of the chain.

    None for other models, whose line may move with p and q.
    """
    model = view.model
    if not model.loss_of_gap:
        return None
    value = model.chain.second_eigenvalue
    return view.choice, view.fixed, view.window, (value > 0) - (value < 0)


def runs(on: np.ndarray) -> np.ndarray:
    """Runs of cells that are on along each row of (rows, columns): (n, 3) row, first, end."""
    padded = np.zeros((on.shape[0], on.shape[1] + 2), np.int8)
    padded[:, 1:-1] = on
    change = np.diff(padded, axis=1)
    rows, first = np.nonzero(change == 1)
    _, end = np.nonzero(change == -1)
    return np.stack([rows, first, end], axis=1)


def warm(view: View) -> None:
    """Follow one orbit, so that its engine is compiled before anybody waits for it."""
    e, w = torch.tensor([0.7]).double(), torch.tensor([-1.1]).double()
    theta = plane_starts(view.model, e, w, view.held)
    find_limits(view.model, theta)
