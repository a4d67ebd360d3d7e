"""The table of other programs' numbers beside ours."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import flowsim

TABLE = Path(__file__).parents[2] / "docs/validation.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


class Cubic(flowsim.Model):
    coordinates = ("u",)

    def __init__(self, p: float = 0.0):
        self.p = p

    def loss(self, theta):
        u = theta[..., 0]
        return u**4 / 12 - u**2 / 2 - self.p * u


class Nagumo(flowsim.Model):
    coordinates = ("x", "y")

    def field(self, theta):
        x, y = theta.unbind(-1)
        return torch.stack([(x - x**3 - y) / 0.1, x - 3 * y], -1)

    def loss(self, theta):
        return 0 * theta[..., 0]


def fold():
    values = np.linspace(0.3, 0.9, 4)
    record = flowsim.bifurcation.continuation(
        flowsim.ModelSpec(Cubic), "p", values, [[2.0], [-1.5]]
    )
    return float(record.event_value[0])


def edge():
    return np.linalg.norm(flowsim.boundary.edge_state(Nagumo(), [0.8, 0.2], [-0.8, -0.1]).theta)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "computed"), [(ROWS[0], fold), (ROWS[1], edge)])
def test_our_numbers_are_those_of_other_programs(row, computed):
    ours = computed()
    assert ours == pytest.approx(float(row["ours"]), abs=1e-9)
    assert ours == pytest.approx(float(row["theirs"]), abs=float(row["tolerance"]))
