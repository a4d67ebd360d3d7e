"""Optimizers on any loss: the steps against torch's, and what becomes of a run against oracles."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

import flowsim
from flowsim import (
    InputError,
    Label,
    Model,
    OptimizerChoice,
    Rule,
    Status,
    descend,
    find_limits,
    model,
)

F64 = torch.float64


class Factors(Model):
    """Two factors of one number (arXiv 2605.21292)."""

    coordinates = ("a", "b")

    def loss(self, theta):
        a, b = theta.unbind(-1)
        return (a * b - 1) ** 2 / 2


class Bowl(Model):
    """A quadratic with the curvatures 1 and 4."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return theta[..., 0] ** 2 / 2 + 2 * theta[..., 1] ** 2


class Wells(Model):
    """Two wells of equal depth, of curvature 2, and a saddle between them."""

    coordinates = ("x", "y")

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2


class Mixed(Model):
    """Exponentials and the like, in a metric of its own."""

    coordinates = ("x", "y", "z")
    metric = (1.0, 4.0, 0.25)

    def loss(self, theta):
        x, y, z = theta.unbind(-1)
        wave = torch.exp(-x) * torch.sin(y) ** 2 + torch.log1p(torch.exp(z * x))
        return wave + x**2 / 2 + torch.tanh(z) ** 2


class Plain(Mixed):
    metric = (1.0, 1.0, 1.0)


def drawn(count, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, columns, generator=generator, dtype=F64)


def labels(found):
    return {Label(int(code)).name for code in found.label}


def ellipse(theta, rate):
    a, b = theta.unbind(-1)
    return rate * ((a + b) ** 2 / (2 + rate) + (a - b) ** 2 / (2 - rate)) / 4


def on_the_ellipse(rate, count=40):
    angle = torch.linspace(0, 2 * math.pi, count + 1, dtype=F64)[:-1] + 0.05
    u = angle.cos() * math.sqrt((2 + rate) / rate)
    v = angle.sin() * math.sqrt((2 - rate) / rate)
    return torch.stack([u + v, u - v], dim=-1)


def test_the_ellipse_of_two_factors_is_invariant():
    rate = 1.7
    start = on_the_ellipse(rate)
    torch.testing.assert_close(ellipse(start, rate), torch.ones(40, dtype=F64), rtol=1e-14, atol=0)
    after = descend(Factors(), start, "gd", learning_rate=rate, steps=1).theta
    assert (after - start).abs().amax() > 0.1
    assert (ellipse(after, rate) - 1).abs().max() < 1e-14
    found = descend(Factors(), start, "gd", learning_rate=rate, steps=10)
    assert (ellipse(found.theta, rate) - 1).abs().max() < 1e-9  # what is off it moves away from it
    assert labels(found) == {"BOUNDED"} and (found.status == Status.TIMED_OUT).all()
    assert (found.largest <= start.abs().max() * 1.01).all() and (found.rule == Rule.STEPS).all()


def test_a_long_period_is_the_least_after_which_plain_steps_come_back():
    found = descend(Factors(), [[0.7, 0.9], [-0.4, 0.2]], "gd", learning_rate=1.7, steps=2000)
    assert labels(found) == {"PERIODIC"} and found.period.tolist() == [6, 6]
    for a, b in found.theta.tolist():
        places = [(a, b)]
        for _ in range(18):
            a, b = a - 1.7 * b * (a * b - 1), b - 1.7 * a * (a * b - 1)
            places.append((a, b))
        off = np.abs(np.array(places) - places[0]).max(axis=1)
        assert off[[6, 12, 18]].max() < 1e-11 and off[1:6].min() > 1e-2


def torch_steps(loss, start, make, steps):
    point = torch.nn.Parameter(start.clone())
    optimizer = make([point])
    for _ in range(steps):
        optimizer.zero_grad()
        loss(point).sum().backward()
        optimizer.step()
    return point.detach()


@pytest.mark.parametrize(
    ("name", "numbers", "make"),
    [("gd", {}, lambda x: torch.optim.SGD(x, 0.05)),
     ("momentum", {}, lambda x: torch.optim.SGD(x, 0.05, momentum=0.9)),
     ("adam", {}, lambda x: torch.optim.Adam(x, 0.05)),
     ("adamw", {}, lambda x: torch.optim.AdamW(x, 0.05)),
     ("adam", {"beta2": 0.99}, lambda x: torch.optim.Adam(x, 0.05, (0.9, 0.99))),
     ("adamw", {"weight_decay": 0.1, "epsilon": 1e-6},
      lambda x: torch.optim.AdamW(x, 0.05, (0.9, 0.999), 1e-6, 0.1))],
)  # fmt: skip
def test_steps_are_those_of_torch(name, numbers, make):
    start, plain, steps = drawn(2, 3), Plain(), 40
    numbers = {**numbers, "learning_rate": 0.05}
    found = descend(plain, start, name, steps=steps, **numbers)
    for row, end in zip(start, found.theta, strict=True):  # a norm that clips is of each row alone
        assert (torch_steps(plain.loss, row, make, steps) - end).abs().max() < 1e-12

    def clipped(points):
        optimizer = make(points)
        before = optimizer.step

        def step():
            torch.nn.utils.clip_grad_norm_(points, 0.3)
            before()

        optimizer.step = step
        return optimizer

    found = descend(plain, start, name, steps=steps, clip=0.3, **numbers)
    for row, end in zip(start, found.theta, strict=True):
        assert (torch_steps(plain.loss, row, clipped, steps) - end).abs().max() < 1e-12


def test_in_a_metric_steps_are_those_of_the_coordinates_in_which_the_flow_is_the_gradient():
    start, root = drawn(5, 3, 1), torch.tensor(Mixed.metric, dtype=F64).sqrt()
    found = descend(Mixed(), start, "adam", learning_rate=0.01, steps=50, schedule="constant")
    y = torch_steps(
        lambda y: Mixed().loss(y / root), start * root, lambda x: torch.optim.Adam(x, 0.01), 50
    )
    assert (y / root - found.theta).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("rate", "ends"),
    [(0.4, ["LOCAL_MINIMUM"] * 3), (0.5, ["LOCAL_MINIMUM", "PERIODIC", "PERIODIC"]),
     (0.6, ["LOCAL_MINIMUM", "DIVERGED", "DIVERGED"]),
     (0.5005, ["LOCAL_MINIMUM", "UNRESOLVED", "UNRESOLVED"])],
)  # fmt: skip
def test_a_quadratic_rests_below_twice_its_curvature_and_diverges_above(rate, ends):
    """At ηλ = 2 exactly y goes to −y; a little beside it neither is reached within the steps."""
    start = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.5, -0.3]], dtype=F64)
    found = descend(Bowl(), start, "gd", learning_rate=rate, steps=2048)
    assert [Label(int(code)).name for code in found.label] == ends
    assert found.period.tolist() == [2 * (end == "PERIODIC") for end in ends]
    if "PERIODIC" in ends:
        assert torch.equal(found.theta[1:, 1], start[1:, 1])
        assert (found.status[1:] == Status.PERIODIC).all()


def test_beyond_the_edge_of_stability_a_well_has_the_period_two_that_a_root_finder_finds():
    rate = 1.1  # 2 over the curvature of the wells is 1

    def step(x):
        return x - rate * x * (x**2 - 1)

    ends = [brentq(lambda x: step(step(x)) - x, *bracket, xtol=1e-15)
            for bracket in ((0.6, 0.95), (1.02, 1.3))]  # fmt: skip
    assert step(ends[0]) == pytest.approx(ends[1], rel=1e-12) and ends[1] - ends[0] > 0.1
    start = torch.tensor([[0.9, 0.5], [0.4, -1.0], [-1.3, 0.1]], dtype=F64)
    found = descend(Wells(), start, "gd", learning_rate=rate, steps=3000)
    assert labels(found) == {"PERIODIC"} and (found.period == 2).all()
    for x in found.theta[:, 0].abs().tolist():
        assert min(abs(x - end) for end in ends) < 1e-11
    below = descend(Wells(), start, "gd", learning_rate=0.9, steps=3000)
    assert labels(below) == {"LOCAL_MINIMUM"}


def test_a_model_that_names_its_ends_names_those_of_steps_too():
    canonical = model("canonical", 0.5, 0.8)
    start = 1.2 * drawn(20, 2, 2)
    found = descend(canonical, start, "gd", learning_rate=0.1, steps=1500)
    decided = found.label != Label.UNRESOLVED
    assert decided.sum() >= 18
    assert (found.label == find_limits(canonical, start).label)[decided].double().mean() > 0.95
    best = found.label == Label.GLOBAL_MINIMUM
    assert best.any() and (found.rule[best] == Rule.REACHED_MINIMA).all()
    assert (found.loss[best] - canonical.end_losses().best).abs().max() < 1e-12


@pytest.mark.parametrize(("name", "schedule"), [("adam", "constant"), ("adamw", "cosine")])
def test_adam_never_rests_and_is_known_by_the_minimum_that_it_stays_about(name, schedule):
    decay = {"weight_decay": 1e-3} if name == "adamw" else {}
    found = descend(Wells(), [[0.6, 0.8], [-1.4, 0.1]], name, learning_rate=0.01, steps=700,
                    beta2=0.95, schedule=schedule, **decay)  # fmt: skip
    assert labels(found) == {"LOCAL_MINIMUM"}
    moving = found.status == Status.TIMED_OUT
    assert (found.rule[moving] == Rule.STEPS).all()
    assert np.abs(found.theta - [[1.0, 0.0], [-1.0, 0.0]]).max() < 1e-2
    wild = descend(Wells(), [[0.6, 0.8]], "adam", learning_rate=0.3, steps=700,
                   beta2=0.95, schedule="constant")  # fmt: skip
    assert not labels(wild) & {"LOCAL_MINIMUM", "DIVERGED", "UNRESOLVED"}


@pytest.mark.parametrize("name", ["gd", "adamw"])
def test_a_row_alone_is_the_row_among_others_bit_for_bit(name):
    start = torch.cat([drawn(2, 3), torch.tensor([[math.nan, 0, 0], [0, math.inf, 0]])])
    numbers = {"learning_rate": 0.05, "steps": 100}
    found = descend(Mixed(), start, name, **numbers)
    for i in range(len(start)):
        alone = descend(Mixed(), start[i : i + 1], name, **numbers)
        for column in ("theta", "label", "status", "rule", "loss", "period", "largest",
                       "steps_taken"):  # fmt: skip
            one, among = getattr(alone, column)[0], getattr(found, column)[i]
            assert torch.equal(one.nan_to_num(), among.nan_to_num())
            assert torch.equal(one.isnan(), among.isnan())
    assert found.status[-2:].tolist() == [Status.FAILED] * 2
    assert found.label[-2:].tolist() == [Label.UNRESOLVED] * 2


def test_batches_and_other_numbers_of_columns_are_refused():
    with pytest.raises(InputError, match="the Bowl model has no batches"):
        descend(Bowl(), [[1.0, 1.0]], OptimizerChoice.named("adam"))
    with pytest.raises(InputError, match=r"shape \(n, 2\) = \(x, y\)"):
        descend(Bowl(), [[1.0, 1.0, 1.0]], "gd")
    with pytest.raises(InputError, match="name of an optimizer"):
        descend(Bowl(), [[1.0, 1.0]], OptimizerChoice.named("gd"), steps=5)
    with pytest.raises(InputError, match="has no momentum"):
        descend(Bowl(), [[1.0, 1.0]], "gd", momentum=0.5)


class Ball(flowsim.Model):
    """Gradient descent with momentum on a bowl, as steps of its own."""

    coordinates = ("x", "y")
    memory = ("dx", "dy")
    wrong = False

    def loss(self, theta):
        return (theta**2 * theta.new_tensor([1.0, 3.0])).sum(-1) / 2

    def step(self, theta, memory):
        memory = 0.9 * memory + self.gradient(theta)
        return theta - 0.1 * memory, memory[:, :1] if self.wrong else memory


def test_own_steps_with_a_memory_are_taken_as_an_optimizer_s():
    starts = [[1.0, 0.5], [-2.0, 1.0]]
    own = flowsim.descend(Ball(), starts, steps=300)
    same = flowsim.descend(Ball(), starts, "momentum", learning_rate=0.1, steps=300)
    np.testing.assert_allclose(own.theta, same.theta, rtol=0, atol=1e-13)
    assert flowsim.OptimizerChoice.named("own", steps=7).attributes()["optimizer"] == "own"


def test_own_steps_of_a_wrong_shape_and_of_a_model_without_are_refused_in_a_sentence():
    wrong = Ball()
    wrong.wrong = True
    with pytest.raises(flowsim.InputError, match=r"the shapes \(1, 2\) and \(1, 2\), not"):
        flowsim.descend(wrong, [[1.0, 0.5]], steps=5)
    bowl = flowsim.from_loss(lambda x, y: x**2 + y**2, "bowl")
    with pytest.raises(flowsim.InputError, match="has no step"):
        flowsim.descend(bowl, [[1.0, 0.5]], "own", steps=5)
    with pytest.raises(flowsim.InputError, match="own has no learning_rate"):
        flowsim.OptimizerChoice.named("own", learning_rate=0.1)
