"""Where theory says exact: the rank-one flow is the full transformer's gradient flow."""

import pytest
import torch

from flowsim import BinaryChain, trajectories
from flowsim.flow.reference import integrate
from flowsim.models import RankOneModel
from full_model import (
    Architecture,
    Comparison,
    MarkovSource,
    PopulationLoss,
    Recipe,
    Trainer,
    lift_rank_one,
    project,
)
from full_model.comparison.choices import ATTENTION
from full_model.comparison.fields import FullField, rank_one_coordinates
from full_model.comparison.side_by_side import ROUNDING, FullSide, lifted_weights
from full_model.comparison.steps import step_until

F64 = torch.float64
HORIZON, SAVED = 2.0, 4
#: w and a; for p + q < 1 none that soon slides along a ReLU's kink, where adaptive steps stall.
ABOVE = [(1.2, -0.9, 0.4), (-0.9, -1.1, -0.3)]
BELOW = [(0.8, 0.5, 0.4), (-0.9, -0.3, -0.3)]
CASES = [
    ("none", 4, 3, (0.9, 0.9)),
    ("softmax", 4, 3, (0.2, 0.3)),
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


class Reduced:
    """The rank-one model's field, for the steps that move full models."""

    def __init__(self, model):
        self.model, self.metric = model, torch.tensor(model.metric, dtype=F64)

    def __call__(self, state):
        return self.model.gradient(state), self.model.stiffness(state)


def test_discrete_steps_are_reproduced_even_on_the_kink():
    """p + q < 1 and w < −1/√2 slide along the ReLU's kink; the steps chatter there alike."""
    model = RankOneModel(BinaryChain(0.2, 0.3), 5)
    theta = model.from_canonical(torch.tensor([[1.2, -0.9], [-0.9, -1.1], [0.6, 0.8]], dtype=F64))
    field = FullField(Architecture(3, 5, attention="none"), model.chain, shared=True)
    state = field.state(lift_rank_one(model.point(theta), field.arch))
    ends = []
    for moving, rows in ((Reduced(model), theta.clone()), (field, state)):
        time, steps = torch.zeros(3, dtype=F64), torch.zeros(3, dtype=torch.int64)
        step_until(moving, rows, time, steps, 20.0, torch.ones(3, dtype=torch.bool))
        assert time.tolist() == [20.0] * 3
        ends.append((rows, steps))
    assert ends[0][1].tolist() == ends[1][1].tolist()
    found = rank_one_coordinates(model, field.arch, field.whole(ends[1][0]))
    assert (found - ends[0][0]).abs().max() < 1e-9


@pytest.mark.parametrize(("length", "pq"), [(1, (0.5, 0.8)), (3, (0.2, 0.3))])
def test_steps_of_the_flow_follow_the_orbit_into_valleys_and_along_kinks(length, pq):
    """At N = 1 the valley that (1.9, 1.9) creeps along has a curvature of 9 000 at time 500; at
    p + q < 1 the other two slide along the ReLU's kink."""
    settings = Comparison(*pq, "rank-one", "flow", 3, length)
    points = torch.tensor([[1.9, 1.9], [1.2, -0.9], [-0.9, -1.1]], dtype=F64)
    full, model = FullSide(settings, points), RankOneModel(settings.chain, length)
    times = torch.tensor([0.0, 1.0, 20.0, 500.0], dtype=F64)
    orbit = model.to_canonical(trajectories(model, model.from_canonical(points), times))
    alpha = torch.full((3,), 3**-0.5, dtype=F64)
    for at, expected in zip(times[1:], orbit[1:], strict=True):
        full.move(float(at))
        found = project(full.arch, full.field.whole(full.state), alpha).canonical[:, :2]
        assert (found - expected).abs().max() < 2e-3, float(at)
    assert full.steps.max() < 700


@pytest.mark.parametrize("trainer", ["gd", "flow"])
def test_attention_that_stays_zero_may_be_left_out(trainer):
    settings = Comparison(0.5, 0.8, "rank-one", trainer, 4, 4)
    points = torch.tensor([[0.9, -1.1], [0.5, 0.4], [1.5, -0.1], [-0.6, 0.9]], dtype=F64)
    left_out = FullSide(settings, points)
    whole = FullSide(settings, points)
    whole.field = FullField(Architecture(4, 4), settings.chain)
    whole.rounded = FullField(Architecture(4, 4), settings.chain, rounding=ROUNDING)
    whole.state = whole.field.state(lifted_weights(settings, points))
    for side in (left_out, whole):
        side.move(3.0)
    assert left_out.steps.tolist() == whole.steps.tolist()
    ends = [side.field.whole(side.state) for side in (left_out, whole)]
    allowed = 1e-12 if trainer == "gd" else 1e-11  # the flow's steps are chosen by their errors
    for name, weight in ends[1].items():
        if name in ends[0]:
            assert (weight - ends[0][name]).abs().max() < allowed, name
        else:
            assert name in ATTENTION and (weight == 0).all()
    gradients = [side.field(side.state) for side in (left_out, whole)]
    torch.testing.assert_close(gradients[0][1], gradients[1][1], rtol=1e-11, atol=0)
