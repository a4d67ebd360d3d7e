"""Comparisons with the plane of S states: exact fields, exact agreement, honest outcomes."""

import numpy as np
import pytest
import torch

from flowsim import MarkovChain
from flowsim.labels import Label
from full_model import (
    Architecture,
    Comparison,
    MarkovSource,
    PopulationLoss,
    compare,
    grid_points,
    initial_weights,
)
from full_model.comparison.fields import FullField
from full_model.comparison.outcome import hessian_block, mean_free_basis
from full_model.model.transformer import forward

F64 = torch.float64
#: S, p, N, d, attention.
CASES = [(3, 0.6, 2, 4, "softmax"), (3, 0.8, 3, 4, "none")]


def arch_of(states, length, d, attention, m=2):
    return Architecture(
        d, length, hidden=m * states, states=states, output="states", attention=attention
    )


def random_weights(arch, members=3):
    weights = initial_weights(arch, "gaussian", range(members), std=0.8)
    weights["bias"] = torch.linspace(-1, 1, members * arch.states, dtype=F64).reshape(members, -1)
    return weights


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_gradient_are_those_of_enumeration(case):
    states, p, length, d, attention = case
    arch = arch_of(states, length, d, attention)
    source = MarkovSource.of(MarkovChain.symmetric(states, p))
    weights = random_weights(arch)
    field = FullField(arch, MarkovChain.symmetric(states, p))
    loss, gradient = field.loss(field.state(weights)), field.gradient(weights)
    expected, by_name = PopulationLoss(arch, source).value_and_gradient(weights)
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
    for name, value in by_name.items():
        torch.testing.assert_close(gradient[name], value, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_stiffness_bounds_gauss_newton(case):
    """No less than half the largest curvature of Σ law J ᵀ(diag t − ttᵀ) J, t model or target."""
    states, p, length, d, attention = case
    arch = arch_of(states, length, d, attention)
    field = FullField(arch, MarkovChain.symmetric(states, p))
    weights = random_weights(arch, 1)
    flat = field.state(weights)
    loss = PopulationLoss(arch, MarkovSource.of(MarkovChain.symmetric(states, p)))

    def logits(state):
        parts = field.weights(state.unsqueeze(0))
        return forward(arch, {name: part[0] for name, part in parts.items()}, loss.tokens)

    slopes = torch.autograd.functional.jacobian(logits, flat[0])  # (sequences, N, S, K)
    for chance in (logits(flat[0]).softmax(-1), loss.targets[0]):
        about = torch.diag_embed(chance) - chance.unsqueeze(-1) * chance.unsqueeze(-2)
        law = loss.probability[0] / length
        matrix = torch.einsum("b,bnac,bnak,bncl->kl", law, about, slopes, slopes)
        assert torch.linalg.eigvalsh(matrix)[-1] < float(field(flat)[1][0])


def test_the_block_at_the_unigram_is_the_hessian():
    arch, chain = arch_of(3, 2, 3, "softmax"), MarkovChain.symmetric(3, 0.8)
    field, weights = FullField(arch, chain), random_weights(arch, 2)
    basis = mean_free_basis(3)
    assert (basis @ basis.T - torch.eye(2)).abs().max() < 1e-15 and basis.sum(1).abs().max() < 1e-15
    block, smooth = hessian_block(basis, weights, field.gradient)
    assert smooth.all() and (block[:, :2, :2] - torch.eye(2) / 3).abs().max() < 1e-6
    mean = weights["embedding"][0].mean(0)
    loss = PopulationLoss(arch, MarkovSource.of(chain))

    def value(entries):
        moved = {name: part[0] for name, part in weights.items()}
        moved["bias"] = entries[:2] @ basis
        moved["embedding"] = mean + (entries[2:].reshape(2, 3).T @ basis).T
        return loss(moved)

    exact = torch.autograd.functional.hessian(value, torch.zeros(8, dtype=F64))
    torch.testing.assert_close(block[0], exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("trainer", ["gd", "flow"])
def test_above_the_threshold_every_run_ends_as_predicted(trainer):
    points = grid_points(3, 4, (-1.0, 0.6), (-1.2, 1.2))
    record = compare(Comparison(0.8, None, "states", trainer, d=4, states=3), points)
    assert record.attrs["agreement"] == 1 and record.attrs["decided"] == 12
    assert record.attrs["different_starts"] == 6 and "agreement_low" not in record.attrs
    assert {1, 2} == set(record.predicted.values.tolist())
    assert np.nanmax(record.drift) < 1e-7
    if trainer == "flow":
        assert np.nanmax(record.distance) < 1e-3
    assert record.attrs["hidden_per_state"] == 4 and record.attrs["noisy_weights"] == ["none"]


def test_below_the_threshold_the_trap_is_a_saddle():
    """Or rounding frees the run; it is called a local minimum in no case."""
    record = compare(
        Comparison(0.5, None, "states", d=4, states=3, steps=3000),
        torch.tensor([[0.9, 0.3], [0.3, -1.1], [0.5, -0.8]], dtype=F64),
    )
    assert record.predicted.values.tolist() == [1, 2, 2]
    found = record.outcome.values.tolist()
    assert found[0] == Label.GLOBAL_MINIMUM and Label.LOCAL_MINIMUM not in found
    assert Label.SADDLE in found
