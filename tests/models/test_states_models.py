"""S states: the loss in 60 digits and the flow of the plane, and the law of what attention sees."""

import itertools
import math

import numpy as np
import pytest
import torch
from mpmath import exp, log, mp, mpf

import flowsim
from flowsim import BinaryChain, Label, MarkovChain, find_limits
from flowsim.interface import conserved_values
from flowsim.models import StatesAttentionModel, StatesModel
from flowsim.models.states.distribution import share_law

F64 = torch.float64
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
        binary = flowsim.models.CanonicalModel(BinaryChain(p, p)).loss_at(2 * gap)
        assert torch.allclose(found, binary, rtol=1e-14, atol=0)


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


#: With attention: S, p, N, m.
ATTENDING = [(2, 0.65, 6, 1), (3, 0.8, 4, 2), (5, 0.7, 3, 4), (3, 0.3, 1, 3)]
every_case = pytest.mark.parametrize("case", ATTENDING, ids=lambda c: f"S{c[0]}-N{c[2]}")


def attending(case):
    states, p, length, m = case
    return StatesAttentionModel(MarkovChain.symmetric(states, p), length, m)


def words(case):
    """Every sequence with its probability."""
    states, p, length, _ = case
    kernel = MarkovChain.symmetric(states, p).kernel
    for word in itertools.product(range(states), repeat=length):
        chance = 1 / states
        for i, j in itertools.pairwise(word):
            chance *= kernel[i, j]
        yield word, chance


@every_case
def test_the_law_is_that_of_all_sequences(case):
    states, p, length, _ = case
    distribution = share_law(MarkovChain.symmetric(states, p), length)
    wanted = {}
    for word, chance in words(case):
        for n in range(1, length + 1):
            counts = [word[:n].count(t) / n for t in range(states)]
            own = counts.pop(word[n - 1])
            key = round(own, 12), *(round(x, 12) for x in sorted(counts))
            wanted[key] = wanted.get(key, 0) + chance / length
    found = {}
    for weight, share, many in zip(*distribution, strict=True):
        others = np.repeat(share[1:], many[1:].astype(int))
        found[round(share[0], 12), *(round(x, 12) for x in sorted(others))] = weight
    assert found == pytest.approx(wanted, rel=1e-12)
    assert math.fsum(distribution.weight) == pytest.approx(1, rel=1e-14)


@every_case
def test_it_is_the_plane_at_v_zero(case):
    reduced = attending(case)
    plane = StatesModel(reduced.chain, case[3])
    theta = torch.from_numpy(np.random.default_rng(1).uniform(-2, 2, (20, 3)))
    theta[:, 2] = 0
    assert torch.allclose(reduced.loss(theta), plane.loss(theta[:, :2]), rtol=1e-13, atol=0)
    gradient = reduced.gradient(theta)
    assert torch.allclose(gradient[:, :2], plane.gradient(theta[:, :2]), rtol=1e-10, atol=1e-13)
    assert not gradient[:, 2].any()
    assert reduced.metric[:2] == plane.metric
