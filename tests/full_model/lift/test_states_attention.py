"""The plane of S states with uniform attention: three numbers that full training keeps to."""

import math

import pytest
import torch

from flowsim import MarkovChain
from flowsim.models import StatesAttentionModel
from full_model import Architecture, MarkovSource, PopulationLoss, lift_states
from full_model.lift.states import simplex

#: S, p, N, m, and d = S, one more than the simplex has.
CASES = [(2, 0.65, 4, 1), (3, 0.8, 3, 2)]
#: (e, w, a): no other unit opens; others open too; the own one may be shut.
POINTS = [(0.7, 0.4, 0.15), (0.6, -0.5, 1.3), (-0.8, 0.3, -1.4)]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"S{case[0]}")


def problem(case):
    states, p, length, m = case
    arch = Architecture(states, length, hidden=m * states, states=states, output="states")
    chain = MarkovChain.symmetric(states, p)
    return arch, chain, PopulationLoss(arch, MarkovSource.of(chain))


def lifted(arch, point):
    """Full weights at (e, w, a)."""
    e, w, a = point
    theta = torch.tensor([[e, w, math.copysign(math.sqrt(abs(a)), a)]], dtype=torch.float64)
    return lift_states(theta, arch)


@every_case
@pytest.mark.parametrize("point", POINTS, ids=["own", "others", "shut"])
def test_the_full_gradient_is_that_of_three_numbers(case, point):
    arch, _, loss = problem(case)
    weights = lifted(arch, point)
    states, p, length, m = case
    e, w, a = point
    reduced = StatesAttentionModel(MarkovChain.symmetric(states, p), length, m)
    v = math.copysign(math.sqrt(abs(a)), a)
    by_e, by_w, by_v = reduced.gradient(torch.tensor([e, w, v], dtype=torch.float64))
    by_a = by_v / (2 * abs(v))
    value, gradient = loss.value_and_gradient(weights)
    assert float(value) == pytest.approx(float(reduced.loss([e, w, v])), rel=1e-13)
    corners = simplex(states, arch.d)
    units = corners.repeat_interleave(m, dim=0)
    onto = (states - 1) / states * corners.mT @ corners
    # w₁ = ±|w| and w₂ = ±w each have half of ∂L/∂w, o and v likewise of a = o v
    side, root = (1 if e > 0 else -1), abs(a) ** 0.5
    wanted = {
        "embedding": by_e / states * corners,
        "0.up": side * by_w * (1 if w > 0 else -1) / (2 * m * states) * units,
        "0.down": side * by_w / (2 * m * states) * units.mT,
        "0.value": by_a * (root if a > 0 else -root) / (states - 1) * onto,
        "0.out": by_a * root / (states - 1) * onto,
    }
    for name, slope in gradient.items():
        zero = torch.zeros_like(slope[0])
        assert torch.allclose(slope[0], wanted.get(name, zero), atol=1e-13), name


@every_case
@pytest.mark.parametrize("point", POINTS, ids=["own", "others", "shut"])
def test_the_metric_is_that_of_the_full_weights(case, point):
    """The squared speed of all weights along each number; no two numbers move them alike."""
    arch, chain, _ = problem(case)
    e, w, a = point
    theta = torch.tensor([e, w, math.copysign(math.sqrt(abs(a)), a)], dtype=torch.float64)
    parts = torch.autograd.functional.jacobian(
        lambda x: tuple(lift_states(x, arch).values()), theta
    )
    along = torch.cat([part.reshape(-1, 3) for part in parts])
    metric = StatesAttentionModel(chain, case[2], case[3]).metric
    assert torch.allclose(along.T @ along, torch.tensor(metric).double().diag(), atol=1e-12)
