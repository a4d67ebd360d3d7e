"""Fields of full models: their loss and gradient by enumeration, and bounds on their curvature."""

import pytest
import torch

from flowsim import BinaryChain, MarkovChain
from full_model import Architecture, MarkovSource, PopulationLoss, forward, initial_weights
from full_model.comparison.fields import FullField

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)
NONE = {"attention": "none"}
STATES = {"states": 3, "output": "states", "hidden": 6}
CASES = [
    (Architecture(3, 5, **NONE), CHAIN),
    (Architecture(3, 5, tied=False, **NONE), CHAIN),
    (Architecture(4, 2, **STATES), MarkovChain.symmetric(3, 0.6)),
    (Architecture(4, 3, **STATES, **NONE), MarkovChain.symmetric(3, 0.8)),
]


def random_weights(arch, members=3):
    weights = initial_weights(arch, "gaussian", range(members), std=0.8)
    weights["bias"] = torch.linspace(-1, 1, weights["bias"].numel(), dtype=F64)
    weights["bias"] = weights["bias"].reshape(members, *arch.shapes["bias"])
    return weights


@pytest.mark.parametrize(("arch", "chain"), CASES, ids=str)
def test_loss_and_gradient_are_those_of_enumeration(arch, chain):
    weights, field = random_weights(arch), FullField(arch, chain)
    state = field.state(weights)
    loss, gradient = PopulationLoss(arch, MarkovSource.of(chain)).value_and_gradient(weights)
    torch.testing.assert_close(field.loss(state), loss, rtol=1e-13, atol=0)
    torch.testing.assert_close(field(state)[0], field.state(gradient), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("arch", "chain"), CASES[2:], ids=str)
def test_the_stiffness_bounds_gauss_newton(arch, chain):
    """No less than half the largest curvature of Σ law J ᵀ(diag t − ttᵀ) J, t model or target."""
    field, weights = FullField(arch, chain), random_weights(arch, 1)
    flat, loss = field.state(weights), PopulationLoss(arch, MarkovSource.of(chain))

    def logits(state):
        parts = field.weights(state.unsqueeze(0))
        return forward(arch, {name: part[0] for name, part in parts.items()}, loss.tokens)

    slopes = torch.autograd.functional.jacobian(logits, flat[0])  # (sequences, N, S, K)
    for chance in (logits(flat[0]).softmax(-1), loss.targets[0]):
        about = torch.diag_embed(chance) - chance.unsqueeze(-1) * chance.unsqueeze(-2)
        law = loss.probability[0] / arch.length
        matrix = torch.einsum("b,bnac,bnak,bncl->kl", law, about, slopes, slopes)
        assert torch.linalg.eigvalsh(matrix)[-1] < float(field(flat)[1][0])


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
