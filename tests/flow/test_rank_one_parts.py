"""The rank-one engine's parts: fields against autograd, and why rows with attention stop.

A mode is (unit 0, unit 1, w₁ held, sign of w₁). Called from Python these parts have to be plain
Python: see ``test_plain_python``.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from mpmath import exp, mpf
from torch.autograd.functional import hessian, jacobian

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.elementary import residual
from flowsim.flow.return_codes import MINIMA, REST, TRAPPED
from flowsim.flow.rows.engine import engine_of, initial_rows
from flowsim.flow.rows.workspace import allocate_workspace
from flowsim.models import RankOneModel
from flowsim.models.rank_one import field as rank_one_field
from flowsim.models.rank_one import rows, slow_manifold
from flowsim.models.rank_one.attention import termination as ends
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


def workspace(model):
    compiled = model.flow().compiled
    return allocate_workspace(*compiled.constants(), len(model.coordinates), compiled.own_steps)


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


def begun(model, theta):
    """A row at θ, its field there known."""
    compiled = model.flow().compiled
    start = torch.tensor([theta], dtype=torch.float64)
    chart, y, at_zero = initial_rows(model, compiled, start)
    engine, status = engine_of(compiled), 1
    while status > 0:
        row = workspace(model)
        row.y[:] = y[0]
        signs = chart.signs[0].numpy()
        status = engine.begin(row, float(at_zero[0]), signs) or engine.linearise(row)
        if status > 0:
            compiled.extend(status - 1)
    return row


def test_curvatures_count_along_the_surface_of_what_is_conserved():
    """Against numpy's eigenvalues of the Hessian in the metric with the normals lifted."""
    random, length = np.random.default_rng(2), 3
    for untied in (0, 1):
        k, first = length + 6 + untied, length + 1
        metric, ints = np.ones(k), np.array([length, untied])
        metric[first : first + 2] = 4.0
        for trial in range(12):
            y = random.normal(size=k)
            hessian = random.normal(size=(k, k))
            hessian = hessian @ hessian.T / 3 + (trial % 3) * 0.3 * np.eye(k) - 0.4 * np.eye(k)
            symmetric = hessian / np.sqrt(metric) / np.sqrt(metric)[:, None]
            lifted = symmetric.copy()
            for i in (first, first + 2):
                normal = np.zeros(k)
                normal[i : i + 2] = y[i], -y[i + 1]
                normal /= np.linalg.norm(normal)
                lifted += np.abs(np.diag(symmetric)).max() * np.outer(normal, normal)
            least = np.linalg.eigvalsh(lifted)[0]
            for off in (-1e-6, 1e-6):
                found = ends.attracts(
                    y, -hessian / metric[:, None], -least + off, ints, np.empty((k, k))
                )
                assert found == (off > 0)


def test_a_row_with_attention_at_rest_is_a_minimum_a_trap_or_a_rest():
    model = RankOneModel(BinaryChain(0.5, 0.8), 2, attention=True)
    log_odds = [math.log(1.0), math.log(0.2 / 0.8)]
    gap = log_odds[1] - log_odds[0]
    # Y = ∓½, closed for zeros and open for ones with slope s: f₁ − f₀ = ½s + ½
    minimum = [1.0, -0.5, -0.5, 1.0, (2 * gap - 2) / 4, 0.0, 0.0, log_odds[0] + 0.5]
    assert float(model.loss(torch.tensor(minimum).double())) == pytest.approx(
        model.chain.entropy_rate, abs=1e-12
    )
    bias = math.log(0.5 / 0.8)
    plane = [0.0, 0.5, 0.5, 1.0, 1.0, 0.3, 0.2, bias]
    for theta, curvature, rule in (
        (minimum, 1.0, MINIMA), (plane, 1.0, TRAPPED), (plane, -1.0, REST),
        ([*plane[:-1], bias + 0.1], 1.0, REST),
    ):  # fmt: skip
        row = begun(model, theta)
        row.velocity[:] = 0.8e-13
        row.derivative[:] = -curvature * np.eye(len(theta))
        assert ends.check_termination(row) == rule


@pytest.mark.parametrize("target", [1e-12, 0.3, 1 - 1e-9])
def test_residuals_of_rare_symbols_keep_their_digits(target):
    t = mpf(target)
    for beyond in (1e-9, -1e-3, 2.0, -5.0):
        exact = 1 / (1 + (1 - t) / t * exp(-mpf(beyond))) - t
        assert residual(beyond, target, float(1 - t)) == pytest.approx(
            float(exact), rel=1e-13, abs=0
        )
