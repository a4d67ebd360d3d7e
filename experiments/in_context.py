"""Training where every sequence has a kernel of its own: what each depth ends at, and its plateaus.

    python experiments/in_context.py            # minutes on two cores
    python experiments/in_context.py --full     # d = 64, N = 256, 25 000 steps of AdamW; hours

draws figures/in_context.png and writes figures/in_context.json: losses of transformers with two
logits on sequences of two states whose kernels are drawn anew, beside the exact losses of counting
in context, of Bayes's predictor and of who knows the kernel. Attention alone, relative positions,
one head, not tied, SGD; and with feed-forward layers, relative values and AdamW, since attention
alone reads its logits off shares that it averages linearly, while the best logit is a logarithm of
them. Seeds are 0, 1, 2 of each case; none is left out. Losses are over 256 held-out sequences of
each run, corrected by their errors of the baselines. There are two mixtures: 75 % doubly stochastic
kernels beside 25 % Dirichlet(1), and 75 % kernels of equal rows, whose symbols are independent,
beside 25 % doubly stochastic; there the unigram is best for three sequences of four.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.axes import Axes
from papers import made

from flowsim import DirichletPrior, DoublyStochasticPrior, FinitePrior, MixturePrior
from flowsim.chains.priors import Prior
from flowsim.drawing.curves import name_lines
from flowsim.drawing.style import INK, new_figure, save_figure
from full_model import Architecture, Recipe, RunSettings, train

FIGURES = Path(__file__).parents[1] / "figures"
SEEDS = (0, 1, 2)
DIRICHLET, DOUBLY = DirichletPrior(2), DoublyStochasticPrior(2)
#: Independent symbols, for which the unigram is best: the chance of a 1 is one of these.
CHANCES = np.arange(0.5, 20) / 20
INDEPENDENT = FinitePrior([[[1 - x, x], [1 - x, x]] for x in CHANCES])
PRIORS: dict[str, Prior] = {
    "Dirichlet(1)": DIRICHLET,
    "75 % doubly stochastic": MixturePrior([DOUBLY, DIRICHLET], [0.75, 0.25]),
    "doubly stochastic": DOUBLY,
    "75 % independent": MixturePrior([INDEPENDENT, DOUBLY], [0.75, 0.25]),
}
COLOURS = {
    "one layer": INK["saddle"],
    "two layers": INK["global_minimum"],
    "two layers, feed-forward": INK["local_minimum"],
}
STYLES = dict(zip(PRIORS, ("solid", "dashed", "dotted", "dashdot"), strict=True))


@dataclass(frozen=True)
class Sizes:
    """How large and how long; ``rate`` and ``trainer`` of attention alone."""

    d: int = 16
    length: int = 40
    batch: int = 32
    steps: int = 2400
    trainer: str = "sgd"
    rate: float = 1.0
    std: float = 0.1
    forward_steps: int = 1500
    forward_rate: float = 3e-3
    look: int = 20


FULL = Sizes(64, 256, 16, 25_000, "adamw", 1e-3, 0.02, 25_000, 1e-3, 100)


def main(sizes: Sizes, folder: Path = FIGURES) -> None:
    """Train every case, draw the curves and tabulate what they did."""
    torch.set_num_threads(1)
    records: dict[tuple[str, str], xr.Dataset] = {}
    lines = []
    for (model, kernels), settings in cases(sizes).items():
        began = time.perf_counter()
        records[model, kernels], _ = train(settings)
        line = summary(records[model, kernels])
        lines.append({"model": model, "kernels": kernels, **line})
        print(model, kernels, line, f"{time.perf_counter() - began:.0f} s", flush=True)
    command = "python experiments/in_context.py" + " --full" * (sizes == FULL)
    found = {"made": made(command), "sizes": vars(sizes), "seeds": SEEDS, "cases": lines}
    (folder / "in_context.json").write_text(json.dumps(found, indent=1) + "\n")
    save_figure(drawn(records), folder / "in_context.png")


def cases(sizes: Sizes) -> dict[tuple[str, str], RunSettings]:
    """The runs, by model and kernels."""
    name = "Dirichlet(1)"
    found = {("one layer", name): attention_alone(sizes, 1, DIRICHLET)}
    found |= {
        ("two layers", kernels): attention_alone(sizes, 2, prior)
        for kernels, prior in PRIORS.items()
    }
    arch = Architecture(
        sizes.d, sizes.length, 2, states=2, output="states", tied=False, hidden=4 * sizes.d,
        positions="relative-values",
    )  # fmt: skip
    recipe = Recipe(
        "adamw", sizes.forward_steps, batch=sizes.batch, learning_rate=sizes.forward_rate,
        schedule="constant", clip=1.0,
    )  # fmt: skip
    found["two layers, feed-forward", name] = settings(arch, recipe, sizes, DIRICHLET, 0.05)
    return found


def attention_alone(sizes: Sizes, layers: int, prior: Prior) -> RunSettings:
    """Layers of one head without feed-forward layers."""
    arch = Architecture(
        sizes.d, sizes.length, layers, states=2, output="states", tied=False, hidden=0,
        positions="relative",
    )  # fmt: skip
    recipe = Recipe(
        sizes.trainer, sizes.steps, batch=sizes.batch, learning_rate=sizes.rate,
        schedule="constant",
    )  # fmt: skip
    return settings(arch, recipe, sizes, prior, sizes.std)


def settings(
    arch: Architecture, recipe: Recipe, sizes: Sizes, prior: Prior, std: float
) -> RunSettings:
    """One run of all seeds, float32."""
    return RunSettings(
        arch, recipe, seeds=SEEDS, data=prior, init_std=std, telemetry_every=sizes.look,
        test_batch=256, dtype="float32",
    )  # fmt: skip


def summary(record: xr.Dataset) -> dict[str, Any]:
    """What every seed did, beside the baselines.

    "loss" is the mean over the last tenth of the looks. "at_unigram" counts steps with a loss
    within a tenth of the gap between unigram and Bayes of the unigram's; "half" is the first step
    from which on less than half of that gap is open for good.
    """
    known = dict(zip(record.baseline.values.tolist(), record.baseline_loss.values[0], strict=True))
    steps, losses = record.step.values, record.loss.values
    last = losses[-max(1, len(losses) // 10) :].mean(0)
    near = np.abs(losses - known["unigram"]) <= 0.1 * (known["unigram"] - known["Bayes"])
    half = [None if np.isnan(step) else int(step) for step in record.escape.values]
    return {
        "baselines": {name: float(x) for name, x in known.items()},
        "loss": last.tolist(),
        "at_unigram": (near.sum(0) * int(steps[1] - steps[0])).tolist(),
        "half": half,
        "previous": record.looks_back.values[-1, :, 0, :, 1].max(-1).tolist(),
        "finite": record.finite.values.tolist(),
    }


def drawn(records: dict[tuple[str, str], xr.Dataset]) -> Any:
    """Losses by model, open gaps by law of kernels, and attention to the previous symbol."""
    figure = new_figure(13.5, 4.6)
    left, middle, right = figure.subplots(1, 3)
    for (model, kernels), record in records.items():
        if kernels == "Dirichlet(1)":
            curves(left, record, record.loss.values, model, color=COLOURS[model])
    known = next(iter(records.values()))
    names, values = known.baseline.values.tolist(), known.baseline_loss.values[0].tolist()
    left.set(ylim=(min(values) - 0.01, max(values) + 0.01), ylabel="loss (nats)",
             title="Dirichlet(1) kernels, by model")  # fmt: skip
    name_lines(left, list(zip(names, values, strict=True)))
    for (model, kernels), record in records.items():
        if model != "two layers":
            continue
        style = {"linestyle": STYLES[kernels], "color": COLOURS[model]}
        own = dict(zip(names, record.baseline_loss.values[0].tolist(), strict=True))
        share = (record.loss.values - own["Bayes"]) / (own["uniform"] - own["Bayes"])
        curves(middle, record, share, kernels, **style)
        curves(right, record, record.looks_back.values[:, :, 0, 0, 1], kernels, **style)
    middle.set(ylim=(0, 1.1), ylabel="open share of the gap from uniform to Bayes",
               title="two layers, by law of kernels")  # fmt: skip
    right.set(ylim=(0, 1), ylabel="attention to the previous symbol",
              title="first layer of the two")  # fmt: skip
    for ax in (left, middle, right):
        ax.set_xlabel("step")
        ax.legend(fontsize=8, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.94))
    return figure


def curves(ax: Axes, record: xr.Dataset, values: np.ndarray, label: str, **style: Any) -> None:
    """One line a seed, named once."""
    for i, column in enumerate(values.T):
        ax.plot(record.step, column, linewidth=0.9, label=label if not i else None, **style)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="at the published sizes: hours")
    sys.exit(main(FULL if parser.parse_args().full else Sizes()))
