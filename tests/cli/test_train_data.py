"""``flowsim train`` on every chain and prior: records and figures."""

import json

import pytest
from command import run

import flowsim

SMALL = ["--d", "4", "--length", "5", "--steps", "4", "--telemetry-every", "2", "--batch", "4"]
KERNELS = {
    "three.csv": "0.1,0.6,0.3\n0.2,0.2,0.6\n0.7,0.1,0.2\n",
    "second.csv": "0.1,0.9\n0.3,0.7\n1,0\n0.6,0.4\n",
}
MIXED = "doubly-stochastic:0.75,dirichlet:0.25"
SYSTEMS = {
    "states": (["--states", "5", "--p", "0.9"], (5, 1, "fixed")),
    "kernel": (["--kernel", "three.csv", "--heads", "2", "--window", "3"], (3, 1, "fixed")),
    "order": (["--kernel", "second.csv", "--order", "2", "--hidden", "0"], (2, 2, "fixed")),
    "prior": (["--prior", "dirichlet", "--states", "2", "--order", "2", "--positions", "relative"],
              (2, 2, "dirichlet")),
    "mixture": (["--prior", MIXED, "--states", "2", "--positions", "relative-values",
                 "--layer-norm", "--activation", "gelu", "--untied"], (2, 1, MIXED)),
    "file": (["--prior", "three.csv:0.5,dirichlet:0.5", "--states", "3", "--trainer", "gd",
              "--positions", "none"], (3, 1, "one kernel:0.5,dirichlet:0.5")),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name, text in KERNELS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


QUICK = {"order"}
EVERY = [
    pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow, pytest.mark.turns])
    for n in SYSTEMS
]


@pytest.mark.parametrize("name", EVERY)
def test_every_system_trains_and_its_record_names_it(folder, name):
    words, (states, order, prior) = SYSTEMS[name]
    plot = ["--plot"] * (name != "order")
    done = run("train", *words, *SMALL, "--layers", "2", "--seeds", "2", *plot, "--json",
               cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [said[x] for x in ("states", "order", "prior")] == [states, order, prior]
    record = flowsim.read_record(folder / "train.nc")
    assert (record.attrs["states"], record.attrs["order"]) == (states, order)
    losses = dict(
        zip(record.baseline.values.tolist(), record.baseline_loss.values[0].tolist(), strict=True)
    )
    assert said["baselines"] == losses and len(said["loss"]) == 2
    shown = run("info", "train.nc", cwd=folder).stdout
    assert ["prior", *prior.split()] in [line.split() for line in shown.splitlines()]
    if plot:
        assert (folder / "train.png").stat().st_size > 5000
