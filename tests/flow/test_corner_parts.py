"""Rows at corners and in valleys far out, in plain Python: where they land, turn, slide and end."""

import numpy as np
import pytest
import torch
from one_row import begun

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow.return_codes import DRIFTS, GOING, TRAPPED
from flowsim.models import UniformAttentionModel
from flowsim.models.uniform import termination as ends
from flowsim.models.uniform.corners import HIGH, LOW, ORDER, SLIDES, enclose
from flowsim.models.uniform.rows import KNOWN
from flowsim.models.uniform.table import INFORMATION, STEEPEST

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
CHAIN = BinaryChain(0.5, 0.8)
LINEAR = UniformAttentionModel(CHAIN, 1, "dynamic")  # with one corner, at a = −1


def pulls(e, w, b, a=-1.0):
    """da/dt above and below a."""
    beside = torch.tensor([[e, w, a + off, b] for off in (1e-9, -1e-9)], dtype=torch.float64)
    return (-LINEAR.gradient(beside)[:, 2]).tolist()


def at_corner(e, w, b, side=1.0):
    """(engine, row) of linear attention on a = −1, with the ReLUs of that side."""
    engine, row = begun(LINEAR, (e, w, -0.9, b))
    row.y[2], row.memory[SLIDES] = -1.0, 0.0
    enclose(-1.0, side, row.memory)
    return engine, row


#: e, w and b at a = −1, and whether a rises or falls there; 0 where it slides.
CORNERS = [
    (0.5, -1.5, -0.5, 1), (0.9, -1.5, -1.0, 1), (0.7, -0.3, -1.5, -1), (0.5, -1.5, -2.0, 0),
]  # fmt: skip


@pytest.mark.parametrize("e, w, b, way", CORNERS)
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_row_at_a_corner_crosses_or_slides(e, w, b, way, side):
    above, below = pulls(e, w, b)
    assert above != pytest.approx(below, rel=1e-3)
    assert way == (0 if above < 0 < below else 1 if above + below > 0 else -1)
    engine, row = at_corner(e, w, b, side)
    row.y[2] -= side * 1e-13
    assert engine.handle_event(row) == 1 and row.y[2] == -1.0
    assert row.memory[SLIDES] == (way == 0)
    assert engine.slides(row) == (way == 0)
    if way:
        between = (-1.0, np.inf) if way > 0 else (-np.inf, -1.0)
        assert (row.memory[LOW], row.memory[HIGH]) == between
    engine.linearise(row)
    rate = above if way > 0 else below if way < 0 else 0.0
    assert row.velocity[2] == pytest.approx(rate, rel=1e-6)
    assert (row.derivative[2] != 0).any() == (way != 0)


def test_away_from_corners_a_row_goes_on_and_what_is_not_finite_fails():
    engine, row = at_corner(0.7, -0.6, 0.3)
    row.y[2] = -0.5
    kept = row.y.copy(), row.memory[ORDER:].copy()
    assert engine.handle_event(row) == 0
    assert (row.y == kept[0]).all() and (row.memory[ORDER:] == kept[1]).all()
    engine, row = at_corner(0.7, -0.6, 0.3)
    row.y[3] = np.nan
    assert engine.handle_event(row) == -1
    assert (row.memory[ORDER:] == kept[1]).all() and row.y[2] == -1.0


@pytest.mark.parametrize("e, w, b, way", CORNERS)
def test_a_start_on_a_corner_goes_on_as_a_row_that_met_it(e, w, b, way):
    _, row = begun(LINEAR, (e, w, -1.0, b))
    assert row.memory[SLIDES] == (way == 0)
    if way:
        between = (-1.0, np.inf) if way > 0 else (-np.inf, -1.0)
        assert (row.memory[LOW], row.memory[HIGH]) == between


def test_a_start_that_both_sides_repel_leaves_to_the_faster():
    found = set()
    for w in (-0.6, -1.5):
        for b in np.linspace(-2.0, 1.0, 13):
            above, below = pulls(0.5, w, b)
            if below < 0 < above:
                _, row = begun(LINEAR, (0.5, w, -1.0, b))
                assert row.memory[SLIDES] == 0
                assert (row.memory[LOW] == -1.0) == (above + below > 0)
                found.add(above + below > 0)
    assert found == {True, False}


def test_margins_are_distances_to_the_corners_and_pulls_along_one():
    engine, row = begun(UniformAttentionModel(CHAIN, 4), (0.7, -0.6, -1.2))
    for a, nearest in ((-1.1, -1.0), (-1.9, -2.0), (-2.2, -2.0), (2.5, 3.0), (-1.0, -1.0)):
        enclose(a, -1.0, row.memory)
        low, high = row.memory[LOW], row.memory[HIGH]
        assert nearest in (low, high)
        row.y[2] = a
        assert engine.event_function(row, row.y) == pytest.approx(min(a - low, high - a), abs=1e-11)
    row.y[2] = -1.0 + 1e-9
    assert engine.event_function(row, row.y) < 0
    for e, w, b, way in CORNERS:
        engine, row = at_corner(e, w, b)
        row.memory[SLIDES] = 1.0
        kept = row.memory[ORDER:].copy()
        above, below = pulls(e, w, b)
        found = engine.event_function(row, row.y)
        assert found == pytest.approx(min(-above, below), rel=1e-6) and (found > 0) == (way == 0)
        assert (row.memory[ORDER:] == kept).all() and row.y[2] == -1.0
    engine, row = begun(LINEAR, (0.7, -0.6, -0.9, 0.3))
    assert engine.event_function(row, row.y) == pytest.approx(0.1)
    row.y[2] = 50.0
    assert engine.event_function(row, row.y) == pytest.approx(51.0)


@pytest.mark.parametrize("slope, bend, turn", [(-1.0, 0.625, 1.0), (-2.4, 2.4, 0.5),
                                               (-1.6, 1.2, 2 / 3), (0.3, 0.0, 1.0)])  # fmt: skip
@pytest.mark.parametrize("side", [1, -1])
def test_a_step_that_turns_back_is_cut_where_its_parabola_is_beyond_the_corner(
    slope, bend, turn, side
):
    """a goes from ½ before a corner by slope·t + bend·t², and may pass it."""
    engine, row = begun(LINEAR, (0.7, -0.6, -0.5, 0.3))
    h, t = 0.25, np.linspace(0, 1, 1001)
    row.memory[LOW], row.memory[HIGH] = (-1.0, np.inf) if side > 0 else (-np.inf, 1.0)
    row.y[2], row.velocity[2] = -0.5 * side, side * slope / h
    row.new[2], row.slope[2] = row.y[2] + side * (slope + bend), side * (slope + 2 * bend) / h
    passes = (0.5 + slope * t + bend * t * t).min() < 0 < 0.5 + slope + bend
    assert (turn < 1) == passes
    assert engine.missed_crossing(row, h) == pytest.approx(turn if passes else 1.0)
    row.memory[SLIDES] = 1.0
    assert engine.missed_crossing(row, h) == 1.0


def drifting():
    """(engine, row) of two positions at the bottom of its valley, where it is said to drift."""
    half = UniformAttentionModel(CHAIN, 2).flow().half
    half.extend(int(half.constants()[1][STEEPEST]))
    engine, row = begun(UniformAttentionModel(CHAIN, 2), (0.9, 1.2, -1.9))
    given = np.full(3, 1e-8), np.full(3, 1e-15), np.empty(0), np.empty((0, 3)), -np.inf, 3000
    assert engine.follow(row, *given, np.zeros(3, int), np.zeros(5)) == DRIFTS
    return engine, row


def decide(engine, row, y=None):
    row.y[:] = row.y if y is None else y
    row.memory[KNOWN] = 0.0
    assert engine.linearise(row) == 0
    return engine.check_termination(row)


def test_a_row_drifts_on_the_floor_of_a_valley_alone(monkeypatch):
    engine, row = drifting()
    y, reals = row.y.copy(), row.reals
    model = UniformAttentionModel(CHAIN, 2)
    further = torch.tensor([np.exp(y[0]) / 1e3, np.exp(y[1]), y[2] * 1e6], dtype=torch.float64)
    assert float(model.loss(further)) > CHAIN.entropy_rate + 0.02 * CHAIN.mutual_information
    assert decide(engine, row) == DRIFTS
    for i, off in ((0, 0.2), (0, -0.2), (2, 0.4 * y[2])):
        moved = y.copy()
        moved[i] += off
        assert decide(engine, row, moved) == GOING
    for share, rule in ((0.019, GOING), (0.021, DRIFTS)):
        value = share * reals[INFORMATION]
        monkeypatch.setattr(ends, "excess", lambda *_, value=value: value)
        assert decide(engine, row, y) == rule


@pytest.mark.parametrize(
    "share, rule", [(0.6, GOING), (1.0, DRIFTS), (1.4, DRIFTS), (2.1, GOING), (5.0, GOING)]
)
def test_a_row_drifts_where_it_is_pushed_alike_further_out(monkeypatch, share, rule):
    """The push a thousand times further out is of the size of that where the row is."""
    engine, row = drifting()
    own = ends.push_outwards
    monkeypatch.setattr(ends, "push_outwards", lambda *given: own(*given) / share)
    assert decide(engine, row) == rule


def test_the_floor_has_a_minimum_in_all_but_a():
    y = np.array([-1.0, 0.5, -50.0, 0.3])
    assert ends.is_floor(y, -np.eye(4), False)
    for i, floor in ((0, False), (1, False), (2, True), (3, False)):
        jacobian = -np.eye(4)
        jacobian[i, i] = 1.0
        assert ends.is_floor(y, jacobian, False) == floor
    jacobian = -np.eye(4)
    jacobian[1, 1] = 1.0
    assert ends.is_floor(y, jacobian, True)
    jacobian = -np.eye(4)
    jacobian[0, 3] = jacobian[3, 0] = 2.0
    assert not ends.is_floor(y, jacobian, False)


def test_a_bias_that_moves_by_its_rounding_does_not_keep_a_row_from_being_trapped():
    theta = np.exp(-9.0), 1.5, 0.2, np.log(0.5 / 0.8)
    engine, row = begun(UniformAttentionModel(CHAIN, 3, "dynamic"), theta)
    for bias, rule in ((0.9e-16, TRAPPED), (1.1e-16, GOING)):
        row.velocity[:] = -1e-10, 0.0, 0.0, bias
        row.derivative[:] = np.eye(4)
        assert engine.check_termination(row) == rule, bias
