"""Edge tracking: the saddle between two starts with different ends, in any coordinates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.boundary.geometry import find_crossings
from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits, trajectories
from flowsim.flow.solver import solver_of
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.landscape.critical import zeros_from
from flowsim.landscape.ends import Ends
from flowsim.running import quickly

#: Halvings between two starts, rounds of bisection and following, and times of a round.
_HALVINGS, _ROUNDS, _TIMES = 14, 30, 64
#: A pair is bisected again once it is this part of the first distance apart.
_APART = 1e-3
#: Steps to rest lead so far at most in each coordinate, in parts of the first distance.
_NEAR = 0.05
#: A rate of growth counts above this part of the fastest rate.
_GROWS = 1e-6


class EdgeState(NamedTuple):
    """A saddle on the boundary between two basins.

    Attributes:
        theta: the saddle, (k,).
        unstable: the number of directions in which the flow leaves it.
        path: places along the boundary on the way to it, (m, k).
    """

    theta: np.ndarray
    unstable: int
    path: np.ndarray


@quickly
def edge_state(model: Model, one: Numbers, other: Numbers) -> EdgeState:
    """Follow the boundary between two starts with different ends to its saddle.

    The way between the two is bisected, the pair beside the boundary is followed by the flow until
    it parts, and bisected again. Once the flow along it slows down, Levenberg and Marquardt's steps
    lead to the saddle. Source: Skufca, Yorke and Eckhardt, Phys. Rev. Lett. 96, 174101 (2006).

    Args:
        model: any reduced model.
        one, other: two starts, each of shape (k,), with different ends.

    Raises:
        InputError: starts of another shape or with the same end, or a boundary without a saddle.

    >>> import flowsim
    >>> well = flowsim.from_loss(
    ...     lambda x, y, z: (x**2 - 1) ** 2 / 4 + (y - x) ** 2 / 2 + (z - y) ** 2 / 2, "wells"
    ... )
    >>> found = flowsim.boundary.edge_state(well, [0.9, 1.0, 0.0], [-1.2, 0.5, 0.3])
    >>> (abs(found.theta) < 1e-9).all(), found.unstable
    (np.True_, 1)
    """
    k = len(model.coordinates)
    pair = torch.stack([to_tensor(one).reshape(-1), to_tensor(other).reshape(-1)]).double()
    if pair.shape != (2, k):
        raise InputError(f"an edge state needs two starts of {k} coordinates each")
    ends, batched = Ends(model), solver_of(model).batched

    def label(points: np.ndarray) -> np.ndarray:
        """Codes (m,) of the ends of points (m, k); 0 for none."""
        limits = find_limits(model, torch.from_numpy(points))
        codes = ends.basins(limits.label, limits.theta, limits.loss)
        return codes.clamp(min=int(Label.UNRESOLVED)).numpy()

    first, second = label(pair.numpy())
    if first == second or not first or not second:
        raise InputError("an edge state needs two starts with different ends")
    size, path = float((pair[1] - pair[0]).norm()), []
    for _ in range(_ROUNDS):
        inner, outer = pair.numpy()[:1], pair.numpy()[1:]
        cross = find_crossings(label, inner, outer, _HALVINGS, 7 if batched else 1, int(first))
        part = (cross.at + cross.width / 2 * np.array([-1, 1]))[:, None]
        pair = torch.from_numpy(inner + part * (outer - inner))
        near, pair = _followed(model, pair, size)
        path.append(near)
        found = _saddle(model, near[-1], size)
        if found is not None:
            rates = torch.linalg.eigvals(model.jacobian(found[None]).detach())[0].real
            unstable = int((rates > _GROWS * rates.abs().max()).sum())
            if unstable:
                return EdgeState(found.numpy(), unstable, torch.cat(path).numpy())
    raise InputError(f"the boundary between the two starts led to no saddle in {_ROUNDS} rounds")


def _followed(model: Model, pair: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """Follow a pair of starts (2, k) beside the boundary until the two part or times are over.

    Returns the middle of the two along the way, (m, k), up to where it is slowest; and the pair at
    the end.
    """
    matrix = model.jacobian(pair).detach()
    unit = 1 / float(torch.linalg.matrix_norm(matrix, 2).max())
    times = torch.cat([torch.zeros(1), torch.logspace(-2, 3, _TIMES)]).double() * unit
    ways = trajectories(model, pair, times)
    apart = (ways[:, 1] - ways[:, 0]).norm(dim=1)
    parted = ~(apart <= _APART * size)  # NaN too
    last = int(parted.int().argmax()) if bool(parted.any()) else len(times)
    middle = ways[: last or 1].mean(1)
    slowest = int(model.field(middle).detach().norm(dim=1).argmin())
    return middle[: slowest + 1], ways[min(last, len(times) - 1)]


def _saddle(model: Model, theta: Tensor, size: float) -> Tensor | None:
    """The point of rest (k,) near a place (k,), if Levenberg and Marquardt's steps lead to one."""
    place, found = zeros_from(
        lambda x, _: model.field(theta + size * x),
        lambda x, _: size * model.jacobian(theta + size * x), torch.zeros_like(theta[None]), _NEAR,
    )  # fmt: skip
    return theta + size * place[0] if bool(found[0]) else None
