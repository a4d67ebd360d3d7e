"""Distance from starts to the nearest place with another end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.boundary.edges import (
    Window,
    bisected_edges,
    explains,
    manifold_edges,
    nearest_on,
)
from flowsim.boundary.geometry import find_crossings
from flowsim.errors import InputError
from flowsim.flow.options import accepts_starts
from flowsim.flow.orbits import find_limits
from flowsim.flow.solver import solver_of
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.landscape.ends import Ends

#: Nodes in which other ends are sought: along each of one or two axes, and in all of more.
_ALONG, _NODES = {1: 256, 2: 64}, 4096
#: Error per step near the boundary, where the flow is followed in torch.
_RTOL = 1e-9
#: Halvings of a lattice's edge, by compiled engines and by the others; and of a probe beside the
#: boundary. Other brackets are halved to this part of the window.
_HALVINGS, _PROBE, _EXACT = (22, 12), 10, 3e-8
#: Labels at once that take an engine which follows many rows together about as long as a few.
_TOGETHER = 400
#: Steps of the descent, its first length in cells, and what it is divided by without success.
_STEPS, _FIRST, _SHORTER = {1: 0, 2: 2}, 0.25, 8.0
#: Nearest nodes with another end towards which it is bisected, in more than two coordinates.
_NEAREST = 6
#: Labels of no basin.
_NONE = (Label.UNRESOLVED, Label.SADDLE)


class EdgeDistance(NamedTuple):
    """Distances of starts to the nearest place with another end.

    Attributes:
        distance: Euclidean, in the coordinates that may change, (n,); NaN of a start without an
            end, infinite if all ends within the window are one.
        nearest: that place on the boundary, (n, k); NaN where there is none.
        is_bound: whether a nearer place may exist: with more than two coordinates the distance is
            an upper bound.
    """

    distance: Any
    nearest: Any
    is_bound: bool

    def numpy(self) -> EdgeDistance:
        """The same with arrays."""
        return EdgeDistance(self.distance.numpy(), self.nearest.numpy(), self.is_bound)


@accepts_starts
def edge_distance(model: Model, starts: Numbers, within: Mapping[str, Window] | None = None) -> Any:
    """How far each start is from the nearest place whose trajectory ends elsewhere.

    In one or two coordinates all boundaries in the window are found: in two smooth coordinates as
    stable manifolds of saddles, if these explain every change of end between 64² nodes; else by
    bisection between nodes, then by a descent along the boundary. In more coordinates it is
    bisected towards the nearest nodes with another end and descended from the best: an upper bound.
    A place that ends in a saddle belongs to no basin.

    Args:
        model: any reduced model.
        starts: shape (n, k).
        within: ranges of the coordinates that may change, by name; the others stay as they are in
            each start. By default the window of the model's plane, and (−3, 3) of others.

    Returns:
        ``EdgeDistance``, of tensors if ``starts`` is one, else of arrays. Where it is no bound and
        the boundary is smooth, the error is about 3e-8 of the window.

    Raises:
        InputError: starts of a wrong shape, or names in ``within`` that are no coordinates.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> found = flowsim.boundary.edge_distance(model, [[0.8, -0.4], [1.5, 0.5]])
    >>> found.distance.round(6), found.is_bound
    (array([0.146576, 0.541004]), False)
    """
    assert isinstance(starts, Tensor)
    names = model.coordinates
    usual = model.plane.window if len(names) > 1 else {}
    window = dict(within or {name: usual.get(name, (-3.0, 3.0)) for name in names})
    for name, (low, high) in window.items():
        if name not in names or not low < high:
            raise InputError(f"within takes LOW < HIGH of {', '.join(names)}, not {name}")
    free = [names.index(name) for name in window]
    theta = starts.reshape(-1, len(names))
    held = [i for i in range(len(names)) if i not in free]
    distance, nearest = torch.full((len(theta),), torch.nan).to(theta), theta * torch.nan
    apart = torch.nn.functional.pad(theta[:, held], (0, 1))
    slices, which = torch.unique(apart, dim=0, return_inverse=True)
    for i in range(len(slices)):
        rows = (which == i).nonzero()[:, 0]
        search = _Search(model, theta[rows[0]], free, list(window.values()))
        found = search.distances(theta[rows][:, free].numpy())
        place = theta[rows].clone()
        place[:, free] = torch.from_numpy(found)
        distance[rows] = (place - theta[rows]).norm(dim=1)
        lost = ~place.isfinite().all(1)
        known = torch.from_numpy(search.own > 0)
        distance[rows[lost & known]] = torch.inf
        nearest[rows] = torch.where(lost[:, None], torch.nan, place)
    lead = starts.shape[:-1]
    return EdgeDistance(distance.reshape(lead), nearest.reshape(starts.shape), len(free) > 2)


class _Search:
    """Search of a window for ends other than those of starts.

    Args:
        model: the model.
        base: a start, whose other coordinates are kept, (k,).
        free: numbers of the coordinates that change.
        window: their ranges.
    """

    def __init__(
        self, model: Model, base: Tensor, free: list[int], window: Sequence[Window]
    ) -> None:
        self.model, self.base, self.free, self.window = model, base, free, window
        self.ends, self.own = Ends(model), np.zeros(0, int)
        self.batched = solver_of(model).batched
        d = len(free)
        count = _ALONG.get(d, max(int(_NODES ** (1 / d)), 2))
        self.axes = [np.linspace(low, high, count) for low, high in window]
        self.cell = np.array([(high - low) / (count - 1) for low, high in window])

    def label(self, points: np.ndarray, exact: bool = True) -> np.ndarray:
        """Codes of the ends of points (m, d); −1 of those in no basin."""
        theta = self.base.repeat(len(points), 1)
        theta[:, self.free] = torch.from_numpy(points)
        found = find_limits(self.model, theta, _RTOL if exact and self.batched else None)
        codes = self.ends.codes(found.label, found.theta, found.loss).numpy()
        return np.where(np.isin(found.label.numpy(), _NONE), -1, codes)

    def distances(self, starts: np.ndarray) -> np.ndarray:
        """The nearest places with another end, (n, d); NaN where there is none."""
        mesh = np.meshgrid(*self.axes, indexing="ij")
        nodes = np.stack([side.ravel() for side in mesh], axis=1)
        codes = self.label(nodes, exact=False)
        self.own = self.label(starts)
        if len(self.free) != 2:
            return self._descended(starts, self._towards(starts, nodes, codes))
        lattice = codes.reshape(mesh[0].shape)
        # where levels are named, critical points form curves
        if len(self.model.coordinates) == 2 and not self.ends.named:
            box = {self.model.coordinates[j]: self.window[i] for i, j in enumerate(self.free)}
            edges = manifold_edges(self.model, box, self.label, self.free)
            if explains(edges, self.axes, lattice):
                return nearest_on(edges, starts, self.own)
        edges = bisected_edges(self.label, self.axes, lattice, _HALVINGS[self.batched])
        return self._descended(starts, nearest_on(edges, starts, self.own))

    def _towards(self, starts: np.ndarray, nodes: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The nearest of the boundary points towards the nearest nodes with another end."""
        best = np.full(starts.shape, np.nan)
        for own in np.unique(self.own[self.own > 0]):
            rows, others = self.own == own, nodes[(codes != own) & (codes > 0)]
            if not len(others):
                continue
            count = min(_NEAREST, len(others))
            _, near = cKDTree(others).query(starts[rows], [*range(1, count + 1)])
            inner = np.repeat(starts[rows], count, axis=0)
            found = self._ray(inner, others[near.ravel()], np.full(len(inner), own))
            found = found.reshape(-1, count, starts.shape[1])
            away = np.linalg.norm(found - starts[rows][:, None], axis=2)
            best[rows] = found[np.arange(len(found)), away.argmin(1)]
        return best

    def _ray(
        self, inner: np.ndarray, outer: np.ndarray, own: np.ndarray, halvings: int = 0
    ) -> np.ndarray:
        """Places on the ways to others where the end changes."""
        size = _EXACT * max(high - low for low, high in self.window)
        longest = float(np.linalg.norm(outer - inner, axis=1).max(initial=0.0))
        halvings = halvings or max(int(np.ceil(np.log2(max(longest, size) / size))), 1)
        ahead = int(np.log2(_TOGETHER / max(len(inner), 1)).clip(1, 6)) if self.batched else 1
        return find_crossings(self.label, inner, outer, halvings, ahead, own).along(inner, outer)

    def _descended(self, starts: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Boundary points (n, d) that were moved along the boundary to where they are nearest.

        In the frame of the way from the start, the boundary's height over its tangents is probed to
        both sides; Newton's step on the distance follows, and a bisection along the new way.
        """
        rows = np.flatnonzero(np.isfinite(found).all(1))
        start, place, own = starts[rows], found[rows], self.own[rows]
        step = np.full(len(rows), _FIRST) * self.cell.min()
        for i in range(_STEPS.get(starts.shape[1], 4) if len(rows) else 0):
            if i == 0:  # a bracket around what may be interpolated
                place = self._on_way(start, place, 1e-2 * step, own)
            away = np.linalg.norm(place - start, axis=1)
            step = np.minimum(step, away)
            moved = self._moved(start, place, own, step)
            trial = self._on_way(start, moved, step, own)
            nearer = np.linalg.norm(trial - start, axis=1) < away
            place = np.where(nearer[:, None], trial, place)
            step = np.where(nearer, step / 2, step / _SHORTER)
        result = found.copy()
        result[rows] = place
        return result

    def _on_way(
        self, start: np.ndarray, place: np.ndarray, width: np.ndarray, own: np.ndarray
    ) -> np.ndarray:
        """The boundary's crossing with the way to a place, near it or before it; NaN without."""
        away = np.linalg.norm(place - start, axis=1)
        part = np.stack([1 - np.minimum(width / away, 0.5), 1 + width / away])
        ends = start + part[..., None] * (place - start)
        codes = self.label(ends.reshape(-1, start.shape[1])).reshape(2, -1)
        inside, outside = codes[0] == own, (codes[1] != own) & (codes[1] > 0)
        inner = np.where(inside[:, None], ends[0], start)
        outer = np.where(inside[:, None], ends[1], ends[0])
        crossed = self._ray(inner, outer, own)
        there = (inside & outside) | (~inside & (codes[0] > 0))
        return np.where(there[:, None], crossed, np.nan)

    def _moved(
        self, start: np.ndarray, place: np.ndarray, own: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        """The nearest places of the quadratic boundary through probes beside a point on it."""
        n, d = start.shape
        away = np.linalg.norm(place - start, axis=1)
        normal = (place - start) / away[:, None]
        frame = np.concatenate([normal[:, :, None], np.broadcast_to(np.eye(d), (n, d, d))], 2)
        tangents = np.linalg.qr(frame)[0][:, :, 1:].transpose(2, 0, 1)
        beside = np.stack([place + sign * step[:, None] * tangents for sign in (1, -1)])
        inner, outer = (beside + sign * (step[:, None] * normal) for sign in (-1, 1))
        codes = self.label(np.stack([inner, outer]).reshape(-1, d)).reshape(2, *beside.shape[:3])
        crossed = (codes[0] == own) & (codes[1] != own) & (codes[1] > 0)
        owns = np.broadcast_to(own, crossed.shape)
        found = beside.copy()
        found[crossed] = self._ray(inner[crossed], outer[crossed], owns[crossed], _PROBE)
        height = np.where(crossed, ((found - beside) * normal).sum(-1), np.nan)
        slope = np.nan_to_num((height[0] - height[1]) / (2 * step))
        bend = np.nan_to_num((height[0] + height[1]) / step**2)
        steep = 1 + slope**2 + away * bend
        along = np.where(
            steep > 0.1, -away * slope / np.maximum(steep, 0.1), -step * np.sign(slope)
        )
        along = np.clip(along, -2 * step, 2 * step)
        rise = (slope * along + bend * along**2 / 2).sum(0)
        moved: np.ndarray = place + (along[..., None] * tangents).sum(0) + rise[:, None] * normal
        return moved
