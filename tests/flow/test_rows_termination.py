"""Verdicts on smooth rows: minima, traps, planes, creeping, rest; against numpy and formulas.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from mpmath import exp, log, mpf
from one_row import begun

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow.return_codes import MINIMA, REST, TRAPPED
from flowsim.models import RankOneModel, UniformAttentionModel
from flowsim.models.rank_one.attention import termination as ends
from flowsim.models.uniform.rows import MEMORY
from flowsim.models.uniform.sums import EACH, SUMS, class_sums
from flowsim.models.uniform.table import BEYOND, STEEPEST, UNIGRAM_LOGIT, LawTable, gather

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
THETA = (0.5, 0.2, -0.6, -0.7, 0.6, -0.5, 0.3, 0.2)


def attention_row(length=2, theta=THETA, chain=(0.5, 0.8)):
    return begun(RankOneModel(BinaryChain(*chain), length, attention=True), theta)[1]


def uniform_row(length, y, chain=(0.5, 0.8), sign=1):
    """(engine, row) at y = (log|e|, log|w|, a[, b]), w of that sign."""
    bias = "dynamic" if len(y) == 4 else "optimal"
    model = UniformAttentionModel(BinaryChain(*chain), length, bias)
    return begun(model, [math.exp(y[0]), sign * math.exp(y[1]), *y[2:]])


def decide(engine, row, velocity, jacobian=None, y=None):
    """The verdict on a row with this velocity and Jacobian (by default the identity)."""
    row.y[:] = row.y if y is None else y
    row.velocity[:] = velocity
    row.derivative[:] = np.eye(len(row.y)) if jacobian is None else jacobian
    return engine.check_termination(row)


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


def test_next_to_p_and_q_of_sum_one_rounding_does_not_hide_a_minimum():
    """The information is 1e-12, a billionth of it far below the loss's rounding."""
    chain = 0.3, 0.7 + 1e-6
    odds = math.log(0.3 / 0.7), math.log((0.3 - 1e-6) / (0.7 + 1e-6))
    gap = odds[1] - odds[0]
    for y in ([0.0, 0.0, gap - 1], [0.0, 0.0, gap - 1, sum(odds) / 2]):
        engine, row = uniform_row(1, y, chain, sign=0)
        assert decide(engine, row, 0.0) == MINIMA
    # closed for zeros and open for ones, of slope s: f₁ − f₀ = ½s + ½
    theta = [1.0, -0.5, 1.0, (2 * gap - 2) / 4, 0.0, 0.0, odds[0] + 0.5]
    row = attention_row(1, theta, chain)
    assert decide(ends, row, 0.0, -np.eye(len(theta))) == MINIMA


@pytest.mark.parametrize("q", [1 - 1e-12, 1e-12])
def test_residuals_of_rare_symbols_keep_their_digits(q):
    """Σω of ones at N = 1, where the next symbol is nearly certain."""
    table, memory = LawTable(BinaryChain(0.5, q), 1, False, True), np.zeros(MEMORY)
    table.add(int(table.ints[STEEPEST]))
    assert gather(1.0, 0.0, 0.0, 0.0, table.reals, table.ints, memory) == 0
    target = mpf(1) - mpf(q)
    unigram, beyond = table.reals[UNIGRAM_LOGIT], table.reals[BEYOND + 1]
    assert unigram - beyond == pytest.approx(float(log(target / (1 - target))), rel=1e-15)
    shift = -beyond - 1.0 + 1e-3
    class_sums(1.0, 0.0, 0.0, shift, table.reals, memory)
    pi1 = mpf(0.5) / (mpf(0.5) + mpf(q))
    exact = pi1 * (1 / (1 + exp(-(log(target / (1 - target)) + mpf("1e-3")))) - target)
    found = memory[SUMS + 2 * EACH] + memory[SUMS + 3 * EACH]
    assert found == pytest.approx(float(exact), rel=1e-9, abs=0)


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
        row = attention_row(theta=theta)
        assert decide(ends, row, 0.8e-13, -curvature * np.eye(len(theta))) == rule
