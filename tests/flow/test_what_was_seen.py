"""Labels of any loss and any field say what was seen: known ends of each kind."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import flowsim
from flowsim import Label, Rule
from flowsim.flow.growth import Growth
from flowsim.flow.idle import WINDOW, Idle
from flowsim.flow.recurrence import FIRST, Passages, Returns, explicit_steps, hermite
from flowsim.landscape.critical import curvatures
from flowsim.landscape.ends import Ends
from flowsim.landscape.stability import stability, velocity_fades

PERIODIC, INFINITY = [Label.PERIODIC], [Label.INFINITY]


class Field(flowsim.Model):
    """A field that is written as a formula of its coordinates."""

    def __init__(self, names, formula):
        self.coordinates, self.formula = tuple(names), formula

    def loss(self, theta):
        return (theta**2).sum(-1)

    def field(self, theta):
        return torch.stack(self.formula(*theta.unbind(-1)), -1)


def labels(found):
    return [Label(int(code)) for code in np.unique(found.label)]


@pytest.mark.parametrize(
    ("formula", "starts", "period"),
    [
        (lambda x, v: [v, -x], [[1.0, 0.0]], 2 * math.pi),
        (lambda x, v: [v, (1 - x**2) * v - x], [[3.0, 1.0]], 6.6632868593),
        pytest.param(  # whose surface is crossed where the orbit jumps
            lambda x, v: [v, 100 * (1 - x**2) * v - x], [[2.0, 0.3]], 162.83707,
            marks=pytest.mark.slow),
        pytest.param(  # which another coordinate approaches slowly
            lambda x, v, z: [v, (1 - x**2) * v - x + 0 * z, -1e-5 * z], [[2.0, 0.5, 1.0]],
            6.6632868593, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_closed_orbits_and_cycles_are_periodic(formula, starts, period):
    found = flowsim.find_limits(Field("xvz"[: len(starts[0])], formula), starts)
    assert labels(found) == PERIODIC and (found.rule == Rule.RETURNS).all()
    assert np.abs(found.period / period - 1).max() < 1e-5
    assert found.evaluations.max() < 8 * 1200


@pytest.mark.slow
def test_an_orbit_that_turns_about_a_place_without_a_rate_falls_to_it_or_is_not_decided():
    damped = Field("xv", lambda x, v: [v, -x - v**3])
    found = flowsim.find_limits(damped, [[0.003, 0.0]])
    assert labels(found) == [Label.UNRESOLVED] and found.evaluations[0] < 8 * 300
    found = flowsim.find_limits(damped, [[1.0, 0.0]])
    assert labels(found) == [Label.LOCAL_MINIMUM] and found.evaluations[0] < 8 * 300
    cycle = Field("xv", lambda x, v: [v, -x - v**3 * (v**2 - 0.05)])
    assert labels(flowsim.find_limits(cycle, [[1.0, 0.0], [0.8, 0.3]])) == PERIODIC


@pytest.mark.slow
def test_no_row_is_taken_through_a_cycle_between_it_and_a_sink():
    def field(x, y):
        fall = (x**2 + y**2 - 1) ** 2
        return [-2 * y - x * fall, 2 * x - y * fall]

    model = Field("xy", field)
    found = flowsim.find_limits(model, [[-1.85, -1.55], [0.5, 0.2]])
    assert found.label.tolist() == [Label.PERIODIC, Label.LOCAL_MINIMUM]
    assert found.period[0] == pytest.approx(math.pi, rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("leaves", [
    lambda z: 1e-5 * z,  # a coordinate leaves the cycle
    lambda z: -1e-4 * z**3,  # nearer to it the approach is slower and slower
])  # fmt: skip
def test_what_creeps_from_turn_to_turn_is_taken_to_no_cycle_elsewhere(leaves):
    def field(x, y, z):
        return [x - y - x * (x**2 + y**2), x + y - y * (x**2 + y**2), leaves(z)]

    found = flowsim.find_limits(Field("xyz", field), [[0.5, 0.3, 1.0]])
    assert labels(found) == [Label.UNRESOLVED] and found.evaluations[0] < 8 * 1000


@pytest.mark.slow
def test_a_cycle_that_is_left_in_one_direction_is_no_end():
    def field(x, y, z):
        fall = 0.1 * (1 - 1 / torch.hypot(x, y))
        ahead = -y - x * fall
        return [ahead, x - y * fall, ahead + 0.3 * (z - x)]

    found = flowsim.find_limits(Field("xyz", field), [[1.2, 0.0, 1.2 + 1e-8]])
    assert labels(found) == INFINITY


def test_a_spiral_outwards_has_one_end_without_a_direction_or_a_loss():
    model = Field("xv", lambda x, v: [v, v - 2 * x])
    found = flowsim.find_limits(model, [[1.0, 0.0], [0.3, 2.0]]).tensors()
    assert labels(found) == INFINITY and found.theta.isnan().all() and found.loss.isnan().all()
    ends = Ends(model)
    ends.identify(found)
    captions = [end.caption(model.coordinates) for end in ends.found]
    assert captions == ["to infinity: |x| → ∞ back and forth, |v| → ∞ back and forth"]


@pytest.mark.slow
def test_the_loss_at_infinity_is_not_that_of_how_a_start_left_a_plateau():
    found = flowsim.find_limits(flowsim.from_loss(lambda x: torch.exp(-(x**3))), [[1e-3]])
    assert labels(found) == INFINITY and 0 <= found.loss[0] < 1e-30


def test_a_ring_of_minima_far_away_is_reached():
    radius, size = 100, 1e-8
    ring = flowsim.from_loss(lambda x, y: 1 / (1 + x**2 + y**2) + size * (x**2 + y**2))
    found = flowsim.find_limits(ring, [[1.0, 0.3]])
    assert labels(found) == [Label.LOCAL_MINIMUM]
    assert np.linalg.norm(found.theta[0]) == pytest.approx(math.sqrt(radius**2 - 1), rel=1e-4)


@pytest.mark.slow
def test_first_weights_leave_a_saddle_though_another_coordinate_came_there_long_before():
    model = flowsim.from_loss(lambda x, a, b: (x - 1) ** 2 / 2 + (1 - a * b) ** 2 / 2, "beside")
    found = flowsim.find_limits(model, 1e-30 * torch.tensor([1.0, 0.7, 1.2]).double())
    assert found.label == Label.LOCAL_MINIMUM and abs(float(found.loss)) < 1e-9


@pytest.mark.parametrize(
    ("loss", "at", "label"),
    [
        (lambda x, y: 0 * x + 0 * y + 1, [0.3, 2.0], Label.LOCAL_MINIMUM),
        (lambda x, y: x**4 + 5 * (y - x**2) ** 2, [0.0, 0.0], Label.LOCAL_MINIMUM),
        (lambda x, y: 5 * (y - x**2) ** 2 - x**4, [0.0, 0.0], Label.SADDLE),
        (lambda x, y: x**4 + y**4 - 6 * x**2 * y**2, [0.0, 0.0], Label.SADDLE),
    ],
)
def test_the_flow_beside_a_flat_point_says_what_it_is(loss, at, label):
    place = torch.tensor([at], dtype=torch.float64)
    assert stability(flowsim.from_loss(loss), place, decisive=False) == label


@pytest.mark.slow
@pytest.mark.turns
def test_a_chaotic_transient_is_followed_to_its_sink():
    lorenz = Field("xyz", lambda x, y, z: [10 * (y - x), x * (22 - z) - y, x * y - 8 * z / 3])
    found = flowsim.find_limits(lorenz, [[5.0, -3.0, 20.0]])
    assert labels(found) == [Label.LOCAL_MINIMUM]


def test_rates_are_found_where_products_of_slopes_are_below_all_numbers():
    draws = np.random.default_rng(1)
    slopes = 10.0 ** draws.uniform(-320, 0, (400, 3, 3)) * draws.choice([-1.0, 1.0], (400, 3, 3))
    slopes = torch.from_numpy(slopes)
    with pytest.raises(RuntimeError, match="converge"):  # or there would be nothing to guard
        torch.linalg.eigvals(slopes)

    class Many(Field):
        def jacobian(self, theta):
            return slopes

    model, at = Many("xyz", lambda x, y, z: [x, y, z]), torch.zeros(400, 3, dtype=torch.float64)
    stability(model, at, decisive=False)
    assert curvatures(model, at).isfinite().all()


@pytest.mark.parametrize(("loss", "start"), [
    (lambda x, y: torch.sqrt((x - 5) ** 2 + 4 * (y + 3) ** 2), [3.0, 0.5]),  # a cone
    pytest.param(lambda x, y: x**2 / (x**2 + y**2) + 0.05 * (x**2 + y**2), [1.0, 1.0],
                 marks=pytest.mark.slow),  # not defined where all starts lead
])  # fmt: skip
def test_rows_that_get_no_further_do_not_spend_their_steps(loss, start):
    found = flowsim.find_limits(flowsim.from_loss(loss), [start])
    assert int(found.label[0]) in (Label.LOCAL_MINIMUM, Label.UNRESOLVED)
    assert found.evaluations[0] < 8 * 600


def test_a_row_that_turns_and_turns_in_one_place_gets_no_further():
    """A speed that stays the same is no turn; a place further off than rounding is another."""
    place = torch.tensor([[0.3, -2.0]], dtype=torch.float64)
    for speeds, moved, over in (((1, 1, 3, 3), 0, True), ((1, 3), 1, False), ((1, 2, 3), 0, True)):
        idle = Idle(place, field=True)
        for attempt in range(1, WINDOW + 1):
            speed = torch.tensor([float(speeds[attempt % len(speeds)])], dtype=torch.float64)
            at = place + moved * attempt
            idle.record(attempt, torch.arange(1), at, torch.ones_like(place), speed, 0 * speed)
        assert (idle.over.tolist(), idle.slow.tolist(), idle.news) == ([over], [False], True)
    for _ in range(WINDOW):  # what was seen before is forgotten
        idle.record(attempt := attempt + 1, torch.arange(1), place, place.abs(), speed, 0 * speed)
    assert not idle.over.any() and not idle.news


def test_the_limit_of_a_power_of_time_is_known_from_notes_at_uneven_times():
    """x′ = −(x − 1)³/2 from x = 2, whose solution is 1 + (1 + t)^−½."""
    model, index = flowsim.from_loss(lambda x: (x - 1) ** 4 / 8), torch.arange(1)
    growth = Growth(torch.tensor([[2.0]], dtype=torch.float64))
    for i in range(9):
        time = torch.tensor([12.0**i * (1 + 0.05 * (i % 2))], dtype=torch.float64)
        growth.record(model, index, 1 + (1 + time[:, None]) ** -0.5, time)
    known, limit = growth.converged(model, index)
    assert known.all() and abs(float(limit) - 1) < 1e-6


@pytest.mark.parametrize(("longer", "seen"), [
    ((1.5, 1.5), True), ((1.5, 1.2), False), ((1.0, 1.0), False),
])  # fmt: skip
def test_an_orbit_nears_a_cycle_of_saddles_where_it_stays_longer_and_longer(longer, seen):
    """At each of three in turn; where the growth of its stays falls, it may near a closed orbit."""
    corners, index = torch.eye(3, dtype=torch.float64), torch.arange(1)
    passages, time, stay, nears = Passages(corners[:1]), 0.0, 1.0, False
    for count in range(9):
        for speed in (1.0, 1e-3, 1.0):
            rows = SimpleNamespace(
                theta=corners[[count % 3]],
                time=torch.tensor([time]).double(),
                way=torch.ones(1).double(),
                velocity=torch.tensor([[speed]]).double().clone,
            )
            nears |= bool(passages.record(index, rows).any())
            time += stay
        stay *= longer[count >= 6]
    assert nears == seen


def test_a_quintic_is_known_by_values_slopes_and_curvatures_at_its_ends():
    known = np.polynomial.Polynomial([0.3, -1.0, 0.7, 2.0, -0.4, 0.9])
    h, parts = 1.7, torch.linspace(0, 1, 7, dtype=torch.float64)
    slopes = known, known.deriv(), known.deriv(2)
    ends = [torch.full((7, 1), p(x), dtype=torch.float64) for x in (0.0, h) for p in slopes]
    found = hermite(ends, torch.full((7, 1), h, dtype=torch.float64), parts[:, None])[:, 0]
    assert found.numpy() == pytest.approx(known(h * parts.numpy()), rel=1e-13)


@pytest.mark.parametrize(("beyond", "fades"), [
    (lambda far: torch.exp(-1 / far.clamp_min(1e-300) ** 2), True), (torch.ones_like, False),
])  # fmt: skip
def test_a_velocity_fades_at_the_edge_of_a_region_of_rest_or_jumps_there(beyond, fades):
    def field(x, y):
        far = torch.hypot(x, y) - 1
        return torch.where(far > 0, beyond(far), 0.0), torch.zeros_like(y)

    inside = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    flat = torch.zeros(1, 2, 2, dtype=torch.float64)
    assert velocity_fades(Field("xy", field), inside, flat).tolist() == [fades]


def test_limits_say_how_many_starts_ended_where():
    start = torch.tensor([[[1.0, 0.5], [1.0, -1.2]]], dtype=torch.float64)
    found = flowsim.find_limits(flowsim.model("canonical", 0.5, 0.8), start)
    assert repr(found).startswith("<Limits of 2 starts: 1 local_minimum, 1 global_minimum; theta,")


def on_a_circle(time):
    """The start (1, 0) of x′ = v and v′ = −x at a time, as rows that are followed have it."""
    y = torch.tensor([[math.cos(time), -math.sin(time)]], dtype=torch.float64)
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return SimpleNamespace(
        y=y, theta=y, field=y @ turn.T, jacobian=turn[None], time=torch.tensor([time]).double(),
        way=torch.ones(1).double(), model=None, _linearise=lambda: None,
        chart=SimpleNamespace(logarithmic=y > 9, velocity=lambda model, y: y @ turn.T),
    )  # fmt: skip


def test_a_surface_is_taken_anew_where_a_row_has_returned_to_it_until_twice_the_steps():
    start, index = on_a_circle(0.0), torch.arange(1)
    returns, seen = Returns(start.y, start.field, start.field, start.time, 3000), []
    for attempt in range(1, 2 * FIRST + 1):
        returns.record(attempt, index, on_a_circle(0.3 * attempt))
        seen.append((int(returns.since), int(returns.count)))
    assert seen[FIRST - 1 :: FIRST] == [(FIRST, 0), (2 * FIRST, 0)] and seen[-2][1] == 2


def test_explicit_steps_follow_the_flow():
    rows = on_a_circle(0.0)
    *_, h, _, _ = explicit_steps(rows, torch.full((1,), 0.05).double(), rows.theta, rows.theta)
    torch.testing.assert_close(rows.y, on_a_circle(float(rows.time)).y, rtol=0, atol=1e-4)
    assert rows.time > 0.1 and h > 0.05
