"""The compiled field, Jacobian and loss of the rank-one model with attention."""

import numpy as np
import pytest
import torch
from law_oracle import law_of, rank_one_logits, rank_one_loss
from torch.autograd.functional import hessian, jacobian

from flowsim import BinaryChain
from flowsim.models import RankOneModel
from flowsim.models.rank_one.attention import field as attention
from flowsim.models.rank_one.attention.field import linearise


def evaluate(y, reals, ints, size):
    memory, field, steep = np.zeros(size), np.empty(len(y)), np.empty((len(y), len(y)))
    assert linearise(y, reals, ints, memory, field, steep) == 0
    return field, steep, attention.loss(y, reals, ints, memory)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("length", [1, 4])
def test_inside_the_rounded_kinks_the_field_is_the_smoothed_loss_s_gradient(
    length, tied, generator
):
    model = RankOneModel(BinaryChain(0.5, 0.8), length, attention=True, tied=tied)
    constants = attention.constants(model.chain, length, tied, width=2.0)
    k, metric = len(model.coordinates), np.array(model.metric)
    loss = rank_one_loss(model.chain, length, tied, 2.0)
    for y in 4 * torch.rand(4, k, dtype=torch.float64, generator=generator) - 2:
        field, steep, found = evaluate(y.numpy(), *constants)
        slope, bend = jacobian(loss, y).numpy(), hessian(loss, y).numpy()
        assert np.abs(field + slope / metric).max() <= 1e-12 * np.abs(slope).max()
        assert np.abs(steep + bend / metric[:, None]).max() <= 1e-12 * np.abs(bend).max()
        assert abs(found - float(loss(y))) < 1e-13


@pytest.mark.parametrize("tied", [True, False])
def test_the_stiffness_is_a_trace_by_autograd(tied, generator):
    """The positions count as one coordinate of mass N."""
    model = RankOneModel(BinaryChain(0.2, 0.3), 3, attention=True, tied=tied)
    weight, target = law_of(model.chain, 3)[3:]
    logits = rank_one_logits(model.chain, 3, tied)
    k = len(model.coordinates)
    for y in 4 * torch.rand(3, k, dtype=torch.float64, generator=generator) - 2:
        slopes, chance = jacobian(logits, y), logits(y).sigmoid()
        slopes = torch.cat([slopes[:, :1], slopes[:, 1:4].sum(1, keepdim=True), slopes[:, 4:]], 1)
        mass = torch.tensor([1.0, 3, 4, 4, 1, 1, 1, 1]).double()[: k - 2]
        spread = torch.maximum(chance * (1 - chance), target * (1 - target))
        expected = weight * spread * (slopes**2 / mass).sum(1)
        torch.testing.assert_close(model.stiffness(y), expected.sum(), rtol=1e-12, atol=0)
