"""Steps and orbits of compiled rows, against numpy, formulas and a flow made up for the purpose.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import numpy as np
import pytest
import torch
from near import near
from one_row import begun

from flowsim import BinaryChain
from flowsim.compiled import config, specialise
from flowsim.flow import tableau
from flowsim.flow.options import Steps
from flowsim.flow.return_codes import (
    ARRIVED,
    BELOW_PLATEAU,
    CRITICAL,
    DIVERGED,
    GOING,
    MINIMA,
    NEEDS_TABLE_LEVEL,
    NOT_FINITE,
    OUT_OF_STEPS,
    REST,
    TRAPPED,
)
from flowsim.flow.rows import hooks, loop
from flowsim.flow.rows.engine import follow_rows
from flowsim.flow.rows.loop import ATTEMPTS, KINKS, SLIDING, TIME
from flowsim.flow.rows.workspace import allocate_workspace
from flowsim.models import InductionModel, RankOneModel, UniformAttentionModel

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
CHAIN = BinaryChain(0.5, 0.8)
LINEAR = UniformAttentionModel(CHAIN, 1, "dynamic")
THETA = (0.7, -0.6, -0.4, 0.3)
SMOOTH = [
    (LINEAR, THETA),
    (UniformAttentionModel(CHAIN, 3), THETA[:3]),
    (RankOneModel(CHAIN, 2, attention=True), (0.5, 0.2, -0.6, -0.7, 0.6, -0.5, 0.3, 0.2)),
    (InductionModel(4), (0.4, 1.7)),
]
ALL = [*SMOOTH, (RankOneModel(CHAIN, 4), (0.9, 0.3, 0.8, -0.7, 0.2))]
#: An optimal bias is guessed from the evaluation before, so that only these repeat to the last bit.
SAME = [case for case in ALL if case is not SMOOTH[1]]


@pytest.mark.parametrize("model, theta", SMOOTH, ids=str)
def test_a_step_solves_its_eight_linear_equations(model, theta):
    engine, row = begun(model, theta)
    y, k = row.y, len(row.y)
    for h in (0.01, 0.3, 2.0):
        before = y.copy(), row.field.copy(), row.jacobian.copy()
        assert engine.step(row, h) == 0
        assert all(
            np.array_equal(*x) for x in zip(before, (y, row.field, row.jacobian), strict=True)
        )
        matrix, rate = np.eye(k) / (tableau.GAMMA * h) - row.jacobian, np.empty(k)
        stages, found = np.zeros_like(row.stages), row.stages.copy()
        for s in range(tableau.STAGES):
            point = y + tableau.A[s] @ stages
            engine.velocity(point, row.reals, row.ints, row.memory, rate)
            stages[s] = np.linalg.solve(matrix, rate + tableau.C[s] @ stages / h)
        near(found, stages, 1e-9)
        near(row.new, y + tableau.A[-1] @ stages + stages[-1], 1e-11)
        near(row.error, stages[-1], 1e-9, np.abs(stages).max())
        near(row.slope, rate, 1e-9, np.abs(row.field).max())
    row.jacobian[:] = np.eye(k) / tableau.GAMMA
    assert engine.step(row, 1.0) == -1
    row.jacobian[:] = 0.0
    row.field[:] = np.nan
    assert engine.step(row, 0.1) == -1


@pytest.mark.parametrize("model, theta", SAME, ids=str)
def test_a_step_lands_on_the_wanted_loss(model, theta):
    engine, row = begun(model, theta)

    def loss(y):
        return engine.loss(y, row.reals, row.ints, row.memory)

    h, begin = 2 * engine.first_step(row), loss(row.y)
    engine.step(row, h)
    least = loss(row.new)
    assert least < begin
    for part in (1e-6, 0.3, 0.5, 0.7, 0.999, 1 - 1e-6):
        engine.step(row, h)
        wanted = begin + part * (least - begin)
        assert engine.event_value(row, row.new, wanted) < 0 < engine.event_value(row, row.y, wanted)
        found = engine.locate_event(row, h, wanted)
        assert 0 < found < h
        new = row.new.copy()
        assert loss(new) == pytest.approx(wanted, abs=1e-14)
        engine.step(row, found)
        assert (row.new == new).all()


@pytest.mark.parametrize("model, theta", SAME, ids=str)
def test_points_of_a_step_are_ends_of_shorter_ones(model, theta):
    engine, row = begun(model, theta)
    h, count = engine.first_step(row) + 1e-15, np.array([0, 0, 1])
    times, path = 1.0 + h * np.array([0.0, 0.2, 0.6, 1.0, 1.2]), np.zeros((5, len(row.y)))
    times[3] = 1.0 + h
    engine.step(row, h)
    whole = row.new.copy()
    engine.write_path(row, 1.0, h, times, path, count)
    assert count.tolist() == [0, 0, 4] and (row.new == whole).all() and (path[[0, 4]] == 0).all()
    for i in (1, 2, 3):
        engine.step(row, times[i] - 1.0)
        assert (path[i] == row.new).all()


def follow(theta, times=(), wanted=-np.inf, most=500, rtol=1e-8):
    """(why, y, path, count, number) of one row of linear attention with a bias."""
    engine, row = begun(LINEAR, theta)
    path, count, number = np.full((len(times), 4), np.nan), np.zeros(3, int), np.zeros(5)
    why = engine.follow(
        row, np.full(4, rtol), np.full(4, 1e-15), np.array(times), path, wanted, most, count, number
    )
    return why, row.y, path, count, number


@pytest.mark.parametrize("model, theta", [ALL[-1], ALL[-2]], ids=str)
def test_starts_that_are_not_finite_fail_alone(model, theta):
    starts = torch.tensor([theta, theta, theta], dtype=torch.float64)
    starts[0, 0], starts[1, -1] = torch.nan, torch.inf
    found, alone = (
        follow_rows(model, model.flow().half, part, Steps(1e-8, 1e-10, 500))
        for part in (starts, starts[2:])
    )
    assert found.why.tolist() == [NOT_FINITE, NOT_FINITE, alone.why.item()]
    assert alone.why.item() in (MINIMA, TRAPPED, BELOW_PLATEAU)
    assert torch.equal(found.theta[2], alone.theta[0])
    assert (found.attempts[:2] == 0).all() and (found.crossings[:2] == 0).all()


class Flow:
    """A row of k = 1 whose hooks answer as told: dy/dt = rate(y), an error of its own, and more.

    Attributes:
        steps: lengths of the steps whose error was allowed.
        times: of all steps taken.
    """

    def __init__(self, rate=lambda y: 1.0, ratios=(), **own):
        self.rate, self.ratios, self.steps, self.times = rate, list(ratios), [], []
        names = (
            "linearise",
            "velocity",
            "error_ratio",
            "missed_crossing",
            "conserve",
            "check_termination",
        )
        hooked = {name: getattr(self, name) for name in names}
        self.engine = specialise((hooks, loop), "made_up", **{**hooked, **own})
        self.row = allocate_workspace(np.zeros(1), np.zeros(1, int), 0, 1, tableau.STAGES, False)
        self.count, self.number = np.zeros(3, int), np.zeros(5)

    def velocity(self, y, reals, ints, memory, out):
        out[0] = self.rate(y[0])
        return 0

    def linearise(self, row):
        return self.velocity(row.y, None, None, None, row.velocity)

    def error_ratio(self, *given):
        return self.ratios.pop(0) if self.ratios else 0.5**5 * 0.9**5

    def missed_crossing(self, row, h):
        self.steps.append(h)
        return 1.0

    def conserve(self, row, time):
        self.times.append(time)

    def check_termination(self, row):
        return GOING

    def follow(self, most, times=(), wanted=-np.inf):
        at = np.array(times, dtype=float), np.full((len(times), 1), np.nan), wanted, most
        return self.engine.follow(self.row, None, None, *at, self.count, self.number)


def test_steps_are_as_long_as_their_errors_allow():
    """Made anew a tenth to 0.9 as long, then up to six times as long."""
    flow = Flow(ratios=[np.inf, 32.0, 1e9, np.nan, 1.0, 0.9**5, 1e-20, 3**-5.0])
    assert flow.follow(8) == OUT_OF_STEPS
    first = 100.0 * 0.1 * 0.45 * 0.1 * 0.1
    assert flow.steps == pytest.approx(first * np.array([1.0, 0.9, 0.9, 5.4]))
    assert flow.times == pytest.approx(np.cumsum(flow.steps))
    assert flow.count[ATTEMPTS] == 8 and flow.number[TIME] == pytest.approx(flow.times[-1])
    stuck = Flow(ratios=[0.5**5, *[np.inf] * 40])
    assert stuck.follow(100) == NOT_FINITE and 16 <= stuck.count[ATTEMPTS] <= 18


def test_levels_that_are_missing_and_failures_end_a_row():
    for status, why in ((-1, NOT_FINITE), (1, NEEDS_TABLE_LEVEL), (4, NEEDS_TABLE_LEVEL + 3)):
        assert Flow(linearise=lambda row, status=status: status).follow(5) == why
    flow = Flow(stage_rhs=lambda row, point, out: 3)
    assert flow.follow(5) == NEEDS_TABLE_LEVEL + 2 and flow.count[ATTEMPTS] == 1
    failing = Flow(stage_rhs=lambda row, point, out: -1)
    assert failing.follow(5) == OUT_OF_STEPS and failing.count[ATTEMPTS] == 5
    assert Flow(rate=lambda y: np.inf).follow(5) == NOT_FINITE
    assert Flow(rate=lambda y: 0.0).follow(5) == CRITICAL
    assert Flow(rate=lambda y: 2e12).follow(5) == DIVERGED
    assert Flow(rate=lambda y: 2.0, check_termination=lambda row: REST).follow(5) == REST


def test_a_row_lands_on_surfaces_and_slides_along_them():
    """y = t meets surfaces at 1 and at 3, and slides between."""
    at = [1.0, 3.0, np.inf]

    def handle_event(row):
        at.pop(0)
        return 1

    flow = Flow(
        event_function=lambda row, y: at[0] - y[0],
        handle_event=handle_event,
        slides=lambda row: at[0] == 3.0,
    )
    assert flow.follow(50, [9.0]) == ARRIVED
    assert flow.count[KINKS] == 2 and flow.number[TIME] >= 9.0 - 1e-12
    assert flow.number[SLIDING] == pytest.approx(2.0, abs=1e-12)
    assert any(time == pytest.approx(1.0, abs=1e-12) for time in flow.times)
    failing = Flow(event_function=lambda row, y: 1.0 - y[0], handle_event=lambda row: -1)
    assert failing.follow(50) == NOT_FINITE
    endless = Flow(event_function=lambda row, y: row.y[0] + 1e-3 - y[0], handle_event=lambda row: 1)
    assert endless.follow(5000) == OUT_OF_STEPS and endless.count[KINKS] == 1001
