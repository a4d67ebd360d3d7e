"""``flowsim verify``, and ``flowsim train`` on every chain and prior, as a user meets them."""

import json

import pytest
import xarray as xr
from command import assert_refused, run

import flowsim

CHAIN = ["--p", "0.5", "--q", "0.8"]
QUICK = ["train", *CHAIN, "--trainer", "gd", "--d", "4", "--length", "4", "--steps", "40"]


def test_verify_prints_the_claims_and_all_hold(tmp_path):
    done = run("verify", *CHAIN, "--d", "4", "--length", "5", "--seeds", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    for name in ("Thm. 1", "Thm. 2", "Thm. 3", "Lemma 1", "Lemma 2", "App. D"):
        assert name in done.stdout
    assert "FAILED" not in done.stdout
    done = run("verify", *CHAIN, "--length", "4", "--seeds", "1", "--json", cwd=tmp_path)
    claims = json.loads(done.stdout)
    assert all({"claim", "expected", "found", "error", "passed"} == set(claim) for claim in claims)
    assert all(claim["passed"] for claim in claims)


def test_train_writes_a_record_and_a_checkpoint(tmp_path):
    done = run(*QUICK, "--seeds", "3", "--out", "a.nc", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert len(summary["loss"]) == summary["models"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nc", "a.safetensors"]
    record = xr.load_dataset(tmp_path / "a.nc", engine="h5netcdf")
    assert record.attrs["kind"] == "training"
    assert "torch" in record.attrs["versions"]
    assert record["loss"].isel(step=-1).values.tolist() == summary["loss"]


def test_resuming_a_finished_run_changes_nothing_and_other_settings_are_refused(tmp_path):
    assert run(*QUICK, "--out", "a.nc", cwd=tmp_path).returncode == 0
    first = xr.load_dataset(tmp_path / "a.nc", engine="h5netcdf")
    assert_refused(run(*QUICK, "--out", "a.nc", cwd=tmp_path), "--overwrite")
    again = run(*QUICK, "--out", "b.nc", "--checkpoint", "a.safetensors", "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "b.nc", engine="h5netcdf"), first)
    other = [*QUICK, "--learning-rate", "0.3", "--checkpoint", "a.safetensors", "--resume"]
    assert_refused(run(*other, "--out", "c.nc", cwd=tmp_path), "learning_rate")


def test_a_model_that_diverges_is_counted_and_has_an_exit_code(tmp_path):
    wild = [*QUICK, "--learning-rate", "1e200", "--out", "a.nc", "--json"]
    done = run(*wild, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["not_finite"] == 1


SIZES = ["--d", "4", "--length", "5", "--steps", "4", "--telemetry-every", "2", "--batch", "4"]
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


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=[pytest.mark.slow, pytest.mark.turns] * (n != "order")) for n in SYSTEMS
])  # fmt: skip
def test_every_system_trains_and_its_record_names_it(folder, name):
    words, (states, order, prior) = SYSTEMS[name]
    plot = ["--plot"] * (name != "order")
    done = run("train", *words, *SIZES, "--layers", "2", "--seeds", "2", *plot, "--json",
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
        assert (folder / "train.png").stat().st_size > 3000
