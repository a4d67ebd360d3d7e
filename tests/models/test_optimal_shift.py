"""The optimal bias by itself: residuals without cancellation, and the root in forty digits."""

import math

import mpmath
import pytest
import torch
from mpmath import mpf

from flowsim import BinaryChain
from flowsim.models.bias import (
    entropy_given,
    optimal_shift,
    residual_and_slope,
    residual_given,
    weighted_sum,
)

#: Targets t(0) = p and t(1) = 1 − q next to 0, next to 1 and between.
CHAINS = [(0.2, 0.3), (1 - 1e-12, 0.3), (1e-12, 0.7), (0.4, 1 - 1e-12), (0.5, 1e-12)]
LOGITS = torch.tensor([-40.0, -27.0, -3.0, 0.0, 2.0, 27.6, 40.0], dtype=torch.float64)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-mpf(float(x))))


def target(pair, x):
    return mpf(pair[0]) if x == 0 else 1 - mpf(pair[1])


@pytest.mark.parametrize("pair", CHAINS)
@pytest.mark.parametrize("x", [0, 1])
def test_residuals_and_entropies_keep_their_digits(pair, x):
    chain, t = BinaryChain(*pair), target(pair, x)
    residual, slope = residual_and_slope(chain, x, LOGITS.clone())
    other, entropy = residual_given(chain, x, LOGITS), entropy_given(chain, x, LOGITS)
    for i, f in enumerate(LOGITS):
        s = sigmoid(f)
        near = min(s + t, 2 - s - t)
        for found in (residual[i], other[i]):
            assert abs(mpf(float(found)) - (s - t)) <= 4e-16 * near
        assert abs(mpf(float(slope[i])) - s * (1 - s)) <= 2e-16
        exact = -t * mpmath.log(s) - (1 - t) * mpmath.log(sigmoid(-f))
        assert abs(mpf(float(entropy[i])) - exact) <= 1e-15 * exact


def test_a_weighted_sum_of_shared_and_of_own_weights():
    values = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 7.0]], dtype=torch.float64)
    shared, own = torch.tensor([[1.0, 0.5, 0.25]]).double(), values.flip(0)
    assert weighted_sum(values, shared).tolist() == [3.0, 7.25]
    assert weighted_sum(values, own).tolist() == [41.0, 41.0]


def nodes(chain, rows, scale, seed, falls=False):
    """Logits up to the shift at three nodes given each symbol, and the nodes' weights."""
    draw = torch.Generator().manual_seed(seed)
    h = [scale * torch.randn(rows, 3, dtype=torch.float64, generator=draw) for _ in (0, 1)]
    h[0 if falls else 1] += 4 * scale
    weight = torch.rand(1, 3, dtype=torch.float64, generator=draw)
    return [pi * weight / weight.sum() for pi in chain.stationary], h


@pytest.mark.parametrize("pair", [(0.2, 0.3), (0.5, 0.8), (0.3, 0.3), (0.02, 0.9), (1e-6, 0.4)])
@pytest.mark.parametrize("scale", [0.0, 0.3, 5.0, 60.0])
@pytest.mark.parametrize("falls", [False, True])
def test_the_shift_is_the_root_in_forty_digits(pair, scale, falls):
    """Also with the bracket on one side only just beyond, and from a poor guess."""
    chain = BinaryChain(*pair)
    weights, h = nodes(chain, 4, scale, 3, falls)
    low, high = (
        torch.full((4,), sign * 10 * (scale + 10), dtype=torch.float64) for sign in (-1, 1)
    )
    found = optimal_shift(chain, weights, h, (low, high))
    coarse = [w[:, :1] / w[:, :1] * w.sum() for w in weights], [part[:, :1] for part in h]
    for again in (
        optimal_shift(chain, weights, h, (low, high), coarse),
        optimal_shift(chain, weights, h, (found - 1e-3, high)),
        optimal_shift(chain, weights, h, (low, found + 1e-3)),
    ):
        torch.testing.assert_close(again, found, rtol=1e-12, atol=1e-11)
    for row in range(4):
        total, size = mpf(0), mpf(0)
        for x in (0, 1):
            t = target(pair, x)
            for weight, f in zip(weights[x][0], h[x][row], strict=True):
                s = sigmoid(f + found[row])
                total += mpf(float(weight)) * (s - t)
                size += mpf(float(weight)) * s * (1 - s)
        assert abs(total) <= 1e-10 * size + 1e-16, (row, total, size)


def test_rows_do_not_see_each_other_and_a_lost_one_is_nan():
    chain = BinaryChain(0.2, 0.3)
    weights, h = nodes(chain, 5, 2.0, 7)
    bracket = torch.full((5,), -50.0).double(), torch.full((5,), 50.0).double()
    whole = optimal_shift(chain, weights, h, bracket)
    for i in range(5):
        part = optimal_shift(
            chain, weights, [v[i : i + 1] for v in h], tuple(b[i : i + 1] for b in bracket)
        )
        # the last bit depends on whether a processor's vectors hold a row or leave it over
        torch.testing.assert_close(part, whole[i : i + 1], rtol=1e-14, atol=0)
    h[0][2, 1] = math.nan
    lost = optimal_shift(chain, weights, h, bracket)
    assert torch.equal(lost.isnan(), torch.arange(5) == 2)
    assert torch.equal(lost[[0, 1, 3, 4]], whole[[0, 1, 3, 4]])
