"""What is said of numbers and names that are nearly right."""

import os
import pty
import time

import pytest
from command import assert_refused, run

import flowsim
from flowsim.cli.output import progress
from flowsim.portraits.summaries import summarize

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


def test_a_name_of_a_model_is_guessed_in_python():
    with pytest.raises(flowsim.InputError, match="is rank-one meant"):
        flowsim.model("rank_one", 0.5, 0.8)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_help_shows_ranges_that_are_met_and_no_others(command, tmp_path):
    text = " ".join(run(command, "--help", cwd=tmp_path).stdout.split())
    assert "[default: 0.0; 0<=x<=1000.0]" in text
    assert "e+300" not in text and "1000000" not in text and "]]" not in text


def test_info_leaves_out_templates(tmp_path):
    record = flowsim.scan(
        flowsim.model("canonical", 0.5, 0.8),
        flowsim.Points(("e", "w"), [[1.0, 0.2], [1, -1], [2, 1]]),
    )
    flowsim.write_record(record, tmp_path / "a.nc")
    assert summarize(record)["dimensions"] == {"point": 3}


def test_a_terminal_without_a_width_is_answered_in_lines(monkeypatch):
    monkeypatch.setattr("flowsim.cli.output.EVERY", 0.05)
    ours, theirs = pty.openpty()  # 0 x 0, as `script` and containers make them
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with progress(8, "cells") as meter:
            meter.update(4)
            time.sleep(0.3)
    assert b"4 of 8 cells" in os.read(ours, 10_000)
