"""Starts that are lifted, from points drawn or given; and the balanced start, a saddle."""

import math

import pytest
import torch

from flowsim import BinaryChain
from full_model import (
    Architecture,
    MarkovSource,
    Recipe,
    Trainer,
    initial_weights,
    lift_canonical,
    project,
    trap_matrix,
    unigram_trap,
)


@pytest.mark.parametrize("attention", ["softmax", "none"])
def test_a_rank_one_start_has_a_gaussian_point_and_random_signs(attention):
    arch = Architecture(5, 3, hidden=4, attention=attention)
    weights = initial_weights(arch, "rank-one", range(400), std=0.5)
    alpha = weights["embedding"] / weights["embedding"].norm(dim=-1, keepdim=True)
    assert torch.allclose(alpha.abs(), torch.full_like(alpha, 1 / math.sqrt(5)), atol=1e-12)
    relative = (alpha * alpha[:, :1]).sign()[:, 1:]
    assert (relative.mean(0).abs() < 5 / math.sqrt(400)).all()
    assert ((alpha.sign() > 0).double().mean(0) - 0.5).abs().max() < 5 / (2 * math.sqrt(400))
    size = weights["embedding"].norm(dim=-1)
    assert float(size.square().mean().sqrt()) == pytest.approx(0.5, rel=0.2)
    assert float(project(arch, weights).relative_distance.max()) < 1e-7
    assert ("0.value" in weights) == (attention == "softmax")


def test_a_lifted_start_has_one_point_for_all_or_one_for_each():
    arch = Architecture(3, 2, hidden=2)
    for theta in (torch.tensor([0.8, -1.5]), torch.tensor([[0.8, -1.5], [-0.7, 0.5]])):
        found = initial_weights(arch, "lifted", [0, 1], theta=theta, bias=0.3)
        wanted = lift_canonical(theta.double().expand(2, -1), arch, 0.3)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


CHAINS = [BinaryChain(0.5, 0.8), BinaryChain(0.9, 0.9), BinaryChain(0.2, 0.3)]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: f"{chain.p} {chain.q}")
def test_the_unigram_is_a_saddle_on_both_sides(chain):
    arch, seeds = Architecture(4, 6, attention="none"), range(16)
    weights = initial_weights(arch, "balanced", seeds)
    assert (unigram_trap(arch, weights, chain).smallest < 0).all()
    gaussian = initial_weights(arch, "gaussian", seeds)
    assert ((unigram_trap(arch, gaussian, chain).smallest > 0) == (chain.p + chain.q > 1)).all()
    alpha = torch.full((4,), 0.5).double()
    weights["positions"] = weights["positions"][:, :1].expand(-1, 6, -1)
    expected = 2 * (chain.p + chain.q - 1) * (torch.eye(4) - 4 * torch.outer(alpha, alpha))
    assert (trap_matrix(arch, weights, chain) - expected).abs().max() < 1e-12


def test_descent_reaches_the_bigram_from_every_seed():
    chain = CHAINS[0]
    arch = Architecture(4, 4)
    weights = initial_weights(arch, "balanced", range(8))
    assert {bool(e.sum() > 0) for e in weights["embedding"]} == {True, False}
    trainer = Trainer(
        arch, weights, MarkovSource.of(chain), Recipe("gd", steps=500, learning_rate=0.3)
    )
    loss = trainer.advance(500)
    assert (loss - chain.entropy_rate).max() < 0.02 * chain.mutual_information


def test_one_layer_is_balanced():
    """The gains of two would multiply to +9 along 1/√d, and nothing would fall at p + q > 1."""
    both = initial_weights(Architecture(2, 3, layers=2), "balanced", [0], value=2.0)
    up, down = both["0.up"][0], both["0.down"][0]
    assert (up.sum(0) == 0).all() and (down == -up.mT).all()
    opened = up[up[:, 0] > 0]
    assert (-opened.mT @ opened + 16 / 2).abs().max() < 1e-12
    gaussian = initial_weights(Architecture(2, 3, layers=2), "gaussian", [0])
    assert (both["1.up"] == gaussian["1.up"]).all() and (both["1.down"] == gaussian["1.down"]).all()
