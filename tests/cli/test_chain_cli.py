"""``flowsim chain``: its numbers are those of the library, and bad kernels are one sentence."""

import json

import pytest
from command import run

from flowsim import BinaryChain, MarkovChain
from flowsim.chains import (
    DirichletPrior,
    DoublyStochasticPrior,
    MixturePrior,
    OrderChain,
    prior_losses,
)
from flowsim.chains.hidden import process


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
