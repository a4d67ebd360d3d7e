"""The flow of the S-state plane through the gap engine: labels, ends, paths and times."""

import math

import pytest
import torch

import flowsim
from flowsim import Label, find_limits
from flowsim.interface import conserved_values

F64 = torch.float64


def states(s, p, m):
    return flowsim.model("states", states=s, p=p, hidden_per_state=m)


@pytest.mark.parametrize("case", [(5, 0.9, 4), (3, 0.5, 1)], ids=str)
def test_labels_next_to_the_separatrix_are_right_or_open(case, generator):
    """Starts whose energy is off the saddle's by down to 1e-11."""
    model = states(*case)
    saddle = -(case[2] ** -0.5)
    w = saddle * torch.rand(60, dtype=F64, generator=generator)
    w = w if case[1] > 0.7 else saddle / w * saddle
    omega = w / saddle
    edge = (4 * -omega.log() + 2 * omega.square() - 2).sqrt()
    assert float(conserved_values(model, torch.stack([edge, w], -1)).sub(-2).abs().max()) < 1e-10
    for off in (1e-4, 1e-8, 1e-11):
        for side in (-1, 1):
            theta = torch.stack([edge * (1 + side * off), w], dim=-1)
            away = (conserved_values(model, theta)[:, 0] + 2).abs() / (1 + omega.square())
            label = find_limits(model, theta).label
            known = (away > 1e-12) & (label != Label.UNRESOLVED)
            inside = model.basin(theta)
            assert bool(((label == Label.GLOBAL_MINIMUM) == inside)[known].all())
            assert bool((label != Label.UNRESOLVED)[away > 1e-9].all())


def test_critical_starts_stay_and_are_named():
    model = states(5, 0.9, 4)
    edge = math.sqrt(model.chain.target_logit_gap * 4 / 5 / (1 - 4))
    more = [[0.0, w] for w in torch.linspace(0.1, 2, 40).tolist()]  # unlike in other units, ½ w √2
    starts = torch.tensor([[0.0, -1.0], [edge, -1.0], *more], dtype=F64)
    found = find_limits(model, starts)
    assert torch.equal(found.theta, starts)
    kinds = [Label.SADDLE, Label.GLOBAL_MINIMUM, *40 * [Label.LOCAL_MINIMUM]]
    assert found.label.tolist() == kinds
    assert model.gradient(starts).abs().max() < 1e-15
    moved = find_limits(model, [[1.0, 0.0], [0.3, -2.0]])
    assert moved.label.tolist() == [Label.LOCAL_MINIMUM, Label.GLOBAL_MINIMUM]
    assert moved.gradient_norm.tolist() == pytest.approx([0.0, 0.0], abs=1e-11)
