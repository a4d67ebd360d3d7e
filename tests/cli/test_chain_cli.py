"""``flowsim chain``: its numbers are those of the library, and bad kernels are one sentence."""

import json

import pytest
from command import assert_refused, run

from flowsim import BinaryChain, MarkovChain

KERNELS = {
    "sum.csv": ("0.5,0.6\n0.5,0.5\n", "row 0 sums to 1.1"),
    "negative.csv": ("1.5,-0.5\n0.5,0.5\n", "column 1 is -0.5"),
    "oblong.csv": ("0.5,0.5\n", "square"),
    "ragged.csv": ("0.5,0.5\n1\n", "one length"),
    "words.csv": ("a,b\n", "not numbers with commas"),
    "empty.csv": ("", "square"),
    "parted.csv": ("1,0\n0,1\n", "reducible"),
}


def test_the_chains_of_the_options(tmp_path):
    (tmp_path / "kernel.csv").write_text("0.5, 0.3, 0.2\n\n0.1,0.6,0.3\n3e-1,0.3,0.4\n")
    kernel = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]]
    for words, chain, threshold in (
        (["--p", "0.5", "--q", "0.8"], BinaryChain(0.5, 0.8), "p + q = 1"),
        (["--states", "5", "--p", "0.9"], MarkovChain.symmetric(5, 0.9), "p = 4/5"),
        (["--kernel", "kernel.csv"], MarkovChain(kernel), None),
    ):
        found = json.loads(run("chain", *words, "--json", cwd=tmp_path).stdout)
        for name in ("states", "entropy_rate", "second_eigenvalue", "regime", "unigram"):
            assert found[name] == getattr(chain, name)
        assert found["stationary"] == list(chain.stationary)
        assert found["ngram_losses"]["1"] == chain.stationary_entropy
        assert found["threshold"] == threshold
        said = run("chain", *words, cwd=tmp_path).stdout
        assert f"{chain.entropy_rate:.6f} nats" in said and chain.unigram in said


def test_complex_eigenvalues_and_periods_are_said(tmp_path):
    (tmp_path / "cycle.csv").write_text("0,1,0\n0,0,1\n1,0,0\n")
    said = run("chain", "--kernel", "cycle.csv", cwd=tmp_path).stdout
    assert "period 3" in said and "-0.5 ± 0.866025 i" in said
    found = json.loads(run("chain", "--kernel", "cycle.csv", "--json", cwd=tmp_path).stdout)
    assert found["second_eigenvalue"] == pytest.approx([-0.5, 3**0.5 / 2])


@pytest.mark.parametrize("name", KERNELS)
def test_bad_kernels_are_one_sentence(tmp_path, name):
    text, words = KERNELS[name]
    (tmp_path / name).write_text(text)
    assert_refused(run("chain", "--kernel", name, cwd=tmp_path), words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kernel", "none.csv"], "no such file"),
        (["--kernel", "."], "is no file"),
        (["--kernel", "none.csv", "--p", "0.5"], "omit --states, --p and --q"),
        (["--states", "3"], "needs --p"),
        (["--states", "1", "--p", "0.5"], "from 2 to"),
        (["--states", "3", "--p", "0.5", "--q", "0.5"], "omit --q"),
        (["--p", "0.5"], "--p and --q are needed"),
    ],
)
def test_options_that_describe_no_chain(tmp_path, words, said):
    assert_refused(run("chain", *words, cwd=tmp_path), said)
