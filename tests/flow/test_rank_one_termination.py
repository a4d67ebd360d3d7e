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


def test_a_tied_row_close_to_the_plane_is_trapped_and_an_untied_one_goes_on():
    for e, rule in ((0.9e-8, TRAPPED), (1.1e-8, GOING)):
        assert ends.check_termination(placed([e, 0.5, 1.0, 1.0, best(ABOVE)])) == rule
    assert ends.check_termination(placed([0.9e-8, 0.5, 1.0, 1.0, best(ABOVE), 1e-9])) == GOING
    assert ends.check_termination(placed([0.9e-8, 0.5, 1.0, 1.0, 0.3])) == GOING
    assert ends.check_termination(placed([1e-9, 0.5, 1.0, 1.0, best(EVEN)], EVEN)) == MINIMA
    assert ends.check_termination(placed([0.5, 0.5, 1.0, 1.0, best(EVEN)], EVEN)) == GOING
    assert ends.check_termination(placed([1e-9, 0.5, 1.0, 1.0, 0.3], EVEN)) == GOING
