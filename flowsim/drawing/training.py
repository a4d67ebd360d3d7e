"""Drawing a training record: losses against steps, with the two entropies of the chain."""

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


def draw_training(record: xr.Dataset, ax: Axes | None = None) -> Figure:
    """Loss curves of every trained model; unigram and bigram entropy as dotted lines.

    Models of one chain share a colour and a line style.

    Args:
        record: from ``train`` or read back from its file.
        ax: axes to draw on; by default those of a new figure.
    """
    given = ax is not None
    ax = own_axes(ax, 7.0, 5.0)
    steps, losses = record["step"].to_numpy(), record["loss"].to_numpy()
    pairs = list(zip(record["p"].to_numpy(), record["q"].to_numpy(), strict=True))
    handles = []
    for i, pair in enumerate(dict.fromkeys(pairs)):
        of_pair = [k for k, other in enumerate(pairs) if other == pair]
        colour, line = _COLOURS[i % len(_COLOURS)], _LINES[i % len(_LINES)]
        ax.plot(steps, losses[:, of_pair], color=colour, linestyle=line, linewidth=1.0)
        seeds = f", {len(of_pair)} models" if len(of_pair) > 1 else ""
        text = f"$p$ = {pair[0]:g}, $q$ = {pair[1]:g}:  $p + q$ = {sum(pair):.6g}{seeds}"
        handles.append(Line2D([], [], color=colour, linestyle=line, label=text))
        for name, word in (("stationary_entropy", "unigram"), ("entropy_rate", "bigram")):
            value = float(record[name].to_numpy()[of_pair[0]])
            ax.axhline(value, color=SOFT, linewidth=0.8, linestyle=":", zorder=1)
            ax.annotate(f"{word} {value:.4f}", (0.99, value), ha="right", va="bottom", fontsize=8,
                        xycoords=("axes fraction", "data"), color=SOFT)  # fmt: skip
    lowest = float(np.nanmin(record["entropy_rate"]))
    highest = float(np.nanmax(record["stationary_entropy"]))
    gap = max(highest - lowest, 1e-3)
    ax.set_ylim(lowest - 0.2 * gap, highest + 0.6 * gap)
    ax.set(xlabel="step", ylabel="loss (nats)", xlim=(0, max(float(steps[-1]), 1.0)))
    ax.set_title(_title(record), fontsize=10.5)
    add_legend(ax, handles, given, columns=1)
    return figure_of(ax)


def _title(record: xr.Dataset) -> str:
    settings = json.loads(record.attrs["settings"])
    recipe, arch = settings.get("recipe", settings), settings.get("arch", settings)
    words = [f"{symbol} = {arch[name]}" for symbol, name in
             (("$d$", "d"), ("$N$", "length"), ("layers", "layers")) if name in arch]  # fmt: skip
    return f"Training with {recipe.get('trainer', '?')}, {', '.join(words)}\n" + str(
        record.attrs.get("loss_is", "")
    )
