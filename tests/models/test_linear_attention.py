"""Closed form in three dimensions: the exact oracle of the flow with attention."""

import itertools

import pytest
import torch
from conftest import CHAINS

from flowsim import (
    BinaryChain,
    Label,
    find_limits,
)
from flowsim.models import LinearAttentionModel
from flowsim.models.canonical.basins import SADDLE_W


def naive_loss(chain, theta, positions=3):
    """Enumerated sequences; scores 4(xᵢ−½)(x_n−½) make the attention output a(x_n − ½)."""
    e, w, a, b = theta
    total = 0.0
    for path in itertools.product((0, 1), repeat=positions + 1):
        weight = chain.stationary[path[0]]
        for x, y in itertools.pairwise(path):
            after_one = chain.p if x == 0 else 1 - chain.q
            weight *= after_one if y else 1 - after_one
        for n in range(1, positions + 1):
            x = path[n - 1]
            scores = [4 * (xi - 0.5) * (x - 0.5) for xi in path[:n]]
            values = [xi - 0.5 for xi in path[:n]]
            s = x - 0.5 + a * sum(c * v for c, v in zip(scores, values, strict=True)) / n
            logit = e**2 * (s + 4 * w * abs(w) * s.clamp_min(0)) + b
            sign = 1 if path[n] else -1
            total += weight * torch.nn.functional.softplus(-sign * logit) / positions
    return total


@pytest.mark.parametrize(("p", "q"), CHAINS[:3])
@pytest.mark.parametrize("a", [0.7, -0.4, -1.8])
def test_loss_is_that_of_the_enumerated_sequences(p, q, a):
    chain = BinaryChain(p, q)
    theta = torch.tensor([1.3, -0.8, a, 0.4], dtype=torch.float64)
    dynamic = LinearAttentionModel(chain, bias="dynamic").loss(theta)
    assert dynamic.item() == pytest.approx(naive_loss(chain, theta).item(), rel=1e-12)
    optimal = LinearAttentionModel(chain)
    best = torch.cat([theta[:3], optimal.optimal_bias(theta[:3]).unsqueeze(0)])
    assert optimal.loss(theta[:3]).item() == pytest.approx(
        naive_loss(chain, best).item(), rel=1e-12
    )


def test_the_line_where_both_factors_vanish_is_a_saddle():
    model = LinearAttentionModel(BinaryChain(0.5, 0.8))
    on_line = torch.tensor([[1.3, SADDLE_W, -1.0]], dtype=torch.float64)
    limit = find_limits(model, on_line)
    assert limit.label == Label.SADDLE
    aside = on_line + torch.tensor([0.0, 1e-3, 1e-3])
    assert find_limits(model, aside).label == Label.GLOBAL_MINIMUM
