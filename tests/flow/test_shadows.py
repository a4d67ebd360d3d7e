"""Doubtful rows of smooth fields: when displaced starts confirm a label, and when they do not."""

import numpy as np
import pytest
import torch
from conftest import rows

from flowsim import (
    BinaryChain,
    InductionModel,
    Label,
    Limits,
    RankOneModel,
    Rule,
    Status,
    induction_landscape,
)
from flowsim.flow.rows import codes
from flowsim.flow.rows.kinked import kinked_models
from flowsim.flow.rows.smooth import shadows, smooth_ends
from flowsim.flow.rows.smooth.smooth_models import Followed
from flowsim.models.uniform.model import AttentionModel

MODEL = AttentionModel(BinaryChain(0.5, 0.8), 4)
START = rows((1.0, -1.0, 0.5), (0.5, 0.4, -0.3), (0.8, 0.3, 0.2))
G, B, U = Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM, Label.UNRESOLVED


def limits_of(labels, evaluations):
    label = torch.tensor([int(x) for x in labels], dtype=torch.int8)
    zero = torch.zeros(len(label), dtype=torch.float64)
    one = torch.ones_like(label)
    spent = torch.full(label.shape, evaluations)
    return Limits(torch.zeros(len(label), 3).double(), label, one, one, zero, zero, spent)


class Script:
    """Answers in the place of ``_follow``: labels of the rows asked for, and which are near."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, model, start, rtol, atol, max_steps):
        labels, near, evaluations = self.answers.pop(0)
        self.asked.append((start, rtol, atol))
        return limits_of(labels, evaluations), torch.tensor(near)


def decided(monkeypatch, *answers, rtol=1e-8, atol=1e-10):
    script = Script(*answers)
    monkeypatch.setattr(shadows, "limits_and_doubt", script)
    (found,) = shadows.smooth_limits(MODEL, START, rtol, atol, 1000)
    assert not script.answers
    return found, script.asked


def test_rows_without_doubt_are_followed_once(monkeypatch):
    found, asked = decided(monkeypatch, ([G, B, U], [False] * 3, 10))
    assert found.label.tolist() == [G, B, U] and len(asked) == 1
    assert found.evaluations.tolist() == [10] * 3


@pytest.mark.parametrize("rtol, atol, finer", [(1e-8, 1e-10, (1e-9, 1e-11)),
                                               (1e-12, 1e-13, (1e-12, 1e-13))])  # fmt: skip
def test_a_doubtful_row_has_the_label_of_the_finer_orbit(monkeypatch, rtol, atol, finer):
    found, asked = decided(
        monkeypatch, ([G, B, G], [False, True, False], 10), ([G], [False], 30), rtol=rtol, atol=atol
    )
    assert found.label.tolist() == [G, G, G] and found.evaluations.tolist() == [10, 40, 10]
    assert torch.equal(asked[1][0], START[1:2])
    assert asked[1][1:] == pytest.approx(finer, rel=1e-12)


@pytest.mark.parametrize("others, kept", [
    ([B] * 6, True), ([B, B, B, U, U, U], True), ([B, B, U, U, U, U], False),
    ([B, B, B, B, B, G], False),
])  # fmt: skip
def test_no_shadow_may_end_elsewhere_and_half_must_be_decided(monkeypatch, others, kept):
    doubt = ([G, B, G], [True, True, False], 10)
    # of both doubtful rows the second is near again; its six shadows follow
    found, asked = decided(monkeypatch, doubt, ([G, B], [False, True], 30), (others, [True] * 6, 5))
    assert found.label.tolist() == [G, B if kept else U, G]
    assert found.rule.tolist() == [1, Rule.SHADOWS if kept else Rule.NONE, 1]
    assert found.evaluations.tolist() == [40, 70, 10]
    displaced, *tolerances = asked[2]
    assert tolerances == list(asked[1][1:]) and displaced.shape == (6, 3)


def test_displaced_starts_lie_on_both_sides_of_every_coordinate():
    moved = shadows.displace(MODEL, START, 1e-3) - START
    assert moved.shape == (6, 3, 3)
    torch.testing.assert_close(moved[:3], -moved[3:], rtol=1e-9, atol=0)
    size = torch.stack([START[:, 0].abs(), START[:, 1].abs(), torch.ones(3).double()], 1)
    expected = torch.stack([along * 1e-3 * size for along in torch.eye(3).double()])
    torch.testing.assert_close(moved[:3], expected, rtol=1e-9, atol=1e-15)


def test_of_many_coordinates_four_diagonals_do():
    model = RankOneModel(BinaryChain(0.5, 0.8), 6, attention=True)
    centre = torch.zeros(1, len(model.coordinates), dtype=torch.float64)
    moved = shadows.displace(model, centre, 0.5)[:, 0]
    assert moved.shape[0] == 8 and torch.equal(moved.abs(), torch.full_like(moved, 0.5))
    assert torch.equal(moved[:4], -moved[4:]) and len({tuple(row.tolist()) for row in moved}) == 8


def followed(model, why, slowest, dip):
    """What the compiled loop may have found of rows that ended for these reasons."""
    n, k = len(why), len(model.coordinates)
    one = torch.ones(n, dtype=torch.float64)
    theta, path = torch.ones(n, k, dtype=torch.float64), torch.zeros(n, 0, k)
    slow, narrow = (torch.tensor(x, dtype=torch.float64) for x in (slowest, dip))
    loss = one * float(model.plateau) - 1e-3 if hasattr(model, "plateau") else one
    return Followed(theta, torch.tensor(why), one.long(), one, slow, narrow, loss, one, path)


def test_decided_rows_that_passed_a_saddle_slowly_are_in_doubt(monkeypatch):
    """Of uniform attention the passage counts, of trapped rows the slowest of all."""
    law = MODEL.chain.stationary
    limit = 2e-3 * law[0] * law[1] * abs(MODEL.chain.second_eigenvalue)
    below, above = 0.9 * limit, 1.1 * limit
    cases = [  # why, slowest, dip, in doubt
        (codes.MINIMA, below, below, True), (codes.MINIMA, below, above, False),
        (codes.TRAPPED, below, above, True), (codes.TRAPPED, above, below, False),
        (codes.OUT_OF_STEPS, below, below, False), (codes.CRITICAL, below, below, False),
    ]  # fmt: skip
    why, slowest, dip, expected = zip(*cases, strict=True)
    found = followed(MODEL, why, slowest, dip)
    monkeypatch.setattr(smooth_ends, "follow_smooth", lambda *given: found)
    start = torch.tensor([[0.0, -0.5, 0.2]]).double().expand(len(cases), 3).clone()
    ends = smooth_ends.smooth_ends(MODEL, start, 1e-8, 1e-10, 100)
    assert ends.doubtful.tolist() == list(expected)
    statuses = [Status.CONVERGED] * 4 + [Status.TIMED_OUT, Status.CONVERGED]
    assert ends.status.tolist() == statuses and ends.evaluations.tolist() == [9] * 6
    assert ends.label.tolist()[:5] == [G, G, B, B, U]


def test_rows_of_the_induction_model_are_in_doubt_in_parts_of_their_drop(monkeypatch):
    model = InductionModel(5)
    landscape = induction_landscape(model)
    drop = landscape.plateau - landscape.ends[1].loss
    dips = [0.9e-4 * drop, 1.1e-4 * drop, 0.9e-4 * drop]
    found = followed(model, [codes.FELL, codes.FELL, codes.OUT_OF_STEPS], dips, dips)
    monkeypatch.setattr(smooth_ends, "follow_smooth", lambda *given: found)
    ends = smooth_ends.smooth_ends(model, torch.ones(3, 2).double(), 1e-8, 1e-10, 100)
    assert ends.doubtful.tolist() == [True, False, False]


def kinked(why, narrow, centre, attempts=7):
    n = len(why)
    clocks = np.array([[1.0, 0.5, a, b] for a, b in zip(narrow, centre, strict=True)])
    counts = np.tile([attempts, 2, 0], (n, 1))
    parts = np.full((n, 5), 0.5), np.zeros((n, 5)), np.zeros((n, 0, 5))
    return kinked_models.Found(*parts, np.array(why), counts, clocks)


def test_rows_that_pass_a_kinked_saddle_narrowly_are_followed_more_finely(monkeypatch):
    model = RankOneModel(BinaryChain(0.5, 0.8), 4)
    minima, trapped, none = codes.MINIMA, codes.TRAPPED, codes.OUT_OF_STEPS
    narrow, wide = 0.9 * (1e3 * 1e-8) ** 0.5, 1.1 * (1e3 * 1e-8) ** 0.5
    central = [1, 1, 0.009, 0.0, 1, 0.011]
    ends = [minima, minima, trapped, none, trapped, minima]
    first = kinked(ends, [narrow, wide, wide, narrow, narrow, wide], central)
    finest = (1e3 * 1e-12) ** 0.5  # again narrow; central and otherwise; narrow no more
    again = kinked([minima, minima, trapped], [0.9 * finest, 1, 1.1 * finest], [1, 0.009, 1], 11)
    asked = []

    def follow(model, rows, rtol, most):
        asked.append((rows[:, 0].tolist(), rtol, most))
        return first if len(asked) == 1 else again

    monkeypatch.setattr(kinked_models, "follow_rows", follow)
    start = torch.arange(1.0, 7.0, dtype=torch.float64)[:, None].expand(6, 5)
    (found,) = kinked_models.rank_one_limits(model, start, 1e-8, 100)
    assert [a[0] for a in asked] == [[1, 2, 3, 4, 5, 6], [1, 3, 5]]
    assert asked[1][1:] == (pytest.approx(1e-12, rel=1e-12), 500)
    assert found.label.tolist() == [U, G, U, U, B, G]
    assert found.evaluations.tolist() == [1 + 9 * n for n in (18, 7, 18, 7, 18, 7)]
    assert found.kinks.tolist() == [2] * 6 and found.sliding_time.tolist() == [0.5] * 6
    asked.clear()
    list(kinked_models.rank_one_limits(model, start, 1e-13, 100))
    assert len(asked) == 1  # no finer tolerance is left
