"""What is off a found span: its growth, what noise does, and training of all weights beside it."""

import math

import numpy as np
import pytest
import torch
from networks import number

import flowsim
from flowsim import InputError
from flowsim.reduction.trust import agreement, predict_noise, transverse_growth


def valley(weights):
    """A double well in x; across it y = 0 is kept, and beside x = 1 it is unstable."""
    x, y = weights["x"], weights["y"]
    return (x**2 - 1) ** 2 / 4 + 0.1 * x + ((0.4 - 0.5 * x) * y**2).sum() / 2 + (y**4).sum() / 4


@pytest.fixture(scope="module")
def model():
    return flowsim.reduce(valley, {"x": number(0.7), "y": torch.zeros(3)})


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


def test_noise_frees_what_grows_and_nothing_else(model):
    starts = [[0.7], [-0.7]]
    calm = agreement(model, starts, until=300.0)
    assert calm.share == 1 and not calm.undecided.any()
    noisy = agreement(model, starts, noise=0.01, runs=4, until=300.0)
    assert noisy.right.double().mean(1).tolist() == [0, 1]
    freed = [predict_noise(model, start, 0.01, until=100.0) for start in starts]
    assert [f.freed for f in freed] == [True, False]
    assert freed[1].boundary > 0.6 and freed[1].reach == 0.01


def test_too_many_weights_are_refused():
    model = flowsim.reduce(lambda w: (w.sum() - 1) ** 2, 0.1 * torch.ones(2001), steps=1)
    with pytest.raises(InputError, match="up to 2000 weights, not 2001"):
        transverse_growth(model)


@pytest.mark.parametrize(
    "name", ["agreement", "conserved", "predict_noise", "symmetries", "transverse_growth"]
)
def test_models_that_were_not_found_are_refused(name):
    model = flowsim.model("canonical", 0.5, 0.8)
    with pytest.raises(InputError, match=f"{name} takes what flowsim.reduce found, not Canonical"):
        getattr(flowsim, name)(model, [0.5, 0.5])
