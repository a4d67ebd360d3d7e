"""What is said of a record, a checkpoint and a training run, as lines and as JSON."""

import json

import numpy as np
import pytest
import xarray as xr
from command import assert_refused, run
from matplotlib.text import Text

import flowsim
from flowsim.cli.printer import as_text
from full_model import Architecture, Recipe, RunSettings, train

CHAIN = ["--p", "0.5", "--q", "0.8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A record of every kind, and a checkpoint."""
    folder = tmp_path_factory.mktemp("records")
    small = ["--d", "2", "--length", "3", "--trainer", "gd", "--quiet"]
    for words in (
        ["portrait", *CHAIN, "--resolution", "6", "--confirm", "2", "--out", "portrait.png"],
        ["scan", *CHAIN, "--grid", "5x4", "--out", "scan.nc"],
        ["scan", *CHAIN, "--cloud", "9", "--sigma", "1", "--fraction", "0.1", "--out", "cloud.nc"],
        ["compare", *CHAIN, "--grid", "2x1", *small, "--out", "comparison.png"],
        ["train", *CHAIN, *small, "--steps", "5", "--seeds", "2", "--out", "training.nc"],
    ):
        done = run(*words, "--quiet", cwd=folder)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return folder


KINDS = {
    "portrait": "portrait", "scan": "scan", "cloud": "scan", "comparison": "comparison",
    "training": "training",
}  # fmt: skip
#: Whether what is said of a record has an interval: draws have one, a grid has none.
INTERVAL = {"portrait": False, "scan": False, "cloud": True}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_record_says_what_it_holds(folder, name, kind):
    done = run("info", f"{name}.nc", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    held = json.loads(done.stdout)
    assert held["file"] == f"{name}.nc"
    assert held["kind"] == kind
    assert "flowsim" in held["versions"]
    assert held["command"].startswith("flowsim ")
    assert {"commit", "dimensions", "variables"} <= set(held)
    for dims in held["variables"].values():
        assert set(dims) <= set(held["dimensions"])
    text = run("info", f"{name}.nc", cwd=folder).stdout
    lines = [line.split() for line in text.splitlines()]
    assert ["kind", *kind.split()] in lines
    for size, length in held["dimensions"].items():
        assert [size, str(length)] in lines


def test_a_checkpoint_says_what_it_holds(folder):
    done = run("info", "training.safetensors", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    held = json.loads(done.stdout)
    assert held["kind"] == "checkpoint"
    assert held["settings"]["arch"]["d"] == 2
    assert held["settings"]["seeds"] == [0, 1]
    assert any(shape[0] == 2 for shape in held["tensors"].values())
    text = run("info", "training.safetensors", cwd=folder).stdout
    assert ["d", "2"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize("name", INTERVAL)
def test_a_record_is_drawn_with_its_interval(folder, tmp_path, name):
    out = tmp_path / "again.pdf"
    energy = ["--energy"] * (name == "portrait")
    done = run("portrait", "--from", f"{name}.nc", "--out", out, *energy, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_bytes().startswith(b"%PDF")
    assert ["record", f"{name}.nc"] in [line.split() for line in done.stdout.splitlines()]
    said = "wilson" in done.stdout or "agreement_interval" in done.stdout
    assert said == INTERVAL[name]
    assert list(tmp_path.iterdir()) == [out]


def test_a_command_redraws_what_it_made(folder, tmp_path):
    done = run("compare", "--from", "portrait.nc", "--out", tmp_path / "b.png", cwd=folder)
    assert_refused(done, "flowsim portrait --from")
    assert list(tmp_path.iterdir()) == []


def test_mathematics_is_printed_without_dollar_signs_and_files_with_theirs():
    text = as_text({"subtitle": "chain $p$ = 0.5: $p + q$ = 1.3 > 1", "record": "cost$.nc"})
    assert text.splitlines() == ["subtitle  chain p = 0.5: p + q = 1.3 > 1", "record    cost$.nc"]


def test_an_optimizers_shares_stand_beside_those_of_the_flow_and_add_up():
    shares = {"minimum_1": 0.25, "diverged": 0.75, "flow_minimum_1": 1.0, "flow_diverged": 0.0}
    assert as_text({"fraction": shares}).splitlines() == [
        "fraction",
        "  minimum_1  25.00%, by gradient flow 100.00%",
        "  diverged   75.00%, by gradient flow 0.00%",
    ]


def test_a_training_run_says_what_it_was_trained_on_and_where_it_ended():
    chain = flowsim.BinaryChain(0.5, 0.8)
    low, high = chain.entropy_rate, chain.stationary_entropy
    losses = [low + 0.01 * (high - low), high, (low + high) / 2, np.nan]
    for recipe, words, remark in (
        (
            Recipe.named("adamw-papers", steps=2, batch=3),
            "AdamW on batches of 3",
            "AdamW: the papers' recipe",
        ),
        (Recipe("gd", steps=2), "gradient descent on the exact loss", ""),
    ):
        record, _ = train(RunSettings(Architecture(2, 3), recipe, (0.5,), (0.8,)))
        record = record.assign_attrs(kind="training")
        figure = flowsim.draw(record)
        title = figure.get_suptitle() or figure.axes[0].get_title()
        assert any(remark in text.get_text() for text in figure.findobj(Text))
        assert words in " ".join(title.split()) and "the loss shown: " in title
        assert np.isfinite(record["loss"]).all()
    ended = xr.concat([record] * 4, "model", data_vars="minimal")
    ended["loss"] = (("step", "model"), np.tile(losses, (record.sizes["step"], 1)))
    summary = flowsim.summarize(ended)
    assert (summary["at_bigram"], summary["at_unigram"], summary["models"]) == (1, 1, 4)
