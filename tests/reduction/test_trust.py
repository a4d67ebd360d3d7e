"""What is off a found span: its growth, what noise does, and training of all weights beside it."""

import math

import numpy as np
import pytest
import torch
from networks import NETWORKS, normal, number

import flowsim
from flowsim import InputError
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
    with pytest.raises(InputError, match=f"{name} takes what flowsim.reduce found, not Canonical"):
        getattr(flowsim, name)(model, [0.5, 0.5])


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
