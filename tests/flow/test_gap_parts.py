"""The small parts of the gap engine, one by one, against numpy, scipy and formulas.

As plain Python, so that not each of them is compiled for Python too: see ``test_plain_python``.
"""

import pytest
from conftest import box
from scipy.integrate import DOP853

import flowsim
from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow.gap.engine import engine_of
from flowsim.models.gap_family.compiled import loss_parameters

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
NAMES = ["canonical", "linear", "untied"]


def engine_for(name):
    return engine_of(flowsim.model(name, 0.5, 0.8).flow().system)


def as_triple(row):
    """θ as three numbers, the canonical third being 0."""
    return (*row, 0.0) if len(row) == 2 else tuple(row)


@pytest.mark.parametrize("name", NAMES)
def test_between_its_ends_a_step_in_time_is_scipy_s(name):
    params, engine = loss_parameters(BinaryChain(0.5, 0.8)), engine_for(name)
    start, h = (0.9, 0.4, 0.6), 0.01
    start = (*start[:2], 0.0 if name == "canonical" else start[2])

    def field(_, p):
        return engine.velocity(False, 1.0, params, *p)

    slopes = engine.velocity(False, 1.0, params, *start)
    after, stages = engine.step(False, 1.0, params, h, start, slopes)
    dense = engine.dense_vectors(False, 1.0, params, start, after, h, slopes, stages)
    solver = DOP853(field, 0.0, start, 1.0, first_step=h, rtol=1, atol=1)
    solver.step()
    assert after == pytest.approx(tuple(solver.y), rel=1e-14)
    for x in (0.2, 0.7):
        expected = tuple(solver.dense_output()(x * h))
        assert engine.between(start, after, h, x, dense) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_coordinates_rates_and_steepness_are_those_of_the_model(name, far, generator):
    model, engine = flowsim.model(name, 0.5, 0.8), engine_for(name)
    theta = box(100, len(model.coordinates), generator)
    gradient = model.logit_gap_gradient(theta)
    for row, rise in zip(theta.tolist(), gradient, strict=True):
        sign, *point = engine.point_of(far, *as_triple(row))
        back = engine.theta_of(far, sign, *point, *row[:2])
        assert back == pytest.approx(as_triple(row), rel=1e-14, abs=1e-14)
        assert engine.gap(far, sign, *point) == pytest.approx(model.logit_gap(row), rel=1e-12)
        squared = rise.square().sum().item()
        assert engine.steepness(far, sign, *point) == pytest.approx(squared, rel=1e-12)
        moved = [a + 1e-7 * b for a, b in zip(row, (rise / squared).tolist(), strict=True)]
        ahead = engine.point_of(far, *as_triple(moved))[1:]
        found = [(b - a) / 1e-7 for a, b in zip(point, ahead, strict=True)]
        assert engine.rates(far, sign, *point) == pytest.approx(found, rel=1e-4, abs=1e-5)
