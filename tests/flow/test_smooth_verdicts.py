"""Verdicts on smooth rows: minima, traps, planes, creeping, rest; against numpy and formulas.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from mpmath import exp, log, mpf

from flowsim import (
    BinaryChain,
    MarkovChain,
    RankOneModel,
    StatesAttentionModel,
)
from flowsim.compiled import config
from flowsim.flow.rows.codes import (
    DRIFTS,
    GOING,
    MINIMA,
    REST,
    TRAPPED,
)
from flowsim.flow.rows.smooth import (
    attention,
    attention_verdict,
    dynamic_bias,
    states_rows,
    uniform_rows,
    uniform_verdict,
)
from flowsim.models.uniform.ranges import gather
from flowsim.models.uniform.sums import EACH, SUMS, class_sums
from flowsim.models.uniform.table import STEEPEST, LawTable

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")


def law_table(chain, length):
    """The law's table with all levels that so few positions have."""
    table = LawTable(chain, length, False, True)
    table.add(int(table.ints[STEEPEST]))
    return table


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
                found = attention_verdict.attracts(
                    y, -hessian / metric[:, None], -least + off, ints, np.empty((k, k))
                )
                assert found == (off > 0)


def attention_row(length=2, theta=None, chain=(0.5, 0.8)):
    reals, ints, size = attention.constants(BinaryChain(*chain), length, True)
    y = np.array([0.5, 0.2, -0.6, -0.7, 0.6, -0.5, 0.3, 0.2] if theta is None else theta)
    memory = np.zeros(size)
    attention_verdict.begin(y, ints, memory)
    return y, reals, ints, memory


def test_a_row_with_attention_keeps_what_it_conserves():
    y, _, ints, memory = attention_row()
    assert memory[attention_verdict.BALANCE] == pytest.approx(0.49 - 0.36)
    assert memory[attention_verdict.BALANCE + 1] == pytest.approx(0.25 - 0.09)
    assert memory[attention_verdict.MARK] == -1 and memory[attention_verdict.LIMIT] == np.inf
    off = y + 1e-6 * np.arange(8)
    attention_verdict.conserve(off, ints, memory)
    assert (off[[0, 1, 2, 7]] == (y + 1e-6 * np.arange(8))[[0, 1, 2, 7]]).all()
    assert off[3] ** 2 - off[4] ** 2 == pytest.approx(0.49 - 0.36, abs=1e-10)
    assert off[5] ** 2 - off[6] ** 2 == pytest.approx(0.25 - 0.09, abs=1e-10)
    flat = off.copy()
    flat[3:7] = 0.0
    attention_verdict.conserve(flat, ints, memory)
    assert (flat[3:7] == 0).all()


#: Of a row that creeps: what its loss fell by in the decade before the last, in this one, what
#: the last extrapolation is off by, the sign of the curvature; and whether it is decided.
CREEPS = [
    (1e-3, 3e-4, 0.0, 1, True), (1e-3, 3e-4, 0.0, -1, False), (-1e-3, 3e-4, 0.0, 1, False),
    (1e-6, 0.81e-6, 0.0, 1, False), (1e-6, 0.79e-6, 0.0, 1, True), (1e-3, 0.9e-6, 0.0, 1, False),
    (1e-3, 1.1e-6, 0.0, 1, True), (1e-3, 3e-4, 0.0049, 1, True), (1e-3, 3e-4, 0.0051, 1, False),
    (1e-3, 3e-4, -0.0051, 1, False), (6e-3, 3e-3, 0.0, 1, False), (1e-3, -3e-4, 0.0, 1, False),
]  # fmt: skip


def creeping(before, fall, off, sign=1, time=1.01e4, mark=7, theta=None, chain=(0.5, 0.8)):
    y, reals, ints, memory = attention_row(theta=theta, chain=chain)
    value, rate = attention.loss(y, reals, ints, memory), reals[attention.ENTROPY_RATE]
    limit = value - fall * fall / (before - fall)
    memory[attention_verdict.TIME], memory[attention_verdict.MARK] = time, mark
    memory[attention_verdict.LIMIT] = limit + off * (limit - rate)
    memory[attention_verdict.LOSSES + 6] = value + fall
    memory[attention_verdict.LOSSES + 4] = value + fall + before
    velocity, jacobian = np.full(len(y), 1e-3), -sign * np.eye(len(y))
    work = np.empty((2, len(y), len(y)))
    rule = attention_verdict.verdict(y, velocity, jacobian, reals, ints, memory, work)
    return rule, limit, memory


@pytest.mark.parametrize("case", CREEPS, ids=str)
def test_a_row_that_creeps_is_decided_by_its_falls(case):
    *falls, decided = case
    theta = [0.3, 0.2, -0.1, -0.7, 0.6, -0.5, 0.3, 0.2]
    y, reals, ints, memory = attention_row(theta=theta)
    excess = attention.loss(y, reals, ints, memory) - reals[attention.ENTROPY_RATE]
    assert 0.02 < excess < 0.8 * (reals[attention.UNIGRAM] - reals[attention.ENTROPY_RATE]) + 0.2
    rule, limit, memory = creeping(*falls, theta=theta)
    high = limit - reals[attention.ENTROPY_RATE] > 0.9 * (
        reals[attention.UNIGRAM] - reals[attention.ENTROPY_RATE]
    )
    if not high or not decided:
        assert rule == (DRIFTS if decided else GOING)
    assert memory[attention_verdict.MARK] == 8


def test_a_mark_is_passed_once_and_not_too_early():
    assert creeping(1e-3, 3e-4, 0.0, mark=8)[2][attention_verdict.LIMIT] == pytest.approx(
        creeping(1e-3, 3e-4, 0.0, mark=8)[1]
    )
    _, _, memory = creeping(1e-3, 3e-4, 0.0, time=0.99, mark=-1)
    assert memory[attention_verdict.MARK] == -1
    _, _, memory = creeping(1e-3, 3e-4, 0.0, time=1.0, mark=-1)
    assert memory[attention_verdict.MARK] == 0
    _, _, memory = creeping(1e-3, 3e-4, 0.0, time=500.0, mark=2)
    assert memory[attention_verdict.MARK] == 5
    assert (memory[attention_verdict.LOSSES + 3 : attention_verdict.LOSSES + 6] > 0).all()
    rule, _, memory = creeping(1e-3, 3e-4, 0.0, time=1e24, mark=7)
    assert rule == GOING and memory[attention_verdict.MARK] == 7


def plane_rows():
    """Of each model with a plane e = 0: what its verdict needs, at a trap and not at one."""
    chain, k = BinaryChain(0.5, 0.8), 3
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.CANONICAL)
    bias = math.log(0.5 / 0.8)
    for sign, trap in ((1.0, True), (-1.0, False)):  # γ = ±4·1.5²: λ(1 + γ/2) < 0 or > 0
        memory = np.zeros(size)
        memory[dynamic_bias.SIGN] = sign
        y = np.array([-9.0, math.log(1.5), bias])
        yield "dynamic", dynamic_bias.verdict, y, (reals, ints), memory, trap, k
        table = law_table(chain, 3)
        memory = np.zeros(uniform_rows.MEMORY)
        memory[uniform_rows.SIGN] = sign
        y = np.array([-9.0, math.log(1.5), 0.2])
        yield "uniform", uniform_verdict.verdict, y, (table.reals, table.ints), memory, trap, k
        model = StatesAttentionModel(MarkovChain.symmetric(3, 0.8), 3, 4)
        numbers = states_rows.constants(model)
        memory = np.zeros(numbers[2])
        memory[[states_rows.SIGN_W, states_rows.SIGN_V]] = sign, 1.0
        y = np.array([-9.0, math.log(1.5), -3.0])
        yield "states", states_rows.verdict, y, numbers[:2], memory, trap, k


@pytest.mark.parametrize("number", range(6))
def test_a_row_is_trapped_by_a_plane_that_attracts(number):
    _, verdict, y, constants, memory, trap, k = list(plane_rows())[number]

    def decide(*velocity, at=y):
        work = np.empty((2, k, k))
        return verdict(at, np.array(velocity), np.eye(k), *constants, memory, work)

    assert decide(-1e-3, 0.9e-19, -0.9e-19) == (TRAPPED if trap else GOING)
    assert decide(-1e-3, 0.9e-19, -1.1e-15) == GOING
    if number == 0:  # a bias, whose velocity is a rounded difference
        assert decide(-1e-3, 0.9e-19, -0.9e-15) == (TRAPPED if trap else GOING)
    assert decide(-1e-3, 1.1e-19, 0.0) == GOING
    assert decide(1e-3, 0.0, 0.0) == GOING
    high = y.copy()
    high[0] = 0.3  # the plane below counts, not the row
    assert decide(-1e-3, 0.0, 0.0, at=high) == (TRAPPED if trap else GOING)
    assert decide(0.9e-12, 0.9e-12, 0.9e-12) == REST
    assert decide(1.1e-12, 0.0, 0.0) == GOING
    assert decide(0.0, -1.1e-12, 0.0) == GOING
    small = y.copy()
    small[1] = math.log(1e-4)
    assert decide(0.0, 1e-9, 0.0, at=small) == REST
    assert decide(0.0, 1e-7, 0.0, at=small) == GOING


def minimum_rows(off):
    """Of two models: the verdict at a minimum, or ``off`` it."""
    chain = BinaryChain(0.5, 0.8)
    target = math.log(0.2 / 0.8)
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.LINEAR)
    memory = np.zeros(size)
    yield (
        dynamic_bias.verdict,
        np.array([0.0, 0.0, target - 1, target / 2 + off]),
        (reals, ints),
        memory,
    )
    table = law_table(chain, 1)
    memory = np.zeros(uniform_rows.MEMORY)
    yield (
        uniform_verdict.verdict,
        np.array([off, 0.0, target - 1]),
        (table.reals, table.ints),
        memory,
    )


@pytest.mark.parametrize("off, rule", [(0.0, MINIMA), (3e-6, MINIMA), (1e-3, REST)])
def test_a_row_that_stands_still_is_at_a_minimum_or_rests(off, rule):
    for verdict, y, constants, memory in minimum_rows(off):
        work, k = np.empty((2, len(y), len(y))), len(y)
        assert verdict(y, np.zeros(k), np.eye(k), *constants, memory, work) == rule
        assert verdict(y, np.full(k, 1.1e-12), np.eye(k), *constants, memory, work) == GOING


def test_next_to_p_and_q_of_sum_one_rounding_does_not_hide_a_minimum():
    """The information is 1e-12, a billionth of it far below the loss's rounding."""
    chain, k = BinaryChain(0.3, 0.7 + 1e-6), 4
    odds = math.log(0.3 / 0.7), math.log((0.3 - 1e-6) / (0.7 + 1e-6))
    gap = odds[1] - odds[0]
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.LINEAR)
    y, work = np.array([0.0, 0.0, gap - 1, sum(odds) / 2]), np.empty((2, k, k))
    still = np.zeros(k), np.eye(k)
    assert dynamic_bias.verdict(y, *still, reals, ints, np.zeros(size), work) == MINIMA
    table, k = law_table(chain, 1), 3
    y, work, still = y[:3], np.empty((2, k, k)), (np.zeros(k), np.eye(k))
    memory = np.zeros(uniform_rows.MEMORY)
    assert uniform_verdict.verdict(y, *still, table.reals, table.ints, memory, work) == MINIMA
    states = StatesAttentionModel(MarkovChain.symmetric(2, 0.5 + 1e-6), 1, 1)
    reals, ints, size = states_rows.constants(states)
    y, work = np.array([-5.0, -50.0, -50.0]), np.empty((2, k, k))
    found = states_rows.verdict(y, *still, reals, ints, np.zeros(size), work)
    assert found in (MINIMA, REST)
    # closed for zeros and open for ones, of slope s: f₁ − f₀ = ½s + ½
    theta = [1.0, -0.5, 1.0, (2 * gap - 2) / 4, 0.0, 0.0, odds[0] + 0.5]
    y, reals, ints, memory = attention_row(1, theta, (0.3, 0.7 + 1e-6))
    k = len(y)
    found = attention_verdict.verdict(
        y, np.zeros(k), -np.eye(k), reals, ints, memory, np.empty((2, k, k))
    )
    assert found == MINIMA


@pytest.mark.parametrize("q", [1 - 1e-12, 1e-12])
def test_residuals_of_rare_symbols_keep_their_digits(q):
    """Σω of ones at N = 1, where the next symbol is nearly certain."""
    table, memory = law_table(BinaryChain(0.5, q), 1), np.zeros(uniform_rows.MEMORY)
    assert gather(1.0, 0.0, 0.0, 0.0, table.reals, table.ints, memory) == 0
    target = mpf(1) - mpf(q)
    shift = float(log(target / (1 - target))) - 1.0 + 1e-3
    class_sums(1.0, 0.0, 0.0, shift, table.reals, memory)
    pi1 = mpf(0.5) / (mpf(0.5) + mpf(q))
    exact = pi1 * (1 / (1 + exp(-(mpf(shift) + 1))) - target)
    found = memory[SUMS + 2 * EACH] + memory[SUMS + 3 * EACH]
    assert found == pytest.approx(float(exact), rel=1e-9, abs=0)


def test_where_p_and_q_sum_to_one_the_loss_alone_decides():
    chain, k = BinaryChain(0.3, 0.7), 3
    reals, ints, size = dynamic_bias.constants(chain, dynamic_bias.CANONICAL)
    table = law_table(chain, 2)
    assert reals[dynamic_bias.LAMBDA] == 0
    for e, rule in ((-12.0, MINIMA), (0.0, GOING)):
        bias = math.log(0.3 / 0.7)
        velocity, work = np.array([-1.0, 1.0, 1.0]), np.empty((2, k, k))
        y = np.array([e, 0.0, bias])
        memory = np.zeros(size)
        memory[dynamic_bias.SIGN] = 1.0
        found = dynamic_bias.verdict(y, velocity, np.eye(k), reals, ints, memory, work)
        assert found == rule
        y, memory = np.array([e, 0.0, 0.3]), np.zeros(uniform_rows.MEMORY)
        memory[uniform_rows.SIGN] = 1.0
        found = uniform_verdict.verdict(
            y, velocity, np.eye(k), table.reals, table.ints, memory, work
        )
        assert found == rule
        states = StatesAttentionModel(MarkovChain.symmetric(4, 0.75), 2, 1)
        reals_of, ints_of, size_of = states_rows.constants(states)
        assert reals_of[states_rows.LAMBDA] == 0
        memory = np.zeros(size_of)
        memory[[states_rows.SIGN_W, states_rows.SIGN_V]] = 1.0
        y = np.array([e, 0.0, 0.0])
        found = states_rows.verdict(y, velocity, np.eye(k), reals_of, ints_of, memory, work)
        assert found == rule


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
        y, reals, ints, memory = attention_row(theta=theta)
        k = len(y)
        found = attention_verdict.verdict(
            y, np.full(k, 0.9e-12), -curvature * np.eye(k), reals, ints, memory, np.empty((2, k, k))
        )
        assert found == rule
