"""Tubes around orbits of a gradient flow, to where their end is proven."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flowsim.certificates.interval import Interval, bounds, interval, power
from flowsim.certificates.wells import Landscape
from flowsim.flow.orbits import drawn_orbits, find_limits, trajectories
from flowsim.interface import Model

#: Into how many pieces an orbit is cut at last, by how many times more each time, and how many are
#: bounded at once.
_PIECES, _TOGETHER = (250, 1000, 4000), 100_000
#: The error of an orbit allowed per step, times the square of the pieces; and the part of its
#: excess loss at its last time.
_RTOL, _LEFT = 1e-3, 1e-6
#: Guesses of a tube's width, its ratio to the last tube's width, and the largest width, in parts
#: of the window.
_GUESSES, _WIDER, _WIDEST = 3, 2.0, 0.1
#: The box about an end, over the distance to it.
_BOX = 4.0
#: By what a sum or product of a few numbers that are not negative may be off, in its parts.
_ROUNDED = 1e-13


@np.errstate(all="ignore")
def proven_ends(
    model: Model, start: Tensor, ends: np.ndarray, size: float,
    landscape: Landscape | None, trap_loss: float,
) -> np.ndarray:  # fmt: skip
    """Prove where starts (n, k) end, by tubes around their orbits in a window of that size.

    They seem to end at ``ends`` (n, k), and below ``trap_loss`` they are known to end at the best.
    Returned is, int (n,), what is proven: −1 nothing; −2 they end within a box about ``ends``, at a
    minimum; −3 at the best loss; 0, 1, … in the minimum of that well of the landscape.
    """

    def known(box: Interval, most: np.ndarray) -> np.ndarray:
        """Codes of proven ends of boxes (…, k), losses at most ``most`` (…): −3, a well, or −1."""
        wells = np.full(most.shape, -1) if landscape is None else landscape.well_below(box, most)
        return np.where(most < trap_loss, -3, wells)

    place = interval(start.numpy())
    found = known(place, bounds(model, place.lo, place.hi)[0].hi)
    left = np.flatnonzero(found == -1)
    if not len(left):
        return found
    limits = find_limits(model, start[left])
    times = drawn_orbits(model, start[left], limits, left=_LEFT)[0].numpy()
    for pieces in (*_PIECES, 0):
        proof, push = np.full(len(left), -1), np.empty((len(times) - 1, len(left)))
        count = max(_TOGETHER // len(times), 1)
        for at in range(0, len(left), count):
            part = slice(at, at + count)
            rows = left[part]
            tube = Tube(model, times[:, part], start[rows], size)
            held = np.where(tube.good, known(tube.box, tube.loss), -1)
            each, last = np.arange(len(rows)), tube.good.sum(0)
            there = _rests_near(model, tube.path[last, each], tube.radius[last, each], ends[rows])
            first = held[(held != -1).argmax(0), each]
            proof[part] = np.where((first == -1) & there, -2, first)
            push[:, part] = tube.push
        found[left] = proof
        more = np.flatnonzero(proof == -1)
        if not pieces or not len(more):
            break
        left, times = left[more], _respaced(times[:, more], push[:, more], pieces)
    return found


class Tube:
    """Tubes around orbits between times t₀, …, t_T.

    The centre is the cubic x(t) with the orbit's places and speeds at these times. The radius r has
    r(t₀) = 0 and r′ ≤ −λr + |d|, d = x′ + ∇L(x), λ the least eigenvalue of ∂²L in a box around the
    piece, in the coordinates √Gᵢ θᵢ. All is rounded outwards.

    Attributes:
        path, radius: at the times, (T + 1, n, k) and (T + 1, n).
        box, loss: around every piece, and the most in it, (T, n, k) and (T, n).
        good: pieces to which the tube is proven, (T, n).
        push: ∫|d| over each piece, of a tube without width, (T, n).
    """

    def __init__(self, model: Model, times: np.ndarray, start: Tensor, size: float) -> None:
        """Follow ``start`` (n, k) at ``times`` (T + 1, n); ``size`` is that of the window."""
        rtol = _RTOL / len(times) ** 2
        self.path = trajectories(model, start, torch.from_numpy(times), rtol).numpy()
        root = np.sqrt(np.array(model.metric, float))
        scale = power(interval(np.array(model.metric, float)), 0.5)
        slope = bounds(model, self.path, self.path)[1]
        v = -_middle(slope) / root
        off = _length(slope + scale * v)
        # x″ is linear: between its values at the two ends; x′ and the way beside the chord by it
        h, chord = np.diff(times, axis=0)[..., None], interval(self.path[1:]) - self.path[:-1]
        whole = interval(h)
        first = (chord * 6 - whole * (interval(v[:-1]) * 4 + interval(v[1:]) * 2)) / whole / whole
        last = (whole * (interval(v[:-1]) * 2 + interval(v[1:]) * 4) - chord * 6) / whole / whole
        turn = first.hull(last)
        speed = (turn * Interval(0 * h, h) + v[:-1]) * scale
        bow = turn.size() * h**2 / 8 * (1 + _ROUNDED)
        turn, h, between = turn * scale, h[..., 0], interval(self.path[:-1]).hull(self.path[1:])
        room = np.zeros(h.shape)
        for guess in range(_GUESSES):
            reach = bow + room[..., None] / root * (1 + _ROUNDED)
            self.box = between + Interval(-reach, reach)
            loss, _, bend = bounds(model, self.box.lo, self.box.hi)
            change = _length(turn + (bend * speed[..., None, :]).sum(-1))
            push = (h * np.maximum(off[1:], off[:-1]) + h**2 / 4 * change) * (1 + _ROUNDED)
            growth = -_least_rate(bend)
            factor, most = np.exp(growth * h), np.exp(np.maximum(growth, 0) * h)
            self.radius = np.zeros(times.shape)
            for j in range(len(h)):
                after = factor[j] * self.radius[j] + most[j] * push[j]
                self.radius[j + 1] = after * (1 + _ROUNDED)
            wide = most * (self.radius[:-1] + push) * (1 + _ROUNDED)
            self.good, self.loss = np.logical_and.accumulate(wide <= room), loss.hi
            room = np.minimum(_WIDER * wide, _WIDEST * size)
            if guess == 0:
                self.push = push


def _respaced(times: np.ndarray, push: np.ndarray, pieces: int) -> np.ndarray:
    """Choose new times (pieces + 1, n), between which all pieces widen a tube about alike.

    ``push`` (T, n) is by how much the pieces between the present ``times`` (T + 1, n) widen it.
    """
    part = np.cbrt(np.where(np.isfinite(push), push, 0)) + 1e-12
    part = np.where(np.isfinite(push), part + 0.05 * part.mean(0), 2 * part.max(0))
    passed = np.concatenate([0 * part[:1], part.cumsum(0)])
    even = np.linspace(0, 1, pieces + 1)
    columns = [np.interp(even * p[-1], p, t) for p, t in zip(passed.T, times.T, strict=True)]
    return np.stack(columns, 1)


def _length(value: Interval) -> np.ndarray:
    """Upper bounds (…) of the lengths of vectors (…, k)."""
    found: np.ndarray = np.linalg.norm(value.size(), axis=-1) * (1 + _ROUNDED)
    return found


def _middle(value: Interval) -> np.ndarray:
    """The middle of every interval."""
    found: np.ndarray = (value.lo + value.hi) / 2
    return found


def _least_rate(bend: Interval) -> np.ndarray:
    """Lower bounds (…) of the eigenvalues of symmetric matrices (…, k, k)."""
    centre, off = _middle(bend), (bend.hi - bend.lo) / 2
    unknown = ~np.isfinite(centre).all((-1, -2))
    centre[unknown] = 0.0
    spread = np.linalg.norm(off, axis=(-1, -2)) + 1e-13 * np.linalg.norm(centre, axis=(-1, -2))
    return np.where(unknown, -np.inf, np.linalg.eigvalsh(centre)[..., 0] - spread)


def _rests_near(model: Model, x: np.ndarray, r: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Mask of tubes (n,) that are proven to end near ``ends``, at an attracting point of rest.

    A tube's last place is ``x`` (n, k), its radius there ``r`` (n,); ends that are not finite are
    not proven. All is bounded over a box about the end, in the coordinates √Gᵢ θᵢ. Let Z be the
    coordinates that are exactly 0 at the end. T are other coordinates i with ∂L/∂θᵢ = 0 wherever
    Z = 0 in the box: rest points may form a line or plane along T, and one is proven for every
    value of T. N are all coordinates but T. There the curvature is at least κ, |∇L|_T ≤ s|∇L|_N
    with s = |∂²L|_TN/κ, and |∇L| falls at least as fast as the rate
    κ′ = (κ − 2s|∂²L|_TN − s²|∂²L|_TT)/(1 + s²). The way left is |∇L|/κ′ at most, and has to stay
    inside the box.
    """
    found = np.zeros(len(x), bool)
    root = np.sqrt(np.array(model.metric, float))
    near = np.isfinite(ends).all(1)
    away = np.full(len(x), np.inf)
    away[near] = (np.linalg.norm((x - ends)[near] * root, axis=1) + r[near]) * (1 + _ROUNDED)
    for zero in np.unique(ends[near] == 0, axis=0):
        rows = np.flatnonzero(near & ((ends == 0) == zero).all(1))
        box = (_BOX * away[rows, None] + 1e-12) / root
        low, high = ends[rows] - box, ends[rows] + box
        flat_low, flat_high = np.where(zero, 0.0, low), np.where(zero, 0.0, high)
        slope = bounds(model, flat_low, flat_high)[1]
        rests = (slope.lo == 0) & (slope.hi == 0)
        bend = bounds(model, low, high)[2]
        begun = bounds(model, x[rows] - r[rows, None] / root, x[rows] + r[rows, None] / root)[1]
        left = np.linalg.norm(begun.size(), axis=1)
        for still in np.unique(rests & ~zero, axis=0):
            whole = (rests | ~zero).all(1) | (not still.any())
            at = np.flatnonzero(((rests & ~zero) == still).all(1) & whole)
            n = ~still
            across = bend[at][:, n][:, :, n]
            rate = _least_rate(across)
            fibre = np.ones(len(at), bool)
            if still.any():  # a zero of the one coordinate left, on every fibre
                other = np.flatnonzero(n & ~zero)
                fibre &= len(other) < 2
                for i in other[:1]:
                    for side, value in ((-1, low), (1, high)):
                        ones = flat_low[at].copy(), flat_high[at].copy()
                        for one in ones:
                            one[:, i] = value[at, i]
                        edge = bounds(model, *ones)[1][:, i]
                        fibre &= edge.hi < 0 if side < 0 else edge.lo > 0
            mixed = np.linalg.norm(bend[at][:, still][:, :, n].size(), axis=(1, 2))
            along = np.linalg.norm(bend[at][:, still][:, :, still].size(), axis=(1, 2))
            part = mixed / rate
            slowest = (rate - 2 * part * mixed - part**2 * along) / (1 + part**2)
            arrives = away[rows[at]] + left[at] / slowest < (1 - 1e-9) * _BOX * away[rows[at]]
            found[rows[at]] = fibre & (rate > 0) & (slowest > 0) & arrives
    return found
