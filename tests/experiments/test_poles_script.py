"""The script of poles and beliefs: its squared loss, and a tiny run."""

import json
from importlib import import_module

import numpy as np
import pytest
import torch


@pytest.mark.parametrize("decay", ["signed", "positive"])
def test_the_loss_is_the_sum_over_lags(decay):
    script = import_module("poles")
    theta = np.random.default_rng(3).normal(0, 0.5, 12)
    o, v, alpha = theta.reshape(3, 4)
    kappa = np.tanh(alpha) if decay == "signed" else 1 / (1 + np.exp(-alpha))
    lags = np.arange(500)
    weight = ((o * v) * kappa ** lags[:, None]).sum(1)

    def covariance(k):
        signals = script.VARIANCES * script.EIGENVALUES ** np.abs(k)[..., None]
        return signals.sum(-1) + script.NOISE * (k == 0)

    among = covariance(lags[:, None] - lags)
    expected = covariance(np.array(0)) - 2 * weight @ covariance(lags + 1) + weight @ among @ weight
    loss = script.Recurrence(4, decay).loss(torch.from_numpy(theta))
    assert float(loss) == pytest.approx(float(expected), rel=1e-10)


def run_small(name, folder, *options):
    """The module of a script that has run with these options, and its numbers."""
    script = import_module(name)
    assert script.main(["--out", str(folder), *options]) == 0
    return script, json.loads((folder / f"{name}.json").read_text())


@pytest.mark.slow
def test_plateaus_are_counted_and_beliefs_read(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("poles"), "SCALES", (1e-8,))
    options = ["--seeds", "1", "--times", "24", "--steps", "1"]
    _, found = run_small("poles", tmp_path, *options)
    assert found["signed, 1e-08"]["rests_at"]["2"] == 1
    assert (tmp_path / "poles.png").stat().st_size < 300_000


def test_switching_chains_forget_at_a_switch():
    script = import_module("selective")
    process = script.switching_chains()
    said = process.next_laws_of_any(np.array([[0, 0, 2, 0, 1, 1]]))[0]
    p, q = (x.ravel() for x in np.meshgrid(script.GRID, script.GRID, indexing="ij"))
    weight = p * (1 - q)  # of 0 → 1 → 1 behind the switch
    moves = (weight * q).sum() / weight.sum()
    assert said[2] == pytest.approx([0.5, 0.5, 0], abs=1e-12)
    assert said[-1] == pytest.approx([0.95 * moves, 0.95 * (1 - moves), 0.05], abs=1e-12)


@pytest.mark.slow
def test_mixers_are_measured_against_bayes(tmp_path, monkeypatch):
    """Every second of them; the others differ in numbers of the same settings."""
    script = import_module("selective")
    monkeypatch.setattr(script, "CASES", dict(list(script.CASES.items())[::2]))
    options = ["--seeds", "2", "--steps", "2", "--fresh", "16"]
    script, found = run_small("selective", tmp_path, *options)
    assert len([name for name in found if name in script.CASES]) == len(script.CASES)
    assert all(found[name]["median"] > 0 for name in script.CASES)
