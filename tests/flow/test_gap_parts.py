"""The small parts of the gap engine, one by one, against numpy, scipy and formulas.

As plain Python, so that not each of them is compiled for Python too: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from conftest import box
from numpy.polynomial import polynomial
from scipy.integrate import DOP853, quad
from scipy.optimize import brentq

import flowsim
from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow.gap.engine import engine_of
from flowsim.flow.gap.timed import AFTER, BEFORE, LAST, NODES
from flowsim.flow.options import Steps
from flowsim.models.gap_family.compiled import log_add, loss, loss_parameters, slope

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
NAMES = ["canonical", "linear", "untied"]


def engine_for(name):
    return engine_of(flowsim.model(name, 0.5, 0.8).flow().system)


#: Its parts that ask a model nothing.
ENGINE = engine_for("linear")


def as_triple(row):
    """θ as three numbers, the canonical third being 0."""
    return (*row, 0.0) if len(row) == 2 else tuple(row)


def tuples(engine, sign, point, h):
    """A step from a point: its start, its end, the slopes and the stages."""
    slopes = engine.rates(False, sign, *point)
    after, stages = engine.step(False, sign, h, point, slopes)
    return point, after, slopes, stages


@pytest.fixture
def random():
    return np.random.default_rng(0)


def course_of(random, size=0.2):
    """Coefficients of smooth functions, in z = 2v − 1."""
    return random.uniform(-size, size, (4, NODES)) / 2.0 ** np.arange(NODES)


@pytest.mark.parametrize("fall", [1.0, 0.6, 0.05, -3.0])
def test_time_and_place_on_a_step_are_each_other_s_inverse(random, fall):
    for _ in range(5):
        course, log_part = course_of(random), math.copysign(2.0, fall)
        course[0] *= min(abs(fall), 1.0)

        def time(s, course=course, log_part=log_part):
            v = 1 - (1 - math.exp(s)) / fall
            return (1 - v) * polynomial.polyval(2 * v - 1, course[0]) - log_part * s

        last = -3.0 if fall == 1.0 else math.log(1 - fall)
        for share in (0.1, 0.5, 0.95):
            at = share * last
            late, kappa, u = ENGINE.late_by(course, log_part, fall, at, 0.3)
            assert late == pytest.approx(time(at) - 0.3, rel=1e-12, abs=1e-13)
            assert u == pytest.approx(math.exp(at), rel=1e-15)
            slope = (time(at + 1e-5) - time(at - 1e-5)) / 2e-5
            assert kappa == pytest.approx(-slope, rel=1e-7)
            t = time(at)
            exact = brentq(lambda s, t=t: time(s) - t, last, 0.0, xtol=1e-15, rtol=1e-14)
            for guess in (0.0, at + 0.01, at, 99.0):
                s, u, kappa = ENGINE.place(course, log_part, fall, t, guess, 1e-4)
                assert s == pytest.approx(exact, abs=1e-7)
                assert u == pytest.approx(math.exp(exact), rel=1e-7)
                assert kappa == pytest.approx(-slope, rel=1e-2)
        if fall == 1.0:
            assert ENGINE.duration(course, log_part, fall) == math.inf
        else:
            whole = ENGINE.duration(course, log_part, fall)
            assert whole == pytest.approx(time(math.log(1 - fall)), rel=1e-12)


def test_points_of_a_step_and_the_series_at_its_end(random):
    course, log_part, after = course_of(random), 2.0, (1.0, 2.0, 3.0)
    series = np.zeros((3, 5))
    for v in (0.0, 0.3, 1.0):
        expected = [after[i] - v * polynomial.polyval(2 * v - 1, course[1 + i]) for i in range(3)]
        assert ENGINE.point_at(course, after, v) == pytest.approx(expected, rel=1e-14)
        assert engine_for("canonical").point_at(course, after, v)[2] == 0
    origin, late = ENGINE.tail(course, log_part, after, 1e-12, series)
    assert origin == pytest.approx(polynomial.polyval(-1, course[0]), rel=1e-13)
    for t in (late, late + 1.0, late + 20.0):
        _, u, _ = ENGINE.place(course, log_part, 1.0, t, 0.0, 1e-12)
        found = ENGINE.power_series(series, math.exp((origin - t) / log_part))
        expected = ENGINE.point_at(course, after, u)
        assert found == pytest.approx(expected, rel=2e-12)
    errors = []
    for power in (0.04, 0.02):  # four terms are kept
        t = origin - log_part * math.log(power)
        _, u, _ = ENGINE.place(course, log_part, 1.0, t, 0.0, 1e-13)
        expected = np.array(ENGINE.point_at(course, after, u))
        errors.append(np.abs(ENGINE.power_series(series, power) - expected).max())
    assert 20 < errors[0] / errors[1] < 45


def test_what_a_step_knows_between_its_ends_is_scipy_s(random):
    """DOP853's dense output of y′ = cos(3t) y, and means of polynomials through Gauss nodes."""
    solver = DOP853(lambda t, y: np.cos(3 * t) * y, 0.2, [1.3], 2.0, first_step=0.3, rtol=1, atol=1)
    solver.step()
    h, output = solver.t - 0.2, solver.dense_output()
    late = [solver.K_extended[i, 0] for i in range(12, 16)]
    k = solver.K_extended[:, 0]
    values = np.zeros(NODES)
    slopes = tuple((0.0, slope, 0.0) for slope in (k[0], *k[5:12], *late))
    ENGINE.interpolate(1, (0.0, 1.3, 0.0), h, slopes, values)
    nodes = (np.polynomial.legendre.leggauss(NODES)[0] + 1) / 2
    expected = [output(solver.t - v * h)[0] for v in nodes]
    assert values == pytest.approx(expected, rel=1e-13)
    powers = random.uniform(-1, 1, NODES)
    sampled = polynomial.polyval(nodes, powers)
    below, above = np.zeros(NODES), np.zeros(NODES)
    ENGINE.transform(BEFORE, sampled, 3.0, below)
    ENGINE.transform(AFTER, sampled, -2.0, above)
    for v in (0.1, 0.5, 0.8):
        mean, _ = quad(lambda x: polynomial.polyval(x, powers), 0, v)
        assert ENGINE.polynomial(below, 2 * v - 1) == pytest.approx(3 * mean / v, rel=1e-12)
        mean, _ = quad(lambda x: polynomial.polyval(x, powers), v, 1)
        assert ENGINE.polynomial(above, 2 * v - 1) == pytest.approx(-2 * mean / (1 - v), rel=1e-12)
    legendre = np.polynomial.legendre.poly2leg(np.polynomial.Polynomial(powers)(
        np.polynomial.Polynomial([0.5, 0.5])).coef)  # fmt: skip
    assert LAST @ sampled == pytest.approx(legendre[-2:], rel=1e-10)


@pytest.mark.parametrize(
    "name, starts",
    [
        ("canonical", [(1.0, -0.4, 0.0), (0.8, 0.9, 0.0), (8.0, -0.3, 0.0)]),
        ("linear", [(1.0, 0.5, 0.3), (0.7, -0.6, -1.4)]),
        ("untied", [(0.9, -0.4, 0.6), (9.0, 1.0, 0.2)]),
    ],
)
def test_a_course_keeps_time_and_place(name, starts):
    """One step of the engine against quadrature of dt = dΔ/(ℓ′ ‖∇Δ‖²) along scipy's orbit."""
    law, engine = loss_parameters(BinaryChain(0.5, 0.8)), engine_for(name)
    for theta in starts:
        far = engine.is_far(*theta, law[0])
        sign, *start = engine.point_of(far, *theta)
        now, h = engine.gap(far, sign, *start), -0.02
        slopes = engine.rates(far, sign, *start)
        after, stages = engine.step(far, sign, h, tuple(start), slopes)
        course = np.zeros((4, NODES))
        log_part, unsure = engine.prepare(
            far, sign, law, now, h, law[0], tuple(start), after, slopes, stages,
            1e-2, np.zeros((4, NODES)), course,
        )  # fmt: skip
        run = DOP853(lambda _, p: engine.rates(far, sign, *p), now, start, now + h,  # noqa: B023
                     rtol=1e-13, atol=1e-14)  # fmt: skip
        pieces = []
        while run.status == "running":
            run.step()
            pieces.append(run.dense_output())

        def point(delta, pieces=pieces):
            return next(p for p in pieces if p.t_old >= delta >= p.t or p is pieces[-1])(delta)

        def rate(delta, far=far, sign=sign, point=point):
            steep = engine.steepness(far, sign, *point(delta))
            return -1 / (slope(law, delta - law[0]) * steep)

        fall = h / (law[0] - now)
        whole, _ = quad(rate, now, now + h, epsabs=1e-13, epsrel=1e-12)
        assert engine.duration(course, log_part, fall) == pytest.approx(whole, rel=1e-9)
        assert 0 <= unsure < 1e-6
        for v in (0.8, 0.3):
            at = now + (1 - v) * h
            found = engine.point_at(course, after, v)
            assert found == pytest.approx(point(at), rel=1e-9, abs=1e-10)
            t, _ = quad(rate, now, at, epsabs=1e-13, epsrel=1e-12)
            _, u, _ = engine.place(course, log_part, fall, t, 0.0, 1e-12)
            assert u == pytest.approx(1 - fall * (1 - v), rel=1e-9)


def test_lengths_of_steps():
    assert ENGINE.first_length(-0.1, 0.2, 1e-8) == pytest.approx(2 * 0.1 * 0.3)
    assert ENGINE.first_length(-5.0, 2.0, 1e-8) == pytest.approx(2 * 0.1 * 5.0)
    assert ENGINE.first_length(1.0, 4.0, 1e-8) == pytest.approx(2 * 0.1 * 4.0)
    assert ENGINE.first_length(4.0, 4.1, 1e-2) == pytest.approx(0.1)
    point, slopes = (1.0, -3.0, 0.0), (1.0, 0.5, 0.0)
    assert ENGINE.max_step(False, point, slopes) == 6.0
    assert ENGINE.max_step(False, point, (1.0, 0.0, 0.0)) == math.inf
    assert ENGINE.max_step(True, point, slopes) == math.inf
    for ratio in (1e-3, 1.0, 256.0):
        assert ENGINE.growth(ratio) == pytest.approx(ratio ** (-1 / 8), rel=1e-14)
    assert ENGINE.growth(0.0) == pytest.approx(100.0)
    for h, grow, last, length in (
        (-2.0, 1.5, (0.0, 1.0), 2.7), (2.0, 50.0, (0.0, 1.0), 16.0), (2.0, 0.01, (0.0, 1.0), 0.2),
        (2.0, 1.5, (-1.0, 3.0), 2 * 0.9 * 1.5),  # 1.5²/3·2 = 1.5
        (2.0, 1.2, (1.0, 3.0), 2 * 0.9 * 0.96),
    ):  # fmt: skip
        following, kept = ENGINE.next_step(True, point, slopes, h, grow**-8, last, 100.0)
        assert following == pytest.approx(length) and kept == (h, pytest.approx(grow))
    following, _ = ENGINE.next_step(False, point, slopes, 50.0, 1.0, (0.0, 1.0), -100.0)
    assert following == -6.0
    assert (
        ENGINE.reject_step(2.0, math.inf) == ENGINE.reject_step(2.0, math.nan) == pytest.approx(0.2)
    )
    assert ENGINE.reject_step(-2.0, 256.0) == pytest.approx(-0.9)
    assert ENGINE.reject_step(2.0, 1e20) == pytest.approx(0.2)
    assert ENGINE.clip_step(1.0, -0.9) == -0.9 and ENGINE.clip_step(0.9, -0.9) == -0.9
    assert ENGINE.clip_step(1.0, -1.2) == pytest.approx(-0.72)  # no small rest
    assert ENGINE.clip_step(1.0, 5.0) == 1.0 and ENGINE.clip_step(1.0, -5.0) == -1.0


def test_whether_the_way_leads_over_the_plane():
    canonical, linear, untied = map(engine_for, NAMES)
    turns = [
        (canonical, -1.0, 1.0, 0.8, 0.0, 1.0, True),  # g = −0.28
        (canonical, -1.0, 1.0, 0.8, 0.0, -1.0, False),
        (canonical, -1.0, 1.0, math.sqrt(0.5), 0.0, -1.0, False),
        (canonical, 1.0, 1.0, 0.8, 0.0, -1.0, True), (canonical, 1.0, 1.0, 0.8, 0.0, 0.0, False),
        (linear, -1.0, 1.0, 0.8, -0.5, 1.0, False), (linear, -1.0, 1.0, 0.8, 0.5, 1.0, True),
        (untied, 1.0, 1.0, 0.8, 0.0, -1.0, True), (untied, 1.0, 0.0, 0.8, 1.0, 1.0, True),
        (untied, 1.0, 1.0, 0.8, 0.1, -1.0, False), (untied, 1.0, 1.0, 0.8, 0.0, 1.0, False),
        (untied, 1.0, 1.0, 0.8, 0.0, 0.0, False),
    ]  # fmt: skip
    for engine, *point, expected in turns:
        assert engine.turns_back(False, *point) == expected
    g = 1 - 2 * 0.36
    assert canonical.margins(False, -1.0, 0.3, 0.6, 0.0) == pytest.approx((0.3, 0.25 * g * g))
    assert linear.margins(False, -1.0, 0.3, 0.6, 0.09) == pytest.approx((0.3, 0.0162))
    assert linear.margins(False, -1.0, 0.3, 0.6, 2.0) == pytest.approx((0.3, 0.25 * g * g))
    assert untied.margins(False, -1.0, 0.3, 0.6, 0.0) == pytest.approx((0.3, 0.25 * g * g))
    assert untied.margins(False, -1.0, 0.3, 0.6, 0.1)[0] == math.inf
    assert ENGINE.relative(-3.0, 2.0) == 1.5 and ENGINE.relative(0.0, 0.0) == 0.0
    for far in (False, True):
        y = math.log(0.6) if far else 0.6
        assert canonical.size(far, 0.5, y, 0.0) == pytest.approx(0.5 * 1.72)
        assert linear.size(far, 0.5, y, -3.0) == pytest.approx(0.5 * 4 * 1.72)
        assert untied.size(far, 0.5, y, 3.0) == pytest.approx(0.5 * 3.5 * 1.72)
    rows = [
        (canonical, (6.3, 1.0, 0.0), False), (canonical, (6.4, 1.0, 0.0), True),
        (canonical, (6.4, 0.0, 0.0), False), (linear, (1.0, 9.0, 9.0), False),
        (untied, (4.5, 4.4, 0.5), False), (untied, (4.5, 4.5, 0.5), True),
        (untied, (4.5, 4.5, 0.0), False),
    ]  # fmt: skip
    for engine, theta, expected in rows:
        assert engine.is_far(*theta, 1.0) == expected
    assert canonical.is_far(1.0, 1.0, 0.0, -41.0)


def test_a_point_on_a_level_or_on_the_minima_is_known():
    half = math.sqrt(0.5)
    cases = [
        (0, (0.0, -0.3, 0.0), True), (0, (1e-200, -0.3, 0.0), False), (0, (0.3, -half, 0.0), False),
        (1, (0.0, -0.3, 0.5), True), (1, (0.3, -half, -1.0), True), (1, (0.3, -half, -0.5), False),
        (1, (0.3, -0.3, -1.0), False), (2, (0.0, 0.0, 0.3), True), (2, (0.3, 0.0, 0.3), False),
        (2, (0.0, 0.3, -half), True), (2, (0.3, 0.1, -half), False), (2, (0.3, 0.0, -half), True),
    ]  # fmt: skip
    for kind, theta, expected in cases:
        engine = engine_for(NAMES[kind])
        point = engine.point_of(False, *theta)
        assert engine.is_level(False, theta, *point) == expected, (kind, theta)
    for name in NAMES:
        engine, k = engine_for(name), 2 if name == "canonical" else 3
        theta = (0.8, 0.6, 0.5)
        sign, x, y, z = engine.point_of(False, *theta)
        point = (x, y, z)
        gap = engine.gap(False, sign, *point)
        given = torch.tensor(theta[:k], dtype=torch.float64)
        assert gap == pytest.approx(
            float(flowsim.model(name, 0.5, 0.8).logit_gap(given)), rel=1e-12
        )
        rates = engine.rates(False, sign, x, y, z)
        room = min(abs(x / rates[0]), abs(y / rates[1]), max(abs(z), 1) / abs(rates[2] or 1e-9))
        for tolerance, least in ((1e-12, 1e-14), (1e-3, 1e-12)):
            for off, expected in ((0.99, True), (1.01, False)):
                target = gap + off * least * room
                close = abs(target - gap) / (least * room)
                if 0.98 < close < 1.02:  # the gap has digits enough
                    assert engine.on_minima(False, sign, point, target, tolerance) == expected
        landed = engine.locate_event(False, sign, point, gap + 1e-3, False)
        assert engine.gap(False, sign, *landed) == pytest.approx(gap + 1e-3, rel=1e-14)
        beside = (1e-9, y, 1e-9 if name == "untied" else z)
        plane = engine.locate_event(False, sign, beside, 0.0, True)
        assert plane[0] == 0 and plane[2] == (0 if name == "untied" else pytest.approx(z, abs=1e-6))


@pytest.mark.parametrize("pq", [(0.5, 0.8), (0.2, 0.3), (0.5, 0.5)])
def test_the_gap_of_a_loss_is_found(pq):
    law, gap_at = loss_parameters(BinaryChain(*pq)), ENGINE.gap_at
    for start, end in ((law[0] + 2, law[0]), (law[0] - 3, law[0]), (2.0, 0.0)):
        low, high = loss(law, end), loss(law, start)
        if high <= low:
            continue
        for share in (1e-6, 0.3, 0.999):
            wanted = low + share * (high - low)
            found = gap_at(law, start, end, wanted)
            assert min(start, end) <= found <= max(start, end)
            assert loss(law, found) == pytest.approx(wanted, abs=3e-16)
    assert log_add(3.0, -1.0) == pytest.approx(math.log(math.exp(3) + math.exp(-1)), rel=1e-15)


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


@pytest.mark.parametrize("name", NAMES)
def test_the_step_is_of_order_eight_and_its_error_estimate_of_order_seven(name):
    engine = engine_for(name)
    start = (0.7, 0.6, 0.9)
    ends, ratios = [], []
    for count in (1, 2, 4, 64):
        point = start
        for _ in range(count):
            before, point, slopes, stages = tuples(engine, 1.0, point, 1.6 / count)
        ends.append(np.array(point))
        h = 1.6 / count
        ratios.append(engine.error(False, h, before, point, slopes, stages, Steps(1.0, 0.0, 1)))
    errors = [np.abs(end - ends[-1]).max() for end in ends[:-1]]
    assert errors[0] / errors[1] > 2**7 and errors[1] / errors[2] > 2**7
    assert ratios[0] / ratios[1] > 2**6
    before, after, slopes, stages = tuples(engine, 1.0, start, 1.6)
    estimate = engine.error(False, 1.6, before, after, slopes, stages, Steps(1.0, 0.0, 1))
    exact = np.abs(np.array(after) - ends[-1]) / np.abs(start)
    assert exact.max() < estimate < 1e4 * exact.max()


def test_the_error_allowed_is_relative_to_what_each_coordinate_is():
    def ratio(name, point, rtol, atol=0.0, h=1.0):
        engine = engine_for(name)
        before, after, slopes, stages = tuples(engine, -1.0, point, h)
        return engine.error(False, h, before, after, slopes, stages, Steps(rtol, atol, 1))

    canonical, linear = (3.0, 0.1, 0.0), (3.0, 0.1, 0.5)
    for name, point in (("canonical", canonical), ("linear", linear), ("untied", linear)):
        assert ratio(name, point, 1e-9) == pytest.approx(10 * ratio(name, point, 1e-8), rel=1e-9)
    for name, point in (("canonical", canonical), ("untied", linear)):
        assert ratio(name, point, 1e-9, 1.0) == ratio(name, point, 1e-9)
    assert ratio("linear", linear, 1e-9, 1.0) <= ratio("linear", linear, 1e-9)
    stages = tuple((0.0, slope, 0.0) for slope in (1.0, 0.3, -0.2, 0.7, 0.1, 0.5, 0.9))
    error, allowed = engine_for("canonical").error, Steps(1e-9, 0.0, 1)
    ratios = [
        error(far, 1.0, (1.0, before, 0.0), (1.0, after, 0.0), (0.0, 1.0, 0.0), stages, allowed)
        for far, before, after in (
            (False, 1.0, 1.0),
            (True, -5.0, -5.0),
            (False, 0.1, 1.0),
            (False, 1.0, 0.1),
            (False, 0.1, -0.1),
        )
    ]
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-4)  # rtol of log w is rtol of w
    assert ratios[2] == pytest.approx(10 * ratios[0], rel=1e-9)
    assert ratios[3] == ratios[2] and ratios[4] == math.inf
    bad = ((0.0, 1e300, 0.0),) * 7  # not finite: no step at all
    assert error(False, 1.0, canonical, canonical, (0.0, 1.0, 0.0), bad, allowed) == math.inf
