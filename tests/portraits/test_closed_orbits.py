"""Portraits of fields whose orbits come back: the cycle is drawn, and its period said."""

import numpy as np
import pytest
import torch

import flowsim


class Hopf(flowsim.Model):
    """r' = r (1 − r²), φ' = 1."""

    coordinates = ("x", "y")

    def loss(self, theta):
        return (theta**2).sum(-1)

    def field(self, theta):
        x, y = theta.unbind(-1)
        left = 1 - x**2 - y**2
        return torch.stack([x * left - y, y * left + x], -1)


@pytest.mark.slow
@pytest.mark.turns
def test_a_limit_cycle_is_drawn_and_its_period_is_in_record_and_figure():
    window = {"x": (-1.5, 1.6), "y": (-1.4, 1.5)}
    record = flowsim.portrait(Hopf(), window=window, resolution=3, confirm=0, boundary=False)
    assert record.period.values == pytest.approx(2 * np.pi, rel=1e-5)
    late = slice(len(record.time) // 2, None)  # the second turn
    radius = np.hypot(record.orbit_x, record.orbit_y)[late]
    assert np.abs(radius - 1).max() < 0.02
    ax = flowsim.draw(record).axes[0]
    assert "periodic, period 6.283" in ax.get_title()
