import mpmath
import pytest
import torch
from conftest import CHAINS, REFERENCE, relative_error, uniform_starts
from oracle import Canonical

import flowsim
from flowsim import BinaryChain, InputError
from flowsim.interface import LogitGapSystem, conserved_values
from flowsim.models import CanonicalModel, UntiedModel, energy, past_law
from flowsim.models.gap_family.loss import gap_loss, gap_slope
from flowsim.spec import chain_of, model_from_attributes


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


SECOND_SET = [
    ("0.31", "0.87", 1.7, -0.3),
    ("0.87", "0.31", -0.9, 2.2),
    ("0.4", "0.4", 25.0, -2.5),
    ("0.001", "0.7", 4.0, 1.5),
    ("0.6", "0.4", 0.8, -0.2),
]


@pytest.mark.parametrize(("p", "q", "e", "w"), SECOND_SET)
def test_second_set_by_root_search_in_40_digits(p, q, e, w):
    bias, loss, grad_e, grad_w = Canonical(p, q).point(e, w)
    model = CanonicalModel(BinaryChain(float(p), float(q)))
    theta = row_of(e, w)
    assert relative_error(model.optimal_bias(theta).item(), bias) < 1e-12
    assert relative_error(model.loss(theta).item(), loss) < 1e-12
    assert relative_error(model.gradient(theta)[0].item(), grad_e) < 1e-11
    assert relative_error(model.gradient(theta)[1].item(), grad_w) < 1e-11


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_dynamic_bias_meets_the_optimal_one(p, q, generator):
    chain = BinaryChain(p, q)
    optimal, dynamic = CanonicalModel(chain), CanonicalModel(chain, bias="dynamic")
    assert dynamic.coordinates == ("e", "w", "b")
    theta = uniform_starts(200, generator)
    bias = optimal.optimal_bias(theta).unsqueeze(-1)
    full = torch.cat([theta, bias], dim=1)
    torch.testing.assert_close(dynamic.loss(full), optimal.loss(theta), rtol=1e-13, atol=0)
    gradient = dynamic.gradient(full)
    assert gradient[:, 2].abs().max() < 1e-13
    torch.testing.assert_close(gradient[:, :2], optimal.gradient(theta), rtol=1e-9, atol=1e-12)
    assert (dynamic.loss(full + row_of(0, 0, 0.1)) > optimal.loss(theta) * (1 - 1e-14)).all()
    assert (dynamic.loss(full + row_of(0, 0, 3.0)) > optimal.loss(theta)).double().mean() > 0.9


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
    gap = torch.linspace(-40, 40, 801, dtype=torch.float64)
    slope = gap_slope(chain, gap)
    assert (slope.diff() > -1e-15).all()
    assert (torch.sign(slope) == torch.sign(gap - chain.target_logit_gap)).all()
    assert gap_loss(chain, row_of(0.0)).item() == pytest.approx(chain.stationary_entropy, rel=1e-15)
    target = row_of(chain.target_logit_gap)
    assert gap_loss(chain, target).item() == pytest.approx(chain.entropy_rate, rel=1e-15)


def test_slope_is_exact_far_out_in_the_tails():
    chain = BinaryChain(1e-6, 0.3)
    for gap in (-300.0, -30.0, 30.0, 300.0):
        slope = Canonical("1e-6", "0.3").loss_of_gap(mpmath.mpf(gap))[2]
        assert relative_error(gap_slope(chain, row_of(gap)).item(), slope) < 1e-9


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


def test_unknown_bias_is_refused():
    with pytest.raises(InputError, match='"optimal" or "dynamic"'):
        CanonicalModel(BinaryChain(0.5, 0.8), bias="none")


def test_what_is_conserved_has_an_axis_of_its_own_and_none_on_w_0():
    chain, theta = BinaryChain(0.2, 0.3), torch.ones(2, 2, 3, dtype=torch.float64)
    theta[0, 0, 2], theta[..., 0] = 0.0, 2.0
    found = conserved_values(UntiedModel(chain), theta)
    assert found.shape == (2, 2, 2) and torch.isnan(found[0, 0]).tolist() == [False, True]
    assert found.isfinite().sum() == 7 and found[1, 1].tolist() == [3.0, 4.0]
    canonical = conserved_values(CanonicalModel(chain), theta[..., :2])
    assert canonical.shape == (2, 2, 1) and torch.equal(canonical, torch.full_like(canonical, 3.0))


def test_how_a_model_is_written():
    for kind, name in ((CanonicalModel, "CanonicalModel"), (UntiedModel, "UntiedModel")):
        assert repr(kind(BinaryChain(0.2, 0.3))) == f"{name}(p=0.2, q=0.3)"
        written = f"{name}(p=0.2, q=0.3, bias='dynamic')"
        assert repr(kind(BinaryChain(0.2, 0.3), bias="dynamic")) == written


@pytest.mark.parametrize("attributes", [{}, {"model": "states"}, {"p": 0.2}, {"q": 0.3}])
def test_records_of_several_chains_have_no_chain(attributes):
    with pytest.raises(InputError, match="not of one chain"):
        chain_of(attributes)
    assert chain_of({"p": 0.2, "q": 0.3, "model": "linear"}) == BinaryChain(0.2, 0.3)


def test_a_table_may_take_all_the_memory_that_is_left(monkeypatch):
    needed = 4 * 8 * 9
    monkeypatch.setattr(past_law, "available_memory", lambda: float(needed))
    assert past_law.check_length(8, 4) == 8
    monkeypatch.setattr(past_law, "available_memory", lambda: needed - 1.0)
    with pytest.raises(InputError, match="choose a smaller N"):
        past_law.check_length(8, 4)


@pytest.mark.parametrize("attention", [None, False, True])
@pytest.mark.parametrize("tied", [None, False, True])
def test_a_record_s_attention_and_weights_are_the_model_s_only_if_it_is_rank_one(attention, tied):
    """A comparison's record has those of its transformer, whatever the model."""
    attributes = {"p": 0.5, "q": 0.8, "length": 4}
    attributes |= {} if attention is None else {"attention": attention}
    attributes |= {} if tied is None else {"tied": tied}
    found = model_from_attributes(attributes | {"model": "rank-one"})
    assert found.attention == bool(attention) and found.tied == (tied is not False)
    canonical = model_from_attributes(attributes | {"model": "canonical"})
    assert canonical.coordinates == ("e", "w") and not hasattr(canonical, "attention")
