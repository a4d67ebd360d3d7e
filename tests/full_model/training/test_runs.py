"""Runs: settings, telemetry, the record and the command's inputs."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import xarray as xr
from command import assert_refused, run
from weights import RUN

import flowsim
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.records.netcdf import write_record
from full_model import (
    Architecture,
    PopulationLoss,
    Recipe,
    RunSettings,
    forward,
    lift_canonical,
    measure,
    plateau,
    train,
)
from full_model.training.probes import Pass, attention_share, leading_shares, predicted_kernel

F64 = torch.float64


settings = partial(replace, RUN, telemetry_every=10, test_batch=8)


def test_record_of_a_run(tmp_path):
    run = settings(
        q=(0.8, 0.3), init="lifted", theta=((0.8, -1.5), (-0.7, 0.5)), seeds=(4,), noise=0.01
    )
    steps = []
    dataset, weights = train(run, progress=lambda step, loss: steps.append(step))
    assert dataset.step.values.tolist() == [0, 10, 20, 30, 40]
    assert dataset.sizes["model"] == 2 and steps[-1] == 40
    final = PopulationLoss(run.arch, run.source())(weights)
    assert dataset.loss.values[-1] == pytest.approx(final.tolist(), abs=1e-14)
    assert np.isnan(dataset.train_loss.values[0]).all()
    assert (dataset.train_loss.values[1:] >= dataset.loss.values[1:]).all()
    read = np.array([[0.8, -1.5, 0.0], [0.7, 0.5, 0.0]])
    assert np.abs(dataset.canonical.values[0] - read).max() < 0.1
    assert ((dataset.leading_share.values > 0) & (dataset.leading_share.values <= 1 + 1e-12)).all()
    assert dataset.matrix.values.tolist()[1:3] == ["0.query", "0.key"]
    path = tmp_path / "run.nc"
    write_record(dataset, path)
    with xr.open_dataset(path, engine="h5netcdf") as stored:
        assert stored.equals(dataset)
        assert json.loads(stored.attrs["settings"])["recipe"]["learning_rate"] == 0.2
    with pytest.raises(InputError, match="cannot write"):
        write_record(dataset, tmp_path / "no" / "run.nc")
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]


def test_a_record_that_cannot_be_written_loses_no_training(tmp_path, monkeypatch):
    words = ["train", "--p", "0.5", "--q", "0.8", "--trainer", "gd", "--d", "2", "--length", "4",
             "--steps", "8"]  # fmt: skip

    def full_disk(record, path):
        raise InputError(f"cannot write {path}: no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("flowsim.records.netcdf.write_record", full_disk)
        refused = run(*words, cwd=tmp_path)
    assert_refused(refused, "no space left", "train.safetensors", "--resume")
    (tmp_path / "state").write_bytes((tmp_path / "train.safetensors").read_bytes())
    resumed = run(*words, "--resume", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "state").read_bytes() == (tmp_path / "train.safetensors").read_bytes()
    assert (tmp_path / "train.nc").is_file()


def test_a_checkpoint_that_cannot_be_written_costs_no_training(tmp_path, monkeypatch):
    def full_disk(path, tensors, state):
        raise InputError(f"cannot write {path}")

    monkeypatch.setattr("full_model.training.run.save_checkpoint", full_disk)
    steps = []
    with pytest.raises(InputError, match="cannot write"):
        train(settings(), tmp_path / "state", progress=lambda step, loss: steps.append(step))
    assert steps == []


def test_same_seed_same_numbers_and_held_out_loss():
    long = settings(
        arch=Architecture(4, 40),
        recipe=Recipe("adamw", steps=12, batch=3),
        seeds=(0, 1),
        dtype="float32",
    )
    one, first = train(long)
    two, second = train(long)
    assert one.equals(two) and all(torch.equal(w, second[k]) for k, w in first.items())
    assert one.attrs["loss_is"] == "entropy rate + KL over held-out sequences"
    assert (one.loss.values > BinaryChain(0.5, 0.8).entropy_rate).all()
    short = settings(
        arch=Architecture(4, 12), init="lifted", theta=((1.2, -1.0, 0.4),), test_batch=2000
    )
    record, weights = train(short)
    exact = PopulationLoss(short.arch, short.source())(weights)
    assert record.loss.values[-1] == pytest.approx(exact.tolist(), abs=1e-3)
    other, _ = train(settings(arch=long.arch, recipe=long.recipe, seeds=(0, 1), data_seed=5))
    assert not np.array_equal(other.train_loss.values[1:], one.train_loss.values[1:])


def test_given_weights_and_models_that_blow_up(tmp_path):
    arch = Architecture(2, 3)
    weights = lift_canonical(torch.tensor([[0.5, 0.5], [1e200, 3.0]], dtype=F64), arch)
    run = settings(arch=arch, seeds=(0, 1), init="given")
    dataset, _ = train(run, initial=weights)
    assert dataset.finite.values.tolist() == [1, 0]
    assert np.isfinite(dataset.loss.values[:, 0]).all()
    with pytest.raises(InputError, match="initial weights"):
        train(run)
    with pytest.raises(InputError, match="initial weights"):
        train(settings(arch=arch), initial=weights)
    with pytest.raises(InputError, match="folder"):
        train(settings(arch=arch), tmp_path / "no" / "state")
    with pytest.raises(InputError, match="folder"):
        train(settings(arch=arch), tmp_path, overwrite=True)
    with pytest.raises(InputError, match="axis"):
        train(settings(arch=arch, init="given"), initial=weights)


def test_probes_on_known_weights():
    arch = Architecture(4, 6)
    theta = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 2.0]], dtype=F64)
    weights = lift_canonical(theta, arch)
    tokens = torch.ones(3, 6)
    share = attention_share(Pass.of(arch, weights, tokens))
    assert share[:, 0].tolist() == pytest.approx([0.0, 2 / 3])  # a m/(s + a m), all x = 1
    values = leading_shares(arch, weights)
    assert values[:, 0].tolist() == pytest.approx([1.0, 1.0])  # positions
    assert values[:, 1].isnan().all()  # W_Q = 0
    full = {k: torch.eye(4, dtype=F64).expand(2, 4, 4) for k in ("0.query",)}
    assert leading_shares(arch, {**weights, **full})[:, 1].tolist() == pytest.approx([0.25, 0.25])
    mixed = torch.tensor([[0, 1, 1, 0, 1, 0]])
    found = predicted_kernel(Pass.of(arch, weights, mixed))[..., 1]
    expected = forward(arch, weights, mixed).sigmoid()[:, 0]
    assert torch.allclose(found[:, 0], expected[:, [0, 3, 5]].mean(-1))
    assert torch.allclose(found[:, 1], expected[:, [1, 2, 4]].mean(-1))
    assert predicted_kernel(Pass.of(arch, weights, tokens))[:, 0].isnan().all()
    two = Architecture(4, 6, layers=2, output="states", attention="none")
    random = {k: torch.randn(2, *shape, dtype=F64) for k, shape in two.shapes.items()}
    assert (
        measure(random, Pass.of(two, random, mixed))["attention_share"].tolist() == [[0.0, 0.0]] * 2
    )


def test_plateau():
    chain = BinaryChain(0.5, 0.8)
    rate, top = chain.entropy_rate, chain.stationary_entropy
    steps = torch.arange(0, 60, 10)
    share = torch.tensor(
        [
            [3.0, 1.02, 1.0, 0.4, 0.1, 0.0],  # plateau from 10, escape at 30
            [3.0, 1.02, 0.4, 1.0, 1.0, 1.0],  # falls back
            [3.0, 2.5, 2.0, 2.0, 2.0, 2.0],  # never near
            [1.04, 1.0, 0.3, 0.7, 0.4, 0.2],  # for good only at 40
        ],
        dtype=F64,
    ).T
    ends = torch.tensor([top]), torch.tensor([rate])
    found = plateau(steps, rate + share * (top - rate), *ends)
    nan = float("nan")
    for values, expected in zip(
        found, ([10, 10, nan, 0], [30, nan, nan, 40], [20, nan, nan, 40]), strict=True
    ):
        assert values.tolist() == pytest.approx(expected, nan_ok=True)


IN_CONTEXT = [
    (flowsim.chains.SymmetricChain(3, 0.9), {}),
    (flowsim.chains.OrderChain([[0.1, 0.9], [0.3, 0.7], [1.0, 0.0], [0.6, 0.4]]), {"hidden": 0}),
    (flowsim.chains.DirichletPrior(2), {"positions": "relative-values", "layer_norm": True}),
]


@pytest.mark.parametrize(("data", "more"), IN_CONTEXT, ids=str)
def test_a_run_on_data_has_its_baselines_and_resumes(tmp_path, data, more):
    arch = Architecture(4, 5, 2, states=data.states, output="states", **more)
    run = RunSettings(
        arch, Recipe("adamw", steps=6, batch=4), seeds=(0, 1), init_std=0.3, data=data,
        telemetry_every=2, checkpoint_every=3,
    )  # fmt: skip
    record, weights = train(run, tmp_path / "whole")
    assert record.loss_is == "exact population loss"
    final = PopulationLoss(arch, run.source())(weights)
    assert record.loss.values[-1] == pytest.approx(final.tolist(), abs=1e-14)
    found = flowsim.chains.baselines.baselines(data, 5)
    assert record.baseline.values.tolist() == list(found)
    assert record.baseline_loss.values.tolist() == [list(found.values())] * 2
    least = found.get("Bayes", found["kernel"])
    assert (record.loss.values > least).all()
    assert record.looks_back.shape == (4, 2, 2, 1, 5)
    assert ("predicted_kernel" in record) == (data.states == 3)
    assert ("entropy_rate" in record) == ("Bayes" not in found) and "p" not in record
    stored = json.loads(record.attrs["settings"])
    assert stored["data"]["states"] == record.attrs["states"] == data.states

    other = replace(run, data=flowsim.chains.SymmetricChain(data.states, 0.25))
    with pytest.raises(InputError, match=r"data\."):
        train(other, tmp_path / "whole", resume=True)


@pytest.mark.parametrize(
    ("prior", "says", "known"),
    [
        (flowsim.chains.DirichletPrior(2), "held-out sequences, corrected", 5),
        (flowsim.chains.DirichletPrior(3), "cross-entropy to Bayes's predictor over held-out", 1),
        (flowsim.chains.DoublyStochasticPrior(3), "cross-entropy to each held-out sequence's", 1),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_long_sequences_say_what_their_loss_is(prior, says, known):
    arch = Architecture(4, 40, states=prior.states, output="states")
    recipe = Recipe("adamw", steps=1, batch=2)
    record, _ = train(RunSettings(arch, recipe, data=prior, init_std=1e-6, test_batch=16))
    assert record.loss_is.startswith(says)
    assert record.baseline_loss.shape == (1, known)
    assert ("baselines_missing" in record.attrs) == (known == 1)
    assert float(record.loss[0, 0]) == pytest.approx(np.log(prior.states), abs=1e-6)
