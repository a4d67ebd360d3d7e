"""A few orbits of every engine: ends, steps, paths and times as they were when they were confirmed.

Quick enough to run with nothing compiled, as ``tests/mutants.py`` does. ``orbits.json`` holds what
the engines found (``python tests/flow/test_plain_python.py``); that it is right is for the tests
beside this one, against torchdiffeq and forty digits.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flowsim
from flowsim import Label, Rule, Status, find_limits, trajectories
from flowsim.flow import settling_times
from flowsim.models.canonical.basins import SADDLE_ENERGY

TABLE = Path(__file__).with_name("orbits.json")
#: Shares of the time until 0.3 of the excess is left, at which paths are noted; and that share.
SHARES, FRACTION = (0.0, 0.01, 0.5, 1.0, 3.0), 0.3
#: How far steps may differ between processors, in number; ends, times and paths agree to 1e-7.
STEPS = 0.05

#: Tests of functions that only compiled functions call.
PARTS = TABLE.with_name("test_rank_one_parts.py")

CASES = [
    ("canonical", {"p": 0.5, "q": 0.8}, [
        (1.0, -1.0), (0.3, -0.5), (0.7, 0.6), (0.0, 0.4), (0.5, 0.0), (7.0, -0.2), (-0.6, 0.9),
    ]),
    ("canonical", {"p": 0.2, "q": 0.3}, [(0.4, -0.9), (8.0, -0.2), (0.001, 0.3), (0.0, -0.6)]),
    ("canonical", {"p": 0.4, "q": 0.6}, [(0.4, -0.9)]),
    ("linear", {"p": 0.5, "q": 0.8}, [
        (1.0, -1.0, 0.5), (0.5, 0.5, -1.5), (0.4, -0.6, -0.9), (0.3, 0.2, 0.0), (9.0, 0.3, -0.5),
    ]),
    ("linear", {"p": 0.2, "q": 0.3}, [(0.5, 0.4, -1.2), (0.6, -0.8, 0.3)]),
    ("untied", {"p": 0.5, "q": 0.8}, [(0.9, -0.4, -0.6), (0.5, 0.5, -0.3), (0.5, -0.5, 0.4),
                                      (9.0, 1.0, 0.2)]),
    ("untied", {"p": 0.2, "q": 0.3}, [(0.3, 0.1, 0.5), (0.4, -0.4, 0.2)]),
    ("states", {"p": 0.8, "states": 5}, [(1.0, -0.8), (0.4, 0.3), (0.2, -0.4)]),
    ("states", {"p": 0.1, "states": 3, "hidden_per_state": 2}, [(1.0, -0.8), (0.2, 0.3)]),
    ("canonical", {"p": 0.5, "q": 0.8, "bias": "dynamic"}, [
        (1.0, -1.0, 0.3), (0.4, 0.3, -0.5), (0.0, 0.3, 0.4), (0.5, 0.0, 0.1),
    ]),
    ("linear", {"p": 0.2, "q": 0.3, "bias": "dynamic"}, [
        (1.0, 0.5, 0.5, 0.3), (0.5, 0.4, -2.0, 0.1),
    ]),
    ("untied", {"p": 0.2, "q": 0.3, "bias": "dynamic"}, [
        (1.0, 0.5, 0.5, 0.3),
    ]),
    ("uniform", {"p": 0.5, "q": 0.8, "length": 4}, [
        (1.0, -1.0, 0.5), (0.5, 0.4, -0.3), (0.8, 0.3, -1.6), (2.5, -0.4, 1.2), (0.0, 0.5, 0.2),
    ]),
    ("uniform", {"p": 0.2, "q": 0.3, "length": 40}, [(1.5, 0.4, 1.7), (3.0, -0.9, -2.2)]),
    ("uniform", {"p": 0.2, "q": 0.3, "length": 4, "bias": "dynamic"}, [(0.8, 0.5, 0.4, -0.2)]),
    ("rank-one", {"p": 0.5, "q": 0.8, "length": 4}, [
        (0.9, -0.4, 0.7, 0.8, 0.1), (0.5, -0.3, 0.6, -0.7, 0.2), (-0.8, 0.3, 0.9, 0.5, -0.4),
        (0.3, 0.2, -0.5, 0.6, 0.0), (1.4, -1.1, -0.6, 1.2, 0.5), (0.6, -0.1, 0.2, 0.9, 0.3),
        (-0.7, -1.0, -0.3, -0.9, -1.1), (-0.5, 0.3, 0.6, 0.9, 1.0), (-1.2, 0.0, -0.7, 1.3, -1.0),
        (-1.2, 1.1, 0.2, 1.3, -0.3), (-1.0, 1.2, 0.07, 0.5, -1.0), (0.0, 0.3, 0.5, 0.4, 0.1),
        (0.4, -0.4, 0.5, 0.6, 0.1), (0.4, 0.0, 0.0, 0.6, 0.1),
    ]),
    ("rank-one", {"p": 0.2, "q": 0.3, "length": 4}, [
        (0.9, -0.4, 0.7, 0.8, 0.1), (-0.4, 0.6, -0.8, 0.3, 0.2), (1.2, -0.9, 0.4, -1.1, 0.0),
        (-0.1, -1.1, 1.1, 1.0, 0.1), (-1.2, 0.0, -0.7, 1.3, -1.0), (0.1, 0.7, -0.2, 1.3, -0.1),
    ]),
    ("rank-one", {"p": 0.9, "q": 0.7, "length": 4}, [(-1.0, -0.9, -0.033, -1.0, -1.0)]),
    ("rank-one", {"p": 0.2, "q": 0.3, "length": 4, "tied": False}, [
        (0.9, -0.4, 0.7, 0.8, 0.1, 0.6), (-0.5, 0.4, 0.3, -0.8, 0.2, 0.7),
    ]),
    ("rank-one", {"p": 0.5, "q": 0.8, "length": 2, "attention": True}, [
        (0.5, 0.2, -0.6, -0.7, 0.6, -0.5, 0.3, 0.2),
    ]),
    ("induction", {"length": 3}, [(1.0, 0.5), (-0.5, -1.0)]),
]  # fmt: skip
ORBITS = [(name, options, start) for name, options, starts in CASES for start in starts]


def name_of(orbit):
    name, options, start = orbit
    return "-".join([name, *(f"{key}={value}" for key, value in options.items()), *map(str, start)])


def model_of(name, options):
    kept = {key: value for key, value in options.items() if key not in ("p", "q")}
    return flowsim.model(name, *(options[key] for key in ("p", "q") if key in options), **kept)


def found(model, start):
    """Everything about one orbit, as the table holds it."""
    theta = torch.tensor([start], dtype=torch.float64)
    limits = find_limits(model, theta)
    time = float(settling_times(model, theta, FRACTION, limits=limits))
    path = trajectories(model, theta, [(time if time == time else 1.0) * s for s in SHARES])
    return {
        "label": int(limits.label), "rule": int(limits.rule), "status": int(limits.status),
        "evaluations": int(limits.evaluations), "loss": float(limits.loss),
        "kinks": int(limits.kinks), "sliding": float(limits.sliding_time),
        "end": limits.theta[0].tolist(), "time": time, "path": path[:, 0].tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("orbit", ORBITS, ids=name_of)
def test_the_orbit_is_that_of_the_table(orbit):
    name, options, start = orbit
    noted = json.loads(TABLE.read_text())[name_of(orbit)]
    now = found(model_of(name, options), start)
    for key in ("label", "rule", "status", "kinks"):
        assert now.pop(key) == noted.pop(key), key
    steps = noted.pop("evaluations")
    assert abs(now.pop("evaluations") - steps) <= STEPS * steps + 1
    for key, value in noted.items():
        close = torch.tensor(now[key]).double(), torch.tensor(value).double()
        near = 1e-4 if key == "sliding" else 1e-7  # when a slide is at rest, rounding says
        torch.testing.assert_close(*close, rtol=near, atol=near, equal_nan=True, msg=key)


@pytest.mark.parametrize("off, rule", [(1e-9, Rule.SHADOWS), (1e-14, Rule.NONE)])
@pytest.mark.parametrize("name", ["canonical", "linear"])
def test_labels_beside_the_separatrix_are_right_or_open(name, off, rule):
    """On e² − w² + log|w| = that of the saddle (canonical), and on e² = 2(1 + a)² (linear)."""
    model, w = flowsim.model(name, 0.5, 0.8), -0.3
    if name == "canonical":
        e = math.sqrt(SADDLE_ENERGY + w * w - math.log(-w))
        starts = [(e + off, w), (e - off, w)]
    else:
        starts = [(-0.5 - off, w, 0.5**1.5 - 1), (0.5, w, 0.5**1.5 - 1 + off)]
    found = find_limits(model, torch.tensor(starts, dtype=torch.float64))
    sides = [Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM]
    assert found.label.tolist() == (sides if rule == Rule.SHADOWS else [Label.UNRESOLVED] * 2)
    assert found.rule.tolist() == [rule] * 2
    if rule == Rule.SHADOWS:  # of orbits beside them, which are counted
        assert (found.status == Status.CONVERGED).all()
        usual = find_limits(model, 2 * torch.tensor(starts[:1], dtype=torch.float64))
        assert (found.evaluations > 3 * usual.evaluations).all()


@pytest.mark.slow
def test_the_engines_parts_are_right():
    """In a process of its own, where nothing is compiled."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PARTS)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


if __name__ == "__main__":
    orbits = {name_of(orbit): found(model_of(*orbit[:2]), orbit[2]) for orbit in ORBITS}
    rows = [f"{json.dumps(name)}: {json.dumps(orbit)}" for name, orbit in orbits.items()]
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
