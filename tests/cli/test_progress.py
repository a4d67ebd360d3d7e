"""Progress: a bar on a terminal, plain lines elsewhere, nothing if quiet."""

import io
import os
import pty
import subprocess
import time

import numpy as np
import pytest
from command import FLOWSIM, interrupted, run

from flowsim.cli import output as shown
from flowsim.cli.output import Meter, progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_says_how_much_how_long_and_how_much_longer():
    meter = Meter(200, "runs")
    assert meter.line(3) == "0 of 200 runs, 3 s"
    meter.update(50, "loss 0.6")
    assert meter.line(30) == "50 of 200 runs, 30 s, about 90 s left; loss 0.6"
    meter.update(150)
    assert meter.line(600) == "150 of 200 runs, 10.0 min, about 3.3 min left; loss 0.6"
    meter.advance(50)
    assert meter.line(9000) == "200 of 200 runs, 2.5 h; loss 0.6"


@pytest.mark.parametrize("words", [
    ["scan", "--model", "linear", "--grid", "4x4x2", "--out", "a.nc"],
    ["portrait", "--resolution", "8", "--confirm", "4", "--out", "a.png"],
    ["verify", "--d", "2", "--length", "2", "--seeds", "1"],
], ids=["scan", "plane", "verify"])  # fmt: skip
def test_every_stage_is_counted_to_its_end(tmp_path, monkeypatch, words):
    """Also what comes after the last cell: orbits, and the sample that is decided again."""
    counted = {}

    class Seen(Meter):
        def update(self, done, note=None):
            super().update(done, note)
            counted[self.unit] = self.done, self.total

    monkeypatch.setattr(shown, "Meter", Seen)
    done = run(*words, "--p", "0.5", "--q", "0.8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(done == total > 0 for done, total in counted.values()), counted
    scanned = ["points", "points checked by torchdiffeq", "points written"]
    stages = {"scan": scanned, "verify": ["groups of claims"]}
    plane = ["cells", "orbits", "cells checked by torchdiffeq"]
    assert list(counted) == stages.get(words[0], plane)


def test_labels_are_counted_by_name():
    meter = Meter(6, "points")
    meter.labels(np.array([1, 2, 1], np.int8), {1: "minima", 2: "trapped", 0: "unresolved"})
    meter.labels(np.array([1, 0], np.int8), {1: "minima", 2: "trapped", 0: "unresolved"})
    assert meter.done == 5
    assert meter.message == "minima=3, trapped=1, unresolved=1"


def test_plain_lines_appear_without_a_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(shown, "EVERY", 0.01)
    with progress(100, "cells") as meter:
        meter.advance(25)
        deadline = time.monotonic() + 60
        while "left" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    line = stream.getvalue().splitlines()[-1]
    assert line.startswith("flowsim: 25 of 100 cells, ")
    assert "\r" not in stream.getvalue()
    after = stream.getvalue()
    time.sleep(0.05)
    assert stream.getvalue() == after


def test_a_bar_appears_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    with progress(100, "cells") as meter:
        time.sleep(0.7)
        meter.update(50, "minima=7")
        time.sleep(0.2)
        meter.update(100)
    assert "/100" in terminal.getvalue() and "minima=7" in terminal.getvalue()


def test_a_terminal_without_a_width_is_answered_in_lines(monkeypatch):
    monkeypatch.setattr(shown, "EVERY", 0.05)
    ours, theirs = pty.openpty()  # 0 x 0, as `script` and containers make them
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with progress(8, "cells") as meter:
            meter.update(4)
            time.sleep(0.3)
    assert b"4 of 8 cells" in os.read(ours, 10_000)


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_nothing_appears_if_quiet(monkeypatch, stream):
    stderr = stream()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(shown, "EVERY", 0.01)
    with progress(100, "cells", quiet=True) as meter:
        meter.advance(50)
        time.sleep(0.05)
    assert stderr.getvalue() == ""


CHAIN = ["--p", "0.5", "--q", "0.8", "--out", "a.nc"]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "when", "said", "left"), [
    (["scan", *CHAIN, "--grid", "800x800"], "minima=",
     ["trapped=", "points/s", "/640", "interrupted; what is finished is kept", "--resume"],
     ["a.nc.parts"]),
    (["scan", *CHAIN, "--grid", "48x48", "--refine", "9"], " starts/s",
     ["the scan is whole in 'a.nc'"], ["a.nc"]),
    (["train", *CHAIN, "--d", "4", "--length", "6", "--steps", "100000"], "loss 0.",
     ["unigram 0.6663 least 0.6190"], ["a.safetensors"]),
], ids=["scan", "boundary", "train"])  # fmt: skip
def test_ctrl_c_on_a_terminal_keeps_what_is_done(tmp_path, words, when, said, left):
    """A bar with what is done, how fast and what came out; then exit 130, and how to go on."""
    code, text = interrupted(*words, cwd=tmp_path, when=when)
    assert code == 130 and "Traceback" not in text
    assert [part for part in said if part not in text] == []
    assert [path.name for path in tmp_path.iterdir()] == left


def test_compiling_is_announced_once_and_only_where_it_happens(monkeypatch, tmp_path, caplog):
    """By numba's own event, which a function that the disk holds does not cause."""
    from flowsim import compiled

    def twice(x):
        return 2 * x

    monkeypatch.setattr(compiled.config, "CACHE_DIR", str(tmp_path))
    compiled.code_folder.cache_clear()
    try:
        for expected in (1, 0):
            monkeypatch.setattr(compiled.COMPILATION, "logged", False)
            caplog.clear()
            with caplog.at_level("INFO", "flowsim"):
                function = compiled.compiled(twice)
                assert (function(3), function(3.5)) == (6, 7.0)
            assert caplog.text.count("compiling the integrator") == expected
    finally:
        compiled.code_folder.cache_clear()


@pytest.mark.slow
@pytest.mark.turns
def test_a_fresh_machine_is_told_that_code_is_compiled(tmp_path):
    scan = [FLOWSIM, "scan", "--p", "0.5", "--q", "0.8", "--grid", "2x2", "--overwrite"]
    fresh = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for words, lines in ((scan, 1), (scan, 0)):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=fresh)
        assert done.returncode in (0, 3), done.stderr
        assert done.stderr.count("compiling the integrator, once on this machine") == lines
