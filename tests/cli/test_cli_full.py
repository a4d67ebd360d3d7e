"""``flowsim verify`` and ``flowsim train`` as a user meets them."""

import json

import xarray as xr
from command import assert_refused, run

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
