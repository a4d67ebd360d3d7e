"""Values that no option takes: the grammar comes from the options, so that new ones are covered."""

import random

import pytest
import typer.main
from command import assert_refused, run

from flowsim import read_record
from flowsim.cli.main import app

CHAIN = ["--p", "0.5", "--q", "0.8"]
HOSTILE = [
    "", " ", "nan", "inf", "-inf", "1e400", "1e-320", "-1", "０", "x" * 500, "--", "-", "e=", "=1",
    "e=1,e=2", "1:2", "1:2:3", "3:2:1", ":", "::", "4x", "x", "0x0", "a\nb", "\udcff", "/dev/full",
    "/", "..", "1_000", "uniform", "é", "\u200b", "1" * 30, "1:2:" + "9" * 5000, "e=1:2", ",",
    "1,2", "1,2,3,4", "a=0.5",
]  # fmt: skip


def lines():
    """A seeded sample of commands with one odd value, and without the q that they need."""
    source, every = random.Random(7), []
    for name, command in typer.main.get_command(app).commands.items():
        for parameter in command.params:
            option = parameter.opts[0]
            if option == "--help" or getattr(parameter, "is_flag", False):
                continue
            chain = [] if name == "info" or option == "--p" else ["--p", "0.5"]
            if name == "explore":  # which needs neither, and would listen until Ctrl-C
                chain = ["--p" if option == "--q" else "--q", "2"]
            given = [option] if option.startswith("-") else []
            every += [[name, *given, value, *chain] for value in HOSTILE]
    return source.sample(every, 300)


def test_odd_values_are_one_sentence_and_leave_nothing(tmp_path):
    for words in lines():
        done = run(*words, cwd=tmp_path)
        assert_refused(done)
        assert len(done.stderr) < 600, words
        assert list(tmp_path.iterdir()) == [], words


@pytest.mark.slow
def test_so_are_all_others(tmp_path, monkeypatch):
    monkeypatch.setattr(random.Random, "sample", lambda self, every, count: every)
    test_odd_values_are_one_sentence_and_leave_nothing(tmp_path)


def test_bytes_that_are_no_text_reach_a_record_escaped(tmp_path):
    """An option may be given twice, and its first value be anything."""
    words = ["--p", "0.5", "--q", "\udcff", "--q", "0.8", "--sigma", "1", "--samples", "5"]
    done = run("gaussian", *words, "--out", "a.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\\udcff" in read_record(tmp_path / "a.nc").attrs["command"]


FILES = [
    ["portrait", *CHAIN, "--out"], ["portrait", "--from"], ["gaussian", *CHAIN, "--out"],
    ["gaussian", "--from"], ["scan", *CHAIN, "--grid", "2x2", "--out"],
    ["scan", *CHAIN, "--points"], ["compare", *CHAIN, "--out"], ["compare", *CHAIN, "--points"],
    ["compare", "--from"], ["train", *CHAIN, "--out"], ["train", *CHAIN, "--checkpoint"],
    ["train", "--kernel"], ["train", "--prior"], ["chain", "--kernel"], ["chain", "--prior"],
    ["info"],
]  # fmt: skip


@pytest.mark.parametrize("name", ["", "/", ".."])
@pytest.mark.parametrize("words", FILES, ids=lambda words: f"{words[0]} {words[-1]}")
def test_names_that_no_file_has(tmp_path, words, name):
    assert_refused(run(*words, name, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "link"), [
    (["scan", *CHAIN, "--grid", "2x2", "--out", "a.nc"], "a.nc"),
    (["scan", *CHAIN, "--grid", "2x2", "--out", "a.nc", "--resume"], "a.nc"),
    (["portrait", *CHAIN, "--out", "a.png"], "a.png"),
    (["portrait", *CHAIN, "--out", "a.png"], "a.nc"),
    (["train", *CHAIN, "--out", "a.nc"], "a.safetensors"),
])  # fmt: skip
def test_a_link_that_leads_nowhere_is_there(tmp_path, words, link):
    (tmp_path / link).symlink_to("nowhere/x")
    assert_refused(run(*words, cwd=tmp_path), link)
    assert [path.name for path in tmp_path.iterdir()] == [link]
    assert (tmp_path / link).is_symlink()
