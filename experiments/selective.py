"""Does a convolution let one layer count in context? A selective recurrence and attention."""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from papers import BLUE, GREY, experiment, spread, timed

from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.chains.priors import DirichletPrior, FinitePrior
from full_model import Architecture, Recipe, RunSettings, Weights, forward, initial_weights, train
from full_model.model.transformer import cross_entropy
from full_model.training.settings import Data, source_of

D, LENGTH, BATCH, RATE = 8, 32, 32, 1e-2
SELECTIVE: dict[str, Any] = {"attention": "selective", "positions": "none"}
WITH_CONVOLUTION = {**SELECTIVE, "convolution": 2}
RELU = {"channel_activation": "relu"}
#: Order k of the chains, what mixes the positions, and how many times the steps.
CASES: dict[str, tuple[int, dict[str, Any], int]] = {
    "selective, no convolution": (1, SELECTIVE, 1),
    "selective, w = 2": (1, WITH_CONVOLUTION, 1),
    "selective, w = 2, ReLU": (1, {**WITH_CONVOLUTION, **RELU}, 1),
    "selective, w = 2, gated": (1, {**WITH_CONVOLUTION, "gated": True}, 1),
    "two selective layers": (1, {**SELECTIVE, "layers": 2}, 4),
    "attention, no convolution": (1, {}, 1),
    "attention, w = 2": (1, {"convolution": 2}, 1),
    "order 2: w = 3": (2, {**SELECTIVE, "convolution": 3}, 5),
    "order 2: w = 2, ReLU": (2, {**WITH_CONVOLUTION, **RELU}, 5),
    "order 2: w = 3, ReLU": (2, {**SELECTIVE, **RELU, "convolution": 3}, 5),
}
#: Decays of the recurrence at the start, as a raw number: 0.98.
KEPT = 4.0
#: Switching chains: kernels (p, q) on a grid, the chance of a switch, positions.
GRID, SWITCH, SWITCHING_LENGTH = (np.arange(5) + 0.5) / 5, 0.05, 48
#: Kernels that are trained on have p and q below one half, all others above; positions.
SEEN, UNSEEN_LENGTH = (np.arange(16) + 0.5) / 32, 128


def compute(seeds: int = 10, steps: int = 600, fresh: int = 1024) -> xr.Dataset:
    """Gaps to Bayes's predictor by case; decays of switching chains; errors on unseen kernels."""
    gaps = []
    for name in timed(CASES):
        order, mixer, times = CASES[name]
        prior = DirichletPrior(2, order)
        arch, weights = _trained(prior, LENGTH, mixer, seeds, times * steps)
        gaps.append(_gap(arch, weights, prior, fresh))
    switching = switching_chains()
    arch, weights = _trained(switching, SWITCHING_LENGTH, WITH_CONVOLUTION, seeds, 2 * steps)
    several = np.stack(np.meshgrid(SEEN, SEEN), -1).reshape(-1, 2)
    seen, unseen = (FinitePrior([_kernel(p, q) for p, q in several + more]) for more in (0, 0.5))
    other, read = _trained(seen, UNSEEN_LENGTH, WITH_CONVOLUTION, seeds, 2 * steps)
    return xr.Dataset(
        {
            "gap": (("case", "seed", "position"), np.array(gaps)),
            "switching_gap": (("seed", "late"), _gap(arch, weights, switching, fresh)),
            "decay": (("seed", "symbol"), decays(weights)),
            "error": (("kernels", "seed", "position_of_128"),
                      np.array([_error(other, read, prior, fresh) for prior in (seen, unseen)])),
        },
        {"case": list(CASES), "position": np.arange(1, LENGTH + 1), "kernels": ["seen", "unseen"],
         "symbol": ["0", "1", "switch"]},
    )  # fmt: skip


def switching_chains() -> HiddenMarkovProcess:
    """Chains whose kernel is drawn anew, from a grid, where the symbol 2 announces it.

    Hidden states are the kernel with the last symbol, 2k + s, and one behind the announcement.
    """
    several = [_kernel(p, q) for p in GRID for q in GRID]
    last = 2 * len(several)
    T = np.zeros((3, last + 1, last + 1))
    for k, kernel in enumerate(several):
        for after in range(2):
            T[after, [2 * k, 2 * k + 1], 2 * k + after] = (1 - SWITCH) * np.array(kernel)[:, after]
            T[after, last, 2 * k + after] = 1 / last
    T[2, :last, last] = SWITCH
    return HiddenMarkovProcess(T)


def _kernel(p: float, q: float) -> list[list[float]]:
    return [[1 - p, p], [q, 1 - q]]


def _trained(data: Data, length: int, mixer: dict[str, Any], seeds: int,
             steps: int) -> tuple[Architecture, Weights]:  # fmt: skip
    states = getattr(data, "symbols", 2)
    arch = Architecture(
        D, length, states=states, output="states", tied=False, layer_norm=True, **mixer
    )
    recipe = Recipe("adamw", steps=steps, learning_rate=RATE, batch=BATCH, loss="sampled",
                    schedule="cosine", weight_decay=1e-3)  # fmt: skip
    settings = RunSettings(arch, recipe, data=data, seeds=tuple(range(seeds)), init="given",
                           telemetry_every=steps, checkpoint_every=steps,
                           dtype="float32")  # fmt: skip
    first = initial_weights(arch, "gaussian", settings.seeds, std=0.3)
    for key in first:
        if key.endswith(".decay"):
            first[key] = torch.full_like(first[key], KEPT)
    _, weights = train(settings, initial=first)
    return arch, {name: w.double() for name, w in weights.items()}


def _gap(arch: Architecture, weights: Weights, data: Data, fresh: int) -> np.ndarray:
    """KL divergence from Bayes's predictor, (seed, position)."""
    draws = torch.Generator().manual_seed(1)
    tokens, laws = source_of(data).held_out(fresh, arch.length, draws)
    with torch.no_grad():
        lost = cross_entropy(arch, forward(arch, weights, tokens[0]), laws[0].double())
    return (lost + torch.xlogy(laws[0], laws[0]).sum(-1)).mean(-2).numpy()


def _error(arch: Architecture, weights: Weights, data: Data, fresh: int) -> np.ndarray:
    """Mean |P(1) − add-one counting|, (seed, position), on sequences of ``data``."""
    tokens, _ = source_of(data).sample(fresh, arch.length, torch.Generator().manual_seed(2))
    counted = source_of(DirichletPrior(2)).next_laws(tokens[0])[0]
    with torch.no_grad():
        said = forward(arch, weights, tokens[0]).softmax(-1)
    return (said - counted)[..., 1].abs().mean(-2).numpy()


def decays(weights: Weights) -> np.ndarray:
    """a_n after each symbol, (seed, symbol), of one selective layer without positions."""
    x = weights["embedding"]
    x = x - x.mean(-1, keepdim=True)
    x = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weights["0.norm1"][:, None]
    raw = (x @ weights["0.gate"][..., None])[..., 0] + weights["0.decay"]
    return raw.sigmoid().numpy()


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Mean over positions of the gap to Bayes's predictor, by case: all seeds, median."""
    found = {}
    for case in record.case.values:
        part = record.gap.sel(case=case).mean("position").values
        found[case] = {"median": float(np.median(part)), "seeds": [float(x) for x in np.sort(part)],
                       "at_last": float(np.median(record.gap.sel(case=case)[:, -1]))}  # fmt: skip
    found["switching chains"] = {
        "gap": [float(x) for x in np.sort(record.switching_gap.mean("late").values)],
        "decay": {
            name: [float(end(record.decay.sel(symbol=name))) for end in (np.min, np.max)]
            for name in record.symbol.values
        },
    }
    found["p and q above one half, trained below"] = {
        f"at {n}": {name: [*spread(record.error.sel(kernels=name)[:, n - 1].values).values()]
                    for name in record.kernels.values}
        for n in (1, 50, 100, UNSEEN_LENGTH)
    }  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """The gap of every seed by case; decays of switching chains; errors on unseen kernels."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 0.8, 1.2))
    cases = list(record.case.values)
    for i, case in enumerate(cases):
        gap = record.gap.sel(case=case).mean("position").values
        left.plot(gap, np.full(len(gap), i), "o", c=BLUE, ms=4, alpha=0.7)
    left.set_yticks(range(len(cases)), cases)
    left.invert_yaxis()
    left.set(xlabel="nats above Bayes's predictor", xscale="log", title="gap, mean over positions")
    left.xaxis.set_minor_formatter(NullFormatter())
    for i, symbol in enumerate(record.symbol.values):
        kept = record.decay.sel(symbol=symbol).values
        middle.plot(i + np.linspace(-0.15, 0.15, len(kept)), kept, "o", c=BLUE, ms=4, alpha=0.7)
    middle.set_xticks(range(3), record.symbol.values)
    middle.set(xlabel="present symbol", ylabel="decay", ylim=(-0.03, 1.03), xlim=(-0.5, 2.5),
               title="switching chains, w = 2")  # fmt: skip
    place = np.arange(1, record.sizes["position_of_128"] + 1)
    for name, colour in (("seen", BLUE), ("unseen", GREY)):
        error = record.error.sel(kernels=name)
        right.plot(place, error.T, c=colour, lw=0.9)
        right.plot([], [], c=colour, label=f"p, q {'below' if name == 'seen' else 'above'} 1/2")
    right.set(xlabel="position", ylabel="|P(1) − add-one counting|", yscale="log",
              title="trained on p, q below 1/2")  # fmt: skip
    right.legend(fontsize=8)
    return figure


main = experiment(__name__, compute, numbers, draw)
