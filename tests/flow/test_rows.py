"""Limits, paths and times of rows in smooth fields: uniform attention, rank-one with attention."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from flowsim import BinaryChain, Label, Rule, find_limits
from flowsim.flow.tableau import GAMMA, STAGES, A, C
from flowsim.models import RankOneModel
from flowsim.models.rank_one.attention import field, termination

RANK_ONE = RankOneModel(BinaryChain(0.5, 0.8), 4, attention=True)


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


def test_halving_the_width_of_the_rounded_kink_changes_no_label(monkeypatch):
    drawn = np.random.default_rng(3).uniform((-3, -3, -1), (3, 3, 1), (40, 3))
    start, constants, labels = RANK_ONE.from_canonical(torch.from_numpy(drawn)), field.constants, []
    for width in (field.RELU_WIDTH, field.RELU_WIDTH / 2):
        monkeypatch.setattr(termination, "constants", partial(constants, width=width))
        model = RankOneModel(RANK_ONE.chain, 4, attention=True)  # the other's are kept
        reals = model.flow().compiled.constants()[0]
        assert reals[field.WIDTH] == width
        labels.append(find_limits(model, start).label)
    assert torch.equal(*labels)
    assert len(labels[0].unique()) == 2


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
