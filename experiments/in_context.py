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

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import GREEN, ORANGE, PINK, experiment, timed

from flowsim import DirichletPrior, DoublyStochasticPrior, FinitePrior, MixturePrior
from flowsim.chains.priors import Prior
from flowsim.drawing.curves import name_lines
from flowsim.drawing.style import INK, new_figure
from full_model import Architecture, Recipe, RunSettings, train

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
#: Model and kernels.
Case = tuple[str, str]
Records = dict[Case, xr.Dataset]
Runs = dict[Case, RunSettings]
#: Of the laws of kernels: the first has the colour of the two layers that it trains.
LAWS = dict(zip(PRIORS, (INK["global_minimum"], ORANGE, GREEN, PINK), strict=True))


FULL = {"d": 64, "length": 256, "batch": 16, "steps": 25_000, "trainer": "adamw", "rate": 1e-3,
        "std": 0.02, "forward_steps": 25_000, "forward_rate": 1e-3, "look": 100}  # fmt: skip


def compute(d: int = 16, length: int = 40, batch: int = 32, steps: int = 2400, trainer: str = "sgd",
            rate: float = 1.0, std: float = 0.1, forward_steps: int = 1500,
            forward_rate: float = 3e-3, look: int = 20) -> Records:  # fmt: skip
    """Every case trained; ``trainer``, ``rate`` and ``std`` are of attention alone."""
    runs = cases(d, length, batch, steps, trainer, rate, std, forward_steps, forward_rate, look)
    return {case: train(runs[case])[0] for case in timed(runs)}


def cases(d: int, length: int, batch: int, steps: int, trainer: str, rate: float, std: float,
          forward_steps: int, forward_rate: float, look: int) -> Runs:  # fmt: skip
    """The runs of all seeds, float32, by model and kernels."""
    states: dict[str, Any] = {"states": 2, "output": "states", "tied": False}
    how: dict[str, Any] = {"batch": batch, "schedule": "constant"}
    seen: dict[str, Any] = {"telemetry_every": look, "test_batch": 256, "dtype": "float32"}
    papers: dict[str, Any] = {"beta2": 0.95, "weight_decay": 1e-3}
    attention = Recipe(trainer, steps, learning_rate=rate, **how,
                       **(papers if trainer == "adamw" else {}))  # fmt: skip
    found = {}
    for layers, model, priors in ((1, "one layer", ["Dirichlet(1)"]), (2, "two layers", PRIORS)):
        arch = Architecture(d, length, layers, hidden=0, positions="relative", **states)
        for kernels in priors:
            found[model, kernels] = RunSettings(
                arch, attention, seeds=SEEDS, data=PRIORS[kernels], init_std=std, **seen
            )
    arch = Architecture(d, length, 2, hidden=4 * d, positions="relative-values", **states)
    recipe = Recipe.named("adamw-papers", steps=forward_steps, learning_rate=forward_rate, **how)
    found["two layers, feed-forward", "Dirichlet(1)"] = RunSettings(
        arch, recipe, seeds=SEEDS, data=DIRICHLET, init_std=0.05, **seen
    )
    return found


def numbers(records: Records) -> dict[str, Any]:
    """What every case did."""
    lines = [{"model": model, "kernels": kernels, **summary(record)}
             for (model, kernels), record in records.items()]  # fmt: skip
    return {"seeds": SEEDS, "cases": lines}


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
    return {
        "baselines": {name: float(x) for name, x in known.items()},
        "loss": last.tolist(),
        "at_unigram": (near.sum(0) * int(steps[1] - steps[0])).tolist(),
        "half": [None if np.isnan(step) else int(step) for step in record.escape.values],
        "previous": record.looks_back.values[-1, :, 0, :, 1].max(-1).tolist(),
        "finite": record.finite.values.tolist(),
    }


def drawn(records: Records) -> Figure:
    """Losses by model, open gaps by law of kernels, and attention to the previous symbol."""
    figure = new_figure(13.5, 4.6)
    left, middle, right = figure.subplots(1, 3)
    for (model, kernels), record in records.items():
        if kernels == "Dirichlet(1)":
            curves(left, record, record.loss.values, model, COLOURS[model])
    known = next(iter(records.values()))
    names, values = known.baseline.values.tolist(), known.baseline_loss.values[0].tolist()
    left.set(ylim=(min(values) - 0.01, max(values) + 0.01), ylabel="loss (nats)",
             title="Dirichlet(1) kernels, by model")  # fmt: skip
    name_lines(left, list(zip(names, values, strict=True)))
    for (model, kernels), record in records.items():
        if model != "two layers":
            continue
        own = dict(zip(names, record.baseline_loss.values[0].tolist(), strict=True))
        share = (record.loss.values - own["Bayes"]) / (own["uniform"] - own["Bayes"])
        curves(middle, record, share, kernels, LAWS[kernels])
        curves(right, record, record.looks_back.values[:, :, 0, 0, 1], kernels, LAWS[kernels])
    middle.set(ylim=(0, 1.1), ylabel="open share of the gap from uniform to Bayes",
               title="two layers, by law of kernels")  # fmt: skip
    right.set(ylim=(0, 1), ylabel="attention to the previous symbol",
              title="first layer of the two")  # fmt: skip
    for ax in (left, middle, right):
        ax.set_xlabel("step")
        ax.legend(fontsize=8, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.94))
    figure.suptitle(
        "Trained in context, one layer stays at the unigram, two leave it under every law, and "
        f"feed-forward layers come near Bayes (medians and ranges of {len(SEEDS)} seeds)"
    )
    return figure


def curves(ax: Axes, record: xr.Dataset, values: np.ndarray, label: str, colour: str) -> None:
    """The seeds' median and their range."""
    ax.plot(record.step, np.median(values, axis=1), color=colour, linewidth=1.3, label=label)
    ax.fill_between(record.step, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)


main = experiment(__name__, compute, numbers, drawn, record=False, full=FULL)
