"""Derivatives of every model, and of classes that write one part of a model anew."""

from functools import partial

import numpy as np
import pytest
import torch

import flowsim
from flowsim.inheritance import keeps_formulas_of
from flowsim.interface import Model, closed_basin, conserved_names, conserved_values
from flowsim.spec import BUILT_IN, ModelSpec

CHAIN, BELOW = flowsim.BinaryChain(0.5, 0.8), flowsim.BinaryChain(0.2, 0.3)
STATES = flowsim.chains.SymmetricChain(3, 0.8)
MODELS = {
    "canonical": partial(flowsim.models.CanonicalModel, CHAIN),
    "canonical, below": partial(flowsim.models.CanonicalModel, BELOW),
    "canonical, bias": partial(flowsim.models.CanonicalModel, CHAIN, "dynamic"),
    "linear": partial(flowsim.models.LinearAttentionModel, CHAIN),
    "linear, bias": partial(flowsim.models.LinearAttentionModel, CHAIN, "dynamic"),
    "untied": partial(flowsim.models.UntiedModel, CHAIN),
    "untied, bias": partial(flowsim.models.UntiedModel, CHAIN, "dynamic"),
    "uniform": partial(flowsim.models.UniformAttentionModel, CHAIN, 4),
    "uniform, bias": partial(flowsim.models.UniformAttentionModel, CHAIN, 4, "dynamic"),
    "rank-one": partial(flowsim.models.RankOneModel, CHAIN, 4),
    "rank-one, attention": partial(flowsim.models.RankOneModel, CHAIN, 3, attention=True),
    "rank-one, untied": partial(flowsim.models.RankOneModel, CHAIN, 10**7, tied=False),
    "states": partial(flowsim.models.StatesModel, STATES),
    "states, attention": partial(flowsim.models.StatesAttentionModel, STATES, 3),
    "induction": partial(flowsim.models.InductionModel, 5),
}
#: Built-in models that are not listed above: a new one needs no line here.
OTHERS = {name: ModelSpec.first(name).build for name in BUILT_IN if name not in MODELS}


def starts(model, count=4):
    drawn = np.random.default_rng(0).uniform(0.3, 1.1, (count, len(model.coordinates)))
    return torch.from_numpy(drawn * np.where(np.arange(drawn.shape[1]) % 2, -1, 1))


def slopes(function, theta, step=1e-5):
    """∂f/∂θ by central differences, the derivative last."""
    found = []
    for k in range(theta.shape[-1]):
        h = torch.zeros_like(theta)
        h[:, k] = step
        found.append((function(theta + h) - function(theta - h)) / (2 * step))
    return torch.stack(found, -1)


def assert_is_one_model(model):
    """Its gradient is that of its loss, its Hessian that of its gradient, its flow −∇L/G."""
    theta = torch.cat([starts(model), -1.3 * starts(model)])  # a on both sides of −1
    gradient, metric = model.gradient(theta), theta.new_tensor(model.metric)
    near = {"atol": 2e-8, "rtol": 2e-7}
    torch.testing.assert_close(gradient, slopes(model.loss, theta), **near)
    torch.testing.assert_close(model.hessian(theta), slopes(model.gradient, theta), **near)
    torch.testing.assert_close(model.field(theta), -gradient / metric, atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(model.jacobian(theta), slopes(model.field, theta), **near)
    assert len(model.keeps_sign) == len(model.coordinates) == len(model.metric)
    assert conserved_values(model, theta).shape == (len(theta), len(conserved_names(model)))


@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_derivatives_of_every_model(name):
    assert_is_one_model((MODELS | OTHERS)[name]())


def derived(made, **written):
    """The same model in a class derived from its own, with methods written anew."""
    return type("Derived", (made.func,), written)(*made.args, **made.keywords)


def other_loss(self, theta):
    return (theta**2).sum(-1) / 3 + theta[..., 0] * theta[..., 1].sin()


def more_loss(self, theta):
    return 2 * super(type(self), self).loss(theta) + (theta**4).sum(-1)


@pytest.mark.parametrize("loss", [other_loss, more_loss])
@pytest.mark.parametrize("name", MODELS)
def test_a_new_loss_of_any_model_is_followed(name, loss):
    model = derived(MODELS[name], loss=loss)
    assert_is_one_model(model)
    theta = starts(model)
    assert model.flow() is None and model.end_losses() is None
    assert closed_basin(model, theta) is None and type(model.plane) is flowsim.Plane
    assert conserved_names(model) == () and not any(model.keeps_sign)
    assert not keeps_formulas_of(type(model), flowsim.models.RankOneModel)


@pytest.mark.parametrize("name", MODELS)
def test_a_new_gradient_or_field_of_any_model_is_followed(name):
    def gradient(self, theta):
        return 3 * theta + theta.flip(-1)

    model = derived(MODELS[name], gradient=gradient)
    theta = starts(model)
    metric = theta.new_tensor(model.metric)
    torch.testing.assert_close(model.field(theta), -gradient(None, theta) / metric)
    torch.testing.assert_close(model.hessian(theta), slopes(model.gradient, theta))
    assert (
        model.flow() is None and model.end_losses() is None and closed_basin(model, theta) is None
    )
    model = derived(MODELS[name], field=lambda self, theta: theta.flip(-1))
    torch.testing.assert_close(model.jacobian(theta), slopes(model.field, theta))
    assert (
        model.flow() is None and model.end_losses() is None and closed_basin(model, theta) is None
    )


class Parent(Model):
    """A user's own, with a gradient, knowledge and a helper."""

    coordinates = ("x", "y")
    keeps_sign = (True, True)

    def scale(self):
        return 2.0

    def loss(self, theta):
        return self.scale() * ((theta**2 - 1) ** 2).sum(-1)

    def gradient(self, theta):
        return 8 * theta * (theta**2 - 1)

    def hessian(self, theta):
        return torch.diag_embed(24 * theta**2 - 8)

    def end_losses(self):
        return flowsim.interface.EndLosses(
            0.0, 2.0, 2.0, 1.0, basin=lambda theta: theta[..., 0] > 0
        )


class Child(Parent):
    def loss(self, theta):
        return (theta**4).sum(-1)


class Scaled(Parent):
    def scale(self):
        return 5.0


@pytest.mark.parametrize("kind", [Parent, Child, Scaled])
def test_classes_of_a_users_own_class_are_followed_by_what_is_new(kind):
    model = kind()
    assert_is_one_model(model)
    known = closed_basin(model, starts(model)) is not None
    assert known == (type(model) is Parent) == any(model.keeps_sign)
    assert model.loss([0.3, 0.3]).shape == ()


FOUR = flowsim.MarkovChain.symmetric(4, 0.8)
Uniform, RankOne = flowsim.models.UniformAttentionModel, flowsim.models.RankOneModel
Attending, Induction = flowsim.models.StatesAttentionModel, flowsim.models.InductionModel
#: What no model takes as its N.
LENGTHS = (0, -1, 1.5, "8", None)
REFUSED = [
    *((partial(Uniform, CHAIN, length), "length N") for length in (*LENGTHS, 10**7)),
    *((partial(RankOne, CHAIN, length, attention), "integer of at least 1")
      for length in LENGTHS for attention in (True, False)),
    (partial(RankOne, CHAIN, 10**7, attention=True), "GiB"),  # without attention it has no law
    (partial(RankOne(CHAIN, 4, attention=True).from_canonical, torch.zeros(2)),
     r"\(e, w, a\), optionally with b"),
    *((partial(Attending, FOUR, length), "length N") for length in LENGTHS),
    (partial(Attending, FOUR, 200), "more than 50,000 different pasts"),
    (partial(Attending, FOUR, 4, 0), "hidden_per_state must be an integer of at least 1, not 0"),
    *((partial(Induction, length), "length from 3 to 24") for length in (2, 25, 5.0, True)),
    (partial(Induction, 5, flowsim.chains.DirichletPrior(3)), "of order 1 on two states"),
    *((partial(flowsim.model, name, 0.5, 0.8, bias="best"), 'bias must be "optimal" or "dynamic"')
      for name in ("canonical", "uniform", "linear", "untied")),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), REFUSED)
def test_what_no_model_takes_is_refused_in_one_sentence(make, said):
    with pytest.raises(flowsim.InputError, match=said):
        make()
