"""Distance from starts to the nearest place with another end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.boundary.edges import (
    bisected_edges,
    crossed_at,
    explains,
    known_edges,
    manifold_edges,
    nearest_on,
)
from flowsim.boundary.geometry import find_crossings
from flowsim.boundary.shooting import Shooting
from flowsim.errors import InputError
from flowsim.flow.options import accepts_starts
from flowsim.flow.orbits import find_limits
from flowsim.flow.solver import solver_of
from flowsim.interface import Model, Range
from flowsim.landscape.ends import Ends

#: Nodes in which other ends are sought: along each of one or two axes, and in all of more.
_ALONG, _NODES = {1: 256, 2: 64}, 4096
#: Brackets around the boundary are halved to this part of the window.
_EXACT = 3e-8
#: Error per step of starts whose side of the boundary is asked.
_ONCE = 1e-9
#: Halvings between places on a line, if the field alone is asked.
_EXACTLY = 50
#: Steps of the descent, its first length in cells, and the divisor of a length that failed.
_STEPS, _FIRST, _SHORTER = 4, 0.25, 8.0
#: Nearest nodes with another end towards which it is bisected, in more than two coordinates.
_NEAREST = 6
#: Saddles are sought so far outside the window, in its widths, if few ends are parted inside.
_BEYOND = 0.5


class EdgeDistance(NamedTuple):
    """Distances of starts to the nearest place whose trajectory ends elsewhere.

    Attributes:
        distance: Euclidean, in the coordinates that may change, (n,); NaN of a start without an
            end, infinite if all ends within the window are one.
        nearest: that place on the boundary, (n, k); NaN without one.
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
def edge_distance(model: Model, starts: Numbers, within: Mapping[str, Range] | None = None) -> Any:
    """Distance of each start from the nearest place whose trajectory ends elsewhere.

    In one or two coordinates all boundaries in the window are found: of a model of one coordinate
    as zeros of its field, which points away from them to both sides; in two smooth coordinates as
    stable manifolds of saddles or as known separatrices, if these explain every change of end
    between 64² nodes; else by bisection between nodes, and between the points found, until a cubic
    through them predicts the next. In more coordinates it is bisected towards the nearest nodes
    with another end and descended from the best: an upper bound.
    A place that ends in a saddle belongs to no basin.

    Args:
        model: any reduced model.
        starts: shape (n, k).
        within: ranges of the coordinates that may change, by name; the others keep the
            values of each start. By default the window of the model's plane, and (−3, 3) of others;
            (−3, 3) too of a model of one coordinate.

    Returns:
        ``EdgeDistance``, of tensors if ``starts`` is one, else of arrays. Where it is no bound and
        the boundary is smooth, the error is about 3e-8 of the window.

    Raises:
        InputError: starts of a wrong shape, or outside the usual window, or names in ``within``
            that are no coordinates.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> found = flowsim.edge_distance(model, [[0.8, -0.4], [1.5, 0.5]])
    >>> found.distance.round(6), found.is_bound
    (array([0.146576, 0.541004]), False)
    """
    assert isinstance(starts, Tensor)
    names = model.coordinates
    window = dict(within or usual_window(model))
    for name, (low, high) in window.items():
        if name not in names or not low < high:
            raise InputError(f"within takes LOW < HIGH of {', '.join(names)}, not {name}")
    free = [names.index(name) for name in window]
    theta = starts.reshape(-1, len(names))
    sides = torch.tensor([*window.values()]).to(theta)
    if not within and bool(((theta < sides[:, 0]) | (theta > sides[:, 1])).any()):
        here = ", ".join(f"{name} = {low:g} to {high:g}" for name, (low, high) in window.items())
        raise InputError(f"starts lie outside the usual window, {here}: say within which to search")
    others = [i for i in range(len(names)) if i not in free]
    distance, nearest = torch.full((len(theta),), torch.nan).to(theta), theta * torch.nan
    apart = torch.nn.functional.pad(theta[:, others], (0, 1))
    slices, which = torch.unique(apart, dim=0, return_inverse=True)
    for i in range(len(slices)):
        rows = (which == i).nonzero()[:, 0]
        base = theta[rows[0]]

        def place(points: Tensor, base: Tensor = base) -> Tensor:
            """All coordinates (m, k) of points (m, d) in the slice through ``base``."""
            lifted = base.repeat(len(points), 1)
            lifted[:, free] = points
            return lifted

        fixed = {names[j]: float(base[j]) for j in others}
        search = Search(model, window, fixed, place)
        found = search.nearest(theta[rows][:, free].numpy())
        lifted = theta[rows].clone()
        lifted[:, free] = torch.from_numpy(found)
        distance[rows] = torch.from_numpy(search.distances)
        nearest[rows] = torch.where(lifted.isfinite().all(1, keepdim=True), lifted, torch.nan)
    lead = starts.shape[:-1]
    return EdgeDistance(distance.reshape(lead), nearest.reshape(starts.shape), len(free) > 2)


def usual_window(model: Model) -> dict[str, Range]:
    """Ranges of all coordinates by name: the window of the model's plane, and (−3, 3) of others.

    A model of one coordinate always gets (−3, 3).
    """
    usual = model.plane.window if len(model.coordinates) > 1 else {}
    return {name: usual.get(name, (-3.0, 3.0)) for name in model.coordinates}


class Search:
    """Finds the nearest place of a window with another end than a start's, for many starts.

    Args:
        model: the model.
        window: ranges of the coordinates that vary, by name.
        fixed: values of the others, by name.
        place: gives all coordinates (m, k) for values (m, d) of those that vary.
        ends: the register of the model's ends; by default an empty one.
        axes, end_codes: a grid whose ends are known, by axis, and their codes; by default a grid is
            followed.

    Attributes:
        start_codes: codes of the starts' ends, (n,).
        distances: of the starts to these places, NaN of a start without an end.
        node_codes: ``end_codes``, or None.
        spacing: largest distance of neighbouring nodes along each axis.
        tolerance: width to which brackets are halved.
    """

    def __init__(
        self, model: Model, window: Mapping[str, Range], fixed: Mapping[str, float],
        place: Callable[[Tensor], Tensor], ends: Ends | None = None,
        axes: Sequence[np.ndarray] | None = None, end_codes: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.model, self.window, self.fixed, self.place = model, window, fixed, place
        self.ends, self.start_codes = ends or Ends(model), np.zeros(0, int)
        self.solver = solver_of(model)
        self.batched = self.solver.batched
        sides = list(window.values())
        count = _ALONG.get(len(sides), max(int(_NODES ** (1 / len(sides))), 2))
        self.axes = [np.linspace(low, high, count) for low, high in sides]
        if axes is not None and min(map(len, axes)) >= count:
            self.axes = [np.concatenate([[low], values, [high]])
                         for (low, high), values in zip(sides, axes, strict=True)]  # fmt: skip
        else:
            end_codes = None
        self.node_codes = end_codes
        self.spacing = np.array([np.diff(values).max() for values in self.axes])
        self.tolerance = _EXACT * max(high - low for low, high in sides)
        self.shooting = None
        if self.batched:
            end_codes_of = partial(self._codes_of, exact=False)
            self.shooting = Shooting(model, place, end_codes_of, float(self.spacing.min()))

    def label(self, points: np.ndarray, exact: bool = True) -> np.ndarray:
        """Codes of the ends of points (m, d), as ``Ends.basins`` gives them; −1 of no basin.

        ``exact``: by smaller errors, and each trajectory followed once.
        """
        return self._codes_of(self.place(torch.from_numpy(points)), exact)

    def _codes_of(self, theta: Tensor, exact: bool = True) -> np.ndarray:
        """``label`` for all coordinates θ (m, k)."""
        rtol = min(_ONCE, self.solver.defaults.rtol) if exact else None
        found = find_limits(self.model, theta, rtol, solver=self.solver, once=exact)
        return self.ends.basins(found.label, found.theta, found.loss).numpy()

    def nearest(self, starts: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        """The nearest places with another end, (n, d); NaN without one.

        Sets ``distances`` and ``start_codes``.

        Args:
            starts: (n, d).
            own: codes of their ends, if they are known.
        """
        mesh = np.meshgrid(*self.axes, indexing="ij")
        nodes = np.stack([side.ravel() for side in mesh], axis=1)
        end_codes = self._codes_of_nodes(nodes, mesh[0].shape)
        self.start_codes = self.label(starts, exact=self.batched) if own is None else own
        found = self._nearest(starts, nodes, end_codes)
        self.distances = np.linalg.norm(found - starts, axis=1)
        self.distances[np.isnan(self.distances) & (self.start_codes > 0)] = np.inf
        return found

    def _codes_of_nodes(self, nodes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The codes of the nodes' ends, in their shape; ``node_codes`` are those known already."""
        if len(self.model.coordinates) == 1:  # neighbours end together unless the field parts them
            field = self._field(nodes)[:, 0]
            parts = (field[1:] > 0) & ~(field[:-1] > 0)
            parts |= np.isnan(field[1:]) != np.isnan(field[:-1])
            first = np.flatnonzero(np.append(True, parts))
            last = np.append(first[1:], len(nodes))
            codes = self.label(nodes[(first + last) // 2], exact=False)
            return np.repeat(codes, last - first)
        if self.node_codes is None:
            return self.label(nodes, exact=False).reshape(shape)
        end_codes = np.pad(self.node_codes, 1)
        rim = np.pad(np.zeros(self.node_codes.shape, bool), 1, constant_values=True)
        end_codes[rim] = self.label(nodes[rim.ravel()], exact=False)
        return end_codes

    def _nearest(self, starts: np.ndarray, nodes: np.ndarray, end_codes: np.ndarray) -> np.ndarray:
        """The nearest places, (n, d), by the codes of the nodes, ``end_codes``.

        On a line, on curves in a plane, or else by descent from what is found towards nodes.
        """
        if len(self.axes) == 1:
            return self._on_line(starts, nodes, end_codes)
        if len(self.axes) > 2:
            return self._descended(starts, self._to_nodes(starts, nodes, end_codes.ravel()))
        edges = known_edges(self.model, self.window, self.fixed, self.label)
        if edges and explains(edges, self.axes, end_codes):
            return nearest_on(edges, starts, self.start_codes)
        # where levels are named, critical points form curves
        if {*self.model.coordinates} == {*self.window} and not self.ends.named:
            for beyond in (0.0, _BEYOND):
                edges = manifold_edges(self.model, self.window, self.label, beyond)
                if explains(edges, self.axes, end_codes):
                    return nearest_on(edges, starts, self.start_codes)
        edges = bisected_edges(
            self.label, self.axes, end_codes, self.tolerance, self.batched, self.shooting
        )
        return nearest_on(edges, starts, self.start_codes)

    def _on_line(self, starts: np.ndarray, nodes: np.ndarray, end_codes: np.ndarray) -> np.ndarray:
        """The nearest place on a line where the end changes, (n, 1); NaN without one.

        All such places between neighbouring nodes or starts are taken.
        """
        nodes = np.concatenate([nodes, starts])
        codes = np.concatenate([end_codes, self.start_codes])
        order = np.argsort(nodes[:, 0], kind="stable")
        order = order[codes[order] > 0]
        nodes, codes = nodes[order], codes[order]
        at = np.flatnonzero(codes[1:] != codes[:-1])
        places = self._zeros_between(nodes[at], nodes[at + 1])
        rows = np.isnan(places[:, 0])
        pairs = np.stack([codes[at], codes[at + 1]], axis=1)
        places[rows] = self._crossed(nodes[at][rows], nodes[at + 1][rows], pairs[rows])
        away = np.abs(starts - places.T)
        beside = (pairs == self.start_codes[:, None, None]).any(axis=2)
        away[~beside] = np.inf
        found: np.ndarray = np.pad(places, ((0, 1), (0, 0)), constant_values=np.nan)
        nearest = np.pad(away, ((0, 0), (0, 1)), constant_values=1e300).argmin(axis=1)
        return found[nearest]

    def _zeros_between(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Zeros of the field between places (m, 1) at which it points apart; NaN of other places.

        In a model of one coordinate these zeros are the boundary; else all are NaN.
        """
        if len(self.model.coordinates) > 1:
            return np.full(low.shape, np.nan)
        apart = (self._field(low) <= 0) & (self._field(high) > 0)
        side = lambda x: np.where(self._field(x)[:, 0] > 0, 2, 1)  # noqa: E731
        zeros = find_crossings(side, low, high, _EXACTLY, end=1).along(low, high)
        return np.where(apart, zeros, np.nan)

    def _field(self, places: np.ndarray) -> np.ndarray:
        """The field at all coordinates (m, k), of the same shape."""
        field: np.ndarray = self.model.field(torch.from_numpy(places)).detach().numpy()
        return field

    def _to_nodes(self, starts: np.ndarray, nodes: np.ndarray, end_codes: np.ndarray) -> np.ndarray:
        """The nearest boundary point on the ways to the nearest nodes with another end, (n, d)."""
        best = np.full(starts.shape, np.nan)
        for own in np.unique(self.start_codes[self.start_codes > 0]):
            rows = self.start_codes == own
            others = np.flatnonzero((end_codes != own) & (end_codes > 0))
            if not len(others):
                continue
            count = min(_NEAREST, len(others))
            _, near = cKDTree(nodes[others]).query(starts[rows], [*range(1, count + 1)])
            inner, outer = np.repeat(starts[rows], count, axis=0), others[near.ravel()]
            pairs = np.stack([np.full(len(inner), own), end_codes[outer]], axis=1)
            found = self._crossed(inner, nodes[outer], pairs)
            found = found.reshape(-1, count, starts.shape[1])
            away = np.linalg.norm(found - starts[rows][:, None], axis=2)
            best[rows] = found[np.arange(len(found)), away.argmin(1)]
        return best

    def _crossed(self, inner: np.ndarray, outer: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Places (n, d) on the ways from ``inner`` to ``outer`` where the end changes.

        ``pairs`` (n, 2) are the codes of the ends at the two.
        """
        found = crossed_at(
            self.label, inner, outer, pairs, self.tolerance, self.batched, self.shooting
        )
        if len(self.axes) > 2:  # a bound's place has another end itself
            way = outer - inner
            found += self.tolerance / 2 * way / np.linalg.norm(way, axis=1, keepdims=True)
        return found

    def _descended(self, starts: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Move boundary points (n, d) along the boundary to where they are nearest to the starts.

        In the frame of the way from the start, the boundary's height over its tangents is probed to
        both sides; Newton's step on the distance follows, and a bisection along the new way.
        """
        rows = np.flatnonzero(np.linalg.norm(found - starts, axis=1) > 0)
        start, place, own = starts[rows], found[rows], self.start_codes[rows]
        step = np.full(len(rows), _FIRST) * self.spacing.min()
        for i in range(_STEPS if len(rows) else 0):
            if i == 0:  # a bracket around what may be interpolated
                place = self._on_way(start, place, 1e-2 * step, own)
            away = np.linalg.norm(place - start, axis=1)
            step = np.minimum(step, away)
            moved = self._nearest_on_quadratic(start, place, own, step)
            trial = self._on_way(start, moved, step, own)
            gain = away - np.linalg.norm(trial - start, axis=1)
            place = np.where(gain[:, None] > 0, trial, place)
            step = np.where(gain > 0, step / 2, step / _SHORTER)
            if (np.abs(gain) < self.tolerance).all():
                break
        result = found.copy()
        result[rows] = place
        return result

    def _on_way(
        self, start: np.ndarray, place: np.ndarray, width: np.ndarray, own: np.ndarray
    ) -> np.ndarray:
        """Places (n, d) where ways from starts to places leave the basins ``own``; NaN without one.

        Sought within ``width`` (n,) of the place first, else before it.
        """
        away = np.linalg.norm(place - start, axis=1)
        part = np.stack([1 - np.minimum(width / away, 0.5), 1 + width / away])
        ends = start + part[..., None] * (place - start)
        end_codes = self.label(ends.reshape(-1, start.shape[1])).reshape(2, -1)
        inside, outside = end_codes[0] == own, (end_codes[1] != own) & (end_codes[1] > 0)
        inner = np.where(inside[:, None], ends[0], start)
        outer = np.where(inside[:, None], ends[1], ends[0])
        pairs = np.stack([own, np.where(inside, *end_codes[::-1])], axis=1)
        there = (inside & outside) | (~inside & (end_codes[0] > 0))
        found = np.full(place.shape, np.nan)
        found[there] = self._crossed(inner[there], outer[there], pairs[there])
        return found

    def _nearest_on_quadratic(
        self, start: np.ndarray, place: np.ndarray, own: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        """Model the boundary beside a point on it by a quadratic, and step to its nearest place.

        The quadratic goes through boundary points at ``step`` (n,) beside places (n, d). Returns
        the places (n, d) after one of Newton's steps on their distance from the starts (n, d).
        """
        n, d = start.shape
        away = np.linalg.norm(place - start, axis=1)
        normal = (place - start) / away[:, None]
        frame = np.concatenate([normal[:, :, None], np.broadcast_to(np.eye(d), (n, d, d))], 2)
        tangents = np.linalg.qr(frame)[0][:, :, 1:].transpose(2, 0, 1)
        beside = np.stack([place + sign * step[:, None] * tangents for sign in (1, -1)])
        inner, outer = (beside + sign * (step[:, None] * normal) for sign in (-1, 1))
        end_codes = self.label(np.stack([inner, outer]).reshape(-1, d)).reshape(
            2, *beside.shape[:3]
        )
        there = (end_codes[0] == own) & (end_codes[1] != own) & (end_codes[1] > 0)
        found = beside.copy()
        found[there] = self._crossed(inner[there], outer[there], end_codes[:, there].T)
        height = np.where(there, ((found - beside) * normal).sum(-1), np.nan)
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
