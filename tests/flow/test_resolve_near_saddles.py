"""Doubtful rows: which they are, and when a finer orbit or displaced starts confirm a label."""

import pytest
import torch
from conftest import rows

from flowsim import (
    BinaryChain,
    Label,
    Rule,
    Status,
)
from flowsim.flow import near_saddles
from flowsim.flow import return_codes as codes
from flowsim.flow.labelling import EndStates, in_doubt, label_ends
from flowsim.flow.options import Steps
from flowsim.flow.rows import engine
from flowsim.flow.rows.engine import Followed
from flowsim.models import (
    InductionModel,
    RankOneModel,
    UniformAttentionModel,
    induction_landscape,
)

MODEL = UniformAttentionModel(BinaryChain(0.5, 0.8), 4)
START = rows((1.0, -1.0, 0.5), (0.5, 0.4, -0.3), (0.8, 0.3, 0.2))
G, B, U = Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM, Label.UNRESOLVED


def states_of(labels, near, evaluations):
    reasons = {G: codes.MINIMA, B: codes.DRIFTS, U: codes.GOING}
    why = torch.tensor([reasons[x] for x in labels])
    zero = torch.zeros(len(why), dtype=torch.float64)
    status, spent = torch.ones_like(why, dtype=torch.int8), torch.full(why.shape, evaluations)
    theta = torch.zeros(len(why), 3).double()
    near = torch.where(torch.tensor(near), codes.NEAR, codes.FAR)
    return EndStates.of(theta, why, status, zero, zero, spent, near)


class Script:
    """Answers in the place of an engine: labels of the rows asked for, and which are near."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, start, steps):
        self.asked.append((start, *steps[:2]))
        return states_of(*self.answers.pop(0))


def decided(*answers, rtol=1e-8, atol=1e-10, finer=0.1):
    script = Script(*answers)
    steps = Steps(rtol, atol, 1000)
    found = near_saddles.resolve_near_saddles(script, MODEL, START, steps, steps.finer(finer))
    assert not script.answers
    return label_ends(MODEL, found), script.asked


def test_rows_without_doubt_are_followed_once():
    found, asked = decided(([G, B, U], [False] * 3, 10))
    assert found.label.tolist() == [G, B, U] and len(asked) == 1
    assert found.evaluations.tolist() == [10] * 3


@pytest.mark.parametrize("rtol, atol, finer, again", [
    (1e-8, 1e-10, 0.1, (1e-9, 1e-11)), (2e-12, 1e-13, 0.1, (1e-12, 1e-13)),
    (1e-8, 1e-10, 1e-4, (1e-12, 1e-13)), (1e-10, 1e-10, 1e-4, (1e-12, 1e-13)),
])  # fmt: skip
def test_a_doubtful_row_has_the_label_of_the_finer_orbit(rtol, atol, finer, again):
    found, asked = decided(
        ([G, B, G], [False, True, False], 10), ([G], [False], 30),
        rtol=rtol, atol=atol, finer=finer,
    )  # fmt: skip
    assert found.label.tolist() == [G, G, G] and found.evaluations.tolist() == [10, 40, 10]
    assert torch.equal(asked[1][0], START[1:2])
    assert asked[1][1:3] == pytest.approx(again, rel=1e-12)


def test_a_row_that_was_followed_as_finely_as_can_be_is_not_followed_again():
    found, asked = decided(([G, B, G], [False, True, False], 10), rtol=1e-12, atol=1e-13)
    assert len(asked) == 1 and found.label.tolist() == [G, B, G]


@pytest.mark.parametrize("others, kept", [
    ([B] * 6, True), ([B, B, B, U, U, U], True), ([B, B, U, U, U, U], False),
    ([B, B, B, B, B, G], False),
])  # fmt: skip
def test_no_displaced_start_may_end_elsewhere_and_half_must_be_decided(others, kept):
    first = ([G, B, G], [True, True, False], 10)
    # of both doubtful rows the second is near again; its six neighbours follow
    found, asked = decided(first, ([G, B], [False, True], 30), (others, [True] * 6, 5))
    assert found.label.tolist() == [G, B if kept else U, G]
    reached = Rule.REACHED_MINIMA
    assert found.rule.tolist() == [reached, Rule.SHADOWS if kept else Rule.NONE, reached]
    assert found.evaluations.tolist() == [40, 70, 10]
    displaced, *tolerances = asked[2]
    assert tolerances == list(asked[1][1:3]) and displaced.shape == (6, 3)


def test_displaced_starts_lie_on_both_sides_of_every_coordinate():
    moved = near_saddles.displace(MODEL, START, 1e-3) - START
    assert moved.shape == (6, 3, 3)
    torch.testing.assert_close(moved[:3], -moved[3:], rtol=1e-9, atol=0)
    size = torch.stack([START[:, 0].abs(), START[:, 1].abs(), torch.ones(3).double()], 1)
    expected = torch.stack([along * 1e-3 * size for along in torch.eye(3).double()])
    torch.testing.assert_close(moved[:3], expected, rtol=1e-9, atol=1e-15)


def test_of_many_coordinates_four_diagonals_do():
    model = RankOneModel(BinaryChain(0.5, 0.8), 6, attention=True)
    centre = torch.zeros(1, len(model.coordinates), dtype=torch.float64)
    moved = near_saddles.displace(model, centre, 0.5)[:, 0]
    assert moved.shape[0] == 8 and torch.equal(moved.abs(), torch.full_like(moved, 0.5))
    assert torch.equal(moved[:4], -moved[4:]) and len({tuple(row.tolist()) for row in moved}) == 8


def followed(model, why, slowest=1.0, passed=1.0, near=(1.0, 1.0), attempts=1):
    """What the compiled loop may have found of rows that ended for these reasons."""
    n, k = len(why), len(model.coordinates)

    def column(values):
        return torch.as_tensor(values, dtype=torch.float64).expand(n).clone()

    loss = 1.0 if model.end_losses() is not None else model.plateau - 1e-3
    return Followed(
        torch.full((n, k), 0.5, dtype=torch.float64), torch.tensor(why), column(attempts).long(),
        column(2).long(), column(1), column(0.5), column(slowest), column(passed), column(loss),
        column(1), torch.zeros(n, 0, k), torch.stack([column(x) for x in near], dim=1),
    )  # fmt: skip


def once(model, start, monkeypatch, found):
    """The limits of rows that are followed once, and which of them are in doubt."""
    monkeypatch.setattr(engine, "follow_rows", lambda *given: found)
    states = model.flow().follow(start, Steps(1e-8, 1e-10, 100))
    limits = label_ends(model, states)
    return limits, in_doubt(states, limits.label, None)


def test_decided_rows_that_passed_a_saddle_slowly_are_in_doubt(monkeypatch):
    """Of uniform attention the passage counts, of trapped rows the slowest of all."""
    law = MODEL.chain.stationary
    limit = 2e-3 * law[0] * law[1] * abs(MODEL.chain.second_eigenvalue)
    below, above = 0.9 * limit, 1.1 * limit
    cases = [  # why, slowest, passed, in doubt
        (codes.MINIMA, below, below, True), (codes.MINIMA, below, above, False),
        (codes.TRAPPED, below, above, True), (codes.TRAPPED, above, below, False),
        (codes.OUT_OF_STEPS, below, below, False), (codes.CRITICAL, below, below, False),
    ]  # fmt: skip
    why, slowest, passed, expected = zip(*cases, strict=True)
    found = followed(MODEL, why, slowest, passed)
    start = torch.tensor([[0.0, -0.5, 0.2]]).double().expand(len(cases), 3).clone()
    limits, doubtful = once(MODEL, start, monkeypatch, found)
    assert doubtful.tolist() == list(expected)
    statuses = [Status.CONVERGED] * 4 + [Status.TIMED_OUT, Status.CONVERGED]
    assert limits.status.tolist() == statuses and limits.evaluations.tolist() == [10] * 6
    assert limits.label.tolist()[:5] == [G, G, B, B, U]
    rules = [Rule.REACHED_MINIMA] * 2 + [Rule.TRAPPED_BY_PLANE] * 2 + [Rule.NONE]
    assert limits.rule.tolist()[:5] == rules


def test_with_attention_rank_one_rows_are_in_doubt_where_they_passed_more_slowly(monkeypatch):
    model = RankOneModel(BinaryChain(0.5, 0.8), 2, attention=True)
    limit = 1e-4 * model.end_losses().speed
    passed = [0.9 * limit, 1.1 * limit, 0.9 * limit]
    found = followed(model, [codes.MINIMA, codes.MINIMA, codes.OUT_OF_STEPS], 0.0, passed)
    start = torch.ones(3, len(model.coordinates), dtype=torch.float64)
    _, doubtful = once(model, start, monkeypatch, found)
    assert doubtful.tolist() == [True, False, False]


def test_rows_of_the_induction_model_are_in_doubt_in_parts_of_their_drop(monkeypatch):
    model = InductionModel(5)
    landscape = induction_landscape(model)
    drop = landscape.plateau - landscape.ends[1].loss
    passed = [0.9e-4 * drop, 1.1e-4 * drop, 0.9e-4 * drop]
    found = followed(
        model,
        [codes.BELOW_PLATEAU, codes.BELOW_PLATEAU, codes.OUT_OF_STEPS],
        passed,
        passed,
    )
    start = torch.ones(3, 2).double()
    limits, doubtful = once(model, start, monkeypatch, found)
    assert doubtful.tolist() == [True, False, False]
    best = G if landscape.best == 1 else B
    assert limits.label.tolist() == [best, best, U]
    assert limits.status.tolist() == [Status.CONVERGED] * 2 + [Status.TIMED_OUT]


@pytest.mark.parametrize("tied", [True, False])
def test_rows_that_pass_a_kinked_saddle_narrowly_are_followed_more_finely(monkeypatch, tied):
    model = RankOneModel(BinaryChain(0.5, 0.8), 4, tied=tied)
    minima, trapped, none = codes.MINIMA, codes.TRAPPED, codes.OUT_OF_STEPS
    narrow, wide = 0.9 * (1e3 * 1e-8) ** 0.5, 1.1 * (1e3 * 1e-8) ** 0.5
    central = [1, 1, 0.009, 0.0, 1, 0.011]
    why = [minima, minima, trapped, none, trapped, minima]
    passages = [narrow, wide, wide, narrow, narrow, wide], central
    finest = (1e3 * 1e-12) ** 0.5  # again narrow; central and otherwise; narrow no more
    closer = [0.9 * finest, 1, 1.1 * finest], [1, 0.009, 1]
    others = [minima, trapped] * 10  # the neighbours of the first two disagree
    answers = [followed(model, why, near=passages, attempts=7),
               followed(model, [minima, minima, trapped], near=closer, attempts=11),
               followed(model, others, attempts=2)]  # fmt: skip
    asked = []

    def follow(model, half, start, steps):
        asked.append((start[:, 0].tolist(), steps.rtol, steps.most))
        return answers[len(asked) - 1]

    monkeypatch.setattr(engine, "follow_rows", follow)
    count = len(model.coordinates)
    start = torch.arange(1.0, 7.0, dtype=torch.float64)[:, None].expand(6, count)
    (states,) = model.flow().ends(start, Steps(1e-8, 1e-10, 100))
    found = label_ends(model, states)
    assert found.kinks.tolist() == [2] * 6 and found.sliding_time.tolist() == [0.5] * 6
    if not tied:  # whose bad minima are saddles
        assert len(asked) == 1 and found.label.tolist() == [G, G, B, U, B, G]
        return
    assert [a[0] for a in asked[:2]] == [[1, 2, 3, 4, 5, 6], [1, 3, 5]]
    assert asked[1][1:] == (pytest.approx(1e-12, rel=1e-12), 500)
    assert sorted(asked[2][0]) == pytest.approx([1.0] * 10 + [3.0] * 10)
    assert found.label.tolist() == [G, G, U, U, B, G]
    assert found.rule.tolist()[:3] == [Rule.SHADOWS, Rule.REACHED_MINIMA, Rule.NONE]
    evaluations = [1 + 9 * 7] * 6
    for i, more in ((0, 10), (2, 10), (4, 0)):
        evaluations[i] += 1 + 9 * 11 + more * (1 + 9 * 2)
    assert found.evaluations.tolist() == evaluations
