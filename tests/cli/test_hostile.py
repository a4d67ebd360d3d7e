"""Names that no file has, and bytes that are no text; values in general: ``fuzz``."""

import pytest
from command import assert_refused, run

from flowsim import read_record

CHAIN = ["--p", "0.5", "--q", "0.8"]


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


@pytest.mark.parametrize("name", ["", "/"])
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
