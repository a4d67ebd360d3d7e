"""Orbits with the logit gap as independent variable: where they end."""

import math

import pytest
import torch
from conftest import box

from flowsim import BinaryChain, Label, Rule, Status, find_limits
from flowsim.interface import conserved_values
from flowsim.models import CanonicalModel, LinearAttentionModel
from flowsim.models.canonical.basins import SADDLE_ENERGY
from flowsim.models.gap_family.compiled import loss_parameters, slope

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.9, 0.9), (0.1, 0.1), (0.02, 0.9), (0.4, 0.6001)]


def test_the_slope_is_right_to_rounding_next_to_the_minimum():
    law = loss_parameters(BinaryChain(0.5, 0.8))
    curvature = slope(law, 1e-6) / 1e-6
    for beyond in (1e-12, -1e-12, 1e-200):
        assert slope(law, beyond) / beyond == pytest.approx(curvature, rel=1e-6)


def checked(model, start, unresolved=0, **options):
    """Limits whose labels are the closed form's; at most so many are unresolved."""
    limits = find_limits(model, start, **options)
    expected = torch.where(model.basin(start), 1, 2)
    resolved = limits.label != Label.UNRESOLVED
    assert (limits.label == expected)[resolved].all()
    assert (~resolved).sum() <= unresolved
    return limits


@pytest.mark.parametrize(
    ("kind", "p", "q"),
    [
        *((CanonicalModel, *chain) for chain in CHAINS),
        *((LinearAttentionModel, *chain) for chain in CHAINS[:2]),
    ],
)
def test_every_label_of_many_points_is_right(kind, p, q, generator):
    model = kind(BinaryChain(p, q))
    start = box(20_000, len(model.coordinates), generator)
    limits = checked(model, start)
    drift = (
        (conserved_values(model, limits.theta) - conserved_values(model, start)).abs().amax(dim=1)
    )
    assert drift.max() <= 1e-8
    assert drift.quantile(0.99) <= 3e-10
    gap = model.logit_gap(limits.theta)[limits.label == Label.GLOBAL_MINIMUM]
    assert (gap - model.chain.target_logit_gap).abs().max() <= 1e-12
    assert (limits.theta[limits.label == Label.LOCAL_MINIMUM, 0] == 0).all()


@pytest.mark.parametrize(("p", "q"), CHAINS[:2])
def test_no_label_stands_that_a_displaced_neighbour_does_not_share(p, q):
    """Within 1e-11 in e or w, on either side; beyond a hundred times that all are decided."""
    model = CanonicalModel(BinaryChain(p, q))
    sides = [-0.05, -0.2, -0.4, -0.6] if p + q > 1 else [-0.8, -1.2, -2.0, -2.9]
    w = torch.tensor(sides, dtype=torch.float64)
    steps = torch.linspace(-3, 3, 61, dtype=torch.float64).unsqueeze(1) * 1e-10
    squared = w.square() - w.abs().log() + SADDLE_ENERGY + steps
    start = torch.stack([squared.sqrt(), w.expand_as(squared)], dim=-1).reshape(-1, 2)
    label = find_limits(model, start).label
    neighbours = []
    for factor in (1 - 0.9e-11, 1 + 0.9e-11):
        for i in range(2):
            moved = start.clone()
            moved[:, i] *= factor
            neighbours.append(model.basin(moved))
    shared = torch.stack(neighbours)
    divided = shared.any(dim=0) & ~shared.all(dim=0)
    assert (label[divided] == Label.UNRESOLVED).all()
    expected = torch.where(model.basin(start), 1, 2)
    assert ((label == expected) | (label == Label.UNRESOLVED)).all()
    wide = torch.stack([model.basin(start * f) for f in (1 - 1e-10, 1 + 1e-10)])
    clear = (wide[0] == wide[1]) & (steps.abs() > 2.5e-10).expand_as(squared).reshape(-1)
    assert clear.any() and divided.any()
    assert (label == expected)[clear].all()


def test_extreme_starts_have_an_answer_or_a_reason():
    model = CanonicalModel(BinaryChain(0.5, 0.8))
    small = torch.tensor([[1e-170, -1.0], [5e-324, 1.0], [0.3, -1e-320], [19.0, -1e-150],
                          [28.0, -1e-170], [1.0, 5e-324]], dtype=torch.float64)  # fmt: skip
    checked(model, small)
    large = torch.tensor([[1e3, -1.0], [1e3, 1e3], [1e-3, -1e3], [1e9, 1e3]], dtype=torch.float64)
    checked(model, large)
    lost = torch.tensor([[1e200, 1.0], [math.inf, 0.3], [0.5, math.nan], [1.0, -1e300]])
    limits = find_limits(model, lost)
    assert (limits.label == Label.UNRESOLVED).all() and (limits.rule == Rule.NONE).all()
    assert (limits.status == Status.FAILED).all()
