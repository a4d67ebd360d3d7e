"""The field of models with attention: what it is without attention, and what its stiffness is."""

import pytest
import torch

from flowsim import BinaryChain
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    forward,
    initial_weights,
)
from full_model.comparison.fields import FullField

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)


@pytest.mark.parametrize("tied", [True, False])
def test_zero_attention_is_the_field_without_attention(tied):
    arch = Architecture(5, 6, tied=tied)
    plain = Architecture(5, 6, attention="none", tied=tied)
    weights = initial_weights(arch, "gaussian", range(8), std=0.8)
    for name in ("0.value", "0.out"):
        weights[name] = torch.zeros_like(weights[name])
    field, free = FullField(arch, CHAIN), FullField(plain, CHAIN)
    gradient, stiffness = field(field.state(weights))
    expected, bound = free(free.state({name: weights[name] for name in plain.shapes}))
    by_name, expected_by_name = field.weights(gradient), free.weights(expected)
    for name, g in by_name.items():
        wanted = expected_by_name.get(name, torch.zeros_like(g))
        torch.testing.assert_close(g, wanted, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(stiffness, bound, rtol=1e-12, atol=0)


def squares(arch, weights, tokens, n):
    """|∂f/∂θ|², the positions together, and |κ|²Σ D² by the derivatives of the scores."""
    free = {name: w.clone().requires_grad_() for name, w in weights.items()}
    logit = forward(arch, free, tokens)[0, n]
    grads = torch.autograd.grad(logit, list(free.values()))
    by_name = dict(zip(free, grads, strict=True))
    total = sum(g.square().sum() for name, g in by_name.items() if name != "positions")
    total = total + by_name["positions"].sum(0).square().sum() / arch.length
    x = tokens[0, : n + 1, None] * weights["embedding"] + weights["positions"][: n + 1]
    kappa = weights["0.key"].mT @ (weights["0.query"] @ x[n]) / arch.d**0.5
    scores = (x @ kappa).requires_grad_()
    y = x[n] + weights["0.out"] @ (weights["0.value"] @ (scores.softmax(0) @ x))
    z = y + weights["0.down"] @ (weights["0.up"] @ y).relu()
    u = weights["embedding"] if arch.tied else weights["unembedding"]
    again = u @ z + weights["bias"]
    assert abs(again - logit) < 1e-13
    (slopes,) = torch.autograd.grad(again, scores)
    return logit.detach(), total + kappa.square().sum() * slopes.square().sum()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0])
def test_stiffness_bounds_the_trace_by_automatic_differentiation(tied, scale):
    """It is the trace where queries and keys are 0, and next to it where they are small."""
    arch = Architecture(3, 3, hidden=5, tied=tied)
    weights = initial_weights(arch, "gaussian", [0], std=0.9)
    for name in ("0.query", "0.key"):
        weights[name] *= scale
    field = FullField(arch, CHAIN)
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))
    expected = 0.0
    for i, law in enumerate(loss.probability[0]):
        for n in range(3):
            alone = {name: w[0] for name, w in weights.items()}
            logit, square = squares(arch, alone, loss.tokens[i : i + 1].long(), n)
            chance, target = logit.sigmoid(), loss.targets[0, i, n]
            spread = torch.maximum(chance * (1 - chance), target * (1 - target))
            expected += float(law / 3 * spread * square)
    found = float(field(field.state(weights))[1])
    assert expected * (1 - 1e-12) < found
    if scale < 1:
        assert found == pytest.approx(expected, rel=max(scale, 1e-12))
