"""Tubes around trajectories of a gradient flow, to where their end is proven."""

from __future__ import annotations

import numpy as np

from flowsim.certificates.interval import Interval, bounds, interval, power
from flowsim.certificates.wells import Landscape
from flowsim.interface import Model

#: Steps of a tube; their greatest length, over 1/‖∂²L‖ and in parts of the window over the speed;
#: how often its end is looked at, and how wide it may become, in parts of the window.
_STEPS, _LENGTH, _SHORT, _LOOKED, _WIDEST = 2000, 0.5, 0.02, 8, 0.1
#: Largest growth of a radius in a step, in parts of the window and of the radius.
_ADDED, _GROWN = 1e-9, 1e-2
#: The box about an end, over the distance to it.
_BOX = 4.0
#: By what a sum or product of a few numbers that are not negative may be off, in its parts.
_ROUNDED = 1e-13


@np.errstate(all="ignore")
def followed(
    model: Model, start: np.ndarray, radius: np.ndarray, ends: np.ndarray, size: float,
    landscape: Landscape | None, trap_loss: float | None,
) -> np.ndarray:  # fmt: skip
    """Prove where all starts within ``radius`` (n,) of ``start`` (n, k) end, by tubes.

    A tube has the centre x(t), a parabola in every step, and the radius r(t) with
    r′ ≤ −λr + |x′ + ∇L(x)|, λ the least eigenvalue of ∂²L in a box around the step, in the
    coordinates √Gᵢ θᵢ. Radii and boxes are rounded outwards. A step is as long as what it adds to
    the radius allows.

    Args:
        model: a gradient flow.
        start, radius: in θ, and in √Gᵢ θᵢ.
        ends: where trajectories from the starts seem to end, (n, k).
        size: of the window.
        landscape: wells of a model of two coordinates.
        trap_loss: a loss below which trajectories are known to end at the best.

    Returns:
        int (n,): −1 nothing; −2 they end within the tube's last box about ``ends``, at a minimum;
        −3 at the best loss; 0, 1, … in the minimum of that well.
    """
    root = np.sqrt(np.array(model.metric, float))
    found, going = np.full(len(start), -1), np.arange(len(start))
    x, r, h = start.copy(), radius.copy(), np.full(len(start), np.inf)
    for step in range(_STEPS):
        if not len(going):
            break
        _, slope, bend = bounds(model, x, x)
        v, matrix = _middle(slope) / root, _middle(bend)
        bent = (matrix @ (v * root)[..., None])[..., 0] / root
        stiff, speed = np.linalg.norm(matrix, axis=(1, 2)), np.linalg.norm(v * root, axis=1)
        usual = np.minimum(_LENGTH / stiff, _SHORT * size / np.maximum(speed, 1e-300))
        h = np.minimum(usual, h)
        t, room = h[:, None], 1.5 * r + 1e3 * _ADDED * size
        new = x - t * v + t**2 / 2 * bent
        # the parabola beside its chord, and the rounding of its place
        off = _ROUNDED * (abs(x) + t * abs(v) + t**2 * abs(bent))
        reach = room[:, None] / root * (1 + _ROUNDED) + t**2 / 7 * abs(bent) + off
        low, high = np.minimum(x, new) - reach, np.maximum(x, new) + reach
        loss, _, bends = bounds(model, low, high)
        # p′ + ∇L(p) for p = x − vt + bt²/2 is in (∇L(x) − v) + (b − Hv) t + H b t²/2
        speeds, turns = _scaled(v, model), _scaled(bent, model)
        a = _length(slope - speeds)
        b = _length(turns - (bends * speeds[:, None, :]).sum(-1))
        c = _length((bends * turns[:, None, :]).sum(-1))
        growth = -_least_rate(bends)
        push = (h * a + h**2 / 2 * b + h**3 / 6 * c) * (1 + _ROUNDED)
        shift = np.linalg.norm(off * root, axis=1) * (1 + _ROUNDED)
        most = np.exp(np.maximum(growth, 0) * h)
        wide = most * (r + push) * (1 + _ROUNDED)
        after = (np.exp(growth * h) * r + most * push + shift) * (1 + _ROUNDED)
        aim = _ADDED * size + _GROWN * r
        good = (push <= aim) & (wide <= room) & (h < np.inf)
        known = np.full(len(going), -1)
        if landscape is not None:
            known = np.where(good, landscape.well_below(low, high, loss.hi), known)
        if trap_loss is not None:
            known[good & (loss.hi < trap_loss)] = -3
        if step % _LOOKED == 0 or step == _STEPS - 1:
            rows = np.flatnonzero(known == -1)
            known[rows] = np.where(_ends(model, x[rows], r[rows], ends[going[rows]]), -2, -1)
        found[going] = known
        scale = np.nan_to_num(0.9 * np.cbrt(aim / push), nan=0.0).clip(0.2, 2)
        h = h * np.where(good, np.maximum(scale, 0.5), np.minimum(scale, 0.5))
        x, r = np.where(good[:, None], new, x), np.where(good, after, r)
        lost = (known != -1) | (r > _WIDEST * size) | ~(h > 1e-9 * usual)
        going, x, r, h = going[~lost], x[~lost], r[~lost], h[~lost]
    return found


def _scaled(value: np.ndarray, model: Model) -> Interval:
    """√Gᵢ times numbers of θ."""
    return interval(value) * power(interval(np.array(model.metric, float)), 0.5)


def _length(value: Interval) -> np.ndarray:
    """Upper bounds of the lengths of vectors."""
    found: np.ndarray = np.linalg.norm(value.size(), axis=1) * (1 + _ROUNDED)
    return found


def _middle(value: Interval) -> np.ndarray:
    found: np.ndarray = (value.lo + value.hi) / 2
    return found


def _least_rate(bend: Interval) -> np.ndarray:
    """A lower bound of the eigenvalues of symmetric matrices (n, k, k)."""
    centre, off = _middle(bend), (bend.hi - bend.lo) / 2
    unknown = ~np.isfinite(centre).all((1, 2))
    centre[unknown] = 0.0
    spread = np.linalg.norm(off, axis=(1, 2)) + 1e-13 * np.linalg.norm(centre, axis=(1, 2))
    return np.where(unknown, -np.inf, np.linalg.eigvalsh(centre)[:, 0] - spread)


def _ends(model: Model, x: np.ndarray, r: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Mask of tubes (n,) that are proven to end near ``ends``, at an attracting point of rest.

    About the end there is a box. Coordinates that are 0 at the end, and 0 of ∇L with them, may
    hold the others T at rest: then a point rests on every fibre over T. In the other coordinates N
    the curvature is at least κ, |∇L|_T ≤ θ|∇L|_N with θ = |∂²L|_TN/κ, and |∇L| falls at least as
    fast as the rate κ′ = (κ − 2θ|∂²L|_TN − θ²|∂²L|_TT)/(1 + θ²): the way left is |∇L|/κ′ at most.
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
