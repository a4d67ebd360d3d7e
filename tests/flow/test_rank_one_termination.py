"""What ends a row of the rank-one flow without attention: rows on each side of every decision.

Called from Python these parts have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest
import torch
from one_row import begun

from flowsim import BinaryChain
from flowsim.compiled import config
from flowsim.flow.return_codes import GOING, MINIMA, REST, TRAPPED
from flowsim.flow.rows.engine import engine_of
from flowsim.models import RankOneModel
from flowsim.models.rank_one import field as rank_one_field
from flowsim.models.rank_one import switching_surfaces
from flowsim.models.rank_one import termination as ends
from flowsim.models.rank_one.field import CLOSED, OPEN, SLIDING

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")
ABOVE, BELOW, EVEN = (0.5, 0.8), (0.2, 0.3), (0.3, 0.7)
ENGINE = engine_of(RankOneModel(BinaryChain(*ABOVE), 4).flow().half)


def placed(y, chain=ABOVE, length=4, mode=None, amplitude=0.5):
    """A row at y = (e, ρ, w₁, w₂, b[, c]), in the modes that these give, and its velocity."""
    _, row = begun(RankOneModel(BinaryChain(*chain), length, tied=len(y) == 5), y)
    if mode is not None:
        row.ints[:3] = mode
        ENGINE.linearise(row)
    row.memory[ends.AMPLITUDE] = amplitude
    return row


def best(chain):
    """log(π₁/π₀)."""
    return math.log(chain[0] / chain[1])


WIDE = [0.3, -0.4, 0.7, 0.2, 0.1, 0.6]


def test_what_is_kept_of_a_start():
    _, row = begun(RankOneModel(BinaryChain(*ABOVE), 4, tied=False), WIDE)
    memory = row.memory
    assert memory[ends.FEED_FORWARD_BALANCE] == pytest.approx(0.49 - 0.04)
    assert memory[ends.EMBEDDING_BALANCE] == pytest.approx(0.09 + 4 * 0.16 - 0.36)
    assert memory[ends.AMPLITUDE] == pytest.approx(0.5)
    assert memory[ends.NARROWEST] == memory[ends.CENTRE] == -1
    tied = placed([0.3, -0.4, 0.7, 0.2, 0.1])
    assert tied.memory[ends.EMBEDDING_BALANCE] == 0
    assert tied.ints[:4].tolist() == [CLOSED, CLOSED, 0, 1]


def test_a_row_is_put_back_on_what_it_conserves():
    row = placed(WIDE)
    row.y[:] += 1e-6 * np.arange(1, 7)
    moved = row.y.copy()
    ENGINE.conserve(row, 0.0)
    assert row.y[2] ** 2 - row.y[3] ** 2 == pytest.approx(0.45, abs=1e-10)
    e, rho, _, _, _, c = row.y
    assert e * e + 4 * rho * rho - c * c == pytest.approx(0.09 + 4 * 0.16 - 0.36, abs=1e-10)
    assert row.y[4] == moved[4]
    mass = np.array([1, 4, 4, 4, 1, 1])
    change = mass * (row.y - moved)  # the shortest way: along the gradients of what is conserved
    assert change[2] / change[3] == pytest.approx(-moved[2] / moved[3], rel=1e-6)
    assert change[1] / change[0] == pytest.approx(4 * moved[1] / moved[0], rel=1e-4)
    assert change[5] / change[0] == pytest.approx(-moved[5] / moved[0], rel=1e-4)


def change_of(y, change):
    """A change relative to y, by which errors count."""
    y, change = np.array(y), np.array(change)
    return ENGINE.error_ratio(y, y + 7.0, change, np.full(len(y), 9.0), np.full(len(y), 0.1)) / 10


def test_changes_count_relative_to_the_parts_they_belong_to():
    y = [0.3, -0.4, 3.0, 4.0, 2.0]
    cases = [
        ((3e-3, 4e-3, 0, 0, 0), 1e-2),
        ((0, 0, 3e-3, 4e-3, 0), 1e-3),
        ((0, 0, 0, 0, 1e-3), 1e-3 / math.sqrt(5)),
        ((1e-3, 0, 0, 0, 1.0), 1 / math.sqrt(5)),
    ]
    for change, expected in cases:
        assert change_of(y, change) == pytest.approx(expected, rel=1e-12)
    wide = [*y, 1.2]
    for change, expected in (((0, 0, 0, 0, 0, 1.3e-2), 1e-2), ((0.5e-2, 0, 0, 0, 0, 1.2e-2), 1e-2)):
        assert change_of(wide, change) == pytest.approx(expected, rel=1e-12)
    assert change_of([0.0] * 5, [0, 0, 1e-3, 0, 0]) > 1e100


@pytest.mark.parametrize("part, critical", [(0.9e-15, True), (1.1e-15, False)])
def test_a_start_is_critical_where_it_moves_by_its_rounding_alone(part, critical):
    row = placed([0.3, -0.4, 3.0, 4.0, best(ABOVE) + 2.0])
    for i, size in ((0, 0.5), (3, 5.0), (4, math.sqrt(5))):
        row.velocity[:] = 0.0
        row.velocity[i] = part * size
        assert ENGINE.is_critical(row) == critical


def test_the_rest_of_the_way_is_a_linear_equation_s():
    for y in ([0.3, -0.4, 0.7, 0.2, 0.1], [0.9, 0.3, 0.8, -0.7, 0.2, 0.4]):
        row = placed(y, BELOW)
        found = ends.rest_of_way(row)
        matrix = 1e-13 * np.eye(len(y)) - row.derivative
        way = np.linalg.solve(matrix, row.velocity)
        assert np.abs(row.slope - way).max() <= 1e-6 * np.abs(way).max()
        assert found == pytest.approx((np.abs(row.slope) / (1 + np.abs(row.y))).max(), rel=1e-12)
    row.derivative[:] = 1e-13 * np.eye(6)
    assert ends.rest_of_way(row) == 1.0


def settled(e, rho, w1, w2, off, **options):
    row = placed([e, rho, w1, w2, best(ABOVE) + off], **options)
    return ends.is_settled(row)


def test_a_row_has_settled_where_its_logits_are_the_unigram_s():
    assert settled(1e-9, 0.5, 1.0, 1.0, 0.9e-6) and settled(1e-9, 0.5, 1.0, 1.0, -0.9e-6)
    assert not settled(1e-9, 0.5, 1.0, 1.0, 1.1e-6) and not settled(1e-9, 0.5, 1.0, 1.0, -1.1e-6)
    # e ρ s of 0.012, taken up by b: only where ρ and w are large beside that
    gain = 1 + 4 * 1e4
    for rho, w in ((30.0, 100.0), (-30.0, -100.0)):
        off = -1e-8 * rho * gain
        assert settled(1e-8, rho, w, w, off)
        assert not settled(1e-8, rho, w, w, -off) and not settled(1e-8, rho, w, w, 1.001 * off)
        assert not settled(1e-8, rho, w, w, off, mode=(CLOSED, OPEN, 0))
        assert not settled(1e-8, rho, w, w, off, mode=(OPEN, CLOSED, 0))
    gain = 1 + 4 * 1e3  # w₁ = 1e-3 is small beside what b still moves
    for w1, w2 in ((1e-3, 1e6), (1e6, 1e-3)):
        assert not settled(1e-5, 1.0, w1, w2, -1e-5 * gain)
        assert settled(1e-8, 1.0, w1, w2, -1e-8 * gain)  # 4e-5 beside 2e-3
    gain = 1 + 4 * 1e8  # ρ is small: √N ρ of 0.02 beside 0.004 and 0.0019
    for e, small in ((1e-9, False), (0.47e-9, True)):
        assert settled(e, 1e-2, 1e4, 1e4, -e * 1e-2 * gain) == small
    assert not settled(1e-2, 1e-4, -1.0, 1.0, 0.0)  # e² alone keeps the logits apart


@pytest.mark.parametrize("slope", [5.0, 0.4])
def test_on_the_way_to_rest_two_quantities_stay(slope):
    row = placed([1e-9, -0.5, 0.7, -0.9, best(ABOVE) + 0.3])
    ends.come_to_rest(row, slope)
    e, rho, w1, w2, b = row.y
    assert e == 0 and b == pytest.approx(0.0)
    assert rho == pytest.approx(-math.sqrt(0.25 + 0.09 / 4))
    grown = 0.25 * (1 - 1 / slope) * 0.09
    assert w1 == pytest.approx(math.sqrt(0.49 + grown)) and w2 == pytest.approx(
        -math.sqrt(0.81 + grown)
    )
    row = placed([1e-9, -0.5, 0.01, -0.9, best(ABOVE) + 0.3])
    ends.come_to_rest(row, 0.4)
    assert row.y[2] == 0


#: e, ρ, w₁, w₂, the modes, p and q; and the verdict with its distance from the saddle.
TRAPS = [
    (1e-9, 0.5, 1.0, 1.0, None, ABOVE, TRAPPED, 5.0),
    (1e-9, 0.5, 1.0, -1.0, None, ABOVE, GOING, None),  # open, slope −3
    (1e-9, -0.5, 1.0, -1.0, None, ABOVE, TRAPPED, 1.0),  # closed
    (1e-9, -0.5, 1.0, -1.0, None, BELOW, GOING, None),
    (1e-9, 0.5, 1.0, -1.0, None, BELOW, TRAPPED, 3.0),
    (1e-9, 0.5, 1.0, 1.0, None, BELOW, GOING, None),
    (1e-9, 0.5, 1.0, 1.0, (OPEN, CLOSED, 0), ABOVE, GOING, None),
    (1e-9, 0.5, 1.0, -1.0, (OPEN, CLOSED, 1), ABOVE, TRAPPED, 1.0),  # w₁ held
    (0.9e-9, 1e-6, 1.0, 1.0, None, ABOVE, TRAPPED, 5.0),
    (1.1e-9, 1e-6, 1.0, 1.0, None, ABOVE, GOING, None),
    (1e-9, 0.0, 1.0, 1.0, (SLIDING, OPEN, 0), ABOVE, TRAPPED, 1.0),
    (1e-9, -1e-9, 1.0, 1.0, (OPEN, SLIDING, 0), ABOVE, TRAPPED, 1.0),
    (1e-9, 0.0, 1.0, -1.0, (SLIDING, OPEN, 0), ABOVE, GOING, None),
    (0.0, 0.0, 1.0, -1.0, (SLIDING, SLIDING, 0), ABOVE, REST, 3.0),
    (0.0, 0.0, 1.0, -1.0, (OPEN, OPEN, 0), ABOVE, REST, 3.0),
    (0.0, 0.0, 1.0, 1.0, (OPEN, OPEN, 0), ABOVE, TRAPPED, 1.0),
    (0.0, 0.0, 0.5, 0.5, (OPEN, OPEN, 0), BELOW, REST, 2.0),
]  # fmt: skip


@pytest.mark.parametrize("case", TRAPS, ids=str)
def test_a_plane_traps_where_all_slopes_around_do(case):
    e, rho, w1, w2, mode, chain, rule, distance = case
    row = placed([e, rho, w1, w2, best(chain) + 1e-8], chain, mode=mode, amplitude=0.25)
    row.ints[4:] = 1, 4  # coordinates of a step have no say
    assert ends.trap_verdict(row) == rule
    gain, sign = 1 + 4 * w1 * w2, 1 if chain == ABOVE else -1
    attracts = sign > 0 and sign * gain > 0
    expected = np.inf if attracts else abs(rho) / 0.25
    assert row.memory[ends.CENTRE] == pytest.approx(expected)
    if rule != GOING:
        assert row.memory[ends.NARROWEST] == pytest.approx(distance)
        assert row.y[0] == 0 and row.y[4] == pytest.approx(0.0, abs=1e-15)
        assert row.y[1] == pytest.approx(0.0 if SLIDING in row.ints[:2] else rho, abs=1e-7)
    else:
        assert row.y[0] == e and row.memory[ends.NARROWEST] == -1


def learned(chain=ABOVE, off=0.0):
    """A point of the global minima, b off by so much: closed for zeros, open for ones."""
    p, q = chain
    odds = math.log(p / (1 - p)), math.log((1 - q) / q)
    slope = 2 * (odds[1] - odds[0]) - 1
    return [1.0, -0.5, 1.0, (slope - 1) / 4, odds[0] + 0.5 + off]


@pytest.mark.parametrize("chain", [ABOVE, BELOW])
def test_a_row_reaches_the_minima_where_little_is_left(chain):
    model = RankOneModel(BinaryChain(*chain), 4)
    for off, rule in ((0.0, MINIMA), (1e-12, MINIMA), (1e-9, GOING), (0.1, GOING)):
        row = placed(learned(chain, off), chain)
        row.memory[ends.NARROWEST] = 0.5
        assert ends.check_termination(row) == rule
        if rule == MINIMA:
            end = torch.tensor(row.y)
            end[4] += best(chain)  # from which b is counted
            assert float(model.excess(end)) < 1e-15 and row.memory[ends.NARROWEST] == 0.5
    row = placed(learned(chain, 1e-12), chain)
    row.memory[ends.NARROWEST] = 0.5
    row.velocity[:] = 0.0
    row.velocity[3] = 1.1e-5  # too fast to say
    assert ends.check_termination(row) == GOING


def test_a_row_notes_where_its_loss_falls_below_the_unigram_s():
    bias = best(ABOVE)
    for y, narrowest, centre in (
        ([0.3, 0.4, 1.0, -1.0, bias], 3.0, 1.0),  # both open: the slope, −3
        ([0.3, -0.2, 1.0, -1.0, bias], 1.0, math.sqrt(0.13) / 0.5),  # one open
        ([6.0, 8.0, 0.1, -2.6, bias], 6.0, 20.0),  # e beside 1
    ):
        row = placed(y)
        excess = rank_one_field.excess(row.y, row.ints, row.reals)
        below = excess < BinaryChain(*ABOVE).mutual_information
        assert ends.check_termination(row) == GOING
        if below:
            assert row.memory[ends.NARROWEST] == pytest.approx(narrowest)
            assert row.memory[ends.CENTRE] == pytest.approx(centre)
        else:
            assert row.memory[ends.NARROWEST] == -1
    row = placed([0.3, 0.4, 1.0, 1.0, bias])  # above it
    assert ends.check_termination(row) == GOING
    assert row.memory[ends.NARROWEST] == -1
    row = placed([0.3, 0.4, 1.0, -1.0, bias])
    row.memory[ends.NARROWEST] = 0.7  # noted before
    assert ends.check_termination(row) == GOING
    assert row.memory[ends.NARROWEST] == 0.7


def test_a_tied_row_close_to_the_plane_is_trapped_and_an_untied_one_goes_on():
    for e, rule in ((0.9e-8, TRAPPED), (1.1e-8, GOING)):
        assert ends.check_termination(placed([e, 0.5, 1.0, 1.0, best(ABOVE)])) == rule
    assert ends.check_termination(placed([0.9e-8, 0.5, 1.0, 1.0, best(ABOVE), 1e-9])) == GOING
    assert ends.check_termination(placed([0.9e-8, 0.5, 1.0, 1.0, 0.3])) == GOING
    assert ends.check_termination(placed([1e-9, 0.5, 1.0, 1.0, best(EVEN)], EVEN)) == MINIMA
    assert ends.check_termination(placed([0.5, 0.5, 1.0, 1.0, best(EVEN)], EVEN)) == GOING
    assert ends.check_termination(placed([1e-9, 0.5, 1.0, 1.0, 0.3], EVEN)) == GOING


def test_a_row_that_meets_a_kink_lies_on_it():
    random = np.random.default_rng(0)
    for tied in (5, 6):
        for surface in (0, 1, "w"):
            for _ in range(8):
                y = random.uniform(-1, 1, tied)
                y[3] *= 3
                off = 1e-3 * random.choice([-1, 1])
                y[1] = off if surface == 0 else -y[0] + off if surface == 1 else y[1]
                y[2] = off if surface == "w" else y[2]
                row = placed(y)
                tiny = 1e-17
                side = -1.0 if row.ints[0 if surface == "w" else surface] == OPEN else 1.0
                if surface == 0:
                    row.y[1] = tiny * side * row.ints[3]
                elif surface == 1:
                    row.y[1] = -row.y[0] + tiny * side * row.ints[3]
                else:
                    row.y[2] = -tiny * row.ints[3]
                    row.memory[ends.FEED_FORWARD_BALANCE] = -1.0
                before = row.ints.copy()
                assert ENGINE.handle_event(row) == 1
                if surface == 0:
                    assert row.y[1] == 0
                elif surface == 1:
                    assert row.y[1] == -row.y[0]
                else:
                    assert row.y[2] == 0
                expected = row.ints.copy()
                switching_surfaces.choose_modes(
                    row.y, expected, row.memory[ends.FEED_FORWARD_BALANCE] < 0, row.reals
                )
                assert (row.ints == expected).all()
                if surface in (0, 1) and row.ints[surface] == SLIDING:
                    assert ENGINE.handle_event(row) == 0  # it slides on
                assert (before[4:] == row.ints[4:]).all()


@pytest.mark.parametrize(("w2", "side"), [(-1.0, OPEN), (-0.501, OPEN), (-0.499, CLOSED)])
def test_a_ridge_is_left_to_the_faster_side_or_not_at_all(w2, side):
    """At N = 1, where ω₁ has just turned positive on Y₁ = 0."""
    bias, e = math.log(0.7 / 0.3) + 1e-9, math.sqrt(math.log(0.7 / 0.3) - math.log(0.2 / 0.8))
    row = placed([e, -e, 1.0, w2, bias], BELOW, 1, (CLOSED, SLIDING, 0))
    assert ENGINE.event_function(row, row.y) < 0
    assert ENGINE.handle_event(row) == 0 and row.ints[:3].tolist() == [CLOSED, side, 0]
    high = placed([0.2, -0.2, 1.0, w2, bias], BELOW, 1, (CLOSED, SLIDING, 0))
    assert ENGINE.handle_event(high) == -1
    others = placed([e, -e, 1.0, w2, bias], BELOW, 2, (CLOSED, SLIDING, 0))
    assert ENGINE.handle_event(others) == 0 and others.ints[0] == CLOSED
