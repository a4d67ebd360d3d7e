"""How the end of a gap row is decided from the ends of the orbits beside it.

Called from Python they have to be plain Python: see ``test_plain_python``.
"""

import math

import numpy as np
import pytest

import flowsim
from flowsim.compiled import config
from flowsim.flow.gap import loops
from flowsim.flow.gap.engine import engine_of
from flowsim.flow.options import Steps

pytestmark = pytest.mark.skipif(not config.DISABLE_JIT, reason="needs NUMBA_DISABLE_JIT=1")


class Orbits:
    """Answers in the place of the gap engine's ``follow``: how orbits end, and their margins."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, *given):
        self.asked.append(given)
        end, margin = self.answers.pop(0) if self.answers else self.last
        self.last = end, margin
        return end, (1.0, 2.0, 3.0), margin, 10


def end_of(monkeypatch, name, far, theta, *answers, target=-1.4, rtol=1e-8, atol=1e-10):
    model = flowsim.model(name, 0.5, 0.8)
    engine, orbits = engine_of(model.flow().system), Orbits(*answers)
    monkeypatch.setitem(engine.end_of.__globals__, "follow", orbits)
    units = 1.0 - np.array(model.keeps_sign, float)
    sign, *point = engine.point_of(far, *theta)
    found = engine.end_of(far, sign, tuple(point), theta, target, units, Steps(rtol, atol, 99))
    return found, orbits.asked


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(
    "name, theta",
    [
        ("canonical", (0.3, -0.5, 0.0)),
        ("linear", (0.02, -3.0, -0.4)),
        ("linear", (2.0, 0.3, 4.0)),
        ("untied", (0.3, -5.0, -0.5)),
    ],
)
def test_a_row_that_passes_a_saddle_closely_is_followed_from_all_sides(
    monkeypatch, name, theta, far
):
    minima, plane = loops.AT_MINIMA, loops.AT_PLANE
    point_of = engine_of(flowsim.model(name, 0.5, 0.8).flow().system).point_of
    sign, x, y, z = point_of(far, *theta)
    scale = 1 + x + theta[2 if name == "untied" else 1] ** 2 + z * z
    rules = {minima: loops.REACHED, plane: loops.TRAPPED}
    clear, doubt = 1.01e-4 * scale, 0.99e-4 * scale  # 10⁴ tolerances
    for end in (minima, plane):
        found, asked = end_of(monkeypatch, name, far, theta, (end, clear))
        assert found == (end, (1.0, 2.0, 3.0), rules[end], 10)
        assert asked == [(far, sign, (x, y, z), -1.4, (1e-8, 1e-10, 99))]
        found, asked = end_of(monkeypatch, name, far, theta, (end, doubt), (end, 1.01e-9 * scale))
        assert found[0] == end and found[2:] == (rules[end], 20) and len(asked) == 2
        assert asked[1] == (far, sign, (x, y, z), -1.4, (1e-13, 1e-14, 99))
        count = 2 if name == "canonical" else 3
        found, asked = end_of(monkeypatch, name, far, theta, (end, doubt), (end, 0.99e-9 * scale))
        assert found[0] == end and found[2:] == (loops.BESIDE, 20 + 20 * count)
        signed = {"canonical": (), "linear": (2,), "untied": (0, 1)}[name]
        moves = [1e-11 * (max(abs(v), 1.0) if i in signed else abs(v)) for i, v in enumerate(theta)]
        wanted = []
        for i in range(count):
            for side in (-1, 1):
                moved = [v + side * moves[j] * (i == j) for j, v in enumerate(theta)]
                wanted.append(point_of(far, *moved))
        for given, point in zip(asked[2:], wanted, strict=True):
            assert (given[1], *given[2]) == pytest.approx(point, rel=1e-14, abs=0)
            assert given[3:] == (-1.4, (1e-13, 1e-14, 99))
        for place in range(2 * count):
            answers = [(end, 0.0)] * (2 + place) + [(1 - end, 0.0)]
            found, _ = end_of(monkeypatch, name, far, theta, *answers)
            assert (found[0], *found[2:]) == (loops.DIVIDED, loops.NONE, 30 + 10 * place)
    assert len(end_of(monkeypatch, name, far, theta, (minima, 0.0), target=0.0)[1]) == 1
    assert len(end_of(monkeypatch, name, far, theta, (loops.OUT_OF_STEPS, 0.0))[1]) == 1
    assert end_of(monkeypatch, name, far, theta, (loops.LOST, 0.0))[0][2] == loops.NONE
    found, asked = end_of(monkeypatch, name, far, theta, (minima, 0.0), rtol=1e-14, atol=1e-15)
    assert {given[4] for given in asked} == {(1e-14, 1e-15, 99)} and len(asked) > 2
    broken = (math.nan, *theta[1:])
    assert end_of(monkeypatch, name, far, broken)[0][-1] == 0
    assert end_of(monkeypatch, name, far, broken)[0][0] == loops.NOT_FINITE
    assert (name == "untied") == (
        end_of(monkeypatch, name, far, (0.0, *theta[1:]), (minima, clear))[1] != []
    )
