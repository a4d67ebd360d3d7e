"""The state-space layer against loops, and what it trains on."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from command import run

import flowsim
from flowsim.chains.hidden import HiddenMarkovProcess, hidden_baselines, process
from flowsim.errors import InputError
from full_model import Architecture, PopulationLoss, Recipe, RunSettings, forward, train
from full_model.model.hidden_source import HiddenSource
from full_model.model.state_space import scan

CASES = [
    Architecture(4, 7, attention="ssm"),
    Architecture(4, 7, attention="ssm", decay="positive", channels=7, tied=False),
    Architecture(3, 6, attention="ssm", convolution=3, states=3, output="states", channels=2),
    Architecture(4, 6, 2, attention="ssm", convolution=2, channel_activation="relu",
                 layer_norm=True, hidden=0),
    Architecture(4, 6, convolution=2, heads=2),
    Architecture(4, 6, attention="selective", convolution=2, channel_activation="relu"),
    Architecture(3, 5, 2, attention="selective", states=3, output="states", layer_norm=True),
    Architecture(4, 6, convolution=3, attention="uniform"),
    Architecture(4, 6, attention="ssm", channels=3, gated=True, layer_norm=True),
    Architecture(4, 6, attention="selective", convolution=2, gated=True),
]  # fmt: skip


def draw(arch, seed=0):
    rng = np.random.default_rng(seed)
    return {k: torch.from_numpy(np.asarray(rng.normal(0, 0.7, s))) for k, s in arch.shapes.items()}


def by_loops(arch, weights, tokens):
    """One sequence and one position at a time; logits (batch, n, logits)."""
    w = {name: x.numpy() for name, x in weights.items()}
    found = []

    def norm(v, name):
        if name not in w:
            return v
        v = v - v.mean()
        return w[name] * v / math.sqrt((v * v).mean() + 1e-5)

    for sequence in tokens.tolist():
        if arch.output == "binary":
            x = [s * w["embedding"] + p for s, p in zip(sequence, w["positions"], strict=False)]
        else:
            x = [w["embedding"][s] + p for s, p in zip(sequence, w["positions"], strict=False)]
        for layer in range(arch.layers):

            def read(kind, x=x, layer=layer):
                plain = [w[f"{layer}.{kind}"] @ norm(v, f"{layer}.norm1") for v in x]
                taps = w.get(f"{layer}.{kind}_taps", [])
                return [u + sum(t * plain[n - j] for j, t in enumerate(taps) if j <= n)
                        for n, u in enumerate(plain)]  # fmt: skip

            def gated(h, n, x=x, layer=layer):
                if not arch.gated:
                    return h
                z = w[f"{layer}.output_gate"] @ norm(x[n], f"{layer}.norm1")
                return h * z / (1 + np.exp(-z))

            value, y = read("value"), []
            if arch.attention == "ssm":
                raw = w[f"{layer}.decay"]
                a = np.tanh(raw) if arch.decay == "signed" else 1 / (1 + np.exp(-raw))
                h = 0 * value[0]
                for n, u in enumerate(value):
                    h = a * h + (np.maximum(u, 0) if arch.channel_activation else u)
                    y.append(x[n] + w[f"{layer}.out"] @ gated(h, n))
            elif arch.attention == "selective":
                key, query, H = read("key"), read("query"), 0
                for n, u in enumerate(value):
                    gate = w[f"{layer}.gate"] @ norm(x[n], f"{layer}.norm1")
                    a = 1 / (1 + np.exp(-gate - w[f"{layer}.decay"]))
                    u, k, z = (
                        np.maximum(vector, 0) if arch.channel_activation else vector
                        for vector in (u, key[n], query[n])
                    )
                    H = a * H + np.outer(u, k)
                    y.append(x[n] + w[f"{layer}.out"] @ gated(H @ z, n))
            else:
                m, softmax = arch.d // arch.heads, arch.attention == "softmax"
                query, key = (read(k) if softmax else value for k in ("query", "key"))
                for n in range(len(x)):
                    mixed = np.zeros(arch.d)
                    for j in range(arch.heads):
                        part = slice(j * m, (j + 1) * m)
                        score = np.array([query[n][part] @ k[part] for k in key[: n + 1]])
                        share = np.exp(score / math.sqrt(m) * softmax)
                        past = np.array([v[part] for v in value[: n + 1]])
                        mixed[part] = share / share.sum() @ past
                    y.append(x[n] + w[f"{layer}.out"] @ mixed)
            x = y
            if arch.width:
                up, down = w[f"{layer}.up"], w[f"{layer}.down"]
                x = [v + down @ np.maximum(up @ norm(v, f"{layer}.norm2"), 0) for v in y]
        reader = w["embedding"] if arch.tied else w["unembedding"]
        found.append([reader @ norm(v, "norm") + w["bias"] for v in x])
    return np.array(found)


@pytest.mark.parametrize("arch", CASES, ids=str)
def test_the_layer_is_its_equations_written_as_loops(arch):
    weights, rng = draw(arch), np.random.default_rng(1)
    tokens = torch.from_numpy(rng.integers(0, arch.states, (4, arch.length)))
    found = forward(arch, weights, tokens).numpy()
    assert np.abs(found - by_loops(arch, weights, tokens)).max() < 1e-12


def recur(decay, inputs):
    """The states of ``scan``, one position after the other."""
    h, states = torch.zeros_like(inputs[..., 0, :]), []
    for u in inputs.unbind(-2):
        h = decay.unsqueeze(-2) * h + u
        states.append(h)
    return torch.stack(states, dim=-2)


@pytest.mark.parametrize("length", [1, 2, 7, 64])
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


def test_weights_next_to_attention_are_as_many_but_one():
    def count(arch):
        return sum(math.prod(shape) for shape in arch.shapes.values())

    for d in (1, 4, 9):
        space = Architecture(d, 6, attention="ssm", channels=2 * d - 1)
        assert count(space) == count(Architecture(d, 6)) - 1


@pytest.mark.parametrize("given, said", [
    ({"attention": "ssm", "heads": 2}, "neither heads"),
    ({"attention": "ssm", "window": 2}, "neither heads"),
    ({"attention": "ssm", "decay": "odd"}, "signed, positive, not 'odd'"),
    ({"decay": "signed"}, "of a state-space layer"),
    ({"channels": 3}, "of a state-space layer"),
    ({"gated": True}, "a gate of channels are of a state-space layer"),
    ({"attention": "none", "convolution": 2}, "and is none"),
    ({"attention": "ssm", "channels": 0}, "channels must be"),
])  # fmt: skip
def test_choices_that_do_not_go_together_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        Architecture(4, 6, **given)


@pytest.mark.parametrize("name", ["flips", "mess3", "even"])
def test_a_hidden_source_has_the_laws_of_its_process(name):
    hidden = process(name)
    source = HiddenSource(hidden, 2)
    tokens, targets = source.sample(3000, 3, torch.Generator().manual_seed(1))
    assert tokens.shape == (2, 3000, 3) and bool((tokens[..., 1:] == targets[..., :-1]).all())
    words = torch.cat([tokens, targets[..., -1:]], -1).reshape(-1, 4).long().numpy()
    for word in itertools.product(range(hidden.symbols), repeat=4):
        ahead = np.array(hidden.hidden.stationary)
        for x in word:
            ahead = ahead @ hidden.transitions[x]
        law = ahead.sum()
        assert abs((words == word).all(1).mean() - law) <= 5 * math.sqrt(law / 6000)
    assert source.next_laws(tokens)[1, 0] == pytest.approx(hidden.next_laws(tokens[1, 0].numpy()))


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


def test_no_least_loss_is_said_where_the_bounds_are_apart():
    slow = HiddenMarkovProcess.from_emission([[0.999, 0.001], [0.001, 0.999]],
                                             [[0.6, 0.4], [0.4, 0.6]])  # fmt: skip
    with pytest.raises(InputError, match="is not known"):
        hidden_baselines(slow, 64)


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
    refused = run("train", "--process", "flips", "--p", "0.5", cwd=tmp_path)
    assert refused.returncode == 2 and "omit the other options" in refused.stderr
