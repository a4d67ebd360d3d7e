"""The parts of the rank-one engine without attention, one by one, against autograd.

A mode is (unit 0, unit 1, w₁ held, sign of w₁). Called from Python these parts have to be plain
Python: see ``test_plain_python``.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from one_row import workspace
from torch.autograd.functional import hessian, jacobian

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.models import RankOneModel
from flowsim.models.rank_one import field as rank_one_field
from flowsim.models.rank_one import rows, slow_manifold
from flowsim.models.rank_one.field import CLOSED, OPEN, SLIDING

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
CASES = [
    ((0.5, 0.8), 4, True),
    ((0.2, 0.3), 4, False),
    ((0.97, 0.6), 1, True),
    ((0.1, 0.9), 7, False),
]
MODES = [(*units, held) for units in itertools.product((CLOSED, OPEN, SLIDING), repeat=2)
         for held in (0, 1)]  # fmt: skip


@pytest.fixture(params=CASES, ids=str)
def row(request):
    chain, length, tied = request.param
    found = workspace(RankOneModel(BinaryChain(*chain), length, tied=tied))
    found.reals[rank_one_field.BIAS] = math.log(chain[0] / chain[1])  # b is counted from 0 here
    return found


def placed(row, mode, random):
    """The row at a random point of its mode's surfaces, the sign of w₁ noted."""
    row.y[:] = random.uniform(-1.5, 1.5, len(row.y))
    row.ints[:3] = mode
    row.y[2] = 0.0 if mode[2] else row.y[2]
    row.ints[3] = 1 if row.y[2] >= 0 else -1
    rows.project(row.y, row.ints)
    return row.y.copy()


def logits_at(y, mode):
    """f₀ and f₁ as functions of the coordinates that are free in a mode; y is a tensor."""
    u, gain = y[0] if len(y) == 5 else y[5], 1 + 4 * y[2] * y[3]
    inner = [y[1], y[0] + y[1]]
    if SLIDING in mode[:2]:
        inner = [
            -y[0] if mode[0] != SLIDING else 0 * y[0],
            y[0] if mode[1] != SLIDING else 0 * y[0],
        ]
    opened = [mode[x] == OPEN and not mode[2] for x in (0, 1)]
    return [u * inner[x] * (gain if opened[x] else 1.0) + y[4] for x in (0, 1)]


def loss_at(row, mode):
    """The loss as a function of y, by torch."""
    p, q = row.reals[0], row.reals[3]

    def loss(y):
        f0, f1 = logits_at(y, mode)
        share = [q / (p + q), p / (p + q)]
        softplus = torch.nn.functional.softplus
        return share[0] * (softplus(f0) - p * f0) + share[1] * (softplus(f1) - (1 - q) * f1)

    return loss


def moved(row, mode, slope):
    """−G⁻¹ applied to a gradient, or to each column of a Hessian."""
    length = row.reals[6]
    together = mode[1] == SLIDING and mode[0] != SLIDING  # ρ = −e, of mass N
    mass = np.array([1 + length if together else 1, length, 4, 4, 1, 1])[: len(row.y)]
    rate = -(slope.T / mass).T
    if together:
        rate[1] = -rate[0]
    return rate


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_field_jacobian_and_loss_of_every_mode_are_autograds(row, mode):
    random = np.random.default_rng(1)
    for _ in range(2):
        y = torch.tensor(placed(row, mode, random))
        loss = loss_at(row, mode)
        gradient = jacobian(loss, y).numpy()
        rank_one_field.velocity(row.y, row.ints, row.reals, row.velocity)
        rank_one_field.jacobian(row.y, row.ints, row.reals, row.derivative)
        held = {2, 3} if mode[2] else set()
        free = [i for i in range(len(y)) if i not in held]
        np.testing.assert_allclose(row.velocity, moved(row, mode, gradient), rtol=0, atol=1e-13)
        expected = moved(row, mode, hessian(loss, y).numpy())
        np.testing.assert_allclose(row.derivative[np.ix_(free, free)], expected[np.ix_(free, free)],
                                   rtol=0, atol=1e-12)  # fmt: skip
        np.testing.assert_allclose(row.derivative, expected, rtol=0, atol=1e-12)
        at = [row.ints[0], row.ints[1]] if not mode[2] else [CLOSED, CLOSED]
        found = rank_one_field.loss(row.y, np.array(at), row.reals)
        assert abs(found - float(loss(y))) < 1e-14


def straight_point(y, mode, unit, pivot):
    """y with the unit's logit in place of y_pivot."""
    f = logits_at(y, mode)[unit]
    return torch.stack([f if i == pivot else y[i] for i in range(len(y))])


def transform_at(y, mode, unit, pivot):
    """∂(straight_point)/∂y, as an array."""
    return jacobian(lambda z: straight_point(z, mode, unit, pivot), torch.tensor(y)).numpy()


def steepness_at(y, mode, unit, length):
    """∂f of a unit, each entry over the root of its metric."""
    slope = jacobian(lambda z: logits_at(z, mode)[unit], torch.tensor(y)).numpy()
    return abs(slope) / np.sqrt([1, length, 4, 4, 1, 1])[: len(y)]


def test_field_and_jacobian_in_a_step_s_coordinates_are_autograds(row):
    random = np.random.default_rng(3)
    for mode in MODES:
        y = placed(row, mode, random)
        rank_one_field.velocity(row.y, row.ints, row.reals, row.velocity)
        rank_one_field.jacobian(row.y, row.ints, row.reals, row.derivative)
        slow_manifold.to_slow_manifold(row)
        unit, pivot = row.ints[slow_manifold.UNIT], row.ints[slow_manifold.PIVOT]
        slopes = [steepness_at(y, mode, x, row.reals[6]) for x in (0, 1)]
        assert slopes[unit][pivot] == pytest.approx(np.max(slopes), rel=1e-12)

        def change(z, mode=mode, unit=unit, pivot=pivot):
            return straight_point(z, mode, unit, pivot)

        def field(z, mode=mode, change=change):
            gradient = torch.autograd.grad(loss_at(row, mode)(z), z, create_graph=True)[0]
            length = row.reals[6]
            together = mode[1] == SLIDING and mode[0] != SLIDING
            mass = torch.tensor([1 + length if together else 1, length, 4, 4, 1, 1])[: len(z)]
            rate = -gradient / mass
            rest = -rate[:1] if together else rate[1:2]
            rate = torch.cat([rate[:1], rest, rate[2:]])
            return jacobian(change, z, create_graph=True) @ rate

        point = torch.tensor(y, requires_grad=True)
        transform = transform_at(y, mode, unit, pivot)
        np.testing.assert_allclose(row.field, field(point).detach().numpy(), rtol=0, atol=1e-12)
        expected = jacobian(field, point).detach().numpy() @ np.linalg.inv(transform)
        np.testing.assert_allclose(row.jacobian, expected, rtol=0, atol=1e-10)
