"""Branches and their events at the values that are known."""

import math

import numpy as np
import pytest
import torch

import flowsim
from flowsim.bifurcation.branches import Tracer, zeros_from
from flowsim.bifurcation.events import events_of, switched
from flowsim.bifurcation.find import diagram
from flowsim.bifurcation.system import StepMap, System, with_decay
from flowsim.errors import InputError, Interrupted
from flowsim.scan.store import kept
from flowsim.spec import ModelSpec


class Well(flowsim.Model):
    coordinates = ("x",)

    def __init__(self, g: float = 0.0):
        self.g = g

    def loss(self, theta):
        return (theta[..., 0] ** 2 - 1) ** 2 / 4 + self.g * theta[..., 0]


class DeepTwo(flowsim.Model):
    """A deep linear network with one unit a layer and weight decay."""

    coordinates = ("a", "b")

    def __init__(self, decay: float = 0.1):
        self.decay = decay

    def loss(self, theta):
        return (1 - theta.prod(-1)) ** 2 / 2 + self.decay * (theta**2).sum(-1) / 2


class Exchange(flowsim.Model):
    coordinates = ("x", "y")

    def __init__(self, r: float = 0.0):
        self.r = r

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([self.r * x - x**2, -y], -1)

    def loss(self, theta):
        return 0 * theta[..., 0]


class Turning(flowsim.Model):
    """The normal form of Hopf's bifurcation, at m = 0."""

    coordinates = ("x", "y")

    def __init__(self, m: float = 0.0):
        self.m = m

    def field(self, theta):
        x, y = theta.unbind(-1)
        grows = self.m - x**2 - y**2
        return torch.stack([grows * x - y, grows * y + x], -1)

    def loss(self, theta):
        return 0 * theta[..., 0]


class Islands(flowsim.Model):
    """A branch x = 0, and a closed one that touches nothing: (x − 2)² + p² = ¼."""

    coordinates = ("x",)

    def __init__(self, p: float = 0.0):
        self.p = p

    def field(self, theta):
        return -theta * ((theta - 2) ** 2 + self.p**2 - 0.25)

    def loss(self, theta):
        return 0 * theta[..., 0]


def found(kind, parameter, low, high, count=5, starts=16, step=None):
    system = System(ModelSpec(kind), parameter, low, high, step)
    generator = torch.Generator().manual_seed(0)
    shape = (starts, len(system.coordinates))
    drawn = 1.5 * torch.randn(shape, dtype=torch.float64, generator=generator)
    values = torch.linspace(low, high, count).double()
    return diagram(system, values, drawn, [drawn[:0]] * count)


def places(diagram, kind):
    return sorted({round(event.value, 9) for event in diagram.events if event.kind == kind})


@pytest.mark.parametrize(
    ("kind", "parameter", "low", "high", "event", "known"),
    [
        (Well, "g", -1.0, 1.0, "fold", [-2 / 27**0.5, 2 / 27**0.5]),
        (DeepTwo, "decay", 0.1, 1.5, "pitchfork", [1.0]),
        (Exchange, "r", -1.0, 1.3, "transcritical", [0.0]),
        (Turning, "m", -1.0, 1.3, "hopf", [0.0]),
        pytest.param(Islands, "p", -1.0, 1.3, "fold", [-0.5, 0.5], marks=pytest.mark.slow),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)  # fmt: skip
def test_events_lie_where_they_are_known_to(kind, parameter, low, high, event, known):
    there = found(kind, parameter, low, high)
    assert places(there, event) == pytest.approx(known, abs=1e-8)
    assert {x.kind for x in there.events} == {event}


class Cliff(Well):
    def loss(self, theta):
        x = theta[..., 0]
        return x**2 / 2 - torch.log(x + self.g)


@pytest.mark.slow
def test_no_branch_leads_through_places_without_a_loss():
    """The derivative of ½x² − ln(x + g) has a zero with x + g < 0 too."""
    (branch,) = found(Cliff, "g", 0.5, 2.0, count=2).branches
    assert (branch.state[:, 0] + branch.value > 0).all()


def test_branches_end_where_the_model_jumps_and_none_lies_between():
    class Jump(flowsim.Model):
        coordinates = ("x",)

        def __init__(self, p: float = 0.0):
            self.p = p

        def loss(self, theta):
            return (theta[..., 0] - (1.0 if self.p > 0.3 else 0.0)) ** 2 / 2

    values, starts = torch.tensor([0.0, 0.3, 0.5]).double(), torch.tensor([[0.0], [1.0]]).double()
    found = diagram(System(ModelSpec(Jump), "p", 0.0, 0.5), values, starts, [starts[:0]] * 3)
    ends = sorted((float(b.value.min()), float(b.value.max())) for b in found.branches)
    assert ends == [(0.0, pytest.approx(0.3, abs=1e-6)), (pytest.approx(0.3, abs=1e-6), 0.5)]
    for branch in found.branches:
        assert float((branch.state[:, 0] - 1.0 * (branch.value > 0.3)).abs().max()) < 1e-6
    assert not found.events


def test_a_branch_goes_around_its_folds_and_is_one():
    there = found(Well, "g", -1.0, 1.0)
    (branch,) = there.branches
    changes = branch.unstable.diff().abs()
    assert changes.tolist().count(1) == int(changes.sum()) == 2
    x = branch.state[:, 0]
    assert bool((x.diff() * x.diff()[0] > 0).all())  # no jump back


def test_steps_of_gradient_descent_flip_where_they_are_known_to():
    """x ← x − μx(x² − 1): period 2 from μ = 1, period 4 from √5 − 1."""
    system = System(ModelSpec(Well), "learning_rate", 0.1, 1.4, StepMap())
    one = Tracer(system, torch.ones(1).double())
    branches = one.trace(torch.ones(1, 1).double(), torch.tensor([0.5]).double())
    (flip,) = events_of(one, branches)
    assert (flip.kind, flip.value) == ("flip", pytest.approx(1.0, abs=1e-8))
    two = Tracer(system.with_period(2), torch.ones(1).double())
    state, value = switched(two, flip)
    (again,) = {round(e.value, 8) for e in events_of(two, two.trace(state[:1], value[:1]))
                if e.kind == "flip"}  # fmt: skip
    assert again == pytest.approx(math.sqrt(5) - 1, abs=1e-8)


class Quadratic(DeepTwo):
    def loss(self, theta):
        return (3 * theta[..., 0] ** 2 + theta[..., 1] ** 2) / 2


def test_steps_on_a_quadratic_flip_at_two_over_its_curvature():
    """There every start comes back after two steps: a continuum, which is not followed."""
    events = found(Quadratic, "learning_rate", 0.1, 2.5, step=StepMap()).events
    assert [event.kind for event in events] == ["flip", "flip"]
    assert [event.value for event in events] == pytest.approx([2 / 3, 2], abs=1e-8)


def test_ends_keep_their_names_and_shares_have_intervals(tmp_path):
    starts = torch.linspace(-2, 2, 6).double()[:, None]
    record = flowsim.continuation(ModelSpec(Well), "g", [-0.6, -0.2, 0.2, 0.6], starts)
    share = record["share"].sel(basin=["minimum_1", "minimum_2"]).values
    assert share[0].tolist() == [1, 0]
    assert share[-1].tolist() == [0, 1]
    assert (np.diff(share[:, 1]) >= 0).all()
    left = record["end_x"].sel(basin="minimum_1").values
    assert (np.isfinite(left) == (record["g"].values < 0.38)).all()
    assert (left[:3] > 0.8).all()
    assert record.event_value.values == pytest.approx([-2 / 27**0.5, 2 / 27**0.5], abs=1e-8)
    flowsim.write_record(record, tmp_path / "branches.nc")
    again = flowsim.read_record(tmp_path / "branches.nc")
    assert flowsim.summarize(again)["branches"] == 1
    assert len(flowsim.draw(again).axes) == 2


@pytest.mark.slow
def test_distances_of_both_minima_to_the_saddle_are_closed_forms():
    """Of the double well: to its middle root of x³ − x + g = 0, and none beyond the folds."""
    starts = torch.tensor([[-2.0], [2.0]]).double()
    record = flowsim.continuation(ModelSpec(Well), "g", [0.1, 0.6], starts, edge=True)
    away = record["edge_distance"].sel(basin=["minimum_1", "minimum_2"]).values
    order = record["end_x"].sel(basin=["minimum_1", "minimum_2"]).values[0].argsort()
    known = np.diff(np.sort(np.roots([1, 0, -1, 0.1]).real))
    assert away[0, order] == pytest.approx(known, abs=1e-7)
    assert not np.isfinite(away[1]).any()
    assert flowsim.summarize(record)["smallest_distance"]["minimum_1"] == away[0, 0]
    assert len(flowsim.draw(record).axes) == 3
    step = flowsim.OptimizerChoice.named("gd", None)
    with pytest.raises(InputError, match="of ends of the flow that are points"):
        flowsim.continuation(
            ModelSpec(Well), "learning_rate", [0.1, 0.5], optimizer=step, edge=True
        )


def test_a_run_stopped_at_any_moment_goes_on_from_what_was_kept(tmp_path):
    def run(stop_at=None, resume=False, g=0.3):
        """The record, and how many results were computed; stopped before that one."""
        computed = []

        def until(keep):
            def compute(one):
                if len(computed) == stop_at:
                    raise KeyboardInterrupt
                computed.append(one)
                return one()

            return lambda one: keep(lambda: compute(one))

        with kept(tmp_path / "a.nc", {"g": str(g)}, resume, overwrite=False) as keep:
            starts = [[-1.5], [1.5]]
            record = flowsim.continuation(
                ModelSpec(Well), "g", [-g, 0.0, g], starts, keep=until(keep)
            )
        return record, len(computed)

    parts = tmp_path / "a.nc.parts"
    whole, all_ = run()
    assert all_ == 4 and not any(tmp_path.iterdir())
    with pytest.raises(Interrupted, match="nothing is left"):
        run(stop_at=0)
    assert not parts.exists()
    with pytest.raises(Interrupted, match="--resume"):
        run(stop_at=2)
    with pytest.raises(InputError, match="give --resume"):
        run()
    with pytest.raises(InputError, match="of other settings"):
        run(resume=True, g=0.2)
    with pytest.raises(Interrupted, match="--resume"):
        run(resume=True, stop_at=1)
    parts.write_bytes(parts.read_bytes()[:-1])  # killed while it wrote the third
    again, computed = run(resume=True)
    assert computed == 2 and not any(tmp_path.iterdir())
    assert again.equals(whole)


class Kinked(Well):
    def loss(self, theta):
        x = theta[..., 0]
        return (1 - self.g) * x.abs() ** 1.5 + x**4 / 4 - self.g * x**2 / 2


@pytest.mark.slow
def test_a_minimum_at_a_kink_keeps_its_name_where_others_are_born():
    starts = torch.linspace(-1, 1, 5).double()[:, None]
    record = flowsim.continuation(ModelSpec(Kinked), "g", [0.7, 0.8], starts)
    x = np.linspace(0.01, 1, 100_001)
    born = ((1.5 * np.sqrt(x) + x**3) / (1.5 * np.sqrt(x) + x)).min()
    assert record.event_value.values == pytest.approx([born, born], abs=1e-8)
    counts = record["count"].sel(basin=["minimum_1", "minimum_2", "minimum_3"]).values
    assert counts.tolist() == [[5, 0, 0], [1, 2, 2]]


def test_what_cannot_be_continued_is_refused():
    for spec, parameter, values, words in (
        (ModelSpec(Well), "h", [0.0, 1.0], "no argument h"),
        (ModelSpec(Well), "g", [0.0], "at least two"),
        (ModelSpec(Well), "learning_rate", [0.1, 1.0], "of an optimizer"),
    ):
        with pytest.raises(InputError, match=words):
            flowsim.continuation(spec, parameter, values)
    with pytest.raises(InputError, match="descend a loss: this model has a field of its own"):
        System(ModelSpec(Exchange), "learning_rate", 0.1, 1.0, StepMap())


@pytest.mark.slow
def test_the_search_finds_the_birth_of_the_trap():
    """Both halves of the line e = 0 change at it; the curve of minima moves and is left out."""
    name, arguments, parameter, born = "canonical", {"p": 0.5, "q": 0.3}, "q", 0.5
    values = np.linspace(born - 0.2, born + 0.15, 4)
    record = flowsim.continuation(ModelSpec(name, arguments), parameter, values)
    assert record.event_kind.values.tolist() == ["pitchfork", "pitchfork"]
    assert record.event_value.values == pytest.approx([born, born], abs=1e-8)
    assert np.abs(record.branch_e.values).max() < 1e-6
    for number in (0, 1):
        w = record.branch_w.values[record.branch_number.values == number]
        assert np.ptp(w) < 1e-6
    assert "left_out" in flowsim.summarize(record)


@pytest.mark.parametrize(
    ("name", "arguments", "parameter", "born"),
    [("canonical", {"p": 0.5, "q": 0.3}, "q", 0.5),
     ("states", {"states": 3, "p": 0.5}, "p", 2 / 3)],
)  # fmt: skip
def test_the_trap_is_born_where_theory_says(name, arguments, parameter, born):
    """On the line e = 0, a continuum, at p + q = 1 and at p = (S − 1)/S."""
    system = System(ModelSpec(name, arguments), parameter, 0.45, 0.75)
    tracer = Tracer(system, torch.ones(2).double())
    start = torch.tensor([[0.0, 1.0], [0.0, -1.0]]).double()
    branches = tracer.trace(start, torch.full((2,), 0.6).double())
    assert [branch.dimension for branch in branches] == [1, 1]
    events = events_of(tracer, branches)
    assert {event.kind for event in events} == {"pitchfork"}
    assert [event.value for event in events] == pytest.approx([born, born], abs=1e-8)


class Product(flowsim.Model):
    coordinates = ("a", "b", "c")

    def loss(self, theta):
        return (1 - theta.prod(-1)) ** 2 / 2


def test_weight_decay_of_gradient_descent_has_the_fold_of_the_deep_network():
    system = System(with_decay(ModelSpec(Product)), "weight_decay", 0.1, 1.0, StepMap(0.05))
    starts = torch.full((4, 3), 0.7).double() + 0.1 * torch.randn(4, 3).double()
    tracer = Tracer(system, torch.ones(3).double())
    state, ok = zeros_from(system, starts, torch.full((4,), 0.3).double(), tracer.size)
    (fold,) = events_of(tracer, tracer.trace(state[ok][:1], torch.tensor([0.3]).double()))
    assert (fold.kind, fold.value) == ("fold", pytest.approx(0.4724703937, abs=1e-8))
