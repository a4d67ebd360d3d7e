"""The state-space layer on a hidden chain: loss, gradient, ends, and the whole layer's gradient."""

import math

import numpy as np
import pytest
import torch

from flowsim.chains.hidden import process
from flowsim.errors import InputError
from flowsim.models.memory.model import MemoryModel, words_by_length
from flowsim.models.memory.recursion import loss_at_length
from full_model import Architecture, PopulationLoss, lift_states
from full_model.model.sources import HiddenSource

#: p, ε, S, N, m, decay.
CASES = [
    (0.1, 0.15, 3, 4, 2, "positive"),
    (0.8, 0.15, 3, 4, 2, "signed"),
    (0.3, 0.1, 4, 3, 1, "signed"),
]
#: Own units alone open, others too, the own one shut.
POINTS = [(0.7, 0.4, 0.4, 0.3), (0.6, -0.5, 1.1, -0.8), (-0.8, 0.6, -1.2, 0.5)]


def whole_layer(model):
    """The architecture of the whole layer of which a model is the reduction, and its loss."""
    S = model.states
    arch = Architecture(
        S, model.length, hidden=model.hidden_per_state * S, states=S, output="states",
        attention="ssm", decay=model.decay, channels=S + 1,
    )  # fmt: skip
    return arch, PopulationLoss(arch, HiddenSource(model.process))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("theta", POINTS, ids=["own", "others", "shut"])
def test_the_whole_layers_gradient_is_tangent(case, theta):
    """Loss, metric and gradient of all weights are those of four numbers, and nothing is off."""
    found, point = MemoryModel(*case), torch.tensor(theta, dtype=torch.float64)
    arch, whole = whole_layer(found)
    value, gradient = whole.value_and_gradient(lift_states(point[None], arch))
    assert float(value) == pytest.approx(float(found.loss(point)), rel=1e-13)
    tangent = torch.cat([
        torch.autograd.functional.jacobian(lambda t, n=n: lift_states(t[None], arch)[n][0], point)
        .reshape(-1, 4) for n in gradient
    ])  # fmt: skip
    slope = torch.cat([x.flatten() for x in gradient.values()])
    metric = tangent.mT @ tangent
    assert (metric - torch.diag(torch.tensor(found.metric))).abs().max() < 1e-12
    reduced = found.gradient(point)
    assert (tangent.mT @ slope - reduced).abs().max() < 1e-13
    off = slope - tangent @ (reduced / torch.tensor(found.metric))
    assert off.norm() <= 1e-12 * slope.norm()


def test_flips_and_mess3_are_its_sources():
    for name, numbers, given in [
        ("flips", {"p": 0.9, "q": 0.9, "epsilon": 0.2}, (0.9, 0.2, 2)),
        ("mess3", {"x": 0.05, "a": 0.85}, (0.1, 0.15, 3)),
    ]:
        known, found = process(name, **numbers).ngram_losses(7), MemoryModel(*given, length=6)
        assert found.bigram == pytest.approx(known[1], abs=1e-13)
        assert found.bayes == pytest.approx(np.mean(known[1:]), abs=1e-13)


def test_as_many_words_are_enumerated_as_are_promised():
    chance, laws = words_by_length(2, 0.9, 0.2, 18)[-1]
    assert len(chance) == 2**17 and chance.sum() == pytest.approx(1)
    assert laws.sum() == pytest.approx(2**17)


@pytest.mark.parametrize("p", [0.9, 0.1])
@pytest.mark.parametrize("states", [2, 3])
def test_the_unigram_is_a_trap_where_its_slope_is_negative(p, states):
    found = MemoryModel(p, 0.2, states, 4)
    theta = torch.tensor([[1e-4, 0.1, 0.3, 0.5], [1e-4, -1.4, 0.3, 0.5]], dtype=torch.float64)
    falls, at_zero = math.log(states) - found.loss(theta), torch.tensor([0.0, 1.0, 1.0, 1.0])
    slope = -found.hessian(theta * at_zero)[..., 0, 0] / 2
    assert (falls / 1e-8 - slope).abs().max() < 1e-4
    assert slope.sign().tolist() == ([-1, 1] if found.eigenvalue < 0 else [1, -1])
    # one symbol, by hand: c² e² (1 − 1/S) λ Cov of own symbols (1 + … )
    one = -found.hessian(0 * at_zero)[0, 0] / 2
    joint = found.process.neighbours.kernel / states
    assert float(one) == pytest.approx(states / (states - 1) * (np.trace(joint) - 1 / states))


def test_a_recursion_over_the_memory_is_the_sum_over_words():
    for theta in POINTS:
        point = torch.tensor(theta, dtype=torch.float64)
        for decay in ("signed", "positive"):
            for length in (1, 9):
                found = MemoryModel(0.8, 0.1, 2, length, decay=decay)
                apart = loss_at_length(found, point, length) - float(found.loss(point))
                assert abs(apart) < 1e-12
    long = loss_at_length(found, point, 400), loss_at_length(found, point, 401)
    assert long[0] == pytest.approx(long[1], abs=1e-4)  # a mean over positions, all but alike
    with pytest.raises(InputError, match="is of two symbols, not 3"):
        loss_at_length(MemoryModel(0.9, 0.2, 3, 2), point, 4)
