"""Comparisons: outcomes decided, agreement counted, records read back, interruptions resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from command import assert_refused, run
from elsewhere import pickled

from flowsim import (
    BinaryChain,
    RankOneModel,
    Status,
    find_limits,
    read_record,
    summarize,
    write_record,
)
from flowsim.cli.texts import text_of
from flowsim.drawing.comparison import draw_comparison
from flowsim.errors import InputError
from flowsim.landscape.labels import Label
from flowsim.records.netcdf import flags
from flowsim.records.provenance import provenance
from full_model import (
    Architecture,
    AttentionFreeField,
    Comparison,
    EnumeratedField,
    MarkovSource,
    PopulationLoss,
    SideBySide,
    cloud_points,
    compare,
    grid_points,
    initial_weights,
    stored_points,
    wilson,
)
from full_model.comparison import chunks, sampled
from full_model.comparison.agreement import add_agreement
from full_model.comparison.choices import ATTENTION, predicting_model
from full_model.comparison.full_side import lifted_weights
from full_model.comparison.outcome import EndReason, unigram_block
from full_model.comparison.steps import step_until

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)
#: Two that learn, one trapped, one that the canonical model gets wrong at N = 1024.
POINTS = torch.tensor([[0.9, -1.1], [-0.6, -0.9], [0.5, 0.4], [1.5, -0.1]], dtype=F64)
SMALL = ["compare", "--p", "0.5", "--q", "0.8", "--grid", "2x3", "--d", "2", "--length", "3"]


@pytest.mark.parametrize("tied", [True, False])
def test_closed_form_gradient_is_that_of_enumeration(tied):
    arch = Architecture(3, 5, attention="none", tied=tied)
    weights = initial_weights(arch, "gaussian", range(6), std=0.8)
    field = AttentionFreeField(arch, CHAIN)
    state = field.state(weights)
    loss, gradient = PopulationLoss(arch, MarkovSource.of(CHAIN)).value_and_gradient(weights)
    torch.testing.assert_close(field.loss(state), loss, rtol=1e-13, atol=0)
    torch.testing.assert_close(field(state)[0], field.state(gradient), rtol=1e-11, atol=1e-14)


def test_a_shared_position_moves_as_all_of_them():
    arch = Architecture(3, 5, attention="none")
    settings = Comparison(0.5, 0.8, d=3, length=5)
    weights = lifted_weights(settings, POINTS)
    one, all_of_them = (AttentionFreeField(arch, CHAIN, shared) for shared in (True, False))
    shared = one.whole(one(one.state(weights))[0] / one.metric)
    full = all_of_them.weights(all_of_them(all_of_them.state(weights))[0])
    for name, gradient in full.items():
        torch.testing.assert_close(shared[name], gradient, rtol=1e-12, atol=1e-15)
    stiff = [f(f.state(weights))[1] for f in (one, all_of_them)]
    torch.testing.assert_close(*stiff, rtol=1e-12, atol=0)


def test_stiffness_bounds_the_curvature_at_the_target():
    arch = Architecture(2, 3)
    chain = BinaryChain(0.3, 0.4)
    settings = Comparison(0.3, 0.4, d=2, length=3)
    gap, w = chain.target_logit_gap, 0.7
    minimum = torch.tensor([[(gap / (1 + 2 * w * w)) ** 0.5, w, 0.0]], dtype=F64)
    field = EnumeratedField(arch, chain)
    state = field.state(lifted_weights(settings, minimum))
    gradient, stiffness = field(state)
    assert gradient.abs().max() < 1e-12
    step = 1e-6 * torch.eye(state.shape[1], dtype=F64)
    hessian = (field(state + step)[0] - field(state - step)[0]) / 2e-6
    largest = torch.linalg.eigvalsh((hessian + hessian.mT) / 2)[-1]
    assert 0.2 * stiffness < largest < 1.001 * stiffness


def test_the_block_at_the_unigram_is_am_theorem_2():
    """π₀π₁ [[1, uᵀ], [u, V]], V = mean pₙpₙᵀ + 2(p + q − 1) I without feed-forward layer."""
    arch = Architecture(3, 4, attention="none")
    weights = initial_weights(arch, "gaussian", [0, 1], std=0.7)
    weights["0.down"] = torch.zeros_like(weights["0.down"])
    field = AttentionFreeField(arch, CHAIN)
    found = unigram_block(CHAIN, weights, field.gradient)
    p = weights["positions"]
    top = torch.cat([torch.ones(2, 1, 1), p.mean(1, keepdim=True)], -1)
    v = p.mT @ p / 4 + 2 * (CHAIN.p + CHAIN.q - 1) * torch.eye(3)
    expected = torch.cat([top, torch.cat([p.mean(1).unsqueeze(-1), v], -1)], 1)
    pi0, pi1 = CHAIN.stationary
    torch.testing.assert_close(found, pi0 * pi1 * expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("noise", "noise_on"), [(0.0, "all"), (0.02, "all"), (0.02, "others")])
def test_decided_outcomes_stand_when_the_run_goes_on(noise, noise_on):
    """Runs carried far beyond their decision end with the loss that their label says."""
    settings = Comparison(0.5, 0.8, "rank-one", d=4, length=4, noise=noise, noise_on=noise_on)
    comparison = SideBySide(settings, POINTS, model_of(settings))
    comparison.run()
    full = comparison.full
    assert full.outcome.tolist() == comparison.reduced.predicted.tolist() == [1, 1, 2, 2]
    assert full.end_reasons().tolist() == [EndReason.DECIDED] * 4
    everything = torch.ones(4, dtype=torch.bool)
    step_until(full.field, full.state, full.time, full.steps, 200.0, everything)
    decided, loss = full.outcome, full.field.loss(full.state)
    rate, top = CHAIN.entropy_rate, CHAIN.stationary_entropy
    expected = torch.where(decided == Label.GLOBAL_MINIMUM, rate, top)
    assert (loss - expected).abs().max() < 1e-3 * (top - rate) and len(comparison.times) > 3


def test_noise_reaches_the_weights_that_are_named():
    """The same number for a weight whichever others have noise; the rest stays at the lift."""
    numbers = 0.5, 0.8, "rank-one", "gd", 3, 4
    clean = lifted_weights(Comparison(*numbers), POINTS)
    noisy = {on: lifted_weights(Comparison(*numbers, 0.02, on), POINTS)
             for on in ("all", "attention", "others")}  # fmt: skip
    assert set(clean) == set(Architecture(3, 4).shapes) > set(ATTENTION)
    for name, weight in clean.items():
        off = (noisy["all"][name] - weight).std()
        assert 0.01 < off < 0.04 or weight.numel() < 10
        part, other = ("attention", "others") if name in ATTENTION else ("others", "attention")
        assert torch.equal(noisy[part][name], noisy["all"][name])
        assert torch.equal(noisy[other][name], weight)
        assert not torch.equal(noisy["all"][name][0], noisy["all"][name][1])


def test_a_record_says_what_was_trained():
    names = set(Architecture(2, 3).shapes)
    for noise, on, left_out, noisy in (
        (0.0, "all", True, {"none"}),
        (0.02, "all", False, names),
        (0.02, "attention", False, set(ATTENTION)),
        (0.02, "others", True, names - set(ATTENTION)),
    ):
        settings = Comparison(0.5, 0.8, d=2, length=3, noise=noise, noise_on=on, horizon=0.3)
        a = compare(settings, POINTS[:2]).attrs
        assert a["architecture"] == "one layer, softmax attention"
        assert set(a["trained_weights"]) == names and set(a["noisy_weights"]) == noisy
        assert a["attention_arithmetic"].startswith("left out") == left_out
        assert ("agreement_low" in a) == (noise > 0)
        assert a["drawn_at_random"] == (["noise"] if noise else ["nothing"])


def test_a_mirrored_start_is_the_same_run():
    points = torch.cat([POINTS, POINTS * torch.tensor([-1.0, 1.0]), POINTS[:1]])
    settings = Comparison(0.2, 0.3, "rank-one", d=3, length=3, horizon=3.0)
    record = compare(settings, points)
    assert record.attrs["different_starts"] == 4 and record.attrs["points"] == 9
    for name in ("outcome", "loss", "steps", "end", "predicted", "reduced_loss", "distance"):
        values = record[name].values
        np.testing.assert_array_equal(values[..., :4], values[..., 4:8])
        np.testing.assert_array_equal(values[..., 0], values[..., 8])
    for name in ("trained", "orbit"):
        turned = record[name].values[:, 4:8] * [-1, 1]
        np.testing.assert_array_equal(record[name].values[:, :4], turned)
    each = [compare(settings, points[i : i + 1]) for i in (0, 4)]  # trained by itself
    np.testing.assert_array_equal(each[0].loss.values, each[1].loss.values)
    np.testing.assert_array_equal(each[0].trained.values, each[1].trained.values * [-1, 1])
    noisy = compare(replace(settings, noise=0.01, noise_on="others", horizon=0.2), points)
    assert noisy.attrs["different_starts"] == 9


def test_runs_left_open_have_a_reason():
    """(1.75, 1.75) creeps along a valley, (−0.9, −1.1) at p + q < 1 along a kink."""
    valley = torch.tensor([[1.75, 1.75], [0.9, -1.1]], dtype=F64)
    record = compare(Comparison(0.5, 0.8, "rank-one", d=4, length=4, steps=2000), valley)
    assert record.end_reason.values.tolist() == [EndReason.STEPS_USED_UP, EndReason.DECIDED]
    assert record.steps.values[0] == 2000
    assert record.attrs["unresolved_outcomes"] == 1
    assert summarize(record)["left_open"] == {"steps_used_up": 1}
    kink = torch.tensor([[-0.9, -1.1]], dtype=F64)
    record = compare(Comparison(0.2, 0.3, "rank-one", d=4, length=64, steps=30), kink)
    assert record.end_reason.values.tolist() == [EndReason.CREEPS_ALONG_A_KINK]
    record = compare(Comparison(0.2, 0.3, "rank-one", d=4, length=64, horizon=1.0), kink)
    assert record.end_reason.values.tolist() == [EndReason.HORIZON_REACHED]
    record = compare(Comparison(0.5, 0.8, "rank-one", "flow", d=4, length=4), valley)
    assert record.outcome.values.tolist() == record.predicted.values.tolist() == [2, 1]
    assert (record.end_reason.values == EndReason.DECIDED).all()


def test_a_run_that_is_not_finite_is_left_open():
    settings = Comparison(0.5, 0.8, "rank-one", d=2, length=3)
    comparison = SideBySide(settings, POINTS[:2], model_of(settings))
    comparison.full.state[0, 0] = torch.inf
    comparison.run()
    assert comparison.full.end_reasons().tolist() == [EndReason.NOT_FINITE, EndReason.DECIDED]


def model_of(settings):
    return predicting_model(settings, 2)


def test_canonical_misses_what_the_rank_one_model_predicts():
    found = {}
    for model in ("canonical", "rank-one"):
        record = compare(Comparison(0.5, 0.8, model, "flow", length=1024), POINTS)
        found[model] = summarize(record)
        assert record.outcome.values.tolist() == [1, 1, 2, 2]
        on = np.isfinite(record.loss.values)
        assert on[0].all() and (record.drift.values[on] < 1e-12).all()
        far = np.nanmax(record.distance.values)
        assert far < 0.01 if model == "rank-one" else far > 0.1
    assert found["rank-one"]["agreement"] == 1
    assert found["canonical"]["agreement"] == 0.75
    assert found["canonical"]["confusion"]["global_minimum"]["local_minimum"] == 1


def test_below_one_the_bad_basin_is_gone_and_the_horizon_is_stated():
    points = torch.tensor([[0.5, -1.2]], dtype=F64)
    record = compare(Comparison(0.2, 0.3, "canonical"), points)
    assert (record.predicted.item(), record.outcome.item()) == (2, 1)
    short = compare(Comparison(0.2, 0.3, "rank-one", horizon=1.0), points)
    assert (short.predicted.item(), short.outcome.item()) == (1, 0)
    assert summarize(short)["agreement"] is None
    assert "agreement_interval" not in summarize(short)  # nothing was drawn at random


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.8), (0.2, 0.3)])
def test_limits_of_rank_one_orbits_are_what_descent_comes_to(p, q):
    """Orbits that slide along the ReLU's kink among them."""
    starts = [[0.33, -0.16], [-0.37, 0.19], [0.9, -1.1], [-0.8, 0.9]]
    points = torch.tensor(starts, dtype=F64)
    record = compare(Comparison(p, q, "rank-one", length=3), points)
    model = RankOneModel(BinaryChain(p, q), 3)
    limits = find_limits(model, model.from_canonical(points))
    assert limits.label.tolist() == record.predicted.values.tolist()
    assert (limits.label != Label.UNRESOLVED).all()
    slid = limits.sliding_time > 0
    assert slid.any() == (p + q < 1)
    excess = limits.loss[slid] - model.chain.entropy_rate
    assert (excess.abs() < 1e-9).all() and (limits.gradient_norm[slid] < 1e-9).all()
    short = find_limits(model, model.from_canonical(points), max_steps=3)
    assert (short.label == Label.UNRESOLVED).all() and (short.status == Status.TIMED_OUT).all()


def test_critical_starts_and_independent_chains():
    points = torch.tensor([[0.0, -1.2], [0.0, 0.5]], dtype=F64)
    record = compare(Comparison(0.5, 0.8, length=3, horizon=2.0), points)
    assert record.outcome.values.tolist() == record.predicted.values.tolist() == [3, 2]
    record = compare(Comparison(0.3, 0.7, "rank-one", length=3), POINTS[:2])
    assert (record.outcome.values == Label.GLOBAL_MINIMUM).all()


def test_attention_and_flow():
    points = torch.tensor([[0.9, -1.1, 0.3], [0.5, 0.4, 0.3]], dtype=F64)
    record = compare(Comparison(0.5, 0.8, "rank-one", "flow", d=2, length=3), points)
    assert record.outcome.values.tolist() == record.predicted.values.tolist() == [1, 2]
    assert np.nanmax(record.distance) < 1e-3
    record = compare(Comparison(0.5, 0.8, "uniform", d=2, length=3, steps=7), points)
    assert (record.outcome.values == Label.UNRESOLVED).all()
    assert record.steps.values.max() == 7
    record = compare(Comparison(0.5, 0.8, "uniform", d=2, length=3, horizon=0.25), points)
    assert record.predicted.values.tolist() == [1, 2] and record.sizes["time"] == 2


def test_sampled_trainers_with_noise():
    for trainer in ("sgd", "adamw"):
        settings = Comparison(
            0.5, 0.8, "rank-one", trainer, d=2, length=4, noise=0.01, steps=20, batch=2
        )
        record = compare(settings, POINTS[:2])
        share = (record.loss.values[-1] - CHAIN.entropy_rate) / CHAIN.mutual_information
        assert ((record.outcome.values == 1) <= (share <= 0.1)).all()
        assert set(record.outcome.values.tolist()) <= {0, 1}  # no sampled run is called trapped
        assert record.flow_predicted.values.tolist() == [1, 1]
        assert {"escape", "plateau_length"} <= set(record)
        draw_comparison(record)
        single = compare(replace(settings, dtype="float32"), POINTS[:2])
        gap = np.abs(single.loss.values - record.loss.values).max()
        assert 0 < gap < 1e-4


@pytest.mark.parametrize("trainer", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
def test_sampled_training_of_lifts_is_its_reduced_map(trainer):
    """Without noise, on the same batches; a run that learns and one that does not, both right."""
    settings = Comparison(0.5, 0.8, "rank-one", trainer, d=4, length=6, steps=200, batch=4)
    record = compare(settings, torch.cat([POINTS[:1], POINTS[2:3]]))
    assert np.abs(record.loss - record.reduced_loss).max() < 1e-9
    assert record.distance.values[:2].max() < 1e-9  # before the projection has another nearest α
    assert record.outcome.values.tolist() == record.predicted.values.tolist() == [1, 0]
    assert record.flow_predicted.values.tolist() == [1, 2]
    a, summary = record.attrs, summarize(record)
    assert (a["agreeing"], a["decided"], a["learned"], a["learned_predictions"]) == (2, 2, 1, 1)
    assert a["unresolved_outcomes"] == 0  # not learned within the steps is an outcome
    assert a["nudge"] == (1e-12 if trainer == "adamw" else 0)
    assert summary["by_flow"] == {
        "global_minimum": {"runs": 1, "learned": 1}, "local_minimum": {"runs": 1, "learned": 0},
    }  # fmt: skip
    assert "found not learned 1" in text_of("comparison", summary | {"seconds": 1.0})
    other = add_agreement(record.assign(predicted=1 - record.predicted), after_steps=True)
    assert (other.attrs["agreeing"], other.attrs["decided"]) == (0, 2)
    lost = record.assign(not_finite=xr.ones_like(record.not_finite))
    assert add_agreement(lost, after_steps=True).attrs["decided"] == 0
    draw_comparison(record)
    with pytest.raises(InputError, match="rank-one"):
        compare(replace(settings, model="canonical"), POINTS)


def test_agreement_counts_and_wilson():
    low, high = wilson(7, 10)  # z = 1.959964: (p + z²/2n ± z√(p(1−p)/n + z²/4n²))/(1 + z²/n)
    assert (low, high) == pytest.approx((0.39677815, 0.89220873), abs=1e-7)
    assert wilson(0, 0) == (0.0, 1.0)
    labels = {"predicted": [1, 1, 2, 2, 0, 1], "outcome": [1, 2, 2, 2, 1, 0]}
    record = xr.Dataset({k: ("point", np.array(v, dtype=np.int8)) for k, v in labels.items()})
    record = add_agreement(record)
    assert (record.attrs["agreeing"], record.attrs["decided"]) == (3, 4)
    assert record.attrs["unresolved_outcomes"] == record.attrs["unresolved_predictions"] == 1
    assert record.confusion.sel(predicted_label="global_minimum").values.tolist() == [1, 1, 1, 0]
    with pytest.raises(InputError, match="one prediction"):
        add_agreement(record.isel(point=slice(0)))


def test_an_interrupted_comparison_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "_CHUNK_WITH_ATTENTION", 1)
    settings = Comparison(0.5, 0.8, "rank-one", d=3, length=3, noise=0.02)
    whole = compare(settings, POINTS)

    class Stop(Exception):
        pass

    def stop(done, total, where, most):
        seen.append(done)
        if done > 2:
            raise Stop

    seen, path = [], tmp_path / "state"
    with pytest.raises(Stop):
        compare(settings, POINTS, path, progress=stop)
    seen.clear()
    again = compare(
        settings, POINTS, path, resume=True, progress=lambda done, *_: seen.append(done)
    )
    assert seen[0] >= 2 and seen[-1] == 4  # what was finished is not computed again
    assert again.identical(whole)
    assert compare(settings, POINTS, path, resume=True).identical(whole)  # a finished one
    with pytest.raises(InputError, match="exists"):
        compare(settings, POINTS, path)
    for change, words in (({"length": 4}, "length is 3 there and 4 here"),
                          ({"noise_on": "others"}, "noise_on is 'all' there")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            compare(replace(settings, **change), POINTS, path, resume=True)
    with pytest.raises(InputError, match="points is"):
        compare(settings, POINTS + 0.1, path, resume=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="usable checkpoint"):
        compare(settings, POINTS, path, resume=True)


@pytest.mark.parametrize("others", ["pickled", pytest.param("processes", marks=pytest.mark.slow)])
def test_processes_give_the_numbers_of_one(others, monkeypatch):
    monkeypatch.setattr(chunks, "_CHUNK", 2)
    if others == "pickled":
        pickled(monkeypatch)
    settings = Comparison(0.2, 0.3, "rank-one", "flow", d=2, length=3)
    one, two = (compare(settings, POINTS, jobs=jobs) for jobs in (1, 2))
    assert two.identical(one)
    together = compare(settings, POINTS[2:], jobs=1)
    for name in ("loss", "trained", "steps"):  # rows do not depend on their neighbours
        part = one[name].isel(point=slice(2, None)).values
        np.testing.assert_array_equal(part[: together.sizes["time"]] if name != "steps" else part,
                                      together[name].values)  # fmt: skip
    task = chunks.Chunks(settings, POINTS).task(0)._replace(versions="flowsim 0.0.1")
    with pytest.raises(InputError, match=r"flowsim 0\.0\.1"):
        chunks.run_task(task)


def test_sampled_chunks_give_the_numbers_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(sampled, "CHUNK", 3)
    settings = Comparison(
        0.5, 0.8, "rank-one", "adamw", d=3, length=4, noise=0.02, steps=20, batch=2
    )
    one = compare(settings, POINTS, tmp_path / "one")
    work = sampled.SampledChunks(settings, POINTS)
    parts = {chunk: sampled.train_chunk(work.task(chunk)) for chunk in (1, 0)}  # as workers do
    assert [list(work.members(chunk)) for chunk in (0, 1)] == [[0, 2], [1, 3]]
    for name in ("loss", "escape"):
        np.testing.assert_array_equal(work.joined(parts)[name], one[name].values)
    work.save(tmp_path / "part", {1: parts[1]})
    assert compare(settings, POINTS, tmp_path / "part", resume=True).identical(one)
    assert compare(settings, POINTS, tmp_path / "one", resume=True).identical(one)
    with pytest.raises(InputError, match="d is 3 there"):
        compare(replace(settings, d=2), POINTS, tmp_path / "one", resume=True)
    monkeypatch.setattr(sampled, "CHUNK", 50)
    together = compare(settings, POINTS)
    assert float(np.abs(together.loss - one.loss).max()) < 1e-9  # the batches are the same
    with pytest.raises(InputError, match=r"flowsim 0\.0\.1"):
        sampled.train_chunk(work.task(0)._replace(versions="flowsim 0.0.1"))


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["sgd", "adamw"])
def test_processes_train_sampled_chunks_to_the_bytes_of_one(trainer, monkeypatch):
    monkeypatch.setattr(sampled, "CHUNK", 2)
    settings = Comparison(0.2, 0.3, "rank-one", trainer, d=3, length=4, steps=20, batch=2)
    one, two = (compare(settings, POINTS, jobs=jobs) for jobs in (1, 2))
    assert two.identical(one)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # distributed's own, about ports and unclosed sockets
def test_a_dask_cluster_trains_to_the_same_bytes():
    distributed = pytest.importorskip("distributed")
    settings = Comparison(0.5, 0.8, "rank-one", "flow", 3, 2)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        found = compare(settings, POINTS, scheduler=cluster.scheduler_address)
        batches = replace(settings, trainer="adamw", steps=20)
        on_batches = compare(batches, POINTS, scheduler=cluster.scheduler_address)
    assert found.identical(compare(settings, POINTS))
    np.testing.assert_array_equal(on_batches.outcome, compare(batches, POINTS).outcome)


def test_starts(tmp_path):
    grid = grid_points(3, 2, (-3, 3), (0, 2))
    assert grid.tolist() == [[0.5, -2], [0.5, 0], [0.5, 2], [1.5, -2], [1.5, 0], [1.5, 2]]
    cloud = cloud_points(2000, 0.3, 4)
    assert cloud.std().item() == pytest.approx(0.3, rel=0.05)
    assert torch.equal(cloud, cloud_points(2000, 0.3, 4))
    attrs = provenance({"kind": "scan", "p": 0.5, "q": 0.8})
    found = dict.fromkeys(("status", "rule", "share", "count"), 0)  # as every scan has
    found |= {"label": ((), 1, flags(Label))}
    axes = {"e": [0.5, 1.5], "w": [-2.0, 0, 2]}
    write_record(xr.Dataset(found, axes, attrs), tmp_path / "g.nc")
    points, chain = stored_points(tmp_path / "g.nc", None, 8, 4)
    assert torch.equal(points, grid) and chain == CHAIN
    rows = found | {name: ("point", grid[:, i].numpy()) for i, name in enumerate("ew")}
    write_record(xr.Dataset(rows, {"a": 0.5}, attrs=attrs | {"length": 8}), tmp_path / "r.nc")
    points, _ = stored_points(tmp_path / "r.nc", CHAIN, 8, 4, 3)
    assert torch.equal(points[:, :2], grid) and (points[:, 2] == 0.5).all()
    for change, arguments in (
        ("not of", (tmp_path / "r.nc", BinaryChain(0.5, 0.7), 8, 4, 3)),
        ("length = 8", (tmp_path / "r.nc", CHAIN, 9, 4, 3)),
        ("attention", (tmp_path / "r.nc", CHAIN, 8, 4)),
        ("no coordinate a", (tmp_path / "g.nc", CHAIN, 8, 4, 3)),
    ):
        with pytest.raises(InputError, match=change):
            stored_points(*arguments)
    untied = {"coordinates": ["e", "u", "w"]}
    write_record(xr.Dataset(rows, {"u": 0.5}, attrs=attrs | untied), tmp_path / "u.nc")
    with pytest.raises(InputError, match="also have the coordinate u"):
        stored_points(tmp_path / "u.nc", CHAIN, 8, 4)
    nothing = xr.Dataset(found, {"e": np.zeros(0), "w": np.zeros(0)}, attrs)
    write_record(nothing, tmp_path / "n.nc")
    with pytest.raises(InputError, match="no point"):
        stored_points(tmp_path / "n.nc", CHAIN, 8, 4)
    write_record(nothing.assign_attrs(schema=99), tmp_path / "o.nc")
    with pytest.raises(InputError, match="schema 1"):
        stored_points(tmp_path / "o.nc", CHAIN, 8, 4)


@pytest.mark.parametrize(
    "wrong",
    [{"p": 1.5}, {"model": "linear"}, {"trainer": "adam"}, {"noise": -1.0}, {"horizon": 0.0},
     {"device": "tpu"}, {"d": 0}, {"dtype": "float32"}, {"trainer": "adamw", "dtype": "float16"},
     {"length": 0}, {"steps": 0}, {"noise_on": "w"}, {"noise": 0.1, "length": 20}],
    ids=str,
)  # fmt: skip
def test_settings_refuse(wrong):
    with pytest.raises(InputError):
        compare(Comparison(**{"p": 0.5, "q": 0.8} | wrong), POINTS)


def test_points_refuse():
    for points in (POINTS[:0], POINTS[0], POINTS * np.nan, torch.zeros(2, 4)):
        with pytest.raises(InputError):
            compare(Comparison(0.5, 0.8), points)
    with pytest.raises(InputError, match="takes points"):
        compare(Comparison(0.5, 0.8), torch.zeros(1, 3, dtype=F64))
    with pytest.raises(InputError, match="takes points"):
        compare(Comparison(0.5, 0.8, "uniform"), POINTS)


def test_the_command(tmp_path):
    done = run(*SMALL, "--out", "x.png", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert {"agreement", "different_starts", "confusion", "unresolved_outcomes"} <= set(summary)
    assert "agreement_interval" not in summary and summary["different_starts"] == 3
    assert sum(n for row in summary["confusion"].values() for n in row.values()) == 6
    record = read_record(tmp_path / "x.nc", "comparison")
    assert record.attrs["d"] == 2 and set(record.coords) >= {"e", "w", "time"}
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert_refused(run(*SMALL, "--out", "x.png", cwd=tmp_path), "--overwrite")
    again = run("compare", "--points", "x.nc", "--d", "2", "--length", "3", "--out", "y.png",
                "--horizon", "0.5", "--require", "0.5", cwd=tmp_path)  # fmt: skip
    assert again.returncode == 4, again.stderr
    assert_refused(run("compare", "--points", "x.nc", "--length", "4", cwd=tmp_path), "length = 3")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--p", "0.5"], "--p and --q"),
        (["--grid", "20"], "--grid"),
        (["--grid", "99999x99999"], "at most"),
        (["--cloud", "5"], "--sigma"),
        (["--cloud", "5", "--sigma", "0"], "--sigma"),
        (["--cloud", "5", "--sigma", "1", "--grid", "2x2"], "one of"),
        (["--points", "none.nc"], "no such file: 'none.nc'"),
        (["--from", "none.nc"], "--points"),
        (["--a", "0.5"], "--fix a=0.5"),
        (["--fix", "a=0.5"], "--fix"),
        (["--batch", "5"], "--trainer"),
        (["--trainer", "adamw"], "--model rank-one"),
        (["--require", "2"], "--require"),
        (["--model", "linear"], "choose canonical, uniform, rank-one or states"),
        (["--model", "uniform", "--length", "60"], "GiB"),
        (["--resume"], "checkpoint"),
        (["--steps", "0"], "--steps"),
        (["--horizon", "0"], "--horizon"),
        (["--noise-on", "attention"], "--noise"),
        (["--noise", "0.02", "--length", "20"], "sampled batches"),
        (["--noise", "0.02", "--length", "80"], "sampled batches"),
        (["--jobs", "2", "--scheduler", "tcp://127.0.0.1:9"], "--scheduler"),
        (["--out", "x.csv"], "--out"),
    ],
    ids=str,
)
def test_bad_input(tmp_path, arguments, word):
    chain = [] if arguments[:1] == ["--p"] else ["--p", "0.5", "--q", "0.8"]
    assert_refused(run("compare", *chain, *arguments, cwd=tmp_path), word)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_and_kill_lose_nothing(tmp_path):
    long = [*SMALL[:-6], "--grid", "8x8", "--length", "512", "--noise", "0.02", "--noise-on",
            "others", "--out", "x.png", "--quiet"]  # fmt: skip
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "import full_model.comparison.chunks as module; module._CHUNK = 4; "
    code += "from flowsim.cli.main import main; main()"
    for number, extra in ((signal.SIGINT, []), (signal.SIGKILL, ["--resume"])):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *long, *extra], cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        state, deadline = tmp_path / "x.safetensors", time.time() + 120
        before = state.stat().st_mtime_ns if state.exists() else 0
        while time.time() < deadline and process.poll() is None:
            if state.exists() and state.stat().st_mtime_ns > before:
                break
            time.sleep(0.05)
        process.send_signal(number)
        try:
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
        if number == signal.SIGINT:
            assert process.returncode == 130 and error.count("\n") == 1, error
        assert state.exists() and not (tmp_path / "x.nc").exists()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".") and "nc" in p.suffix]
