"""Stable manifolds of the saddles of a flow in two coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import DOP853
from torch import Tensor

from flowsim.errors import InputError
from flowsim.interface import Model, Range
from flowsim.landscape.critical import critical_points_in
from flowsim.running import quickly

#: In parts of the window's diagonal: where a branch begins beside its saddle, how far apart its
#: places are, how long it is at most, and within how much of the window it is followed.
_FIRST, _APART, _LONGEST, _MARGIN = 1e-6, 1 / 16_000, 6.0, 0.02
#: c, over the diagonal times the saddle's slower rate; and the part of it below which all rests.
_SOFT, _RESTS = 1e-2, 1e-6
#: Steps of all branches together, after which their flow is too stiff for the method; and the
#: slower rate of a saddle over the faster, below which it is one of a continuum to rounding.
_STEPS, _SLOWEST = 400, 1e-4


class Manifold(NamedTuple):
    """The stable manifold of a saddle in a window.

    Attributes:
        saddle: the point, (2,).
        points: places along the manifold, (m, 2), NaN between parts; the saddle is among them.
        across: the unit vector along which the flow leaves the saddle, (2,).
    """

    saddle: Tensor
    points: np.ndarray
    across: Tensor


@quickly
def stable_manifolds(model: Model, within: Mapping[str, Range]) -> list[Manifold]:
    """Find the saddles of a model of two coordinates and grow their stable manifolds.

    Saddles are sought from a lattice of starts. From each, dx/ds = −f/(|f| + c) is solved
    backwards in time along both stable directions, by an eighth-order method at 1e-11.
    Trajectories approach the manifold backwards, so errors decay along it.

    Args:
        model: of two coordinates, smooth in the window.
        within: the ranges of both coordinates, by name.

    Returns:
        One ``Manifold`` for each saddle in the window. A saddle at which a rate vanishes is not
        found; none is returned of a flow that is too stiff for the method.

    Raises:
        InputError: another number of coordinates, or a range that is missing.

    >>> import flowsim
    >>> well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 + (y - x) ** 2, "well")
    >>> (found,) = flowsim.boundary.stable_manifolds(well, {"x": (-2, 2), "y": (-2, 2)})
    >>> found.saddle.abs().max() < 1e-9, found.points.shape[1]
    (tensor(True), 2)
    """
    if len(model.coordinates) != 2 or {*within} != {*model.coordinates}:
        names = ", ".join(model.coordinates)
        raise InputError(f"manifolds need two coordinates and a range for each of {names}")
    box = torch.tensor([within[name] for name in model.coordinates], dtype=torch.float64)
    low, high = box.T
    points, unstable = critical_points_in(model, low, high)
    saddles = points[unstable == 1]
    if not len(saddles):
        return []
    rates, vectors = np.linalg.eig(model.jacobian(saddles).detach().numpy())
    rates, vectors = rates.real, vectors.real  # a saddle's are real
    clear = np.abs(rates).min(1) > _SLOWEST * np.abs(rates).max(1)
    saddles, rates, vectors = saddles[torch.from_numpy(clear)], rates[clear], vectors[clear]
    if not len(saddles):
        return []
    at = np.arange(len(saddles))
    stable = vectors[at, :, rates.argmin(1)]
    across = torch.from_numpy(vectors[at, :, rates.argmax(1)])
    size = float((high - low).norm())
    begun = np.concatenate([saddles.numpy() + sign * _FIRST * size * stable for sign in (1, -1)])
    soft = np.tile(_SOFT * size * np.abs(rates).min(1), 2)[:, None]

    def backwards(_: float, state: np.ndarray) -> np.ndarray:
        """dx/ds of all branches, backwards in time."""
        field = model.field(torch.from_numpy(state.reshape(-1, 2))).detach().numpy()
        speed = np.linalg.norm(field, axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # far outside, where the field is infinite
            return np.nan_to_num(-field / (speed + soft)).ravel()

    edge = _MARGIN * size
    solver = DOP853(backwards, 0.0, begun.ravel(), _LONGEST * size, rtol=1e-11, atol=1e-13 * size)
    parts = [begun[None]]
    going, steps = True, 0
    while going and solver.status == "running":
        steps += 1
        if steps > _STEPS:
            return []
        before = solver.t
        solver.step()
        count = max(int((solver.t - before) / (_APART * size)), 1)
        times = np.linspace(before, solver.t, count + 1)[1:]
        parts.append(solver.dense_output()(times).T.reshape(count, -1, 2))
        last, speed = parts[-1][-1], np.abs(solver.f.reshape(-1, 2)).max(1)
        near = ((last >= low.numpy() - edge) & (last <= high.numpy() + edge)).all(1)
        going = bool((near & (speed > _RESTS)).any())
    places = np.concatenate(parts).reshape(-1, 2, len(saddles), 2)
    found = []
    for i, saddle in enumerate(saddles):
        one, other = places[:, 0, i], places[:, 1, i]
        whole = np.concatenate([one[::-1], saddle[None].numpy(), other])
        inside = ((whole >= low.numpy()) & (whole <= high.numpy())).all(1)
        near = inside | np.append(inside[1:], False) | np.append(False, inside[:-1])
        found.append(Manifold(saddle, np.where(near[:, None], whole, np.nan), across[i]))
    return found
