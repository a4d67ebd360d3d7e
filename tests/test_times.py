"""Hitting times of models whose loss is not a function of the gap, against dense trajectories."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from flowsim import (
    AttentionModel,
    BinaryChain,
    CanonicalModel,
    RankOneModel,
    find_limits,
    hitting_times,
    integrate,
)

CHAIN = BinaryChain(0.5, 0.8)


def rows(*points):
    return torch.tensor(points, dtype=torch.float64)


def time_by_trajectory(model, start, fraction):
    """The root in t of L(θ(t)) − wanted, every θ(t) integrated afresh by torchdiffeq."""
    limit = find_limits(model, start)
    first = model.loss(start).item()
    wanted = limit.loss.item() + fraction * (first - limit.loss.item())

    def excess(t):
        path = integrate(model, start, torch.tensor([0.0, t], dtype=torch.float64), rtol=1e-10)
        return model.loss(path[-1]).item() - wanted

    high = 1.0
    while excess(high) > 0:
        high *= 2
    return brentq(excess, high / 2 if high > 1 else 1e-9, high, xtol=1e-10, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "start"),
    [
        (AttentionModel(CHAIN, length=16), rows((0.9, -1.1, 0.3))),
        (AttentionModel(CHAIN, length=16), rows((0.9, 0.4, -0.3))),
        (CanonicalModel(CHAIN, bias="dynamic"), rows((0.9, -1.1, 0.2))),
        (RankOneModel(BinaryChain(0.2, 0.3), length=8), rows((0.9, -0.4, 0.7, 0.8, 0.1))),
    ],
)
def test_times_are_those_of_a_dense_trajectory(model, start):
    expected = time_by_trajectory(model, start, 0.1)
    assert hitting_times(model, start, 0.1).item() == pytest.approx(expected, rel=1e-6)


def test_known_limits_are_taken_and_starts_that_never_move_have_no_time():
    model = AttentionModel(CHAIN, length=8)
    start = rows((0.9, -1.1, 0.3), (0.0, 0.5, 0.2))
    limits = find_limits(model, start)
    times = hitting_times(model, start, 0.5, limits=limits)
    assert np.isfinite(times[0].item()) and np.isnan(times[1].item())
    assert times[0] == hitting_times(model, start, 0.5)[0]
