"""The parts of the rank-one engine without attention, one by one, against autograd and an oracle.

A mode is (unit 0, unit 1, w₁ held, sign of w₁). Called from Python these parts have to be plain
Python: see ``test_plain_python``.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from one_row import room
from rank_one_oracle import Oracle, UndecidedError
from torch.autograd.functional import hessian, jacobian

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.elementary import cross_entropy, residual
from flowsim.flow.rows.engine import engine_of
from flowsim.flow.rows.vectors import invert, multiply
from flowsim.flow.tableau import GAMMA, STAGES, A, C
from flowsim.models import RankOneModel
from flowsim.models.rank_one import field as rank_one_field
from flowsim.models.rank_one import slow_manifold, switching_surfaces
from flowsim.models.rank_one.field import CLOSED, OPEN, SLIDING

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
NAMES = {CLOSED: "closed", OPEN: "open", SLIDING: "slide"}
CASES = [
    ((0.5, 0.8), 4, True),
    ((0.2, 0.3), 4, False),
    ((0.97, 0.6), 1, True),
    ((0.1, 0.9), 7, False),
]
MODES = [(*units, held) for units in itertools.product((CLOSED, OPEN, SLIDING), repeat=2)
         for held in (0, 1)]  # fmt: skip


@pytest.fixture(params=CASES, ids=str)
def row(request):
    chain, length, tied = request.param
    found = room(RankOneModel(BinaryChain(*chain), length, tied=tied))
    found.reals[rank_one_field.BIAS] = math.log(chain[0] / chain[1])  # b is counted from 0 here
    return found


def placed(row, mode, random):
    """The row at a random point of its mode's surfaces, the sign of w₁ noted."""
    row.y[:] = random.uniform(-1.5, 1.5, len(row.y))
    row.ints[:3] = mode
    row.y[2] = 0.0 if mode[2] else row.y[2]
    row.ints[3] = 1 if row.y[2] >= 0 else -1
    switching_surfaces.project(row.y, row.ints)
    return row.y.copy()


def logits_at(y, mode):
    """f₀ and f₁ as functions of the coordinates that are free in a mode; y is a tensor."""
    u, gain = y[0] if len(y) == 5 else y[5], 1 + 4 * y[2] * y[3]
    inner = [y[1], y[0] + y[1]]
    if SLIDING in mode[:2]:
        inner = [
            -y[0] if mode[0] != SLIDING else 0 * y[0],
            y[0] if mode[1] != SLIDING else 0 * y[0],
        ]
    opened = [mode[x] == OPEN and not mode[2] for x in (0, 1)]
    return [u * inner[x] * (gain if opened[x] else 1.0) + y[4] for x in (0, 1)]


def loss_at(row, mode):
    """The loss as a function of y, by torch."""
    p, q = row.reals[0], row.reals[3]

    def loss(y):
        f0, f1 = logits_at(y, mode)
        share = [q / (p + q), p / (p + q)]
        softplus = torch.nn.functional.softplus
        return share[0] * (softplus(f0) - p * f0) + share[1] * (softplus(f1) - (1 - q) * f1)

    return loss


def moved(row, mode, slope):
    """−G⁻¹ applied to a gradient, or to each column of a Hessian."""
    length = row.reals[6]
    together = mode[1] == SLIDING and mode[0] != SLIDING  # ρ = −e, of mass N
    mass = np.array([1 + length if together else 1, length, 4, 4, 1, 1])[: len(row.y)]
    rate = -(slope.T / mass).T
    if together:
        rate[1] = -rate[0]
    return rate


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_field_jacobian_and_loss_of_every_mode_are_autograds(row, mode):
    random = np.random.default_rng(1)
    for _ in range(2):
        y = torch.tensor(placed(row, mode, random))
        loss = loss_at(row, mode)
        gradient = jacobian(loss, y).numpy()
        rank_one_field.velocity(row.y, row.ints, row.reals, row.velocity)
        rank_one_field.jacobian(row.y, row.ints, row.reals, row.derivative)
        held = {2, 3} if mode[2] else set()
        free = [i for i in range(len(y)) if i not in held]
        np.testing.assert_allclose(row.velocity, moved(row, mode, gradient), rtol=0, atol=1e-13)
        expected = moved(row, mode, hessian(loss, y).numpy())
        np.testing.assert_allclose(row.derivative[np.ix_(free, free)], expected[np.ix_(free, free)],
                                   rtol=0, atol=1e-12)  # fmt: skip
        np.testing.assert_allclose(row.derivative, expected, rtol=0, atol=1e-12)
        at = [row.ints[0], row.ints[1]] if not mode[2] else [CLOSED, CLOSED]
        found = rank_one_field.loss(row.y, np.array(at), row.reals)
        assert abs(found - float(loss(y))) < 1e-14


def test_logits_far_out_neither_overflow_nor_cancel():
    for f in (-800.0, -40.0, 0.0, 3.0, 40.0, 800.0):
        for t in (0.3, 0.5, 1 - 1e-12, 1e-12):
            chance = 1 / (1 + math.exp(-f)) if f > 0 else math.exp(f) / (1 + math.exp(f))
            assert rank_one_field.probability(f) == pytest.approx(chance, rel=1e-15)
            found = residual(f - math.log(t) + math.log1p(-t), t, 1 - t)
            rest = 1 / (1 + math.exp(f)) if f < 700 else 0.0
            expected = chance - t if t <= 0.5 else (1 - t) - rest
            assert found == pytest.approx(expected, rel=1e-13, abs=1e-16)
            cross = math.log1p(math.exp(-abs(f))) + (1 - t) * max(f, 0) + t * max(-f, 0)
            assert cross_entropy(f, t, 1 - t) == pytest.approx(cross, rel=1e-14)


def straight_point(y, mode, unit, pivot):
    """y with the unit's logit in place of y_pivot."""
    f = logits_at(y, mode)[unit]
    return torch.stack([f if i == pivot else y[i] for i in range(len(y))])


def transform_at(y, mode, unit, pivot):
    """∂(straight_point)/∂y, as an array."""
    return jacobian(lambda z: straight_point(z, mode, unit, pivot), torch.tensor(y)).numpy()


def steepness_at(y, mode, unit, length):
    """∂f of a unit, each entry over the root of its metric."""
    slope = jacobian(lambda z: logits_at(z, mode)[unit], torch.tensor(y)).numpy()
    return abs(slope) / np.sqrt([1, length, 4, 4, 1, 1])[: len(y)]


def straight_modes(row):
    """Modes in which some unit's logit may stand for some coordinate, and these two."""
    for mode in [(OPEN, OPEN, 0), (CLOSED, OPEN, 0), (OPEN, CLOSED, 0), (SLIDING, OPEN, 0),
                 (OPEN, SLIDING, 0), (CLOSED, SLIDING, 0), (CLOSED, CLOSED, 1)]:  # fmt: skip
        for unit in (0, 1):
            for pivot in range(len(row.y)):
                yield mode, unit, pivot


def test_a_step_s_coordinates_are_left_as_they_were_entered(row):
    random, tried = np.random.default_rng(2), 0
    for mode, unit, pivot in straight_modes(row):
        y = placed(row, mode, random)
        row.ints[slow_manifold.UNIT], row.ints[slow_manifold.PIVOT] = unit, pivot
        transform = transform_at(y, mode, unit, pivot)
        if abs(transform[pivot, pivot]) < 0.1:
            continue
        tried += 1
        near = y + 1e-3 * random.uniform(-1, 1, len(y))
        near[1] = 0.0 if mode[0] == SLIDING else -near[0] if mode[1] == SLIDING else near[1]
        near[2] = 0.0 if mode[2] else near[2]
        point = near.copy()
        slow_manifold.to_step_coordinates(point, row.ints, row.slope)
        expected = straight_point(torch.tensor(near), mode, unit, pivot).numpy()
        np.testing.assert_allclose(point, expected, rtol=0, atol=1e-14)
        kept = point.copy()
        slow_manifold.leave(point, y, row.ints)
        np.testing.assert_allclose(point, near, rtol=0, atol=1e-11)
        at_near = transform_at(near, mode, unit, pivot)
        rank_one_field.velocity(near, row.ints, row.reals, row.velocity)
        point = kept.copy()
        slow_manifold.straight_velocity(point, y, row.ints, row.reals, row.slope)
        np.testing.assert_allclose(row.slope, at_near @ row.velocity, rtol=0, atol=1e-9)
        new, error, slope = kept.copy(), random.uniform(-1, 1, len(y)), row.slope.copy()
        wanted = np.linalg.solve(at_near, error)
        slow_manifold.from_step_coordinates(new, error, slope, y, row.ints, row.point)
        np.testing.assert_allclose(new, near, rtol=0, atol=1e-11)
        np.testing.assert_allclose(error, wanted, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(slope, row.velocity, rtol=0, atol=1e-8)
    assert tried >= 30


def test_field_and_jacobian_in_a_step_s_coordinates_are_autograds(row):
    random = np.random.default_rng(3)
    for mode in MODES:
        y = placed(row, mode, random)
        rank_one_field.velocity(row.y, row.ints, row.reals, row.velocity)
        rank_one_field.jacobian(row.y, row.ints, row.reals, row.derivative)
        slow_manifold.to_slow_manifold(row)
        unit, pivot = row.ints[slow_manifold.UNIT], row.ints[slow_manifold.PIVOT]
        slopes = [steepness_at(y, mode, x, row.reals[6]) for x in (0, 1)]
        assert slopes[unit][pivot] == pytest.approx(np.max(slopes), rel=1e-12)

        def change(z, mode=mode, unit=unit, pivot=pivot):
            return straight_point(z, mode, unit, pivot)

        def field(z, mode=mode, change=change):
            gradient = torch.autograd.grad(loss_at(row, mode)(z), z, create_graph=True)[0]
            length = row.reals[6]
            together = mode[1] == SLIDING and mode[0] != SLIDING
            mass = torch.tensor([1 + length if together else 1, length, 4, 4, 1, 1])[: len(z)]
            rate = -gradient / mass
            rest = -rate[:1] if together else rate[1:2]
            rate = torch.cat([rate[:1], rest, rate[2:]])
            return jacobian(change, z, create_graph=True) @ rate

        point = torch.tensor(y, requires_grad=True)
        transform = transform_at(y, mode, unit, pivot)
        np.testing.assert_allclose(row.field, field(point).detach().numpy(), rtol=0, atol=1e-12)
        expected = jacobian(field, point).detach().numpy() @ np.linalg.inv(transform)
        np.testing.assert_allclose(row.jacobian, expected, rtol=0, atol=1e-10)


def test_a_step_solves_its_eight_linear_equations(row):
    """With stages from numpy's solver, in the coordinates of the step."""
    random, h = np.random.default_rng(4), 0.05
    step = engine_of(RankOneModel(BinaryChain(0.5, 0.8), 4).flow().half).step
    for mode in [(OPEN, OPEN, 0), (CLOSED, OPEN, 0), (OPEN, SLIDING, 0)]:
        y = placed(row, mode, random)
        rank_one_field.velocity(row.y, row.ints, row.reals, row.velocity)
        rank_one_field.jacobian(row.y, row.ints, row.reals, row.derivative)
        slow_manifold.to_slow_manifold(row)
        assert step(row, h) == 0
        matrix = np.eye(len(y)) / (GAMMA * h) - row.jacobian
        begin, rate = y.copy(), np.empty(len(y))
        slow_manifold.to_step_coordinates(begin, row.ints, np.empty(len(y)))
        stages = np.zeros((STAGES, len(y)))
        for s in range(STAGES):
            point = begin + A[s] @ stages
            if s:
                slow_manifold.straight_velocity(point, y, row.ints, row.reals, rate)
            else:
                rate[:] = row.field
            stages[s] = np.linalg.solve(matrix, rate + C[s] @ stages / h)
        new = begin + A[STAGES - 1] @ stages + stages[STAGES - 1]
        slow_manifold.leave(new, y, row.ints)
        np.testing.assert_allclose(row.new, new, rtol=0, atol=1e-11)
        unit, pivot = row.ints[slow_manifold.UNIT], row.ints[slow_manifold.PIVOT]
        transform = transform_at(new, mode, unit, pivot)
        wanted = np.linalg.solve(transform, stages[STAGES - 1])
        np.testing.assert_allclose(row.error, wanted, rtol=1e-7, atol=1e-12)
        assert (row.y == y).all()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_inverses_are_numpy_s(size):
    random = np.random.default_rng(5)
    one = np.eye(size)
    for matrix in [*random.normal(size=(5, size, size)), one[::-1] + 0.0, one + 1]:
        inverse, vector, out = np.empty((size, size)), random.normal(size=size), np.empty(size)
        assert invert(matrix.copy(), inverse)
        np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-9, atol=1e-12)
        multiply(matrix, vector, out)
        np.testing.assert_allclose(out, matrix @ vector, rtol=1e-13)
    assert not invert(np.zeros((size, size)), np.empty((size, size)))


def oracle_of(row):
    p, q, length = row.reals[0], row.reals[3], row.reals[6]
    return Oracle(p, q, length, tied=len(row.y) == 5)


def test_velocities_across_a_surface_are_those_of_the_modes_beside_it(row):
    random = np.random.default_rng(6)
    oracle = oracle_of(row)
    for modes in itertools.product((CLOSED, OPEN), repeat=2):
        for unit in (0, 1):
            y = placed(row, (*modes, 0), random)
            oracle.sign = float(row.ints[3])
            found = switching_surfaces.unit_velocities(row.y, row.ints, unit, row.reals)
            for opened, value in zip((OPEN, CLOSED), found, strict=True):
                beside = list(modes)
                beside[unit] = opened
                rate = oracle.field(y, [*(NAMES[mode] for mode in beside), "free"])
                across = rate[1] if unit == 0 else rate[0] + rate[1]
                assert value == pytest.approx(row.ints[3] * across, rel=1e-11, abs=1e-13)
        y[2] = 0.0
        found = switching_surfaces.weight_velocities(y, row.reals)
        assert found == pytest.approx(
            [oracle.weight_velocity(y, s) for s in (1.0, -1.0)], rel=1e-12
        )


def on_surfaces(row, random):
    """Points of one surface each, and which: Y₀ = 0, Y₁ = 0 or w₁ = 0."""
    for on in itertools.cycle((0, 1, "w")):
        y = random.uniform(-1.5, 1.5, len(row.y))
        y[1] = 0.0 if on == 0 else -y[0] if on == 1 else y[1]
        y[2] = 0.0 if on == "w" else y[2]
        yield y, on


def test_a_row_goes_on_from_a_surface_as_the_oracle_says(row):
    random, oracle, seen = np.random.default_rng(7), oracle_of(row), set()
    for y, on in itertools.islice(on_surfaces(row, random), 150):
        switching_surfaces.choose_modes(y, row.ints, y[2] ** 2 < y[3] ** 2, row.reals)
        units, held, sign = row.ints[:2].tolist(), row.ints[2], row.ints[3]
        try:
            wanted = oracle.modes(y, {on})
        except UndecidedError:  # it repels: the row leaves to the faster side
            assert SLIDING not in units and not held
            if on == "w":
                sides = [oracle.weight_velocity(y, s) for s in (1.0, -1.0)]
                assert sign == (1 if sum(sides) >= 0 else -1)
            else:
                sides = switching_surfaces.unit_velocities(y, row.ints, on, row.reals)
                assert units[on] == (OPEN if sum(sides) >= 0 else CLOSED)
            seen.add(("repels",))
            continue
        assert held == (wanted[2] == "held")
        if not held:
            assert [NAMES[unit] for unit in units] == wanted[:2] and sign == oracle.sign
        seen.add((on, held, *units))
    assert len(seen) >= 8 and any(SLIDING in mode[2:] for mode in seen)


def test_at_e_and_rho_zero_the_modes_agree_with_the_velocities_they_cause(row):
    random, oracle, seen = np.random.default_rng(8), oracle_of(row), set()
    for _ in range(80):
        y = random.uniform(-1.5, 1.5, len(row.y))
        y[0] = y[1] = 0.0
        switching_surfaces.choose_modes(y, row.ints, False, row.reals)
        units, sign = row.ints[:2].tolist(), row.ints[3]
        seen.add(tuple(units))
        modes = [*(NAMES[unit] for unit in units), "free"]
        if len(y) == 5:  # u = e = 0: nothing moves, and the larger slope comes first
            steep = abs(1 + 4 * y[2] * y[3]) >= 1
            assert units == ([OPEN, OPEN] if steep else [CLOSED, CLOSED])
            continue
        if units == [SLIDING, SLIDING]:
            continue
        _, slope, _, _, _ = oracle.parts(y, modes)
        rate = oracle.field(y, modes)
        bounds = sorted((1.0, 1 + 4 * y[2] * y[3]))
        for x, toward in enumerate(sign * np.array([rate[1], rate[0] + rate[1]])):
            if units[x] == SLIDING:
                assert bounds[0] <= slope[x] <= bounds[1] and abs(toward) < 1e-14
            else:
                assert toward >= 0 if units[x] == OPEN else toward <= 0
    assert len(seen) >= (3 if len(row.y) == 6 else 2)


def test_margins_are_distances_or_velocities_towards_the_surface(row):
    random = np.random.default_rng(9)
    for mode in MODES:
        y = placed(row, mode, random)
        y[2:4] = (0.0 if mode[2] else y[2]), 2.0
        smallest = switching_surfaces.smallest_margin(y, row.ints, True, row.reals, row.margins)
        expected, sign, inner = np.full(6, np.inf), row.ints[3], (y[1], y[0] + y[1])
        for x in (0, 1):
            if mode[2]:
                continue
            if mode[x] != SLIDING:
                expected[2 * x] = (sign if mode[x] == OPEN else -sign) * inner[x]
            elif mode[1 - x] != SLIDING:
                opened, closed = switching_surfaces.unit_velocities(y, row.ints, x, row.reals)
                expected[2 * x : 2 * x + 2] = -opened, closed
            else:
                u, p, q = y[0] if len(y) == 5 else y[5], row.reals[0], row.reals[3]
                omega = 1 / (1 + math.exp(-y[4])) - (p, 1 - q)[x]
                expected[2 * x] = sign * u * omega * 4 * y[2] * y[3]
        if mode[2]:
            positive, negative = switching_surfaces.weight_velocities(y, row.reals)
            expected[4:] = -positive, negative
        else:
            expected[4] = sign * y[2]
        np.testing.assert_allclose(row.margins, expected, rtol=1e-12, atol=1e-14)
        assert smallest == row.margins.min()
        switching_surfaces.smallest_margin(y, row.ints, False, row.reals, row.margins)
        assert mode[2] or row.margins[4] == np.inf


@pytest.mark.parametrize("surface", [0, 1, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_is_cut_where_it_was_beyond_a_surface(surface, sign):
    """The distance to the surface is the cubic (x − 0.3)(x − 0.6)(1 + c x), in units of a step."""
    h, k = 0.5, 5
    for c in (0.0, 0.7, -0.4):
        cubic = np.poly1d([1.0, -0.9, 0.18]) * np.poly1d([c, 1.0])
        least = [x.real for x in cubic.deriv().roots if 0.3 < x.real < 0.6]
        for unit_mode, kinked in itertools.product((OPEN, CLOSED, SLIDING), (True, False)):
            start, end, velocity, slope = np.ones((4, k))
            velocity[:] = slope[:] = 0.0
            mode = np.array([OPEN if sign > 0 else CLOSED] * 2 + [0, sign, 0, 2])
            side = sign
            start[0] = end[0] = 0.3  # of ones Y = ρ + e
            if surface < 2:
                mode[surface] = unit_mode
                side = sign if unit_mode == OPEN else -sign
                other = 1 - surface
                mode[other] = SLIDING
            at = 2 if surface == 2 else 1
            off = 0.3 if surface == 1 else 0.0
            start[at], end[at] = side * cubic(0.0) - off, side * cubic(1.0) - off
            velocity[at], slope[at] = (side * cubic.deriv()(x) / h for x in (0.0, 1.0))
            if surface == 2:
                mode[:2] = SLIDING
            found = switching_surfaces.missed_crossing(start, velocity, end, slope, mode, kinked, h)
            looked = kinked if surface == 2 else unit_mode != SLIDING
            assert found == pytest.approx(least[0] if looked else 1.0, rel=1e-12)
            mode[2] = 1
            assert (
                switching_surfaces.missed_crossing(start, velocity, end, slope, mode, kinked, h)
                == 1.0
            )
