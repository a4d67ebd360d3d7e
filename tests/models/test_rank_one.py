"""The rank-one model against whole transformers, its symmetries and the canonical models."""

import itertools

import pytest
import torch

from flowsim import BinaryChain
from flowsim.interface import conserved_values
from flowsim.models.canonical.model import CanonicalModel
from flowsim.models.rank_one.model import RankOneModel
from flowsim.models.uniform.model import UniformAttentionModel
from full_model import Architecture, MarkovSource, PopulationLoss, lift_rank_one

CHAIN = BinaryChain(0.5, 0.8)
VARIANTS = list(itertools.product([False, True], [True, False]))


def points(model, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (count, len(model.coordinates))
    return torch.randn(shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(("attention", "tied"), VARIANTS)
@pytest.mark.parametrize("length", [1, 4])
def test_loss_and_gradient_are_those_of_the_whole_transformer(attention, tied, length):
    model = RankOneModel(CHAIN, length, attention, tied)
    arch = Architecture(4, length, tied=tied, attention="softmax" if attention else "none")
    theta = points(model, 5).requires_grad_()
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN))(lift_rank_one(model.point(theta), arch))
    (gradient,) = torch.autograd.grad(loss.sum(), theta)
    close = {"rtol": 1e-11, "atol": 1e-13}
    torch.testing.assert_close(model.loss(theta.detach()), loss.detach(), **close)
    torch.testing.assert_close(model.gradient(theta.detach()), gradient, **close)


@pytest.mark.parametrize(("attention", "tied"), VARIANTS)
def test_conserved_quantities_do_not_change_along_the_flow(attention, tied):
    model = RankOneModel(BinaryChain(0.2, 0.3), 7, attention, tied)
    theta = points(model, 20).requires_grad_()
    flow = -model.gradient(theta).detach() / torch.tensor(model.metric)
    conserved = conserved_values(model, theta)
    assert conserved.shape == (20, 1 + attention + (not tied))
    for quantity in conserved.unbind(-1):
        (normal,) = torch.autograd.grad(quantity.sum(), theta, retain_graph=True)
        assert ((normal * flow).sum(-1).abs() < 1e-13).all()


@pytest.mark.parametrize(("attention", "tied"), VARIANTS)
@pytest.mark.parametrize("pq", [(0.5, 0.8), (0.2, 0.3), (0.3, 0.7)])
def test_lift_of_canonical_points_keeps_the_loss(attention, tied, pq):
    chain, length = BinaryChain(*pq), 24
    model = RankOneModel(chain, length, attention, tied)
    canonical = UniformAttentionModel(chain, length) if attention else CanonicalModel(chain)
    generator = torch.Generator().manual_seed(2)
    theta = 4 * torch.rand(200, 2 + attention, dtype=torch.float64, generator=generator) - 2
    lifted = model.from_canonical(theta)
    close = {"rtol": 1e-13, "atol": 1e-13}
    torch.testing.assert_close(model.loss(lifted), canonical.loss(theta), **close)
    torch.testing.assert_close(model.optimal_bias(lifted), canonical.optimal_bias(theta), **close)
    torch.testing.assert_close(model.to_canonical(lifted), theta, **close)
    balances = conserved_values(model, lifted)[:, : 1 + attention]
    torch.testing.assert_close(balances, torch.zeros_like(balances), rtol=0, atol=1e-14)
    assert (model.gradient(lifted)[:, model.coordinates.index("b")].abs() < 1e-15).all()
    biased = torch.cat([theta, torch.full((200, 1), 0.3, dtype=torch.float64)], dim=-1)
    dynamic = (
        UniformAttentionModel(chain, length, "dynamic")
        if attention
        else CanonicalModel(chain, "dynamic")
    )
    torch.testing.assert_close(
        model.loss(model.from_canonical(biased)), dynamic.loss(biased), **close
    )


def test_tiny_q_costs_no_digits():
    """1 − (1 − q) has none of q's digits left at q = 1e-16; the loss keeps all of them."""
    for length in (1, 3):
        rank_one = RankOneModel(BinaryChain(0.5, 1e-12), length)
        canonical = CanonicalModel(rank_one.chain)
        theta = torch.tensor([[0.7, 0.4], [-1.1, -0.9]], dtype=torch.float64)
        expected = canonical.loss(theta)
        lifted = rank_one.from_canonical(theta)
        torch.testing.assert_close(rank_one.loss(lifted), expected, rtol=1e-13, atol=0)
        uniform = UniformAttentionModel(rank_one.chain, length)
        still = torch.cat([theta, torch.zeros_like(theta[:, :1])], dim=1)
        torch.testing.assert_close(uniform.loss(still), expected, rtol=1e-13, atol=0)
