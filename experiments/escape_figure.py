"""The figure of experiments/adamw_escape.py, from its record."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from escape_laws import Cell, predictions, score, times
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, ORANGE, PINK


def draw(record: xr.Dataset) -> Figure:
    """Collapse, crossing against size and rate, escape against crossing, other settings, scores."""
    figure = Figure(figsize=(14, 8.6), layout="constrained")
    grid = figure.add_gridspec(2, 3)
    settings = [Cell(**cell) for cell in json.loads(record.attrs["cells"])]
    _draw_collapse(figure.add_subplot(grid[0, 0]), record, settings)
    _draw_size(figure.add_subplot(grid[0, 1]), record, settings)
    _draw_crossing(figure.add_subplot(grid[0, 2]), record)
    _draw_others(figure.add_subplot(grid[1, :2]), record, settings)
    _draw_scores(figure.add_subplot(grid[1, 2]), record)
    for letter, axes in zip("abcde", figure.axes, strict=True):
        title = f"({letter}) {axes.get_title()}"
        axes.set_title("")
        axes.set_title(title, fontsize=10, loc="left")
    figure.suptitle(
        "AdamW leaves the unigram no earlier than $\\lambda_{min}(S)$ falls below 0: tied softmax "
        f"layer, $p + q > 1$, {record.attrs['steps']} steps, {record.sizes['run']} runs a setting "
        "on five chains",
        fontsize=11,
    )
    return figure


def _draw_collapse(axes: Axes, record: xr.Dataset, settings: list[Cell]) -> None:
    """√μ over the fitted κt, the median of every cell on the fitted chains."""
    foretold, root = predictions(record), times(record)["root"]
    step, fit = record.step.values, record.part.values == "fit"
    colours = {3e-4: BLUE, 1e-3: GREEN, 3e-3: ORANGE}
    for i in np.flatnonzero(foretold["law"]):
        kappa = 1 / foretold["settings"][i, 0]
        middle = np.median(root[i][fit], 0)
        end = int(np.argmax(middle > 1)) + 1 if (middle > 1).any() else len(step)
        axes.plot(kappa * step[1:end], middle[1:end], ".-", ms=3, lw=0.8,
                  color=colours.get(settings[i].rate, GREY))  # fmt: skip
    for rate, colour in colours.items():
        axes.plot([], [], ".-", color=colour, label=f"learning rate {rate:g}")
    axes.plot([0.02, 2], [0.02, 2], "k--", lw=1, label=r"$\sqrt{\mu} = \kappa t$")
    axes.set(xscale="log", yscale="log", xlim=(0.02, 3), ylim=(0.02, 1.5),
             xlabel=r"$\kappa t$, $\kappa$ fitted from the settings",
             ylabel=r"$\sqrt{\mu}$ (1: the trap is gone)",
             title="growth towards the crossing, medians")  # fmt: skip
    axes.legend(fontsize=8)


def _draw_size(axes: Axes, record: xr.Dataset, settings: list[Cell]) -> None:
    """Crossing step of every fitted run against r d, by rate, beside the law."""
    found, foretold = times(record), predictions(record)
    fit, steps = record.part.values == "fit", record.attrs["steps"]
    for rate, colour, mark, shift in ((3e-4, BLUE, "s", 0.94), (1e-3, GREEN, "o", 1.0),
                                      (3e-3, ORANGE, "^", 1.06)):  # fmt: skip
        here = [i for i, c in enumerate(settings) if c.group in ("size", "rate") and c.rate == rate]
        here.sort(key=lambda i: settings[i].r * settings[i].d)
        size = np.array([settings[i].r * settings[i].d for i in here], dtype=float)
        for i, x in zip(here, size, strict=True):
            crossing = found["crossing"][i][fit]
            shown = np.where(np.isfinite(crossing), crossing, 1.25 * steps)
            axes.plot(np.full(len(shown), x * shift), shown, mark, color=colour, ms=3.5,
                      mfc="none", alpha=0.7)  # fmt: skip
        axes.plot(size, foretold["settings"][here, 0], "--", color=colour, lw=1.2,
                  label=f"law, learning rate {rate:g}")  # fmt: skip
    axes.axhline(1.12 * steps, color="k", lw=0.8, ls=":")
    axes.annotate("above: not within the run", (0.98, 1.5 * steps), fontsize=8, ha="right",
                  xycoords=("axes fraction", "data"))  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="$r\\,d$, entries of $W_1$",
             ylabel="step at which $\\lambda_{min}(S) < 0$",
             title="when the trap goes, by size and rate")  # fmt: skip
    axes.legend(fontsize=8, loc="lower left")


def _draw_crossing(axes: Axes, record: xr.Dataset) -> None:
    """Escape against crossing, every run that did both, by what it was trained with."""
    found = times(record)
    settings = [Cell(**cell) for cell in json.loads(record.attrs["cells"])]
    rng = np.random.default_rng(0)
    kinds = (("AdamW, batches", BLUE, "o", lambda c: c.trainer == "adamw" and c.batch),
             ("AdamW, exact loss", ORANGE, "s", lambda c: c.trainer == "adamw" and not c.batch),
             ("SGD and gradient descent", PINK, "^", lambda c: c.trainer != "adamw"))  # fmt: skip
    for word, colour, mark, chosen in kinds:
        here = [i for i, cell in enumerate(settings) if chosen(cell)]
        x, y = (found[name][here].ravel() for name in ("crossing", "escape"))
        noise = rng.uniform(0.97, 1.03, (2, len(x)))
        word = f"{word}: {int(np.isfinite(x + y).sum())} of {len(x)} runs"
        axes.plot(x * noise[0], y * noise[1], mark, color=colour, ms=3, mew=0, alpha=0.5,
                  label=word)  # fmt: skip
    low = record.step.values[1]
    axes.plot([low, record.attrs["steps"]], [low, record.attrs["steps"]], "k--", lw=1)
    limits = (0.8 * low, 1.2 * record.attrs["steps"])
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits,
             xlabel="step at which $\\lambda_{min}(S) < 0$",
             ylabel="step at which half of the gap is closed",
             title="the trap goes no later than the loss falls")  # fmt: skip
    axes.legend(fontsize=8, loc="lower right")


def _draw_others(axes: Axes, record: xr.Dataset, settings: list[Cell]) -> None:
    """Shares that escape, cross or stay, for every setting."""
    found, runs = times(record), record.sizes["run"]
    left, crossed = (np.isfinite(found[k]) for k in ("escape", "crossing"))
    parts = (("escaped", left.sum(1), BLUE, ""), ("crossed alone", (crossed & ~left).sum(1),
             "#9ecae1", "//"), ("trapped", (~crossed & ~left).sum(1), ORANGE, ".."))  # fmt: skip
    below = np.zeros(len(settings))
    for word, count, colour, hatch in parts:
        axes.bar(range(len(settings)), count / runs, 0.8, below, color=colour, hatch=hatch,
                 edgecolor="white", lw=0.3, label=word)  # fmt: skip
        below = below + count / runs
    axes.set_xticks(range(len(settings)), [_short(cell) for cell in settings], rotation=90,
                    fontsize=7.5)  # fmt: skip
    axes.set(xlim=(-0.6, len(settings) - 0.4), ylabel="share of runs",
             title="every setting; where nothing is said: AdamW, rate 0.001, $\\epsilon$ = 1e-8, "
                   "$\\beta_2$ = 0.95, batches of 16, N = 16, d = 8, r = 32")  # fmt: skip
    axes.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.42))


def _short(cell: Cell) -> str:
    """What is particular about a cell."""
    words = {
        "size": f"d {cell.d}, r {cell.r}", "rate": f"d {cell.d}, r {cell.r}, rate {cell.rate:g}",
        "epsilon": f"ε {cell.epsilon:g}", "beta2": f"β₂ {cell.beta2:g}",
        "batch": f"batch {cell.batch}", "length": f"N {cell.length}",
        "exact": f"exact, N 4, d {cell.d}, r {cell.r}",
        "momentum": f"SGD 0.9, rate {cell.rate:g}", "descent": f"GD, N 4, rate {cell.rate:g}",
    }  # fmt: skip
    return words[cell.group]


def _draw_scores(axes: Axes, record: xr.Dataset) -> None:
    """Shares of right predictions, with Wilson's intervals."""
    found = score(record)
    names = (("settings", BLUE), ("first tenth", GREEN), ("majority", GREY))
    for j, (name, colour) in enumerate(names):
        for i, line in enumerate(found.values()):
            share, (low, high) = line[name]["right"] / line["runs"], line[name]["interval"]
            place = i + 0.26 * (j - 1)
            axes.bar(place, share, 0.24, color=colour, label=name if i == 0 else None)
            axes.errorbar(place, share, [[share - low], [high - share]], color="k", capsize=2, lw=1)
    ticks = [f"{word}\n{line['runs']} runs" for word, line in found.items()]
    axes.set_xticks(range(len(found)), ticks)
    axes.set(ylim=(0, 1.25), ylabel="share of right predictions",
             title="does it cross within the run? AdamW, batches")  # fmt: skip
    axes.legend(fontsize=8, ncols=3, loc="upper center")
