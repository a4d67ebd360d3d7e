"""Why rows with attention stop: at minima, traps and places of rest; against numpy and formulas.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from one_row import begun

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow.return_codes import MINIMA, REST, TRAPPED
from flowsim.models import RankOneModel
from flowsim.models.rank_one.attention import termination as ends

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")


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
        _, row = begun(model, theta)
        row.velocity[:] = 0.8e-13
        row.derivative[:] = -curvature * np.eye(len(theta))
        assert ends.check_termination(row) == rule
