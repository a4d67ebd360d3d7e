"""Lifted points give the reduced logits; projections read back what was lifted.

The projection's signs and choices are the stated convention's, not the library's.
"""

import math
from dataclasses import fields, replace

import pytest
import torch
from rank_one_logits import rank_one_logits

from flowsim.models.rank_one.point import RankOnePoint
from full_model import Architecture, all_sequences, forward, lift_canonical, lift_rank_one, project
from full_model.lift.projection import leading_direction

F64 = torch.float64
ARCH = Architecture(4, 3, tied=False)


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


def difference(one, other):
    return max(
        float((getattr(one, f.name) - getattr(other, f.name)).abs().max()) for f in fields(one)
    )


def another_library(monkeypatch, seed):
    """eigh with the freedom that a library has: signs, and bases of equal eigenvalues."""
    own, generator = torch.linalg.eigh, torch.Generator().manual_seed(seed)

    def eigh(matrix):
        values, vectors = own(matrix)
        d = values.shape[-1]
        turn = torch.linalg.qr(torch.randn(d, d, dtype=values.dtype, generator=generator))[0]
        equal = (values - values[..., -1:]).abs() <= 1e-12 * values[..., -1:].abs()
        several = (equal.sum(-1) == d)[..., None, None]
        vectors = torch.where(several, vectors @ turn, vectors)
        sign = torch.where(torch.randn((*vectors.shape[:-2], 1, d), generator=generator) < 0, -1, 1)
        return torch.return_types.linalg_eigh((values, vectors * sign))

    monkeypatch.setattr(torch.linalg, "eigh", eigh)


@pytest.mark.parametrize(
    ("part", "wanted"), [(0.9, (0.6, 0.8)), (0.1, (0.6, 0.8)), (2e-3, (0.6, 0.8)), (5e-4, (1, 0))]
)
def test_of_equal_directions_the_one_near_the_reference_unless_that_is_orthogonal(part, wanted):
    """In a plane of equal directions; ``part`` of the reference lies in it, along (0.6, 0.8)."""
    rows = torch.eye(3, dtype=F64)[:2] * 2
    reference = torch.tensor([0.6 * part, 0.8 * part, (1 - part**2) ** 0.5], dtype=F64)
    expected = torch.tensor([*wanted, 0], dtype=F64)
    assert torch.allclose(leading_direction(rows, reference), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("given", [True, False])
def test_another_library_gives_the_same_projection(monkeypatch, seed, given):
    weights = lift_rank_one(random_point(20, 3, tied=False), ARCH)
    weights["0.query"] += 0.1
    alpha = torch.full((4,), 0.5, dtype=F64) if given else None
    expected = project(ARCH, weights, alpha)
    another_library(monkeypatch, seed)
    found = project(ARCH, weights, alpha)
    assert difference(found.point, expected.point) < 1e-12
    for name in ("alpha", "beta", "canonical", "distance"):
        assert (getattr(found, name) - getattr(expected, name)).abs().max() < 1e-12, name


def equal_directions(name):
    """Weights of which every unit vector is as good as any other."""
    weights = {k: torch.zeros(shape, dtype=F64) for k, shape in ARCH.shapes.items()}
    if name == "positions":
        weights["positions"] = torch.eye(4, dtype=F64)[:3]
        weights["embedding"] = torch.eye(4, dtype=F64)[3]
    elif name == "attention":
        weights["0.value"] = torch.eye(4, dtype=F64)
    return weights


@pytest.mark.parametrize("name", ["zero", "positions", "attention"])
def test_equal_eigenvalues_have_a_convention(monkeypatch, name):
    weights = equal_directions(name)
    expected = project(ARCH, weights)
    assert torch.allclose(expected.alpha, torch.full((4,), 0.5, dtype=F64), rtol=0, atol=1e-12)
    assert torch.allclose(expected.beta, expected.alpha, rtol=0, atol=1e-12)
    assert (expected.point.eps >= 0) and (expected.point.v >= 0)
    for seed in range(3):
        another_library(monkeypatch, seed)
        found = project(ARCH, weights)
        assert difference(found.point, expected.point) < 1e-12
        assert (found.alpha - expected.alpha).abs().max() < 1e-12
        assert (found.distance - expected.distance).abs() < 1e-12


def test_signs_of_both_vectors():
    """v ≥ 0 and ε ≥ 0, whatever signs of β and α the weights were lifted with."""
    point = random_point(30, 3, tied=False, seed=5)
    alpha = torch.nn.functional.normalize(normal(30, 4, seed=7), dim=-1)
    first = project(ARCH, lift_rank_one(point, ARCH, alpha))
    assert (first.point.v >= 0).all() and (first.point.eps >= 0).all()
    turned = replace(point, o=-point.o, v=-point.v)
    back = {f.name: -getattr(point, f.name) for f in fields(point)} | {"b": point.b}
    for other, vector in ((turned, alpha), (RankOnePoint(**back), -alpha)):
        found = project(ARCH, lift_rank_one(other, ARCH, vector))
        assert difference(found.point, first.point) < 1e-9
        assert (found.alpha - first.alpha).abs().max() < 1e-9
    given = project(ARCH, lift_rank_one(turned, ARCH, alpha), alpha).point
    assert difference(given, point.standard()) < 1e-12


@pytest.mark.parametrize("decides", ["rho", "w1", "w2", "c", "v"])
def test_the_first_coordinate_that_is_not_zero_has_the_sign_of_alpha(decides):
    zero = torch.zeros((), dtype=F64)
    at = {f.name: zero for f in fields(RankOnePoint)} | {"rho": torch.zeros(3, dtype=F64)}
    at[decides] = torch.tensor([0, -0.3, 0.2]).double() if decides == "rho" else zero - 0.3
    at["w2"] = at["w2"] + (0.7 if decides in ("rho", "w1") else 0)
    alpha = torch.tensor([-0.5, 0.5, 0.5, 0.5], dtype=F64)
    found = project(ARCH, lift_rank_one(RankOnePoint(**at), ARCH, alpha))
    assert torch.allclose(found.alpha, -alpha, rtol=0, atol=1e-9)
    deciding = getattr(found.point, decides)
    assert float(deciding[1] if decides == "rho" else deciding) == pytest.approx(0.3)


def test_two_logits_are_read_as_the_binary_model_with_the_same_predictions():
    """Also where all the weights are in the row of one symbol, and without positions."""
    point = random_point(5, 3, tied=False, seed=9)
    binary = lift_rank_one(point, ARCH)
    expected = project(ARCH, binary)
    shapes = Architecture(4, 3, states=2, output="states", tied=False)
    for share in (0.0, 0.5, 1.0):
        weights = dict(binary)
        for name in ("embedding", "unembedding", "bias"):
            weights[name] = torch.stack([(share - 1) * binary[name], share * binary[name]], dim=1)
        weights["positions"] = binary["positions"] - weights["embedding"][:, :1]
        found = project(shapes, weights)
        assert difference(found.point, expected.point) < 1e-9
        assert (found.distance - expected.distance).abs().max() < 1e-6
