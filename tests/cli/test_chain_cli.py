"""``flowsim chain``: its numbers are those of the library, and bad kernels are one sentence."""

import json

import pytest
from command import assert_refused, run

from flowsim import BinaryChain, MarkovChain
from flowsim.chains import (
    DirichletPrior,
    DoublyStochasticPrior,
    MixturePrior,
    OrderChain,
    prior_losses,
)
from flowsim.chains.hidden import process

KERNELS = {
    "sum.csv": ("0.5,0.6\n0.5,0.5\n", "row 0 sums to 1.1"),
    "ragged.csv": ("0.5,0.5\n1\n", "one length"),
    "foreign.csv": ("\u0660.5,0.5\n0.5,0.5\n", "not numbers with commas"),
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
        assert f"{chain.entropy_rate:.8g}" in said and chain.unigram in said


def test_complex_eigenvalues_and_periods_are_said(tmp_path):
    (tmp_path / "cycle.csv").write_text("0,1,0\n0,0,1\n1,0,0\n")
    said = run("chain", "--kernel", "cycle.csv", cwd=tmp_path).stdout
    assert "period 3" in said and "-0.5, 0.8660254" in said
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
        (["--kernel", "none.csv", "--p", "0.5"], "omit --states, --p and --q"),
        (["--states", "3"], "needs --p"),
        (["--states", "3", "--p", "0.5", "--q", "0.5"], "omit --q"),
        (["--p", "0.5"], "--p and --q are needed"),
        (["--kernel", "two.csv", "--order", "2"], "of order 2 on 2 states has 4 rows, not 2"),
        (["--prior", "dirichlet", "--states", "2", "--p", "0.5"], "omit --p"),
        (["--prior", "jeffreys", "--states", "2"], "not 'jeffreys'"),
        (["--prior", "two.csv", "--states", "3"], "--states is 3"),
        (["--prior", "doubly-stochastic", "--states", "2", "--order", "2"], "omit --order 2"),
        (["--prior", "dirichlet:half", "--states", "2"], "a weight for every name"),
        (["--prior", "dirichlet", "--states", "3", "--length", "99"], "classes of sequences"),
    ],
)
def test_options_that_describe_no_chain(tmp_path, words, said):
    (tmp_path / "two.csv").write_text("0.5,0.5\n0.8,0.2\n")
    assert_refused(run("chain", *words, cwd=tmp_path), said)


def test_a_chain_of_order_two(tmp_path):
    rows = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.5, 0.5]]
    text = "".join(f"{a},{b}\n" for a, b in rows)
    (tmp_path / "two.csv").write_text(text)
    words, chain = ["--kernel", "two.csv", "--order", "2"], OrderChain(rows)
    found = json.loads(run("chain", *words, "--json", cwd=tmp_path).stdout)
    assert (found["order"], found["states"]) == (2, 2)
    assert found["entropy_rate"] == chain.entropy_rate == found["ngram_losses"]["4"]
    assert [found["ngram_losses"][n] for n in "12"] == [chain.ngram_loss(1), chain.ngram_loss(2)]
    said = run("chain", *words, cwd=tmp_path).stdout
    assert ["2", f"{chain.ngram_loss(2):.8g}"] in [line.split() for line in said.splitlines()]


def test_the_losses_under_a_prior(tmp_path):
    words = ["--prior", "doubly-stochastic:0.75,dirichlet:0.25", "--states", "2"]
    mixed = MixturePrior([DoublyStochasticPrior(2), DirichletPrior(2)], [0.75, 0.25])
    known = prior_losses(mixed, 8)
    found = json.loads(run("chain", *words, "--json", cwd=tmp_path).stdout)
    assert found["counting"] == {"0": known.counting[0], "1": known.counting[1]}
    assert (found["bayes"], found["kernel"]) == (known.bayes, known.kernel)
    said = run("chain", *words, "--length", "8", cwd=tmp_path).stdout
    assert ["bayes", f"{known.bayes:.8g}"] in [line.split() for line in said.splitlines()]


def test_hidden_processes_by_name_and_by_files(tmp_path):
    """The numbers are the library's, and two ways to give one process agree."""
    (tmp_path / "kernel.csv").write_text("0.1,0.9\n0.9,0.1\n")
    (tmp_path / "emission.csv").write_text("0.8,0.2\n0.2,0.8\n")
    named = ["--process", "flips:p=0.9,q=0.9,epsilon=0.2"]
    files = ["--kernel", "kernel.csv", "--emission", "emission.csv"]
    found, same = (json.loads(run("chain", *words, "--json", cwd=tmp_path).stdout)
                   for words in (named, files))  # fmt: skip
    assert found.pop("process") == "flips:p=0.9,q=0.9,epsilon=0.2" and same.pop("process")
    assert found["ngram_losses"] == pytest.approx(same["ngram_losses"], abs=1e-14)
    assert found["linear_filter"] == pytest.approx(same["linear_filter"], abs=1e-14)
    assert (found["unigram"], found["symbols"]) == (same["unigram"], same["symbols"])
    known = process("flips", p=0.9, q=0.9, epsilon=0.2)
    assert found["ngram_losses"]["8"] == known.ngram_loss(8)
    assert found["entropy_rate_bounds"] == list(known.entropy_bounds(16))
    shown = run("chain", *named, cwd=tmp_path).stdout
    assert "0.63064665, 0.6306467" in shown and "-0.580514" in shown


@pytest.mark.parametrize("words, sentence", [
    (["--process", "mess3:x"], "NAME:NUMBER=VALUE"),
    (["--process", "mess3:x=2"], "between 0 and 0.5"),
    (["--process", "even", "--p", "0.5"], "omit the other options"),
    (["--emission", "kernel.csv"], "goes with --kernel"),
    (["--process", "even", "--length", "4"], "--length goes with --prior"),
])  # fmt: skip
def test_what_is_no_hidden_process_is_one_sentence(tmp_path, words, sentence):
    assert_refused(run("chain", *words, cwd=tmp_path), sentence)
