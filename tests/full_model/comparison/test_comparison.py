"""Comparisons: how outcomes are decided, what the models predict of them, agreement counted.

In chunks, by processes and interrupted, they have the same bytes.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from elsewhere import pickled

from flowsim import BinaryChain, summarize
from flowsim.drawing.comparison import draw_comparison
from flowsim.errors import InputError
from flowsim.labels import Label
from full_model import (
    Architecture,
    Comparison,
    compare,
    wilson,
)
from full_model.comparison import chunks
from full_model.comparison.choices import ATTENTION
from full_model.comparison.compare import add_agreement
from full_model.comparison.fields import FullField
from full_model.comparison.outcome import EndReason
from full_model.comparison.side_by_side import SideBySide, lifted_weights
from full_model.comparison.steps import step_until

F64 = torch.float64
CHAIN = BinaryChain(0.5, 0.8)
#: Two that learn, one trapped, one that the canonical model gets wrong at N = 1024.
POINTS = torch.tensor([[0.9, -1.1], [-0.6, -0.9], [0.5, 0.4], [1.5, -0.1]], dtype=F64)


def test_a_shared_position_moves_as_all_of_them():
    arch = Architecture(3, 5, attention="none")
    settings = Comparison(0.5, 0.8, d=3, length=5)
    weights = lifted_weights(settings, POINTS)
    one, all_of_them = (FullField(arch, CHAIN, shared) for shared in (True, False))
    shared = one.whole(one(one.state(weights))[0] / one.metric)
    full = all_of_them.weights(all_of_them(all_of_them.state(weights))[0])
    for name, gradient in full.items():
        torch.testing.assert_close(shared[name], gradient, rtol=1e-12, atol=1e-15)
    stiff = [f(f.state(weights))[1] for f in (one, all_of_them)]
    torch.testing.assert_close(*stiff, rtol=1e-12, atol=0)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_decided_outcomes_stand_when_the_run_goes_on(noise):
    """Runs carried far beyond their decision end with the loss that their label says."""
    settings = Comparison(0.5, 0.8, "rank-one", d=4, length=4, noise=noise)
    comparison = SideBySide(settings, POINTS)
    comparison.run()
    full = comparison.full
    assert full.outcome.tolist() == comparison.predicted.tolist() == [1, 1, 2, 2]
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


@pytest.mark.slow
@pytest.mark.turns
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
    comparison = SideBySide(settings, POINTS[:2])
    comparison.full.state[0, 0] = torch.inf
    comparison.run()
    assert comparison.full.end_reasons().tolist() == [EndReason.NOT_FINITE, EndReason.DECIDED]


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


def test_sampled_trainers_with_noise():
    numbers = {"d": 2, "length": 4, "noise": 0.01, "steps": 20, "batch": 2}
    settings = Comparison(0.5, 0.8, "rank-one", "adamw", **numbers)
    record = compare(settings, POINTS[:2])
    share = (record.loss.values[-1] - CHAIN.entropy_rate) / CHAIN.mutual_information
    assert ((record.outcome.values == 1) <= (share <= 0.1)).all()
    assert set(record.outcome.values.tolist()) <= {0, 1}  # no sampled run is called trapped
    assert record.flow_predicted.values.tolist() == [1, 1]
    assert {"escape", "plateau_length"} <= set(record)
    draw_comparison(record)
    single = compare(replace(settings, dtype="float32"), POINTS[:2])
    assert 0 < np.abs(single.loss.values - record.loss.values).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["adamw-papers", "momentum"])
def test_sampled_training_of_lifts_is_its_reduced_map(trainer):
    """Without noise, on the same batches; a run that learns and one that does not, both right."""
    rate = 0.01 if trainer == "momentum" else None
    settings = Comparison(
        0.5, 0.8, "rank-one", trainer, d=4, length=6, steps=200, batch=4, learning_rate=rate
    )
    record = compare(settings, torch.cat([POINTS[:1], POINTS[2:3]]))
    assert np.abs(record.loss - record.reduced_loss).max() < 1e-9
    assert record.distance.values[:2].max() < 1e-9  # before the projection has another nearest α
    assert record.outcome.values.tolist() == record.predicted.values.tolist() == [1, 0]
    assert record.flow_predicted.values.tolist() == [1, 2]
    a, summary = record.attrs, summarize(record)
    assert (a["agreeing"], a["decided"], a["learned"], a["learned_predictions"]) == (2, 2, 1, 1)
    assert a["unresolved_outcomes"] == 0  # not learned within the steps is an outcome
    assert a["nudge"] == (0 if trainer in ("momentum", "sgd") else 1e-12)
    assert summary["by_flow"] == {
        "global_minimum": {"runs": 1, "learned": 1}, "local_minimum": {"runs": 1, "learned": 0},
    }  # fmt: skip
    assert summary["agreement_means"].startswith("a check that map and training agree")
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
    monkeypatch.setattr(chunks, "CHUNK_WITH_ATTENTION", 1)
    settings = Comparison(0.5, 0.8, "rank-one", d=3, length=3, noise=0.02)
    whole = compare(settings, POINTS)

    class Stop(Exception):
        pass

    def stop(done, total, where):
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


@pytest.mark.slow
def test_processes_give_the_numbers_of_one(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 2)
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


def test_sampled_batches_are_trained_together_and_resumed(tmp_path):
    settings = Comparison(
        0.5, 0.8, "rank-one", "adamw", d=3, length=4, noise=0.02, steps=20, batch=2
    )
    one = compare(settings, POINTS, tmp_path / "one")
    assert compare(settings, POINTS, jobs=2).identical(one)
    assert compare(settings, POINTS, tmp_path / "one", resume=True).identical(one)
    with pytest.raises(InputError, match="d is 3 there"):
        compare(replace(settings, d=2), POINTS, tmp_path / "one", resume=True)
    with pytest.raises(InputError, match="omit the scheduler"):
        compare(settings, POINTS, scheduler="tcp://127.0.0.1:9")
