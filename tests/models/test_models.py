"""Models of the logit gap, against the reference and forty digits."""

import math

import pytest
import torch
from conftest import CHAINS, REFERENCE, relative_error, rows, uniform_starts
from mpmath import exp, mpf, sqrt, workdps

import flowsim
from flowsim import BinaryChain, Label, find_limits
from flowsim.interface import LogitGapSystem
from flowsim.landscape import curvatures
from flowsim.models import CanonicalModel, LinearAttentionModel, UntiedModel, energy
from flowsim.models.canonical.basins import SADDLE_W
from flowsim.models.gap_family.base import cross_entropy, excess


def row_of(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("row", REFERENCE["loss"], ids=lambda r: f"{r['p']},{r['q']},{r['e']}")
def test_reference_table(row):
    model = CanonicalModel(BinaryChain(row["p"], row["q"]))
    theta = row_of(row["e"], row["w"])
    gradient = model.gradient(theta)
    assert relative_error(model.optimal_bias(theta).item(), row["bias"]) <= 1e-10
    assert relative_error(model.loss(theta).item(), row["loss"]) <= 1e-10
    assert relative_error(gradient[0].item(), row["grad_e"]) <= 1e-10
    assert relative_error(gradient[1].item(), row["grad_w"]) <= 1e-10
    if row["w"]:
        assert relative_error(energy(theta).item(), row["energy"]) <= 1e-10
    else:
        assert torch.isnan(energy(theta))


def test_any_batch_shape_and_nothing_overflows(generator):
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    theta = uniform_starts(24, generator, half_width=100.0).reshape(2, 3, 4, 2)
    assert model.loss(theta).shape == (2, 3, 4)
    assert model.gradient(theta).shape == (2, 3, 4, 2)
    for value in (model.loss(theta), model.gradient(theta), model.optimal_bias(theta)):
        assert torch.isfinite(value).all()
    assert torch.equal(model.loss(theta)[1, 2, 3], model.loss(theta[1, 2, 3]))


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_loss_of_the_gap_is_convex_between_the_two_entropies(p, q):
    chain = BinaryChain(p, q)
    gap, model = torch.linspace(-40, 40, 801, dtype=torch.float64), CanonicalModel(chain)
    slope = model.slope_at(gap)
    assert (slope.diff() > -1e-15).all()
    assert (torch.sign(slope) == torch.sign(gap - chain.target_logit_gap)).all()
    assert model.loss_at(row_of(0.0)).item() == pytest.approx(chain.stationary_entropy, rel=1e-15)
    target = row_of(chain.target_logit_gap)
    assert model.loss_at(target).item() == pytest.approx(chain.entropy_rate, rel=1e-15)


@pytest.mark.parametrize("gap", [-300, -30, 30, 300])
def test_slope_is_exact_far_out_in_the_tails(gap):
    """The best bias has y = exp(f₀) with π₀e^Δ y² + (π₀ − π₁)y = π₁."""
    p, q = mpf("1e-6"), mpf("0.3")
    pi0, pi1 = q / (p + q), p / (p + q)
    with workdps(400):
        rise = exp(mpf(gap))
        y = (pi1 - pi0 + sqrt((pi0 - pi1) ** 2 + 4 * rise * pi0 * pi1)) / (2 * rise * pi0)
        expected = pi1 * (y * rise / (1 + y * rise) - 1 + q)
    found = CanonicalModel(BinaryChain(1e-6, 0.3)).slope_at(row_of(gap))
    assert relative_error(found.item(), expected) < 1e-9


@pytest.mark.parametrize("name", ["canonical", "linear", "untied", "states"])
def test_a_compiled_half_is_handed_out_for_its_own_formulas_alone(name):
    """Not by a subclass with other formulas, nor with a bias that moves."""
    data = {"states": 3, "p": 0.8} if name == "states" else {"p": 0.5, "q": 0.8}
    model = flowsim.model(name, **data)
    half = model.flow().system
    assert isinstance(half, LogitGapSystem) and half.of is type(model)
    assert half.params[0] * (6.0 if name == "states" else 1.0) == model.chain.target_logit_gap
    assert type("Same", (type(model),), {})(model.chain).flow().system == half
    other = type("Other", (type(model),), {"logit_gap": lambda self, theta: theta.sum(-1)})
    assert other(model.chain).flow() is None
    if name != "states":
        assert type(model)(model.chain, bias="dynamic").flow() is None


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_what_a_loss_exceeds_the_entropy_rate_by_is_known_close_to_it_too(p, q):
    chain = BinaryChain(p, q)
    (pi0, pi1), targets = chain.stationary, (math.log(p / (1 - p)), math.log((1 - q) / q))
    for step in (-3.0, 1e-4, 0.5, 2.0):
        zero, one = row_of(targets[0] + step), row_of(targets[1] - 2 * step)
        found = excess(chain, zero, one)
        difference = cross_entropy(chain, zero, one) - chain.entropy_rate
        torch.testing.assert_close(found, difference, rtol=1e-12, atol=1e-14)
        bowl = (pi0 * p * (1 - p) + 4 * pi1 * q * (1 - q)) * step**2 / 2
        assert abs(step) > 0.1 or found.item() == pytest.approx(bowl, rel=1e-3)


def test_tied_weights_are_the_diagonal():
    chain = BinaryChain(0.3, 0.85)
    theta = rows((1.2, -0.7), (0.4, 1.5))
    doubled = theta[:, [0, 0, 1]]
    tied, untied = CanonicalModel(chain), UntiedModel(chain)
    assert torch.equal(untied.loss(doubled), tied.loss(theta))
    gradient = untied.gradient(doubled)
    torch.testing.assert_close(gradient[:, 0] + gradient[:, 1], tied.gradient(theta)[:, 0])


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_bad_minima_of_the_tied_model_become_saddles(p, q, generator):
    """AM Thm. 3, by curvature and by flow."""
    chain = BinaryChain(p, q)
    tied, untied = CanonicalModel(chain), UntiedModel(chain)
    w = 1.0 if p + q > 1 else -1.5
    bad = rows((0.0, w))
    assert find_limits(tied, bad).label == Label.LOCAL_MINIMUM
    assert curvatures(tied, bad).min() > -1e-12
    saddle = rows((0.0, 0.0, w))
    assert find_limits(untied, saddle).label == Label.SADDLE
    assert curvatures(untied, saddle)[0, 0] < -1e-4
    assert curvatures(untied, saddle)[0, -1] > 1e-4
    noise = 1e-3 * torch.randn(50, 3, dtype=torch.float64, generator=generator)
    limit = find_limits(untied, saddle + noise)
    assert (limit.label == Label.GLOBAL_MINIMUM).all()
    assert (limit.loss - chain.entropy_rate).abs().max() < 1e-13
    assert (find_limits(tied, bad + noise[:, [0, 2]]).label == Label.LOCAL_MINIMUM).all()


def test_the_line_where_both_factors_vanish_is_a_saddle():
    model = LinearAttentionModel(BinaryChain(0.5, 0.8))
    on_line = torch.tensor([[1.3, SADDLE_W, -1.0]], dtype=torch.float64)
    limit = find_limits(model, on_line)
    assert limit.label == Label.SADDLE
    aside = on_line + torch.tensor([0.0, 1e-3, 1e-3])
    assert find_limits(model, aside).label == Label.GLOBAL_MINIMUM
