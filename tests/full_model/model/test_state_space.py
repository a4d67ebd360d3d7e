"""The state-space layer against loops, and what it trains on."""

import json

import pytest
import torch
from command import run

import flowsim
from flowsim.chains.hidden import hidden_baselines, process
from full_model import Architecture, PopulationLoss, Recipe, RunSettings, train
from full_model.model.sources import HiddenSource
from full_model.model.transformer import scan


def recur(decay, inputs):
    """The states of ``scan``, one position after the other."""
    h, states = torch.zeros_like(inputs[..., 0, :]), []
    for u in inputs.unbind(-2):
        h = decay.unsqueeze(-2) * h + u
        states.append(h)
    return torch.stack(states, dim=-2)


@pytest.mark.parametrize("length", [1, 7, 64])
def test_the_scan_is_the_recurrence(length):
    draws = torch.Generator().manual_seed(length)
    decay = 2 * torch.rand(3, 5, dtype=torch.float64, generator=draws) - 1
    decay[0, 0], decay[0, 1] = 0.0, 0.999
    inputs = torch.randn(3, 2, length, 5, dtype=torch.float64, generator=draws)
    ways = []
    for way in (scan, recur):
        a, u = decay.clone().requires_grad_(), inputs.clone().requires_grad_()
        h = way(a, u)
        ways.append((h.detach(), *torch.autograd.grad(h.square().sum(), [a, u])))
    for one, other in zip(*ways, strict=True):
        assert (one - other).abs().max() <= 1e-12 * other.abs().max().clamp(min=1)


@pytest.mark.parametrize("name", ["flips", "mess3"])
def test_bayes_is_the_loss_of_its_own_predictions(name):
    """The exact loss of logits log P(x_{n+1} | x_1 … x_n), by all sequences of five symbols."""
    hidden, n = process(name), 5
    arch = Architecture(4, n, states=hidden.symbols, output="states", attention="ssm")
    exact = PopulationLoss(arch, HiddenSource(hidden))
    laws = exact.targets[0]
    bayes = -(torch.xlogy(laws, laws).sum(-1).mean(-1) * exact.probability[0]).sum()
    known = hidden_baselines(hidden, n)
    assert known["Bayes"] == pytest.approx(float(bayes), abs=1e-13)
    assert float(exact.probability.sum()) == pytest.approx(1, abs=1e-13)
    assert known["Bayes"] < known["bigram"] < known["unigram"] <= known["uniform"] + 1e-12


def test_training_goes_below_the_bigram_and_goes_on_from_a_checkpoint(tmp_path):
    arch = Architecture(4, 6, hidden=0, states=2, output="states", attention="ssm", tied=False)
    whole = Recipe("gd", steps=300, learning_rate=1.0)
    settings = RunSettings(arch, whole, data=process("flips"), seeds=(0,), init_std=0.5,
                           checkpoint_every=100)  # fmt: skip
    record, weights = train(settings, tmp_path / "run.safetensors")
    loss, bigram = float(record.loss[-1, 0]), float(record.baseline_loss[0, 2])
    assert float(record.entropy_rate if "entropy_rate" in record else 0) < loss < bigram
    assert record.attrs["prior"] == "hidden" and record.attrs["loss_is"] == "exact population loss"
    _, again = train(settings, tmp_path / "run.safetensors", resume=True)
    assert all(bool((again[name] == weights[name]).all()) for name in weights)


def test_the_command_trains_it_on_a_process(tmp_path):
    words = ["--process", "mess3:x=0.05,a=0.85", "--mixer", "ssm", "--decay", "positive", "--d",
             "4", "--length", "12", "--steps", "20", "--channels", "3", "--convolution", "2",
             "--channel-relu", "--hidden", "6"]  # fmt: skip
    done = run("train", *words, "--quiet", "--json", "--plot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = flowsim.read_record(tmp_path / "train.nc")
    arch = json.loads(record.attrs["settings"])["arch"]
    assert (arch["attention"], arch["decay"], arch["channels"]) == ("ssm", "positive", 3)
    assert list(record.baseline.values) == ["uniform", "unigram", "bigram", "Bayes"]
