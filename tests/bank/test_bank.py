"""Every problem of the bank: where starts end, when, where they are on the way, and a portrait."""

from __future__ import annotations

import io
import os

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bank.outcomes import Problem, follow
from bank.problems import PROBLEMS

import flowsim
from flowsim import Label
from flowsim.landscape.ends import Ends


def ends_of(problem: Problem, every: bool) -> list[str]:
    """A score for every start: its label, its place, its loss, and which starts share an end."""
    starts = problem.starts if every else problem.starts[: problem.few]
    found = problem.answers(starts)
    right = problem.outcomes(problem.model, starts)
    scores = [
        outcome.score(*answer)
        for outcome, *answer in zip(right, found.label, found.theta, found.loss, strict=True)
    ]
    if problem.optimizer is not None:
        for i, (outcome, period) in enumerate(zip(right, found.period, strict=True)):
            if scores[i] == "right" and period != outcome.period and outcome.period:
                scores[i] = f"period {period}, not {outcome.period}"
        return scores
    limits = found.tensors()
    codes = Ends(problem.model).identify(limits).tolist()
    return _numbered(codes, [outcome.key for outcome in right], scores)


def _numbered(codes: list[int], keys: list[str], scores: list[str]) -> list[str]:
    """The scores, where right starts with one end have one number, those with two have two."""
    number: dict[str, int] = {}
    for i, (code, key) in enumerate(zip(codes, keys, strict=True)):
        if scores[i] == "right" and key:
            other = {k for k, n in number.items() if n == code} - {key}
            if number.setdefault(key, code) != code:
                scores[i] = f"{key} has two numbers, {number[key]} and {code}"
            elif other:
                scores[i] = f"{key} and {other.pop()} have one number"
    return scores


def times_of(problem: Problem, every: bool) -> list[str]:
    """A score for every start with a known hitting time."""
    if problem.hits is None:
        return []
    starts = problem.starts if every else problem.starts[: problem.few]
    right = np.array([problem.hits(*start) for start in starts.tolist()])
    known = np.isfinite(right)
    found = flowsim.hitting_times(problem.model, starts)[known]
    return [
        "unresolved" if np.isnan(t) else "right" if abs(t / wanted - 1) < 1e-4 else
        f"time {t} from {start}, not {wanted}"
        for t, wanted, start in zip(found, right[known], starts[known], strict=True)
    ]  # fmt: skip


def paths_of(problem: Problem, every: bool) -> list[str]:
    """A score for every start of which LSODA says where it is at a time."""
    if not problem.at:
        return []
    starts = problem.starts if every else problem.starts[:2]
    right = follow(problem.model, starts, [problem.at], problem.logs)[-1]
    found = flowsim.trajectories(problem.model, starts, [0.0, problem.at])[-1]
    scores = []
    for start, here, wanted in zip(starts, found, right, strict=True):
        left = np.isnan(here).any()
        if problem.logs:  # some coordinates are e⁻¹⁰⁰ there
            size = np.maximum(1, np.abs(np.log(wanted)))
            good = (here > 0) & (np.abs(np.log(np.abs(here) / wanted)) <= 1e-4 * size)
        else:
            good = np.abs(here - wanted) <= 1e-6 * max(np.abs(start).max(), np.abs(wanted).max())
        scores.append("unresolved" if left else "right" if good.all() else
                      f"at {here}, not {wanted}")  # fmt: skip
    return scores


def portrait_of(problem: Problem, every: bool) -> list[str]:
    """A score for every cell of a coarse portrait; it draws, and its shares add up."""
    if problem.window is None:
        return []
    cells = 8 if every else 4
    record = flowsim.portrait(
        problem.model, window=problem.window, fixed=problem.fixed or None, resolution=cells,
        confirm=0,
    )  # fmt: skip
    names = record.label.attrs["flag_meanings"].split()
    shares = [float(np.mean(record.label == code)) for code in range(len(names))]
    drawn = flowsim.draw(record)
    drawn.savefig(io.BytesIO(), format="png", dpi=40)
    plt.close(drawn)
    if abs(sum(shares) - 1) > 1e-9:
        return [f"shares add up to {sum(shares)}"]
    (x, y), theta = problem.window, []
    for up in record[y].values:
        for across in record[x].values:
            place = {**problem.fixed, x: across, y: up}
            theta.append([place.get(name, 0.0) for name in problem.model.coordinates])
    right = problem.outcomes(problem.model, np.array(theta))
    codes = [int(code) for code in record.label.transpose(y, x).values.ravel()]
    scores = []
    for code, outcome in zip(codes, right, strict=True):
        kind = names[code].rpartition("_")[0] or names[code]
        kinds = {_KINDS[label] for label in outcome.labels}
        honest = kind == "unresolved" and kind not in kinds
        good = f"{names[code]}, not {'/'.join(sorted(kinds))}"
        scores.append("unresolved" if honest else "right" if kind in kinds else good)
    return _numbered(codes, [outcome.key for outcome in right], scores)


_KINDS = {
    Label.GLOBAL_MINIMUM: "minimum",
    Label.LOCAL_MINIMUM: "minimum",
    Label.SADDLE: "saddle",
    Label.INFINITY: "infinity",
    Label.PERIODIC: "periodic",
    Label.BOUNDED: "bounded",
    Label.UNRESOLVED: "unresolved",
}

#: Problems that take seconds, left to the slow tests; of the others, which portraits are drawn and
#: of how many problems times and trajectories are compared by default.
SECONDS = {
    "Levy13", "GoldsteinPrice", "MuellerBrown", "Powell", "Inflection", "DeepLinear4",
    "DeepLinear5", "DeepLinear6", "MatrixFactors", "Cone", "Ackley", "Bukin6",
    "SlideToInfinity", "Lasso2", "Lasso3", "Bump", "LogLog", "DipAt300", "BlowUp", "Beale",
    "SoftmaxBandit", "Duffing", "SlideToMinimum", "DampedPendulum", "BrusselatorAtRest",
    "LightlyDampedDuffing", "MagneticPendulum", "SlowSpiral", "MayLeonard", "RockPaperScissors",
    "Lorenz", "PredatorsInCycles", "Saddle", "HalfStable", "LogisticMap3.9", "MonkeySaddle",
    "HopfCycle", "HalfStableCycle", "LotkaVolterra", "DiracGAN", "Pendulum", "ProductMap1.1",
    "TinyCycle", "KinkLeadsOn0", "KinkLeadsOn1", "LennardJones", "NormalisedDescent",
    "GrowthToTheFloor", "CubicPush", "Robertson",
}  # fmt: skip
DRAWN, EACH = ("Bowl", "Circle", "WellsTiny", "Coexistence"), 5
#: What is still wrong, as (what, problem): exactly that. Nothing that is right may stay here.
STILL_WRONG: set[tuple[str, str]] = set()
#: The part of all answers that may be unresolved.
UNRESOLVED = 0.05

#: Parts of the problems, one test each.
PARTS = [slice(first, None, 4) for first in range(4)]
#: All problems with all their starts, which takes most of an hour: WHOLE_BANK=1 pytest tests/bank.
EVERY = bool(os.environ.get("WHOLE_BANK"))


@pytest.mark.timeout(3600 if EVERY else 600)
@pytest.mark.parametrize(("what", "part"), [
    (ends_of, slice(1, None, 32)), (paths_of, slice(1, None, 16)),
    *(pytest.param(what, part, marks=pytest.mark.slow)
      for what in (ends_of, times_of, paths_of, portrait_of) for part in PARTS),
], ids=lambda x: x.__name__ if callable(x) else f"{x.start}-{x.step}")  # fmt: skip
def test_no_answer_is_wrong_and_few_are_unresolved(what, part):
    """A thirty-second of the quick problems by default, all among the slow tests."""
    quick = [problem for problem in PROBLEMS if problem.name not in SECONDS]
    if what is portrait_of:
        quick = [problem for problem in quick if problem.name in DRAWN]
    elif what is not ends_of:
        quick = quick[::EACH]
    quick = quick[part]
    scores = {problem.name: what(problem, EVERY) for problem in (PROBLEMS if EVERY else quick)}
    scores = {name: found for name, found in scores.items() if found}
    wrong = {
        name: bad
        for name, found in scores.items()
        if (bad := [score for score in found if score not in ("right", "unresolved")])
    }
    known = {name for kind, name in STILL_WRONG if kind == what.__name__ and name in scores}
    assert wrong.keys() == known, wrong
    left = {name: found.count("unresolved") for name, found in scores.items()}
    answers = sum(map(len, scores.values()))
    assert sum(left.values()) <= UNRESOLVED * answers, {name: n for name, n in left.items() if n}


def test_every_kind_of_system_is_in_the_bank():
    assert len(PROBLEMS) >= 100
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
