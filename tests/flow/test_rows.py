"""Limits, paths and times of rows in smooth fields: uniform attention, rank-one with attention."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from flowsim import (
    BinaryChain,
    Label,
    Rule,
    Status,
    find_limits,
    hitting_times,
    trajectories,
)
from flowsim.flow.rows.engine import loss_followed
from flowsim.flow.tableau import GAMMA, STAGES, A, C
from flowsim.interface import conserved_values
from flowsim.models import RankOneModel, UniformAttentionModel
from flowsim.models.rank_one.attention import field
from flowsim.reference import integrate

RANK_ONE = RankOneModel(BinaryChain(0.5, 0.8), 4, attention=True)


def box(n, width, seed=0):
    random = np.random.default_rng(seed)
    return torch.tensor(width * (2 * random.random((n, len(width))) - 1)).double()


def lifted(model, n, seed=0):
    return model.from_canonical(box(n, [3.0, 3.0, 1.0], seed))


def test_the_step_has_order_five_and_its_error_estimate_order_four():
    """dy/dt = −y² has y = 1/(1 + t)."""
    errors, estimates = [], []
    for h in (0.05, 0.025):
        y, jacobian = 1.0, -2.0
        stages = np.zeros(STAGES)
        for s in range(STAGES):
            point = y + A[s, :s] @ stages[:s]
            rest = -(point**2) + C[s, :s] @ stages[:s] / h
            stages[s] = rest / (1 / (GAMMA * h) - jacobian)
        new = point + stages[-1]
        errors.append(abs(new - 1 / (1 + h)))
        estimates.append(abs(stages[-1]))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(6, abs=0.4)
    assert math.log2(estimates[0] / estimates[1]) == pytest.approx(5, abs=0.4)


@pytest.mark.parametrize("bias", ["optimal", "dynamic"])
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3)])
def test_limits_with_attention_do_not_depend_on_the_tolerance(p, q, bias):
    model = UniformAttentionModel(BinaryChain(p, q), 64, bias)
    start = box(40, [2.0, 2.0, 0.9, 1.0][: len(model.coordinates)])
    default, finer = find_limits(model, start), find_limits(model, start, rtol=1e-11)
    assert torch.equal(default.label, finer.label)
    assert (default.label != Label.UNRESOLVED).all()
    assert (default.theta - finer.theta).abs().max() < 2e-5
    assert (default.gradient_norm < 1e-10).all()
    assert (model.loss(default.theta) - default.loss).abs().max() < 1e-12


@pytest.mark.parametrize("model", [UniformAttentionModel(BinaryChain(0.2, 0.3), 16), RANK_ONE])
def test_a_row_does_not_depend_on_its_neighbours_to_the_last_bit(model):
    start = lifted(model, 24) if model is RANK_ONE else box(24, [2.5, 2.5, 1.3])
    whole, alone = find_limits(model, start), find_limits(model, start[5:6])
    some = find_limits(model, start.flip(0)[:9]).theta.flip(0)
    assert torch.equal(whole.theta[-9:], some)
    assert torch.equal(whole.theta[5:6], alone.theta)
    broken = torch.cat([torch.full_like(start[:1], torch.nan), start[:2]])
    found = find_limits(model, broken)
    assert found.status[0] == Status.FAILED
    assert torch.equal(found.theta[1:], whole.theta[:2])


def test_planes_that_are_never_left():
    """e = 0 is critical; with w = 0 the rest moves."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 8)
    start = torch.tensor([[0.0, -0.3, 0.2], [0.0, 0.4, 0.2], [0.8, 0.0, 0.3]]).double()
    found = find_limits(model, start)
    assert (found.rule[:2] == Rule.CRITICAL_START).all()
    assert torch.equal(found.theta[:2], start[:2])
    assert (found.theta[:, 1] == start[:, 1]).all()
    assert (found.label == Label.LOCAL_MINIMUM).all()


@pytest.mark.parametrize(
    "name", ["optimal", "dynamic", pytest.param("rank-one", marks=pytest.mark.slow)]
)
def test_paths_are_those_of_torchdiffeq(name):
    if name == "rank-one":
        model, times = RANK_ONE, [0.0, 0.3, 1.0]
        start = lifted(model, 5) / 2
    else:
        model, times = UniformAttentionModel(BinaryChain(0.5, 0.8), 12, name), [0.0, 0.5, 3.0, 20.0]
        start = box(5, [1.5, 1.5, 0.8, 1.0][: len(model.coordinates)])
    times = torch.tensor(times).double() + 2.0
    path = trajectories(model, start, times)
    assert torch.equal(path[0], start)
    reference = integrate(model, start, times, 1e-9, 1e-9)
    # the rounded kink moves rank-one orbits by about its width
    assert (path - reference).abs().max() < (3e-4 if name == "rank-one" else 1e-6)


@pytest.mark.parametrize("model", [UniformAttentionModel(BinaryChain(0.5, 0.8), 16), RANK_ONE])
def test_times_are_when_the_path_has_the_wanted_loss(model):
    start = lifted(model, 12) if model is RANK_ONE else box(12, [2.0, 2.0, 0.9])
    limits = find_limits(model, start)
    fraction = 1e-2
    times = hitting_times(model, start, fraction, limits=limits)
    learned = limits.label == Label.GLOBAL_MINIMUM
    assert torch.equal(times.isnan(), ~learned)
    first = loss_followed(model, model.flow().half, start)
    for i in learned.nonzero()[:, 0].tolist():
        path = trajectories(model, start[i : i + 1], torch.tensor([0.0, times[i].item()]))
        loss = loss_followed(model, model.flow().half, path[-1])
        wanted = limits.loss[i] + fraction * (first[i] - limits.loss[i])
        assert (loss - wanted).abs().item() < 1e-5 * (first[i] - limits.loss[i])


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3)])
def test_rank_one_rows_with_attention_are_decided(p, q):
    model = RankOneModel(BinaryChain(p, q), 4, attention=True)
    start = lifted(model, 60)
    found = find_limits(model, start)
    assert (found.label != Label.UNRESOLVED).all()
    learned = found.label == Label.GLOBAL_MINIMUM
    assert learned.all() == (p + q < 1)
    assert ((found.loss - model.chain.entropy_rate)[learned] < 1e-6).all()
    rest = found.loss[~learned] - model.chain.entropy_rate
    assert (rest > 0.1 * model.chain.mutual_information).all()
    drift = conserved_values(model, found.theta) - conserved_values(model, start)
    size = 1 + found.theta.square().amax(1, keepdim=True)
    assert (drift.abs() / size).max() < 1e-9


def test_halving_the_width_of_the_rounded_kink_changes_no_label(monkeypatch):
    start, constants, labels = lifted(RANK_ONE, 40, seed=3), field.constants, []
    for width in (field.RELU_WIDTH, field.RELU_WIDTH / 2):
        monkeypatch.setattr(field, "constants", partial(constants, width=width))
        model = RankOneModel(RANK_ONE.chain, 4, attention=True)  # the other's are kept
        reals = model.flow().half.constants()[0]
        assert reals[field.WIDTH] == width
        labels.append(find_limits(model, start).label)
    assert torch.equal(*labels)
    assert len(labels[0].unique()) == 2


def test_an_orbit_that_creeps_to_infinity_is_decided_by_what_its_loss_tends_to():
    """One of eight positions has shut its units: 7/8 of the way to the entropy rate at infinity."""
    model = RankOneModel(BinaryChain(0.5, 0.8), 8, attention=True)
    start = model.from_canonical(torch.tensor([[-1.20172866, -0.46387667, -0.94336066]]).double())
    found = find_limits(model, start)
    assert found.rule == Rule.DRIFTS
    assert found.label == Label.LOCAL_MINIMUM
    excess = (found.loss - model.chain.entropy_rate) / model.chain.mutual_information
    assert excess.item() == pytest.approx(1 / 8, abs=3e-3)
    path = trajectories(model, start, torch.tensor([0.0, 1e4, 1e6]).double(), 1e-6, 1e-9)
    excess = (model.loss(path)[1:, 0] - model.chain.entropy_rate) / model.chain.mutual_information
    assert (excess > 1 / 8).all()
    assert excess[1] < excess[0]
    assert path[2, 0, 9:11].abs().min() > path[1, 0, 9:11].abs().min()


def test_a_row_that_jumps_across_the_edge_of_a_kink_is_followed_again_more_finely():
    """Its drift begins within 1e-9 of that edge, and keeps half of the information for ever."""
    model = RankOneModel(BinaryChain(0.2, 0.3), 2, attention=True, tied=False)
    start = [[
        -1.2725790119439822, 1.3537947486629252, -1.023792235332206, 1.301700628772815,
        -1.9752323927264648, -1.7684979264936618, -1.7564322188182877, 1.7265678677515375,
        1.2690705232385122,
    ]]  # fmt: skip
    found = find_limits(model, np.array(start))
    chain = model.chain
    assert found.label == [Label.LOCAL_MINIMUM] and found.rule == [Rule.DRIFTS]
    share = (found.loss - chain.entropy_rate) / chain.mutual_information
    assert share == pytest.approx(0.5, abs=1e-3)
