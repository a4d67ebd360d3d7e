"""Command lines that nobody thought of: one sentence or a result, and nothing else is touched."""

import os
import random
import re
import shutil
import signal
import threading
import time

import pytest
from command import run
from fuzz.grammar import COMMANDS, SMALL, line

CODES = {0, 2, 3, 4, 130}
#: Seconds after which a line, all of whose sizes are small, counts as one without an end; the first
#: of a kind compiles.
BOUND = 180


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with two files of the user's, a folder, a link in a circle, an unwritable place."""
    folder = tmp_path_factory.mktemp("user")
    done = run("portrait", "--p", "0.5", "--q", "0.8", "--resolution", "6", "--confirm", "2",
               "--out", "kept.png", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "points.csv").write_text("e,w\n1,-1\n0.5,0.2\n")
    (folder / "kernel.csv").write_text("0.7,0.3\n0.6,0.4\n")
    (folder / "second.csv").write_text("0.7,0.3\n0.6,0.4\n0.2,0.8\n0.5,0.5\n")
    (folder / "folder").mkdir()
    (folder / "circle").symlink_to("circle")
    (folder / "readonly").mkdir(mode=0o500)
    return folder


def content(folder):
    """Every path below a folder, with size and time of change."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            state = os.lstat(path)
            changed = None if name in folders else (state.st_size, state.st_mtime_ns)
            found[os.path.relpath(path, folder)] = changed
    return found


def attack(kept, tmp_path, lines):
    """Run every line in a copy of the user's folder and hold what must hold of all of them."""
    assert threading.current_thread() is threading.main_thread()
    codes = dict.fromkeys(CODES, 0)
    place, fresh = tmp_path / "here", True
    before = {}
    for words in lines:
        if fresh:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(kept, place, symlinks=True)
            before = content(place)
        limit = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("no end"))
        signal.alarm(BOUND)
        began = time.monotonic()
        try:
            done = run(*words, cwd=place)
        except BaseException as error:
            raise AssertionError(f"{words}: {error!r}") from error
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, limit)
        assert done.returncode in CODES, (words, done)
        codes[done.returncode] += 1
        assert "Traceback" not in done.stderr, (words, done.stderr)
        after = content(place)
        records = re.findall("the record is kept in '(.+)'", done.stderr)
        if done.returncode == 2:
            assert done.stderr.startswith("flowsim: ") and done.stderr.count("\n") == 1, (
                words, done.stderr)  # fmt: skip
            assert len(done.stderr) < 700, (words, done.stderr)
            for name in records:  # they outlive a figure that cannot be drawn
                after.pop(name)
            assert after == before, (words, set(after) ^ set(before))
        elif "--overwrite" not in words:
            assert {name: after.get(name) for name in before} == before, words
        fresh = after != before or bool(records)
        assert time.monotonic() - began < BOUND, words
    return codes


@pytest.mark.parametrize(
    ("seed", "count"),
    [(20, 25), pytest.param(0, 250, marks=[pytest.mark.slow, pytest.mark.turns])],
)
def test_broken_lines(kept, tmp_path, seed, count):
    draw = random.Random(seed)
    codes = attack(kept, tmp_path, [line(draw, broken=True) for _ in range(count)])
    assert codes[2] > 0.7 * count


@pytest.mark.slow
@pytest.mark.turns
def test_lines_that_may_run(kept, tmp_path):
    draw = random.Random(101)
    codes = attack(kept, tmp_path, [line(draw, broken=False) for _ in range(50)])
    assert codes[0] + codes[3] > 2 and codes[2] > 5


def test_every_command_but_the_server_has_small_sizes():
    assert set(COMMANDS) - set(SMALL) <= {"explore"}
