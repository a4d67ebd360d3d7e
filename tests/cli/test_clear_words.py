"""What is said of numbers and names that are nearly right."""

import os
import pty
import time

import pytest
from command import assert_refused, run

from flowsim.cli.output import progress

CHAIN = ["--p", "0.5", "--q", "0.8"]
MINE = """
import flowsim
class Well(flowsim.Model):
    coordinates = ("x", "y")
    def __init__(self, mu: float = 0.5): self.mu = mu
    def loss(self, theta): return (theta**2).sum(-1) * self.mu
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--p", "0,5", "--q", "0.8"], "a probability with a decimal point, such as 0.5"),
     (["--p", "50%", "--q", "0.8"], "a probability with a decimal point, such as 0.5"),
     ([*CHAIN, "--width", "8cm"], "must be a number, without a unit"),
     ([*CHAIN, "--model", "rank_one"], "is rank-one meant?"),
     (["--model", "mine.py:Well", "--set", "mu=abc"], "mu must be a number, as 0.5 is, not 'abc'")],
)  # fmt: skip
def test_nearly_right_words_are_answered(words, reason, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    assert_refused(run("portrait", *words, cwd=tmp_path), reason)


def test_a_terminal_without_a_width_is_answered_in_lines(monkeypatch):
    monkeypatch.setattr("flowsim.cli.output.EVERY", 0.05)
    ours, theirs = pty.openpty()  # 0 x 0, as `script` and containers make them
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with progress(8, "cells") as meter:
            meter.update(4)
            time.sleep(0.3)
    assert b"4 of 8 cells" in os.read(ours, 10_000)
