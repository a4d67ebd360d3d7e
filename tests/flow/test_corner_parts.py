"""Rows at corners and in valleys far out, in plain Python: where they land, turn, slide and end."""

import numpy as np
import pytest
import torch

from flowsim import AttentionModel, BinaryChain, LinearAttentionModel
from flowsim.compiled import config
from flowsim.flow.rows import corners, landing
from flowsim.flow.rows.codes import DRIFTS, DYNAMIC_BIAS, GOING, TRAPPED, UNIFORM
from flowsim.flow.rows.smooth import (
    dynamic_bias,
    smooth_fields,
    smooth_orbit,
    uniform_rows,
    uniform_verdict,
)
from flowsim.models.uniform.table import ENTROPY_RATE, STEEPEST, UNIGRAM, LawTable

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
CHAIN = BinaryChain(0.5, 0.8)


def in_logs(theta):
    return np.array([*np.log(np.abs(theta[:2])), *theta[2:]])


def linear(theta):
    """(y, reals, ints, memory) of a row of linear attention with a bias."""
    reals, ints, size = dynamic_bias.constants(CHAIN, dynamic_bias.LINEAR)
    y, memory = in_logs(theta), np.zeros(size)
    smooth_fields.begin(DYNAMIC_BIAS, y, 0.0, np.sign(theta), ints, memory)
    return y, reals, ints, memory


@pytest.mark.parametrize("theta", [(0.7, -0.6, 0.3), (0.9, 0.8, -0.4), (1.3, -1.1, 0.0)])
def test_the_pulls_at_a_corner_are_the_slopes_on_both_sides(theta):
    e, w, b = theta
    y, reals, ints, memory = linear((e, w, -1.0, b))
    kept, slope = memory.copy(), np.empty(4)
    found = landing.pulls(*DYNAMIC_BIAS[:2], DYNAMIC_BIAS, y, reals, ints, memory, slope)
    model = LinearAttentionModel(CHAIN, bias="dynamic")
    beside = torch.tensor([[e, w, -1.0 + off, b] for off in (1e-9, -1e-9)], dtype=torch.float64)
    assert found == pytest.approx((-model.gradient(beside)[:, 2]).tolist(), rel=1e-6)
    assert found[0] != pytest.approx(found[1], rel=1e-3)
    assert (memory[corners.ORDER :] == kept[corners.ORDER :]).all() and y[2] == -1.0
    away, *rest = linear((e, w, -0.9, b))
    found = landing.pulls(*DYNAMIC_BIAS[:2], DYNAMIC_BIAS, away, *rest, slope)
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    "pulled, slides, between",
    [((-1.0, 2.0), 1.0, (-1.0, np.inf)), ((-2.0, 1.0), 1.0, (-np.inf, -1.0)),
     ((1.0, 2.0), 0.0, (-1.0, np.inf)), ((-1.0, -2.0), 0.0, (-np.inf, -1.0)),
     ((2.0, -1.0), 0.0, (-1.0, np.inf)), ((0.0, 0.0), 1.0, None)],
)  # fmt: skip
def test_a_row_at_a_corner_crosses_or_slides(pulled, slides, between):
    y, _, _, memory = linear((0.7, -0.6, -1.0 - 1e-13, 0.3))
    assert landing.turn(y, pulled, memory) == 1 and y[2] == -1.0
    assert memory[corners.SLIDES] == slides
    if between:
        assert (memory[corners.LOW], memory[corners.HIGH]) == between
    assert landing.turn(y, (np.nan, 1.0), memory) == -1
    y[2] = -0.5
    memory[corners.LOW], memory[corners.HIGH] = -1.0, np.inf
    assert landing.turn(y, pulled, memory) == 0


@pytest.mark.parametrize(
    "slope, bend, wanted",
    [(-1.0, 0.625, landing.NOTHING), (-2.4, 2.4, landing.SHORTER), (-1.6, 1.2, landing.SHORTER),
     (0.3, 0.0, landing.NOTHING)],
)  # fmt: skip
def test_a_step_that_turns_back_meets_the_corner_that_its_parabola_passes(slope, bend, wanted):
    """a goes from −0.5 by slope·t + bend·t², and the corner is at −1."""
    y, _, _, memory = linear((0.7, -0.6, -0.5, 0.3))
    memory[corners.LOW], memory[corners.HIGH], memory[corners.SLIDES] = -1.0, np.inf, 0.0
    new, t = y.copy(), np.linspace(0, 1, 1001)
    new[2] = y[2] + slope + bend
    passes = (y[2] + slope * t + bend * t * t).min() < -1.0 < new[2]
    assert (wanted == landing.SHORTER) == passes
    assert landing.meet(y, new, np.array([0.0, 0.0, slope, 0.0]), 1.0, memory) == (wanted, 0.0)


def drifting():
    """A row of two positions at the bottom of its valley, where it is said to drift."""
    theta = (0.9, 1.2, -1.9)
    table = LawTable(CHAIN, 2, False, True)
    table.add(int(table.ints[STEEPEST]))
    y, memory, record = in_logs(theta), np.zeros(uniform_rows.MEMORY), np.zeros(5)
    smooth_fields.begin(UNIFORM, y, 0.0, np.sign(theta), table.ints, memory)
    why = smooth_orbit.follow(
        UNIFORM, y, table.reals, table.ints, memory, np.full(3, 1e-8), np.full(3, 1e-15),
        np.empty(0), np.empty((0, 3)), -np.inf, 3000, record,
    )  # fmt: skip
    assert why == DRIFTS
    return y, table, memory


def decide(y, table, memory):
    velocity, jacobian, work = np.empty(3), np.empty((3, 3)), np.empty((2, 3, 3))
    given = table.reals, table.ints, memory
    memory[uniform_rows.KNOWN] = 0.0
    assert uniform_rows.expand(y, *given, velocity, jacobian, 1.0) == 0
    return uniform_verdict.verdict(y, velocity, jacobian, *given, work)


def test_a_row_drifts_on_the_floor_of_a_valley_alone(monkeypatch):
    y, table, memory = drifting()
    model = AttentionModel(CHAIN, 2)
    further = torch.tensor([np.exp(y[0]) / 1e3, np.exp(y[1]), y[2] * 1e6], dtype=torch.float64)
    assert float(model.loss(further)) > CHAIN.entropy_rate + 0.02 * CHAIN.mutual_information
    assert decide(y, table, memory) == DRIFTS
    for i, off in ((0, 0.2), (0, -0.2), (2, 0.4 * y[2])):
        moved = y.copy()
        moved[i] += off
        assert decide(moved, table, memory) == GOING
    least, most = table.reals[ENTROPY_RATE], table.reals[UNIGRAM]
    for share, rule in ((0.019, GOING), (0.021, DRIFTS)):
        value = least + share * (most - least)
        monkeypatch.setattr(uniform_verdict, "loss", lambda *_, value=value: value)
        assert decide(y, table, memory) == rule


@pytest.mark.parametrize(
    "share, rule", [(0.6, GOING), (1.0, DRIFTS), (1.4, DRIFTS), (2.1, GOING), (5.0, GOING)]
)
def test_a_row_drifts_where_it_is_pushed_alike_further_out(monkeypatch, share, rule):
    """The push a thousand times further out is of the size of that where the row is."""
    y, table, memory = drifting()
    own = uniform_verdict.push_outwards
    monkeypatch.setattr(uniform_verdict, "push_outwards", lambda *given: own(*given) / share)
    assert decide(y, table, memory) == rule


def test_the_floor_has_a_minimum_in_all_but_a():
    y = np.array([-1.0, 0.5, -50.0, 0.3])
    assert uniform_verdict.is_floor(y, -np.eye(4), False)
    for i, floor in ((0, False), (1, False), (2, True), (3, False)):
        jacobian = -np.eye(4)
        jacobian[i, i] = 1.0
        assert uniform_verdict.is_floor(y, jacobian, False) == floor
    jacobian = -np.eye(4)
    jacobian[1, 1] = 1.0
    assert uniform_verdict.is_floor(y, jacobian, True)
    jacobian = -np.eye(4)
    jacobian[0, 3] = jacobian[3, 0] = 2.0
    assert not uniform_verdict.is_floor(y, jacobian, False)


def test_a_bias_that_moves_by_its_rounding_does_not_keep_a_row_from_being_trapped():
    table = LawTable(CHAIN, 3, True, True)
    table.add(int(table.ints[STEEPEST]))
    memory, work = np.zeros(uniform_rows.MEMORY), np.empty((2, 4, 4))
    memory[uniform_rows.SIGN] = 1.0
    y = np.array([-9.0, np.log(1.5), 0.2, np.log(0.5 / 0.8)])
    given = table.reals, table.ints, memory, work
    for bias, rule in ((0.9e-16, TRAPPED), (1.1e-16, GOING)):
        velocity = np.array([-1e-10, 0.0, 0.0, bias])
        found = uniform_verdict.verdict(y, velocity, np.eye(4), *given)
        assert found == (rule if bias < 1e-16 else GOING), bias
