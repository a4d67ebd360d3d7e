"""Starts that are lifted: from random canonical points, and from points that are given."""

import math

import pytest
import torch

from flowsim.errors import InputError
from full_model import Architecture, initial_weights, lift_canonical, project

F64 = torch.float64


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
    for theta in (None, torch.zeros(3, 2), torch.zeros(1, 2, 2), torch.tensor(1.0)):
        with pytest.raises(InputError, match="needs one point for each of 2 models"):
            initial_weights(arch, "lifted", [0, 1], theta=theta)
