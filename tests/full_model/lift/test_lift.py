"""Lifted points give the reduced logits; projections read back what was lifted."""

import math

import pytest
import torch
from rank_one_logits import rank_one_logits

from flowsim.models.rank_one.point import RankOnePoint
from full_model import Architecture, all_sequences, forward, lift_canonical, lift_rank_one, project

F64 = torch.float64


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def signs(*shape, seed=0):
    return torch.where(normal(*shape, seed=seed) < 0, -1.0, 1.0).double()


def random_point(members, length, tied, seed=0):
    draw = normal(members, 7, seed=seed)
    eps, c = draw[:, 0], draw[:, 0] if tied else draw[:, 6]
    rest = [draw[:, i] for i in range(1, 6)]
    return RankOnePoint(eps, normal(members, length, seed=seed + 1), *rest, c)


@pytest.mark.parametrize("d", [1, 4])
def test_canonical_logits(d):
    """logit_n = e²[s_n + 4w|w| ReLU(s_n)] + b, s_n = x_n − ½ + a m_n (LG)."""
    n = 7
    theta, bias = normal(20, 3, seed=3), normal(20, seed=4)
    arch = Architecture(d, n)
    weights = lift_canonical(theta, arch, bias, alpha=signs(d, seed=5) / math.sqrt(d))
    tokens = all_sequences(n)
    e, w, a = (theta[:, i, None, None] for i in range(3))
    x = tokens.double() - 0.5
    s = x + a * x.cumsum(-1) / torch.arange(1, n + 1)
    expected = e**2 * (s + 4 * w * w.abs() * s.relu()) + bias[:, None, None]
    assert (forward(arch, weights, tokens) - expected).abs().max() < 1e-12
    found = rank_one_logits(RankOnePoint.from_canonical(theta, n, bias), tokens)
    assert (found - expected).abs().max() < 1e-12


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("hidden", [None, 5])
def test_rank_one_logits(tied, hidden):
    arch = Architecture(4, 6, hidden=hidden, tied=tied)
    point = random_point(12, 6, tied)
    eta = signs(arch.width, seed=8)
    weights = lift_rank_one(
        point,
        arch,
        alpha=signs(12, 4, seed=6) / 2,
        hidden_signs=eta,
        beta=torch.nn.functional.normalize(normal(12, 4, seed=7), dim=-1),
    )
    tokens = all_sequences(6)
    share = float((eta > 0).double().mean())
    expected = rank_one_logits(point, tokens, arch.width / arch.d, share)
    assert (forward(arch, weights, tokens) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("tied", [True, False])
def test_projection_reads_back_what_was_lifted(tied):
    arch = Architecture(8, 5, tied=tied)
    point = random_point(40, 5, tied, seed=11)
    alpha = torch.nn.functional.normalize(normal(40, 8, seed=12), dim=-1)
    weights = lift_rank_one(point, arch, alpha=alpha)
    given = project(arch, weights, alpha=alpha)
    for name in ("eps", "rho", "w1", "w2", "b", "c"):
        assert (getattr(given.point, name) - getattr(point, name)).abs().max() < 1e-12
    assert (given.point.o * given.point.v - point.o * point.v).abs().max() < 1e-12
    fitted = project(arch, weights)
    flip = torch.where(point.eps < 0, -1.0, 1.0)
    assert (fitted.alpha - flip[:, None] * alpha).abs().max() < 1e-7
    assert (fitted.point.w1 - flip * point.w1).abs().max() < 1e-9
    assert (fitted.canonical[:, 1:] - point.to_canonical()[:, 1:]).abs().max() < 1e-7
    assert fitted.distance.max() < 1e-12 and given.distance.max() < 1e-12


def test_distance_is_the_length_of_what_was_added():
    """A displacement orthogonal to the family and small moves the distance by its length."""
    arch = Architecture(4, 5)
    alpha = torch.full((4,), 0.5, dtype=F64)
    weights = lift_canonical(torch.tensor([1.2, -0.6, 0.3], dtype=F64), arch)
    other = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=F64)
    weights["0.query"][0, 1] = 3e-3
    weights["0.down"] += 4e-3 * torch.outer(alpha, signs(16, seed=3)) / 4 @ torch.diag(signs(16))
    weights["0.key"] += 1e-3 * torch.outer(other, alpha)
    balance = (signs(16, seed=3) * signs(16)).sum() / 16
    expected = math.sqrt(9e-6 + 1e-6 + 16e-6 * (1 - float(balance) ** 2))
    found = project(arch, weights)
    assert float(found.distance) == pytest.approx(expected, rel=1e-6)
    norm = math.sqrt(sum(float(w.square().sum()) for w in weights.values()))
    assert float(found.relative_distance) == pytest.approx(expected / norm, rel=1e-6)
