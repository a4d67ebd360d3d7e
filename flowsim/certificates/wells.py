"""Wells of a loss of two coordinates, each with a proven bound of its lowest pass."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import torch
from scipy.ndimage import find_objects, label
from torch import Tensor

from flowsim.certificates.interval import Interval, bounds, interval
from flowsim.interface import Model

#: Boxes a side, how many are bounded at once, and Newton's steps to a minimum.
SIDE, _TOGETHER, _NEWTON = 256, 8192, 4


class Well(NamedTuple):
    """A part of a window in which every trajectory below ``level`` ends in one minimum.

    Attributes:
        minimum: its place, (2,).
        level: no trajectory below it leaves the well's boxes: a lower bound of the lowest pass.
        before: at each node, how many of its boxes lie lower in both coordinates, (SIDE + 1,) * 2.
    """

    minimum: np.ndarray
    level: float
    before: np.ndarray


class Landscape(NamedTuple):
    """Proven critical points and wells of a window.

    Attributes:
        low, step: corner of the window and sides of its boxes.
        wells: the wells of its minima.
        critical: how many critical points are proven, one each in a box of its own; by kind.
        open: how many further groups of boxes may hold some, or none.
    """

    low: np.ndarray
    step: np.ndarray
    wells: list[Well]
    critical: dict[str, int]
    open: int

    def well_below(self, box: Interval, loss: np.ndarray) -> np.ndarray:
        """Numbers of the wells in which boxes (…, 2) of at most these losses lie, else −1.

        ``before`` of a well counts its cells below each node: a box lies in it if all its cells do.
        """
        first = np.nan_to_num(np.floor((box.lo - self.low) / self.step - 1e-9), nan=-1)
        last = np.nan_to_num(np.floor((box.hi - self.low) / self.step + 1e-9), nan=SIDE)
        there = ((first >= 0) & (last < SIDE)).all(-1)
        a, b = np.moveaxis(first.clip(0, SIDE - 1).astype(int), -1, 0)
        c, d = np.moveaxis(last.clip(0, SIDE - 1).astype(int) + 1, -1, 0)
        found = np.full(loss.shape, -1)
        for number, well in enumerate(self.wells):
            n = well.before
            whole = n[c, d] - n[a, d] - n[c, b] + n[a, b] == (c - a) * (d - b)
            found[there & whole & (loss < well.level)] = number
        return found

    def minima_below(self, theta: Tensor, loss: Tensor) -> Tensor:
        """The minima (n, 2) of the wells in which places θ (n, 2) of losses (n,) lie, else NaN."""
        place = interval(theta.detach().cpu().numpy())
        number = self.well_below(place, loss.detach().cpu().numpy())
        minima = np.array([*(well.minimum for well in self.wells), [np.nan, np.nan]])
        return torch.from_numpy(minima[number]).to(theta)


def landscape_in(model: Model, window: Mapping[str, tuple[float, float]]) -> Landscape:
    """Find the wells in a window of a model of two coordinates, by bounds in 256² boxes.

    A box whose bounds of ∇L leave out 0 holds no critical point. Neighbouring others are enclosed
    in a box in which Krawczyk's operator proves exactly one. From every minimum boxes are joined in
    the order of their least losses until one is met that is at the rim of the window or may hold
    another critical point; its least loss bounds the pass.

    Raises:
        InputError: bounds of the loss are not known.
    """
    low, high = np.array([window[name] for name in model.coordinates], float).T
    step = (high - low) / SIDE
    index = np.stack(np.meshgrid(*[np.arange(SIDE)] * 2, indexing="ij"), -1).reshape(-1, 2)
    least, still = np.empty(len(index)), np.empty(len(index), bool)
    for first in range(0, len(index), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        corner = low + index[part] * step
        loss, slope, _ = enclosed(model, corner, corner + step * (1 + 1e-12))
        least[part] = loss.lo
        still[part] = ((slope.lo <= 0) & (slope.hi >= 0)).all(1)
    whole, open_ = least.reshape(SIDE, SIDE), still.reshape(SIDE, SIDE)
    groups, _ = label(open_, np.ones((3, 3)))
    kinds = {"minimum": 0, "saddle": 0, "maximum": 0}
    wells, unknown = [], 0
    for number, rows in enumerate(find_objects(groups), 1):
        begin, end = (np.array([getattr(s, x) for s in rows]) for x in ("start", "stop"))
        kind, place = _proven(model, low + (begin - 0.5) * step, low + (end + 0.5) * step)
        if not kind:
            unknown += 1
            continue
        kinds[kind] += 1
        if kind == "minimum":
            own = groups == number
            level, inside = _flood(whole, open_ & ~own, own)
            before = np.pad(inside.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
            wells.append(Well(_polished(model, place), level, before))
    return Landscape(low, step, wells, kinds, unknown)


def enclosed(model: Model, low: np.ndarray, high: np.ndarray) -> tuple[Interval, ...]:
    """Bounds as of ``bounds`` in boxes with corners (n, k), closer ones of L and ∇L.

    Both are also bounded by their value at a box's centre and the next derivative in the box.
    """
    loss, slope, bend = bounds(model, low, high)
    middle = (low + high) / 2
    scale = np.sqrt(np.array(model.metric, float)) * (1 + 1e-15)
    half = np.maximum(high - middle, middle - low) * scale * (1 + 1e-15)
    off = Interval(-half, half)
    at = bounds(model, middle, middle)
    slope = slope.within(at[1] + (bend * off[:, None, :]).sum(-1))
    return loss.within(at[0] + (slope * off).sum(-1)), slope, bend


def _proven(model: Model, low: np.ndarray, high: np.ndarray) -> tuple[str, Interval]:
    """The kind and the place of the one critical point in a box; "" if none is proven."""
    root = np.sqrt(np.array(model.metric, float))
    middle, width = (low + high) / 2, (high - low) / 2
    slope = bounds(model, middle[None], middle[None])[1][0]
    bend = bounds(model, low[None], high[None])[2][0]
    centre = (bend.lo + bend.hi) / 2
    if not np.isfinite(centre).all():
        return "", slope
    inverse = interval(np.linalg.pinv(centre))
    spread = interval(np.eye(2)) - (inverse[:, :, None] * bend[None]).sum(1)
    reach = Interval(-width * root, width * root)
    moved = (spread * reach[None]).sum(1) - (inverse * slope[None]).sum(1)
    if not ((moved.lo > reach.lo) & (moved.hi < reach.hi)).all():
        return "", slope
    off = np.linalg.norm((bend.hi - bend.lo) / 2) + 1e-12 * np.linalg.norm(centre)
    rates = np.linalg.eigvalsh(centre)
    if (abs(rates) <= off).any():
        return "", slope
    kind = ("minimum", "saddle", "maximum")[int((rates < 0).sum())]
    return kind, Interval(middle + moved.lo / root, middle + moved.hi / root, 4)


def _polished(model: Model, place: Interval) -> np.ndarray:
    """Find the critical point in a box by Newton's steps from its middle."""
    theta = torch.from_numpy((place.lo + place.hi) / 2)[None]
    for _ in range(_NEWTON):
        theta = theta - torch.linalg.solve(model.hessian(theta), model.gradient(theta))
    found: np.ndarray = theta[0].detach().numpy()
    return found


def _flood(least: np.ndarray, other: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
    """Flood boxes from ``own`` on by their least losses, until one is of ``other`` or at the rim.

    Returns the level of that box, and the mask of the boxes that were flooded below it.
    """
    height, seen, level = np.full(own.shape, np.inf), own.copy(), -np.inf
    heap: list[tuple[float, int, int]] = []
    for i, j in np.argwhere(own).tolist():
        heappush(heap, (least[i, j], i, j))
    while heap:
        loss, i, j = heappop(heap)
        level = max(level, loss)
        if other[i, j] or i in (0, SIDE - 1) or j in (0, SIDE - 1):
            break
        height[i, j] = level
        for a, b in ((i + x, j + y) for x in (-1, 0, 1) for y in (-1, 0, 1)):
            if not seen[a, b]:
                seen[a, b] = True
                heappush(heap, (least[a, b], a, b))
    return float(level), height < level
