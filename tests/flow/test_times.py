"""Hitting times of models whose loss is not a function of the gap, against dense trajectories."""

import numpy as np
import pytest
import torch
from conftest import rows

from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.batch import padded_indices, times_to_fraction
from flowsim.flow.options import Steps
from flowsim.interface import Model


class Damped(Model):
    """x″ = −25x − x′: the loss x² falls and rises many times."""

    coordinates = ("x", "v")

    def loss(self, theta):
        return theta[..., 0] ** 2

    def field(self, theta):
        x, v = theta.unbind(-1)
        return torch.stack([v, -25 * x - v], dim=-1)


@pytest.mark.parametrize("fraction", [0.5, 1e-3, 1e-9])
def test_times_of_a_field_are_the_first_however_short_the_loss_is_so_low(fraction):
    starts = rows((0.5, 3.0), (1.0, 0.0), (-0.2, 4.0))
    wanted, steps = fraction * starts[:, 0] ** 2, Steps(1e-8, 1e-10, 20_000)
    found = RosenbrockSolver(Damped()).until(starts, wanted, steps)
    t, rate = np.linspace(0, 0.6, 600_001), np.sqrt(24.75)
    for (x, v), time in zip(starts.tolist(), found.tolist(), strict=True):
        there = np.exp(-t / 2) * (x * np.cos(rate * t) + (v + x / 2) / rate * np.sin(rate * t))
        assert time == pytest.approx(t[np.argmax(there**2 <= fraction * x**2)], abs=3e-6)


@pytest.mark.parametrize("count", [0, 1, 5, 16, 17])
def test_rows_fill_vectors_with_the_last_of_them(count):
    which = torch.arange(40) < count
    index = padded_indices(which).tolist()
    assert len(index) == 16 * -(-count // 16) and sorted(set(index)) == [*range(count)]
    assert index == [*range(count)] + [count - 1] * (len(index) - count)


def test_a_loss_that_does_not_fall_has_no_time():
    start, end = torch.tensor([2.0, 1.0, 0.5]), torch.tensor([1.0, 1.0, 1.0])
    times = times_to_fraction(lambda starts, wanted: wanted, start[:, None], start, end, 0.25)
    assert times[0] == 1.25 and times[1:].isnan().all()
