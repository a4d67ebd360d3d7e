"""Of found models: growth, noise and training off the span, symmetries, and what data decide."""

import math

import numpy as np
import pytest
import torch
from networks import NETWORKS, normal, number, regression

import flowsim
from flowsim import InputError
from flowsim.reduction.structure import conserved, origin_of_coordinates, symmetries
from flowsim.reduction.trust import agreement, transverse_growth


def valley(weights):
    """A double well in x; across it y = 0 is kept, and beside x = 1 it is unstable."""
    x, y = weights["x"], weights["y"]
    return (x**2 - 1) ** 2 / 4 + 0.1 * x + ((0.4 - 0.5 * x) * y**2).sum() / 2 + (y**4).sum() / 4


@pytest.fixture(scope="module")
def model():
    return flowsim.reduce(valley, {"x": number(0.7), "y": torch.zeros(3)})


@pytest.mark.slow
@pytest.mark.turns
def test_noise_frees_what_grows_and_nothing_else(model):
    starts = [[0.7], [-0.7]]
    calm = agreement(model, starts, until=300.0)
    assert calm.share == 1 and not calm.undecided.any()
    noisy = agreement(model, starts, noise=0.01, runs=2, until=300.0)
    assert noisy.right.double().mean(1).tolist() == [0, 1]


def test_too_many_weights_are_refused():
    model = flowsim.reduce(lambda w: (w.sum() - 1) ** 2, 0.1 * torch.ones(2001), steps=1)
    with pytest.raises(InputError, match="up to 2000 weights, not 2001"):
        transverse_growth(model)


@pytest.mark.parametrize("name", ["agreement", "conserved", "symmetries", "transverse_growth"])
def test_models_that_were_not_found_are_refused(name):
    model = flowsim.model("canonical", 0.5, 0.8)
    starts = [[[0.5, 0.5]]] if name == "agreement" else []
    with pytest.raises(InputError, match=f"{name} takes what flowsim.reduce found as"):
        getattr(flowsim.reduction, name)(model, *starts)


def plain_descent(model, starts, noise, runs, until, rate, seed=0):
    """Losses of all weights after steps of one length, from the starts of ``agreement``."""
    theta = (starts @ model.basis.T).repeat_interleave(runs, 0)
    theta = theta + noise * normal(*theta.shape, seed=seed)
    for _ in range(round(until / rate)):
        theta = theta - rate * model.network.gradients(theta)
    return model.network.rows(theta).detach().reshape(-1, runs)


@pytest.mark.slow
def test_runs_that_leave_a_saddle_are_freed_wherever_they_are():
    losses, start = NETWORKS["deep linear, aligned"]()
    model = flowsim.reduce(losses[0], start, steps=1)
    told = agreement(model, model.start[None], 0.05, 8, until=30.0, most=1500, seed=31)
    plain = plain_descent(model, model.start[None], 0.05, 8, until=30.0, rate=0.02, seed=31)
    assert not told.right.any() and not told.undecided.any() and told.share == 0
    assert (told.ended < told.predicted - 1).all() and (plain < told.predicted - 1).all()
    short = agreement(model, model.start[None], 0.001, 2, until=60.0, most=100, seed=31)
    assert short.undecided.all() and math.isnan(short.share)
    assert repr(short).endswith("2 of 2 undecided>")


@pytest.mark.slow
def test_agreement_has_no_scale_of_its_own():
    scale = 1e-6

    def wells(weights):
        x, y = weights["x"], weights["y"]
        return scale * ((x**2 - 1) ** 2 / 4 + 0.1 * x + ((0.4 - 0.5 * x) * y**2).sum() / 2
                        + (y**4).sum() / 4)  # fmt: skip

    model = flowsim.reduce(wells, {"x": number(0.7), "y": torch.zeros(3)})
    told = agreement(model, [[0.7], [-0.7]], noise=0.01, runs=2, until=100.0 / scale)
    assert told.right.double().mean(1).tolist() == [0, 1] and not told.undecided.any()


@pytest.mark.slow
def test_ends_are_told_apart_however_far_away_the_start_is(model):
    told = agreement(model, [[30.0]], noise=0.3, until=100.0)
    assert not told.undecided.any() and told.share == 0
    assert 0.004 < float(told.predicted - told.ended) < 0.006 < 1e-3 * 30**4 / 4


@pytest.mark.slow
def test_growth_is_the_integral_of_the_rate(model):
    assert model.coordinates == ("x",)
    growth = transverse_growth(model, until=20.0)
    times = np.linspace(0, 20, 201)
    x = flowsim.trajectories(model, model.start.numpy(), times)[:, 0]
    logarithm = -np.cumsum(0.4 - 0.5 * x) * 0.1
    assert growth.time == pytest.approx(20.0)
    assert math.log(growth.gain) == pytest.approx(logarithm[-1], rel=0.03)
    assert growth.grown["y"] == pytest.approx(1) and growth.seed["x"] == 0
    assert float(growth.where) == pytest.approx(x[-1], abs=1e-4)
    assert transverse_growth(model, [-0.7], until=20.0, pieces=16).gain == 1


T = torch.linspace(-1, 1, 8).double()


@pytest.mark.slow
@pytest.mark.turns
def test_three_equal_units_move_in_four_coordinates_whatever_the_data():
    """Units that start alike stay alike: the weights of one, (w₁, w₂), its output and a bias."""

    def loss_on(x, y):
        return lambda w: ((torch.tanh(x @ w["in"].T) @ w["out"] + w["bias"] - y) ** 2).mean()

    def draw(g):
        return loss_on(
            torch.randn(9, 2, generator=g).double(), torch.randn(9, generator=g).double()
        )

    start = {"in": torch.tensor([[0.5, -0.3]]).repeat(3, 1), "out": torch.full((3,), 0.4),
             "bias": torch.tensor(0.1)}  # fmt: skip
    # all inputs on one line: the weights' part across it never moves
    on_a_line = flowsim.reduce(loss_on(torch.stack([T, 2 * T], 1), T**2 + T), start)
    found = origin_of_coordinates(on_a_line, draw, start, draws=2)
    assert found == (10, 4, 3, 0, (4, 4))
    free = flowsim.reduce(draw(torch.Generator().manual_seed(5)), start)
    assert origin_of_coordinates(free, draw, start, draws=2)[1:4] == (4, 4, 0)


def on_axis(axes, which, sizes=(0.3, 0.5, 0.2)):
    v, k, q = sizes
    return {"v": number([v]), "key": k * axes[:, which][None], "query": q * axes[:, which][None]}


def test_linear_attention_in_context_comes_out():
    axes, spectrum = torch.linalg.qr(normal(4, 4, seed=3))[0], number([2.0, 1.0, 0.7, 0.4])
    models = [
        flowsim.reduce(regression(s, axes=axes), on_axis(axes, 1), steps=20)
        for s in (spectrum, number([1.5, 0.6, 0.3, 0.2]))
    ]
    assert models[0].coordinates == ("v", "key", "query")
    theta = normal(6, 3)
    p, trace, law = theta.prod(1), 4.1, 1.0
    known = trace / 2 - law**2 * p + law**2 * p**2 / 2 * (law * (1 + 1 / 16) + trace / 16)
    np.testing.assert_allclose(models[0].loss(theta), known, rtol=1e-11)
    found = conserved(*models)
    assert found.polynomials == ("v² − query²", "key² − query²")
    assert found.independent == found.allowed == 2 and found.fields == 2
    kept = symmetries(models[0])
    assert kept.flips == (("v", "key"), ("v", "query"))
    assert {pair[:2] for pair in kept.swaps} == {("v", "key"), ("v", "query"), ("key", "query")}


def test_products_of_conserved_ones_are_left_out():
    model = flowsim.reduce(lambda w: (w["a"] * w["b"] - 1) ** 2, {"a": number(0.5), "b": number(1)})
    assert conserved(model, degree=4).polynomials == ("a² − b²",)


def test_other_spans_are_refused():
    one = flowsim.reduce(lambda w: (w["a"] - 1) ** 2, {"a": number(0.5)})
    two = flowsim.reduce(lambda w: (w["a"] * w["b"] - 1) ** 2, {"a": number(0.5), "b": number(1)})
    with pytest.raises(InputError, match="another span"):
        conserved(one, two)
