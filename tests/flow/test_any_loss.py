"""Any loss: ends, paths and times, against the compiled engines, scipy, and closed forms."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import flowsim
from flowsim import InputError, Label, Rule, Status
from flowsim.flow.any_loss import RosenbrockSolver, any_paths, any_times
from flowsim.flow.labelling import label_ends
from flowsim.flow.near_saddles import displace
from flowsim.flow.options import Limits, SolverOptions, Steps
from flowsim.flow.orbits import limits_by
from flowsim.interface import Model


class Well(Model):
    """Two wells; the tilt makes the left one deeper."""

    coordinates = ("x", "y")

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x


class Valley(Model):
    """Rosenbrock's."""

    coordinates = ("x", "y")

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (1 - x) ** 2 + 100 * (y - x**2) ** 2


class Net(Model):
    """Four layers of one number."""

    coordinates = ("a", "b", "c", "d")

    def loss(self, theta):
        return (theta.prod(-1) - 1) ** 2


class Bowl(Model):
    """A quadratic of condition number 1e6."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return 5e5 * theta[..., 0] ** 2 + theta[..., 1] ** 2 / 2


class Spiral(Bowl):
    """No gradient flow: round the origin and into it."""

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([-x - 3 * y, 3 * x - y], dim=-1)


class Slope(Model):
    """A loss that falls for ever."""

    coordinates = ("x",)

    def loss(self, theta):
        return torch.nn.functional.softplus(-theta[..., 0])


class Rounded(Well):
    """Of functions that torch rounds otherwise at the end of a block."""

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return torch.nn.functional.softplus(x * y) + (x + y).cosh()


class Fold(Model):
    """A kink at x = 0, along which orbits creep to the origin."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return theta[..., 0].abs() + theta[..., 1] ** 2 / 2


def limits_of(model, rows, rtol=1e-6, atol=1e-12, max_steps=3000):
    parts = RosenbrockSolver(model).ends(rows, Steps(rtol, atol, max_steps))
    return Limits.joined([label_ends(model, part) for part in parts], rows.shape[:-1])


def starts(model, n, size=2.0, seed=0):
    draw = torch.Generator().manual_seed(seed)
    unit = torch.rand(n, len(model.coordinates), generator=draw, dtype=torch.float64)
    return size * (2 * unit - 1)


@pytest.mark.parametrize("kind", [Well, Valley, Net, Bowl, Spiral])
def test_every_start_is_decided(kind):
    model = kind()
    found = limits_of(model, starts(model, 40))
    assert found.label.unique().tolist() == [Label.LOCAL_MINIMUM]
    decisive = {Rule.CAME_TO_REST, Rule.SHADOWS, *([Rule.RETURNS] if kind is Spiral else [])}
    assert {*map(Rule, found.rule.tolist())} <= decisive
    assert not found.status.any()
    lowest = {Valley: torch.ones(2), Bowl: torch.zeros(2), Spiral: torch.zeros(2)}
    if kind in lowest:
        assert (found.theta - lowest[kind]).abs().max() < 1e-5
    assert kind is not Net or (found.theta.prod(1) - 1).abs().max() < 1e-9


def test_both_wells_are_found_on_their_sides():
    model, rows = Well(), starts(Well(), 40)
    # the hill between the wells, and the wells: x³ − x + 0.2 = 0
    left, hill, right = sorted(np.roots([1, 0, -1, 0.2]).real)
    found = limits_of(model, rows)
    expected = torch.where(rows[:, 0] < hill, left, right)
    assert (found.theta[:, 0] - expected).abs().max() < 1e-6
    top = limits_of(model, torch.tensor([[hill, 0.3]], dtype=torch.float64))
    assert top.label.item() in (Label.UNRESOLVED, Label.SADDLE)


@pytest.mark.slow
def test_rows_do_not_depend_on_their_neighbours():
    model, rows = Rounded(), starts(Rounded(), 37)
    some = [0, 15, 16, 20, 32, 36]  # at both ends of blocks of 16, and of what is left
    together = limits_of(model, rows, max_steps=60)  # some at their ends, some on their way
    each = [limits_of(model, rows[[i]], max_steps=60) for i in some]
    alone = Limits.joined(each, torch.Size([len(some)]))
    for field in fields(together):
        pair = getattr(together, field.name)[some], getattr(alone, field.name)
        torch.testing.assert_close(*pair, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
def test_what_has_no_end_goes_to_infinity_and_what_creeps_ends_at_a_kink():
    away = limits_of(Slope(), starts(Slope(), 5))
    assert (away.label == Label.INFINITY).all() and (away.theta == torch.inf).all()
    assert away.status.unique().tolist() == [Status.DIVERGED]
    folded = limits_of(Fold(), torch.tensor([[0.3, 1.0], [torch.nan, 1.0]]).double())
    assert folded.label.tolist() == [Label.LOCAL_MINIMUM, Label.UNRESOLVED]
    assert folded.theta[0].abs().max() < 1e-6
    assert folded.status.tolist() == [Status.CONVERGED, Status.FAILED]


class Twins(Model):
    """Two factors fall as a small power of time while the two that they share grow without end."""

    coordinates = ("a", "d", "b", "c")

    def loss(self, theta):
        a, d, b, c = theta.unbind(-1)
        one, other = (a * b * c - 1) ** 2 / 2, (d * b * c - 1) ** 2 / 2
        return (one + 0.1) * (other + 0.2) + 0.05 * (a * d) ** 2


@pytest.mark.slow
def test_a_small_power_of_time_is_known_long_before_the_steps_are_spent():
    found = limits_of(Twins(), 0.1 + starts(Twins(), 3).abs() / 4)
    assert (found.label == Label.INFINITY).all() and (found.rule == Rule.DRIFTS).all()
    assert found.theta.isinf().tolist() == [[False, False, True, True]] * 3
    assert (found.loss - 0.02).abs().max() < 1e-7
    assert found.evaluations.max() < 8 * 1200


@pytest.mark.parametrize(
    "loss, x, near",
    [
        pytest.param(lambda x, y: x**6 + y**2 / 2, 0.0, 0.01, marks=pytest.mark.slow),
        pytest.param(lambda x, y: (x - 1) ** 20 + y**2 / 2, 1.0, 1e-3, marks=pytest.mark.slow),
        (lambda x, y: 1 / (1 + x**2) + (x / 30) ** 8 + y**2 / 2, 13.2128, 1e-3),
    ],
)
def test_what_slows_down_towards_a_minimum_does_not_go_to_infinity(loss, x, near):
    """To flat minima, and by x ~ t^¼ to one that is far away."""
    model = flowsim.from_loss(loss, "model")
    found = limits_of(model, starts(model, 12).abs() + 0.2)
    assert (found.label == Label.LOCAL_MINIMUM).all()
    assert (found.theta[:, 0] - x).abs().max() < near


@pytest.mark.slow
def test_what_moves_steadily_to_a_minimum_far_away_does_not_go_to_infinity():
    """For a hundred times its first time, in many steps, since its steep valley winds."""
    model = flowsim.from_loss(
        lambda x, y: (1 + (x - 130) ** 2) ** 0.5 + 5e3 * (y - 0.1 * (0.1 * x).sin()) ** 2, "river"
    )
    found = limits_of(model, torch.zeros(1, 2).double())
    assert found.label == Label.LOCAL_MINIMUM and abs(found.theta[0, 0] - 130) < 1e-6


@pytest.mark.slow
def test_a_start_on_the_line_that_a_saddle_attracts_ends_at_the_saddle():
    model = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "double well")
    heights = torch.linspace(-2, 2, 8, dtype=torch.float64)
    on = torch.stack([torch.zeros_like(heights), heights], 1)
    found = limits_of(model, on)
    assert (found.label == Label.SADDLE).all() and found.theta.abs().max() < 1e-9
    beside = limits_of(model, on + torch.tensor([1e-13, 0.0]).double())
    assert not (beside.label == Label.SADDLE).any()


@pytest.mark.parametrize("kind", [Well, pytest.param(Valley, marks=pytest.mark.slow), Spiral])
def test_paths_and_times_are_those_of_scipy(kind):
    model, times = kind(), torch.tensor([0.0, 0.01, 0.3, 1.0, 5.0]).double()
    rows = starts(model, 2)
    path = any_paths(model, rows, times[:, None].expand(-1, len(rows)), Steps(1e-9, 1e-12, 20_000))
    for i, row in enumerate(rows.numpy()):
        wanted = solve_ivp(
            lambda _, y: model.field(torch.tensor(y)).numpy(), (0.0, 5.0), row, method="LSODA",
            rtol=1e-10, atol=1e-12, t_eval=times.numpy(),
            jac=lambda _, y: model.jacobian(torch.tensor(y)).numpy(),
        )  # fmt: skip
        assert np.abs(path[:, i].numpy() - wanted.y.T).max() < 1e-7
    if kind is not Spiral:  # where the loss is none of the flow
        found = any_times(model, rows, model.loss(path[2]), Steps(1e-10, 1e-12, 20_000))
        torch.testing.assert_close(found, times[2].expand(2), rtol=1e-6, atol=0)


@pytest.mark.slow
def test_nothing_is_made_on_a_device_where_the_starts_are_not():
    """Where every tensor without a device would lie elsewhere, all is as before."""
    model, rows = Well(), starts(Well(), 18)
    times, loss = torch.tensor([0.0, 1.0, 2.0]).double(), torch.full((18,), 0.1).double()

    def everything():
        return (
            limits_of(model, rows).theta,
            displace(model, rows, 1e-6),
            any_paths(model, rows, times[:, None].expand(-1, 18), Steps(1e-6, 1e-9, 20_000)),
            any_times(model, rows, loss, Steps(1e-6, 1e-8, 20_000)),
        )

    expected = everything()
    with torch.device("meta"):
        found = everything()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_a_device_is_one_that_is_there_and_that_the_engine_has(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert SolverOptions(device="auto").device == "cpu"
    with pytest.raises(InputError, match="this machine has no CUDA device"):
        SolverOptions(device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert SolverOptions(device="auto").attributes()["device"] == "cuda"
    with pytest.raises(InputError, match="torchdiffeq run on the CPU"):
        SolverOptions(device="cuda", integrator="torchdiffeq")
    with pytest.raises(InputError, match="the canonical model's engine is for the CPU"):
        limits_by(
            flowsim.model("canonical", 0.5, 0.8), torch.ones(1, 2), SolverOptions(device="cuda")
        )


@pytest.mark.device
def test_labels_on_a_device_are_those_on_the_cpu(device):
    model, rows = Well(), starts(Well(), 1000)
    here, there = (limits_by(model, rows, SolverOptions(device=where)) for where in ("cpu", device))
    assert torch.equal(here.label, there.label)
    torch.testing.assert_close(here.theta, there.theta, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_loss_that_falls_as_a_power_or_a_logarithm_of_time_has_its_limit():
    starts = [[1.0, 0.3], [2.0, -1.0]]
    tail = flowsim.from_loss(lambda x, y: 2 + (1 + x**2) ** -0.5 + y**2 / 2)
    found = flowsim.find_limits(tail, starts)
    assert (found.theta[:, 0] == np.inf).all() and np.abs(found.loss - 2).max() < 1e-6
    abyss = flowsim.from_loss(lambda x, y: -(1 + x**2).log() + y**2 / 2)
    found = flowsim.find_limits(abyss, starts)
    assert (found.label == flowsim.Label.INFINITY).all() and (found.loss == -np.inf).all()
