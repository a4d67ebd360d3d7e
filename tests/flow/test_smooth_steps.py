"""Steps and orbits of smooth rows, against numpy and formulas.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from near import near

from flowsim import (
    BinaryChain,
    CanonicalModel,
    LinearAttentionModel,
    UntiedModel,
)
from flowsim.compiled import config
from flowsim.flow.rows import landing, tableau
from flowsim.flow.rows.codes import (
    ARRIVED,
    CRITICAL,
    DYNAMIC_BIAS,
    MINIMA,
)
from flowsim.flow.rows.smooth import (
    dynamic_bias,
    smooth_orbit,
    smooth_step,
)

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
KINDS = {"canonical": (CanonicalModel, dynamic_bias.CANONICAL),
         "linear": (LinearAttentionModel, dynamic_bias.LINEAR),
         "untied": (UntiedModel, dynamic_bias.UNTIED)}  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 5])
def test_linear_equations_are_solved(size):
    random = np.random.default_rng(1)
    one = np.eye(size)
    for matrix in [*random.normal(size=(6, size, size)), one[::-1] + 0.0, one + 1]:
        vector, pivots, factors = random.normal(size=size), np.zeros(size, int), matrix.copy()
        assert smooth_step.factorise(factors, pivots)
        found = vector.copy()
        smooth_step.solve(factors, pivots, found)
        near(found, np.linalg.solve(matrix, vector), 1e-10)
    assert not smooth_step.factorise(np.zeros((size, size)), np.zeros(size, int))


def test_pivots_are_the_largest_of_their_column():
    matrix, pivots = (
        np.array([[1e-20, 1.0, 0.0], [-3.0, 1.0, 0.0], [2.0, 5.0, 1e-9]]),
        np.zeros(3, int),
    )
    assert smooth_step.factorise(matrix, pivots) and pivots.tolist() == [1, 2, 2]


def prepared(name="linear", theta=(0.7, -0.6, -0.4, 0.3), chain=(0.5, 0.8)):
    """What the loop hands to a step of a gap model with a bias: y, field, Jacobian and tools."""
    model = KINDS[name][0](BinaryChain(*chain), bias="dynamic")
    reals, ints, size = dynamic_bias.constants(model.chain, KINDS[name][1])
    theta, k = np.array(theta), len(theta)
    y = np.where(model.keeps_sign, np.log(np.abs(theta)), theta)
    memory, field, jacobian = np.zeros(size), np.empty(k), np.empty((k, k))
    memory[dynamic_bias.SIGN] = np.sign(theta[model.coordinates.index("w")])
    assert dynamic_bias.expand(y, reals, ints, memory, field, jacobian, 1.0) == 0
    tools = (reals, ints, memory, np.empty(k), np.empty((tableau.STAGES, k)),
             np.empty((2, k, k)), np.empty(k), np.empty(k, dtype=np.int64))  # fmt: skip
    return y, field, jacobian, tools


def test_a_step_solves_its_eight_linear_equations():
    y, field, jacobian, tools = prepared()
    reals, ints, memory, new, stages = tools[:5]
    for h in (0.01, 0.3, 5.0):
        before = y.copy(), field.copy(), jacobian.copy()
        assert smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, h, *tools) == 0
        assert all((a == b).all() for a, b in zip(before, (y, field, jacobian), strict=True))
        matrix, rate = np.eye(len(y)) / (tableau.GAMMA * h) - jacobian, np.empty(len(y))
        expected = np.zeros_like(stages)
        for s in range(tableau.STAGES):
            point = y + tableau.A[s] @ expected
            dynamic_bias.expand(point, reals, ints, memory, rate, None, False)
            expected[s] = np.linalg.solve(matrix, rate + tableau.C[s] @ expected / h)
        near(stages, expected, 1e-11)
        near(new, y + tableau.A[-1] @ expected + expected[-1], 1e-12)
    singular = np.eye(len(y)) / tableau.GAMMA
    assert smooth_step.step(DYNAMIC_BIAS, y, field, singular, 1.0, *tools) == -1
    assert smooth_step.step(DYNAMIC_BIAS, y, np.nan * field, jacobian, 0.1, *tools) == -1


def test_sizes_and_errors_are_the_largest_and_see_what_is_no_number():
    assert smooth_orbit.largest_of(np.array([0.5, -3.0, 2.0])) == 3.0
    assert smooth_orbit.largest_of(np.array([np.inf, 1.0])) == np.inf
    assert math.isnan(smooth_orbit.largest_of(np.array([1.0, np.nan, 5.0])))
    y, new = np.array([1.0, -4.0]), np.array([-3.0, 2.0])
    absolute, relative = np.array([0.1, 0.0]), np.array([0.01, 0.5])
    found = smooth_orbit.error_ratio(y, new, np.array([-0.26, 1.0]), absolute, relative)
    assert found == pytest.approx(2.0)
    assert smooth_orbit.error_ratio(y, new, np.array([0.0, 1.0]), absolute, relative) == 0.5
    assert not smooth_orbit.error_ratio(y, new, np.array([np.nan, 1.0]), absolute, relative) <= 1.0
    assert smooth_orbit.shortened(2.0, np.inf) == 0.2
    assert smooth_orbit.shortened(2.0, 32.0) == pytest.approx(0.9)
    assert smooth_orbit.shortened(2.0, 1e9) == 0.2


def test_the_slowest_passage_is_recorded():
    record = np.array([0.0, 0.0, 1.0, np.inf, 0.0])
    seen = []
    for speed in (0.5, 0.2, 0.6, 0.7, 0.1, 0.29, 0.3000001, 5.0, 0.01):
        smooth_orbit.record_speed(record, speed)
        seen.append(record[2:4].tolist())
    assert seen == [[0.5, np.inf], [0.2, np.inf], [0.2, np.inf], [0.2, 0.2], [0.1, 0.2],
                    [0.1, 0.2], [0.1, 0.1], [0.1, 0.1], [0.01, 0.1]]  # fmt: skip


def test_a_step_lands_on_the_wanted_loss():
    y, field, jacobian, tools = prepared()
    reals, ints, memory, new = tools[:4]
    begin = dynamic_bias.loss(y, reals, ints, memory)
    smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, 0.8, *tools)
    least = dynamic_bias.loss(new, reals, ints, memory)
    for part in (1e-6, 0.3, 0.7, 1 - 1e-6):
        smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, 0.8, *tools)
        wanted = begin + part * (least - begin)
        h = landing.land(DYNAMIC_BIAS, y, field, jacobian, 0.8, landing.LOSS, wanted, tools)
        assert 0 < h < 0.8
        found = new.copy()
        assert dynamic_bias.loss(found, reals, ints, memory) == pytest.approx(wanted, abs=1e-14)
        smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, h, *tools)
        assert (new == found).all()


def test_points_of_a_step_are_ends_of_shorter_ones():
    y, field, jacobian, tools = prepared()
    times, path = np.array([1.0, 1.1, 1.3, 1.5, 1.6]), np.zeros((5, 4))
    smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, 0.5, *tools)
    whole = tools[3].copy()
    arguments = DYNAMIC_BIAS, y, field, jacobian, 0.5, 1.0, times, 1, path, tools
    assert smooth_orbit.write_path(*arguments) == 4
    assert (tools[3] == whole).all() and (path[[0, 4]] == 0).all()
    for i in (1, 2, 3):
        smooth_step.step(DYNAMIC_BIAS, y, field, jacobian, times[i] - 1.0, *tools)
        assert (path[i] == tools[3]).all()


def follow(theta, chain=(0.5, 0.8), times=(), wanted=-np.inf, most=500, rtol=1e-8):
    """(why, y, path, record) of one linear row with a bias."""
    y, _, _, tools = prepared(theta=theta, chain=chain)
    reals, ints, memory = tools[:3]
    path, record = np.full((len(times), 4), np.nan), np.zeros(5)
    why = smooth_orbit.follow(
        DYNAMIC_BIAS, y, reals, ints, memory, np.full(4, rtol), np.full(4, 1e-15),
        np.array(times), path, wanted, most, record,
    )  # fmt: skip
    return why, y, path, record


def test_a_row_stops_at_the_first_of_its_ends():
    theta = (0.7, -0.6, -0.4, 0.3)
    why, _, path, record = follow(theta, times=(0.0, 0.2, 5.0))
    assert why == ARRIVED and np.isfinite(path).all() and record[1] >= 5.0
    assert path[0] == pytest.approx([math.log(0.7), math.log(0.6), -0.4, 0.3])
    model = LinearAttentionModel(BinaryChain(0.5, 0.8), bias="dynamic")
    wanted = float(model.loss(torch.tensor(theta).double())) - 1e-4
    why, y, _, record = follow(theta, wanted=wanted)
    _, again, _, _ = follow(theta, times=(float(record[1]),))
    assert why == ARRIVED and y == pytest.approx(again, abs=1e-7)
    assert follow(theta, most=3)[0] == smooth_orbit.OUT_OF_STEPS
    assert follow(theta, most=3)[3][0] == 3
    log_odds = [math.log(0.5 / 0.5), math.log(0.2 / 0.8)]
    rest = (1.0, 1e-200, log_odds[1] - log_odds[0] - 1, (log_odds[0] + log_odds[1]) / 2)
    assert follow(rest)[0] in (CRITICAL, MINIMA)
    for y0 in (np.nan, np.inf):
        broken = prepared()[0]
        broken[3] = y0
        _, _, _, tools = prepared()
        found = smooth_orbit.follow(
            DYNAMIC_BIAS, broken, *tools[:3], np.ones(4), np.ones(4), np.array([]),
            np.empty((0, 4)), -np.inf, 5, np.zeros(5),
        )  # fmt: skip
        assert found == smooth_orbit.NOT_FINITE
