"""Any loss: ends, paths and times, against the compiled engines, scipy, and closed forms."""

from dataclasses import fields

import pytest
import torch

import flowsim
from flowsim import InputError, Label, Rule
from flowsim.flow.any_loss import RosenbrockSolver
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


class Rounded(Well):
    """Of functions that torch rounds otherwise at the end of a block."""

    def loss(self, theta):
        x, y = theta.unbind(-1)
        return torch.nn.functional.softplus(x * y) + (x + y).cosh()


def limits_of(model, rows, rtol=1e-6, atol=1e-12, max_steps=3000):
    parts = RosenbrockSolver(model).ends(rows, Steps(rtol, atol, max_steps))
    return Limits.joined([label_ends(model, part) for part in parts], rows.shape[:-1])


def starts(model, n, size=2.0, seed=0):
    draw = torch.Generator().manual_seed(seed)
    unit = torch.rand(n, len(model.coordinates), generator=draw, dtype=torch.float64)
    return size * (2 * unit - 1)


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
def test_nothing_is_made_on_a_device_where_the_starts_are_not():
    """Where every tensor without a device would lie elsewhere, all is as before."""
    model, rows = Well(), starts(Well(), 18)
    times, loss = torch.tensor([0.0, 1.0, 2.0]).double(), torch.full((18,), 0.1).double()

    def everything():
        return (
            limits_of(model, rows).theta,
            displace(model, rows, 1e-6),
            RosenbrockSolver(model).paths(
                rows, times[:, None].expand(-1, 18), Steps(1e-6, 1e-9, 20_000)
            ),
            RosenbrockSolver(model).until(rows, loss, Steps(1e-6, 1e-8, 20_000)),
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


@pytest.mark.slow
@pytest.mark.device
def test_labels_on_a_device_are_those_on_the_cpu(device):
    model, rows = Well(), starts(Well(), 1000)
    here, there = (limits_by(model, rows, SolverOptions(device=where)) for where in ("cpu", device))
    assert torch.equal(here.label, there.label)
    torch.testing.assert_close(here.theta, there.theta, rtol=0, atol=1e-6)
