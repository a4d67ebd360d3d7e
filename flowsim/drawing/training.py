"""Drawing a training record: losses against steps, among those of the baselines."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flowsim.drawing.style import INK, LINE, SOFT, add_legend, figure_of, own_axes

_LINES: tuple[Any, ...] = ("solid", "dashed", "dashdot", "dotted")
_COLOURS = (INK["global_minimum"], INK["local_minimum"], INK["saddle"], LINE)
#: Share of the axes' height that a baseline's name needs.
_NAME = 0.045
#: What the figure calls the baselines that are no n-gram.
_NAMES = {"kernel": "kernel known"}


def draw_training(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """Loss curves of every trained model, and the losses of the baselines as dotted lines.

    Every baseline has its name and value at the right; equal ones share a line and are named
    together. Models of one chain share a colour and a line style.

    Args:
        record: from ``train`` or read back from its file.
        ax: axes to draw on; by default those of a new figure.
    """
    given = ax is not None
    ax = own_axes(ax, 7.0, 5.0)
    steps, losses = record["step"].to_numpy(), record["loss"].to_numpy()
    chains = _chains(record)
    handles, lines = [], {}
    for i, chain in enumerate(dict.fromkeys(chains)):
        of_chain = [k for k, other in enumerate(chains) if other == chain]
        colour, line = _COLOURS[i % len(_COLOURS)], _LINES[i % len(_LINES)]
        ax.plot(steps, losses[:, of_chain], color=colour, linestyle=line, linewidth=1.0)
        seeds = f", {len(of_chain)} models" if len(of_chain) > 1 else ""
        label = f"{_words(record, chain)}{seeds}"
        handles.append(Line2D([], [], color=colour, linestyle=line, label=label))
        lines[chain] = _baselines(record, of_chain[0])
    if len(lines) > 1:  # uniform is one for all; of every chain the two that it lies between
        lines = {chain: {n: x for n, x in own.items() if n in ("unigram", "bigram")}
                 for chain, own in lines.items()}  # fmt: skip
    known = [(name, x) for own in lines.values() for name, x in own.items()]
    lowest, highest = min(x for _, x in known), max(x for _, x in known)
    if np.isfinite(losses).any():
        lowest = min(lowest, float(np.nanmin(losses)))
    gap = max(highest - lowest, 1e-2)
    ax.set_ylim(lowest - 0.08 * gap, highest + 0.25 * gap)
    ax.set(xlabel="step", ylabel="loss (nats)", xlim=(0, max(float(steps[-1]), 1.0)))
    ax.ticklabel_format(axis="y", useOffset=False)
    name_lines(ax, known)
    ax.set_title(_title(record), fontsize=10.5)
    add_legend(ax, handles, given, columns=1)
    return figure_of(ax)


def _chains(record: xr.Dataset) -> list[tuple[float, ...]]:
    """What tells the chains of the models apart: (p, q), or nothing where all have the same."""
    if "p" not in record:
        return [()] * record.sizes["model"]
    return list(zip(record["p"].to_numpy().tolist(), record["q"].to_numpy().tolist(), strict=True))


def _words(record: xr.Dataset, chain: tuple[float, ...]) -> str:
    """A chain, or the law of kernels, as the legend says it."""
    if chain:
        p, q = chain
        return f"$p$ = {p:g}, $q$ = {q:g}:  $p + q$ = {p + q:.6g}"
    a = record.attrs
    kernels = "one kernel" if a["prior"] == "fixed" else f"kernels: {a['prior']}"
    return f"$S$ = {a['states']} states, order {a['order']}, {kernels}"


def _baselines(record: xr.Dataset, model: int) -> dict[str, float]:
    """The losses that one model's loss is compared with."""
    names = [str(name) for name in record["baseline"].to_numpy()]
    return dict(zip(names, record["baseline_loss"].to_numpy()[model].tolist(), strict=True))


def name_lines(ax: Axes, known: list[tuple[str, float]]) -> None:
    """A dotted line for every loss, its names and value right of the axes, apart from others'."""
    rows: list[tuple[float, str]] = []
    for name, loss in sorted(known, key=lambda line: line[1]):
        name = _NAMES.get(name, name)
        if rows and loss - rows[-1][0] <= 1e-9:
            if name not in rows[-1][1].split(" = "):
                rows[-1] = rows[-1][0], f"{rows[-1][1]} = {name}"
        else:
            rows.append((loss, name))
    low, high = ax.get_ylim()
    places = _apart([(loss - low) / (high - low) for loss, _ in rows])
    for (loss, name), place in zip(rows, places, strict=True):
        ax.axhline(loss, color=SOFT, linewidth=0.8, linestyle=":", zorder=3)
        ax.annotate(
            f"{name} {loss:.4f}", (1.0, loss), xytext=(1.03, place), color=SOFT, fontsize=8,
            xycoords=("axes fraction", "data"), textcoords="axes fraction", va="center",
            arrowprops={"arrowstyle": "-", "color": SOFT, "linewidth": 0.6, "shrinkA": 0,
                        "shrinkB": 0},
        )  # fmt: skip


def _apart(places: list[float]) -> list[float]:
    """Increasing places moved as little as needed to lie ``_NAME`` apart: pools of neighbours."""
    pools: list[list[float]] = []  # sums of what the first of a pool wants, and counts
    for place in places:
        pools.append([place, 1.0])
        while len(pools) > 1:
            (sum0, n0), (sum1, n1) = pools[-2:]
            if sum0 / n0 + n0 * _NAME <= sum1 / n1:
                break
            pools[-2:] = [[sum0 + sum1 - n1 * n0 * _NAME, n0 + n1]]
    return [s / n + i * _NAME for s, n in pools for i in range(int(n))]


def _title(record: xr.Dataset) -> str:
    settings = json.loads(record.attrs["settings"])
    recipe, arch = settings.get("recipe", settings), settings.get("arch", settings)
    words = [f"{symbol} = {arch[name]}" for symbol, name in
             (("$d$", "d"), ("$N$", "length"), ("layers", "layers")) if name in arch]  # fmt: skip
    return f"Training with {recipe.get('trainer', '?')}, {', '.join(words)}\n" + str(
        record.attrs.get("loss_is", "")
    )
