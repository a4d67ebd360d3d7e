"""Where theory says exact: the rank-one flow is the full transformer's gradient flow."""

import pytest
import torch

from flowsim import BinaryChain, RankOneModel
from flowsim.flow.reference import integrate
from full_model import (
    Architecture,
    AttentionFreeField,
    MarkovSource,
    PopulationLoss,
    Recipe,
    Trainer,
    lift_rank_one,
    project,
)
from full_model.comparison.fields import rank_one_coordinates
from full_model.comparison.steps import ReducedField, step_until

F64 = torch.float64
HORIZON, SAVED = 2.0, 4
#: w and a; for p + q < 1 none that soon slides along a ReLU's kink, where adaptive steps stall.
ABOVE = [(1.2, -0.9, 0.4), (-0.9, -1.1, -0.3)]
BELOW = [(0.8, 0.5, 0.4), (-0.9, -0.3, -0.3)]
CASES = [
    ("none", 1, 2, (0.5, 0.8)),
    ("none", 4, 3, (0.9, 0.9)),
    ("none", 8, 64, (0.2, 0.3)),
    ("softmax", 2, 4, (0.5, 0.8)),
    ("softmax", 4, 3, (0.2, 0.3)),
    ("softmax", 8, 2, (0.1, 0.1)),
]


def start(attention, length, pq):
    model = RankOneModel(BinaryChain(*pq), length, attention != "none")
    points = torch.tensor(ABOVE if sum(pq) > 1 else BELOW, dtype=F64)
    return model, model.from_canonical(points if model.attention else points[:, :2])


@pytest.mark.parametrize(("attention", "d", "length", "pq"), CASES)
def test_full_flow_projects_onto_the_rank_one_flow(attention, d, length, pq):
    model, theta = start(attention, length, pq)
    arch = Architecture(d, length, attention=attention)
    weights = lift_rank_one(model.point(theta), arch)
    recipe = Recipe("flow", steps=SAVED, horizon=HORIZON, rtol=1e-8, atol=1e-10)
    source = MarkovSource.of(model.chain)
    trainer, loss = Trainer(arch, weights, source, recipe), PopulationLoss(arch, source)
    times = torch.linspace(0, HORIZON, SAVED + 1, dtype=F64)
    orbit = integrate(model, theta, times, rtol=1e-10)
    orbit = model.point(orbit).standard().to_coordinates(model.attention, model.tied)
    alpha = torch.full((d,), d**-0.5, dtype=F64)
    for at, expected in zip(times, orbit, strict=True):
        if at > 0:
            trainer.advance()
        found = rank_one_coordinates(model, arch, trainer.weights)
        assert (found - expected).abs().max() < 1e-6, float(at)
        # the gradients that leave the manifold: their part off its tangent space, a linear one
        _, gradient = loss.value_and_gradient(trainer.weights)
        assert project(arch, gradient, alpha).relative_distance.max() < 1e-12, float(at)
    assert (orbit[-1] - orbit[0]).abs().amax(1).min() > 0.01


def test_a_start_off_the_manifold_has_a_residual():
    """The residual that the test above bounds is one that can be large."""
    model, theta = start("none", 3, (0.5, 0.8))
    arch = Architecture(4, 3, attention="none")
    weights = lift_rank_one(model.point(theta), arch)
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: w + 0.1 * torch.randn(w.shape, dtype=F64, generator=generator)
        for name, w in weights.items()
    }
    _, gradient = PopulationLoss(arch, MarkovSource.of(model.chain)).value_and_gradient(weights)
    alpha = torch.full((4,), 0.5, dtype=F64)
    assert project(arch, gradient, alpha).relative_distance.min() > 0.01


@pytest.mark.parametrize("method", ["descent", "flow"])
@pytest.mark.parametrize(("d", "length", "pq"), [(3, 5, (0.2, 0.3)), (8, 1024, (0.5, 0.8))])
def test_discrete_steps_are_reproduced_even_on_the_kink(method, d, length, pq):
    """p + q < 1 and w < −1/√2 slide along the ReLU's kink; the steps chatter there alike."""
    model = RankOneModel(BinaryChain(*pq), length)
    theta = model.from_canonical(torch.tensor([[1.2, -0.9], [-0.9, -1.1], [0.6, 0.8]], dtype=F64))
    field = AttentionFreeField(Architecture(d, length, attention="none"), model.chain, shared=True)
    state = field.state(lift_rank_one(model.point(theta), field.arch))
    ends = []
    for moving, rows in ((ReducedField(model), theta.clone()), (field, state)):
        time, steps = torch.zeros(3, dtype=F64), torch.zeros(3, dtype=torch.int64)
        step_until(moving, rows, time, steps, 20.0, torch.ones(3, dtype=torch.bool), method)
        assert time.tolist() == [20.0] * 3
        ends.append((rows, steps))
    assert ends[0][1].tolist() == ends[1][1].tolist()
    found = rank_one_coordinates(model, field.arch, field.whole(ends[1][0]))
    assert (found - ends[0][0]).abs().max() < 1e-9
