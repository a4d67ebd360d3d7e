"""Sizes that no memory or time holds, and chains next to 0 and 1: one sentence each, at once."""

import time

import pytest
from command import assert_refused, run

CHAIN = ["--p", "0.5", "--q", "0.8"]
TRAINED = ["--model", "rank-one", "--optimizer", "adamw", "--steps", "2", "--length", "1000000",
           "--batch", "1000000"]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", *CHAIN, "--batch", "1000000000000"], "--batch"),
        (["train", *CHAIN, "--seeds", "1000000", "--d", "512"], "GiB"),
        (["train", *CHAIN, "--layers", "1000", "--d", "8000"], "GiB"),
        (["train", *CHAIN, "--steps", "1000000000000"], "--steps"),
        (["train", *CHAIN, "--length", "1000000000"], "GiB"),
        (["verify", *CHAIN, "--d", "100000"], "GiB"),
        (["verify", *CHAIN, "--length", "4096"], "10^1233"),
        (["compare", *CHAIN, "--length", "999999999"], "GiB"),
        (["compare", *CHAIN, "--cloud", "100000000", "--sigma", "1"], "at most"),
        (["compare", *CHAIN, "--model", "rank-one", "--grid", "2x1", "--trainer", "sgd",
          "--batch", "1000000000", "--d", "2", "--length", "2"], "--batch"),
        (["scan", *CHAIN, *TRAINED, "--grid", "2x2"], "--batch"),
        (["portrait", *CHAIN, *TRAINED, "--resolution", "2"], "--batch"),
        (["gaussian", *CHAIN, *TRAINED, "--samples", "2", "--sigma", "1"], "--batch"),
        (["chain", "--prior", "dirichlet", "--states", "2000", "--length", "1000000"],
         "10^1086419"),
        (["portrait", "--model", "states", "--attention", "--states", "1000", "--p", "0.9",
          "--length", "1000000", "--fix", "v=0.5"], "different pasts"),
        (["scan", *CHAIN, "--cloud", "1000000000000", "--sigma", "1"], "GiB"),
        (["portrait", *CHAIN, "--model", "uniform", "--length", "1000000"], "GiB"),
        (["gaussian", *CHAIN, "--samples", "1000000", "--sigma", "0.1:1:1000"], "at most"),
    ],
    ids=lambda value: " ".join(value[5:])[:40] if isinstance(value, list) else "",
)  # fmt: skip
def test_too_large_is_one_sentence(tmp_path, words, said):
    began = time.process_time()
    assert_refused(run(*words, cwd=tmp_path), said)
    assert time.process_time() - began < 10, "torch and all are imported in less"
    assert list(tmp_path.iterdir()) == []


NEAR = ["5e-324", "1e-13", "0.9999999999999999"]


@pytest.mark.parametrize("value", NEAR)
@pytest.mark.parametrize("command", ["portrait", "scan", "gaussian", "compare", "train", "verify"])
def test_chains_nearer_to_0_or_1_than_float64_can_tell_are_refused(tmp_path, command, value):
    for words in (["--p", "0.5", "--q", value], ["--p", value, "--q", value]):
        done = run(command, *words, cwd=tmp_path)
        assert_refused(done, "strictly between 0 and 1, by at least 1e-12")
        assert list(tmp_path.iterdir()) == []


NEARLY = "0.999999999999"


@pytest.mark.slow
@pytest.mark.parametrize(("p", "q"), [(NEARLY, "0.999999999"), ("1e-12", NEARLY)])
def test_chains_near_0_and_1_are_followed(tmp_path, p, q):
    """Every command ends well, with words on stderr only where it says why not."""
    chain = ["--p", p, "--q", q, "--quiet"]
    for words in (
        ["portrait", *chain, "--resolution", "6", "--out", "a.png"],
        ["scan", *chain, "--grid", "4x4", "--fraction", "0.1", "--out", "b.nc"],
        ["gaussian", *chain, "--sigma", "0.5:2:2", "--samples", "20", "--out", "c.png"],
        ["train", *chain, "--trainer", "gd", "--d", "2", "--length", "3", "--steps", "3"],
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode in (0, 3), (words, done.stderr)
        assert done.stderr == ""
