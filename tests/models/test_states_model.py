"""The planar model of S states: its loss in 60 digits, its plane beside the canonical one."""

import pytest
import torch
from mpmath import exp, log, mp, mpf

import flowsim
from flowsim import BinaryChain
from flowsim.interface import conserved_values
from flowsim.models.gap_family.base import gap_loss

CASES = [(2, 0.3, 4), (3, 0.8, 1), (5, 0.9, 4), (10, 0.85, 2), (1000, 0.5, 3)]


def states(s, p, m=4):
    return flowsim.model("states", states=s, p=p, hidden_per_state=m)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_slope_in_60_digits(case):
    model = states(*case)
    target = model.chain.target_logit_gap
    gaps = [-300.0, -24.0, -7.0, -1e-9, 0.0, 0.3, 20.0, 24.0, 500.0]
    gaps += [target, target + 1e-3, target - 1e-8]
    with mp.workdps(60):
        s, p = mpf(case[0]), mpf(case[1])
        best = log((1 - p) * (s - 1) / p)
        for gap in gaps:
            d = mpf(gap)
            loss = log(exp(d) + s - 1) - (1 - p) * d
            slope = exp(d) / (exp(d) + s - 1) - (1 - p)
            here = torch.tensor(gap, dtype=torch.float64)
            assert float(model.loss_at(here)) == pytest.approx(float(loss), rel=1e-14)
            # near the target Δ − Δ* is known to the rounding of Δ*
            allowed = 1e-13 + 4e-16 * max(1.0, abs(gap)) / max(1e-12, abs(float(d - best)))
            found = float(model.slope_at(here))
            assert found == pytest.approx(float(slope), rel=allowed, abs=1e-16)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_energy_is_kept_and_the_plane_is_the_canonical_one(case, generator):
    model = states(*case)
    theta = torch.randn(200, 2, dtype=torch.float64, generator=generator)
    free = theta.clone().requires_grad_()
    (along,) = torch.autograd.grad(conserved_values(model, free)[:, 0].sum(), free)
    field = model.field(theta)
    drift = (along * field).sum(1) / (along.norm(dim=1) * field.norm(dim=1))
    assert drift.abs().max() < 1e-12
    plane = flowsim.models.CanonicalModel(BinaryChain(0.5, 0.8))
    here = model.canonical(theta)
    ratio = model.logit_gap(theta) / plane.logit_gap(here)
    assert torch.allclose(ratio, torch.full_like(ratio, 4 * case[0] / (case[0] - 1)), rtol=1e-12)
    there = plane.logit_gap_gradient(here)
    pushed = field * torch.tensor(model.to_canonical, dtype=torch.float64)
    turn = pushed[:, 0] * there[:, 1] - pushed[:, 1] * there[:, 0]
    assert (turn / (pushed.norm(dim=1) * there.norm(dim=1))).abs().max() < 1e-12


def test_two_states_are_the_binary_loss_of_twice_the_gap():
    gap = torch.linspace(-9, 9, 41, dtype=torch.float64)
    for p in (0.2, 0.7):
        found = states(2, p).loss_at(gap)
        assert torch.allclose(found, gap_loss(BinaryChain(p, p), 2 * gap), rtol=1e-14, atol=0)
