"""Does memory of one sign decide? State-space layers on hidden chains, by flow and by training."""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, ORANGE, PINK, experiment, read_linearly, timed

from flowsim.chains.hidden import HiddenMarkovProcess, hidden_baselines, process
from flowsim.models.memory.model import MemoryModel
from full_model import Architecture, Recipe, RunSettings, forward, train, wilson
from full_model.model.population import PopulationLoss
from full_model.training.settings import source_of

#: Sources with the length of the sequences and, of lifted layers, (p, e, w) outside the trap.
SOURCES = {"flips, p + q = 1.8": ("flips", {"p": 0.9, "q": 0.9, "epsilon": 0.2}, 5),
           "flips, p + q = 0.2": ("flips", {"p": 0.1, "q": 0.1, "epsilon": 0.2}, 5),
           "Mess3 (0.05, 0.85)": ("mess3", {"x": 0.05, "a": 0.85}, 4)}  # fmt: skip
FLOWS = {"flips, p + q = 1.8": (0.9, 0.6, -1.2), "flips, p + q = 0.2": (0.1, 0.6, 0.5)}
DECAYS = ("positive", "signed")
SPACE: dict[str, dict[str, Any]] = {
    f"{decay}, {count}": {"attention": "ssm", "decay": decay, "channels": count}
    for decay in DECAYS for count in (1, 7)
}  # fmt: skip
MIXERS: dict[str, dict[str, Any]] = {"none": {"attention": "none"}, "attention": {}, **SPACE}
#: Weights alone, and with hidden units.
WIDTHS = (0, 16)
#: Euler steps of the flow, at most so long in time and in θ.
TIME, LENGTH = 0.5, 0.02
CLASSES = ("unigram", "bigram", "below the bigram", "filter")


def compute(seeds: int = 20, steps: int = 400, cells: int = 20, descent: int = 8000) -> xr.Dataset:
    """Ends of lifted layers over (α, v), and losses of training by source and mixer."""
    loss, levels, beliefs = [], [], []
    for name in timed(SOURCES):
        kind, values, length = SOURCES[name]
        source = process(kind, **values)
        known = hidden_baselines(source, length)
        levels.append([known[k] for k in ("unigram", "bigram", "Bayes")])
        runs, fits = [], []
        for mixer in MIXERS.values():
            for width in WIDTHS:
                found, fit = _train_untied(source, length, mixer, width, seeds, steps)
                runs.append(found)
                fits.append(fit)
        loss.append(np.reshape(runs, (len(MIXERS), len(WIDTHS), seeds)))
        beliefs.append(np.reshape(fits, (len(MIXERS), len(WIDTHS), seeds)))
    lifted = np.array([_follow_lifted(name, cells, descent) for name in timed(FLOWS)])
    trapped = [[_train_tied(name, MIXERS[m], seeds, steps) for m in ("none", "attention", *SPACE)]
               for name in FLOWS]  # fmt: skip
    dims = ("source", "mixer", "width", "seed")
    data = {
        "loss": (dims, np.array(loss)),
        "belief_r2": (dims, np.array(beliefs)),
        "level": (("source", "baseline"), np.array(levels)),
        "tied_loss": (("side", "mixer", "seed"), np.array(trapped)),
        "lifted_loss": (("side", "decay", "v", "alpha"), lifted),
    }
    axis = _axis(cells)
    return xr.Dataset(data, coords={
        "source": list(SOURCES), "mixer": list(MIXERS), "width": list(WIDTHS),
        "baseline": ["unigram", "bigram", "Bayes"], "side": list(FLOWS), "decay": list(DECAYS),
        "v": axis, "alpha": axis,
    })  # fmt: skip


def _axis(cells: int) -> np.ndarray:
    return np.linspace(-1.2, 1.2, 2 * (cells // 2))  # 0, where v rests, is no cell


def _follow_lifted(flow: str, cells: int, descent: int) -> np.ndarray:
    """Losses after steps of the flow of four numbers, that of lifted layers, (decay, v, α)."""
    p, e, w = FLOWS[flow]
    axis = torch.from_numpy(_axis(cells))
    v, alpha = (x.flatten() for x in torch.meshgrid(axis, axis, indexing="ij"))
    losses = []
    for decay in DECAYS:
        theta = torch.stack([torch.full_like(v, e), torch.full_like(v, w), v, alpha], dim=-1)
        model = MemoryModel(p, 0.2, 2, 4, decay=decay)
        metric = torch.tensor(model.metric)
        for _ in range(descent):
            speed = model.gradient(theta) / metric
            length = speed.norm(dim=-1, keepdim=True)
            theta = theta - speed * (LENGTH / length.clamp(min=1e-300)).clamp(max=TIME)
        losses.append(model.loss(theta).reshape(len(axis), -1).numpy())
    return np.array(losses)


def _settings(source: HiddenMarkovProcess, length: int, mixer: dict[str, Any], width: int,
              seeds: int, recipe: Recipe, **more: Any) -> RunSettings:  # fmt: skip
    states = source.symbols
    arch = Architecture(4, length, hidden=width, states=states, output="states", **mixer, **more)
    return RunSettings(arch, recipe, data=source, seeds=tuple(range(seeds)), init_std=0.2,
                       telemetry_every=recipe.steps, checkpoint_every=recipe.steps)  # fmt: skip


def _train_untied(
    source: HiddenMarkovProcess, length: int, mixer: dict[str, Any], width: int, seeds: int,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Final losses of untied layers by Adam on the exact loss, and R² of beliefs, of every seed."""
    if mixer.get("attention") == "none" and not width:
        return np.full(seeds, np.nan), np.full(seeds, np.nan)
    recipe = Recipe("adamw", steps=steps, learning_rate=0.02, loss="population", weight_decay=0.0,
                    schedule="cosine")  # fmt: skip
    settings = _settings(source, length, mixer, width, seeds, recipe, tied=False)
    record, weights = train(settings)
    exact = PopulationLoss(settings.arch, source_of(source))
    trace: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        forward(settings.arch, weights, exact.tokens, trace)
    wanted = torch.from_numpy(source.beliefs(exact.tokens.long().numpy())[:, 1:, :-1])
    fits = [read_linearly(y, wanted, exact.probability[0])[1] for y in trace["0.y"]]
    return record.loss[-1].values, np.array(fits)


def _train_tied(source: str, mixer: dict[str, Any], seeds: int, steps: int) -> np.ndarray:
    """Final losses of tied layers by descent on the exact loss."""
    kind, values, length = SOURCES[source]
    recipe = Recipe("gd", steps=steps, learning_rate=0.5)
    record, _ = train(_settings(process(kind, **values), length, mixer, 16, seeds, recipe))
    return record.loss[-1].values


def gained(record: xr.Dataset) -> xr.DataArray:
    """(H₂ − L)/(H₂ − Bayes): 0 at the bigram, 1 at Bayes's predictor."""
    bigram, best = (record.level.sel(baseline=b) for b in ("bigram", "Bayes"))
    return (bigram - record.loss) / (bigram - best)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Gains by source, mixer and width; where tied and lifted layers end."""
    gain, found = gained(record), {}
    for source in record.source.values:
        for mixer in record.mixer.values:
            for width in record.width.values:
                part = gain.sel(source=source, mixer=mixer, width=width).values
                fit = record.belief_r2.sel(source=source, mixer=mixer, width=width).values
                if np.isnan(part).all():
                    continue
                count = int((part > 0.9).sum())
                found[f"{source}; {mixer}; hidden {width}"] = {
                    "gain": [float(np.median(part)), float(part.min()), float(part.max())],
                    "above_0.9": count,
                    "interval": wilson(count, len(part)),
                    "belief_r2": float(np.median(fit)),
                }
    tied = {}
    for side in record.side.values:
        unigram = float(record.level.sel(source=side, baseline="unigram"))
        bigram = float(record.level.sel(source=side, baseline="bigram"))
        for mixer in record.mixer.values:
            loss = record.tied_loss.sel(side=side, mixer=mixer).values
            count = int((loss > unigram - 0.05 * (unigram - bigram)).sum())
            tied[f"{side}; {mixer}"] = {"at_unigram": count, "interval": wilson(count, len(loss))}
    lifted = {}
    for side in record.side.values:
        for decay in record.decay.values:
            kinds = classes(record, side, decay)
            one: dict[str, float] = {
                name: int((kinds == i).sum()) for i, name in enumerate(CLASSES)
            }
            one["least_loss"] = float(record.lifted_loss.sel(side=side, decay=decay).min())
            lifted[f"{side}; {decay}"] = one
    return {"training": found, "tied": tied, "lifted": lifted}


def classes(record: xr.Dataset, side: str, decay: str) -> np.ndarray:
    """0 to 3 by ``CLASSES``: within 1e-4 of H₁, of H₂, below, or within 1e-3 of the best."""
    loss = record.lifted_loss.sel(side=side, decay=decay).values
    unigram, bigram = (float(record.level.sel(source=side, baseline=b))
                       for b in ("unigram", "bigram"))  # fmt: skip
    least = float(record.lifted_loss.sel(side=side).min())
    found = np.full(loss.shape, 2)
    found[abs(loss - unigram) < 1e-4] = 0
    found[abs(loss - bigram) < 1e-4] = 1
    found[loss < least + 1e-3] = 3
    return found


def draw(record: xr.Dataset) -> Figure:
    """Planes (α, v) of lifted layers, and gains of whole training."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    axes = figure.subplots(2, 3, width_ratios=(1, 1, 1.5))
    colours = [ORANGE, GREY, PINK, BLUE]
    for i, side in enumerate(record.side.values):
        for j, decay in enumerate(record.decay.values):
            kinds = classes(record, side, decay)
            for k, name in enumerate(CLASSES):
                rows, columns = np.nonzero(kinds == k)
                axes[i, j].scatter(record.alpha[columns], record.v[rows], s=14, c=colours[k],
                                   marker="sxvo"[k], label=name, linewidths=0.8)  # fmt: skip
            axes[i, j].set(title=f"{side}\n{decay} memory", xlabel="decay α at the start",
                           ylabel="weight v at the start" if j == 0 else "")  # fmt: skip
    gain = gained(record)
    for i, width in enumerate(reversed(WIDTHS)):
        panel, marks = axes[i, 2], ("o", "s", "^")
        for k, source in enumerate(record.source.values):
            part = gain.sel(source=source, width=width).values
            for j, each in enumerate(part):
                place = j + (k - 1) * 0.22 + np.linspace(-0.07, 0.07, len(each))
                panel.plot(place, each.clip(-0.6), marks[k], ms=3, alpha=0.6,
                           c=(BLUE, PINK, GREEN)[k], label=source if j == 1 else "")  # fmt: skip
        panel.axhline(0, color=GREY, lw=0.8)
        panel.axhline(1, color=GREY, lw=0.8, ls=":")
        panel.set_xticks(range(gain.sizes["mixer"]), gain.mixer.values, rotation=20, fontsize=8)
        panel.set_xlim(-0.5, gain.sizes["mixer"] - 0.5)
        units = f"{width} hidden units" if width else "without hidden units"
        panel.set(title=f"whole layers, {units}", ylabel="gain: bigram 0, Bayes 1")
        if i == 0:
            panel.legend(fontsize=7, loc="lower center")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
    figure.suptitle("Memory of one sign: how much of what lies beyond the bigram is learned")
    return figure


main = experiment(__name__, compute, numbers, draw)
