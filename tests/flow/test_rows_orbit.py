"""Steps and orbits of compiled rows, against numpy, formulas and a flow made up for the purpose.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import numpy as np
import pytest
from near import near
from one_row import begun

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow import tableau
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
