"""Doubtful rows: which they are, and when a finer orbit or displaced starts confirm a label."""

import pytest
import torch
from conftest import rows

from flowsim import BinaryChain, Label, Rule
from flowsim.flow import near_saddles
from flowsim.flow import return_codes as codes
from flowsim.flow.labelling import EndStates, label_ends
from flowsim.flow.options import Steps
from flowsim.models import RankOneModel, UniformAttentionModel

MODEL = UniformAttentionModel(BinaryChain(0.5, 0.8), 4)
START = rows((1.0, -1.0, 0.5), (0.5, 0.4, -0.3), (0.8, 0.3, 0.2))
G, B, U = Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM, Label.UNRESOLVED


def states_of(labels, near, evaluations):
    reasons = {G: codes.MINIMA, B: codes.DRIFTS, U: codes.GOING}
    why = torch.tensor([reasons[x] for x in labels])
    zero = torch.zeros(len(why), dtype=torch.float64)
    spent = torch.full(why.shape, evaluations)
    theta = torch.zeros(len(why), 3).double()
    near = torch.where(torch.tensor(near), codes.NEAR, codes.FAR)
    return EndStates.of(theta, why, zero, zero, spent, near)


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
    found = near_saddles.resolve_near_saddles(
        script, MODEL, START, steps, steps.finer(finer), once=False
    )
    assert not script.answers
    return label_ends(MODEL, found), script.asked


def test_rows_without_doubt_are_followed_once():
    found, asked = decided(([G, B, U], [False] * 3, 10))
    assert found.label.tolist() == [G, B, U] and len(asked) == 1
    assert found.evaluations.tolist() == [10] * 3


def test_no_row_is_followed_again_with_the_same_errors():
    _, asked = decided(([G, B, U], [True] * 3, 10), finer=1.0)
    assert len(asked) == 1


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
