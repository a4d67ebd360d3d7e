"""Curves: the probability of an end against σ, and losses against the steps of training."""

from __future__ import annotations

import json
from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from flowsim.drawing.style import (
    INK,
    LINE,
    MARKER,
    SOFT,
    TRAINERS,
    Canvas,
    Look,
    about,
    basin_names,
    escaped,
    figure_of,
    from_style_sheet,
    in_points,
    name_of,
    optimizer_caption,
    percent,
)
from flowsim.records.attributes import adam_words, most_frequent

_EVENT = {False: "reaching the global minima", True: "not reaching the global minima"}
#: Lines of ends whose colour and marker another end has too.
_AGAIN = ("solid", "dashdot", "dotted")
_LINES: tuple[Any, ...] = ("solid", "dashed", "dashdot", "dotted")
_COLOURS = (INK["global_minimum"], INK["local_minimum"], INK["saddle"], LINE)
#: Names in the figure of baselines that are no n-gram.
_NAMES = {"kernel": "kernel known"}


def draw_gaussian(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw a record of ``gaussian``: the probability of reaching the global minima over σ.

    σ has a logarithmic axis; so has a probability that tends to 0 for small σ and not for large.

    If nearly all small starts reach the global minima, the probability not to is drawn. For a
    model whose ends were found the share of every end is drawn, on an even axis.

    Args:
        record: from ``gaussian`` or read back from its file.
        ax: axes to draw on; by default those of a new figure.
        look: width, title and legend, as of ``draw``, which says what is returned.

    >>> import flowsim, numpy as np
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.gaussian(model, np.array([0.3, 1.0]), samples=50)
    >>> flowsim.drawing.draw_gaussian(record).axes[0].get_xscale()
    'log'
    """
    canvas = Canvas(ax, 7.0, 4.4, look)
    ax = canvas.axes()
    if "share" in record:
        draw_shares(record, ax, "sigma")
        if "trained_share" in record:
            hollow: dict[str, Any] = {"linestyle": "dashed", "markerfacecolor": "white"}
            steps = f", {optimizer_caption(record)}"
            draw_shares(record, ax, "sigma", "trained_share", steps, **hollow)
        ax.set(xscale="log", xlabel=name_of(record, "sigma"))
        ax.set_ylabel(f"share of {record.attrs['samples']} starts per $\\sigma$, 95 % interval")
    else:
        draw_probability(record, ax)
    a, title = record.attrs, "Ends of Gaussian starts"
    if a.get("best_chance"):
        chance, low, high = (
            percent(round(1e4 * float(a[f"best_{name}"])), 10**4)
            for name in ("chance", "low", "high")
        )
        best = f"$\\sigma$ = {a['best_sigma']:.3g} is best"
        title = f"{best}: {chance} ({low} to {high}) reach the least loss"
    lines = [title, about(record)[0]]
    return canvas.complete(lines, ax.get_legend_handles_labels()[0], columns=1)


def draw_shares(
    record: xr.Dataset, ax: Axes, over: str, share: str = "share", text: str = "", **style: Any
) -> None:
    """Draw each end's share ``over`` a coordinate as a line, with its interval as a band if known.

    ``share`` is a variable over that coordinate and ``basin``; ``text`` follows each end's words.
    """
    words, x = basin_names(record), record[over].to_numpy()
    names = [str(name) for name in record["basin"].to_numpy()]
    total = {name: float(record[share].sel(basin=name).sum()) for name in (*names[1:], names[0])}
    named, others = most_frequent(total)
    looks = [(INK[name], MARKER[name]) for name in named]
    for i, name in enumerate(named):
        own, again = record.sel(basin=name), looks[:i].count(looks[i])
        line = {"color": INK[name], "marker": MARKER[name], "markersize": 4, "linewidth": 1.4,
                "markevery": max(1, len(x) // 10), "linestyle": _AGAIN[again % 3]}  # fmt: skip
        ax.plot(x, own[share], **line | style, label=escaped(f"{words[name]}{text}"))
        if f"{share}_low" in record:
            ends = own[f"{share}_low"], own[f"{share}_high"]
            ax.fill_between(x, *ends, color=INK[name], alpha=0.2, linewidth=0)
    if others:
        rest = record[share].sel(basin=others).sum("basin")
        ax.plot(x, rest, color=SOFT, linestyle="dotted", label=f"{len(others)} more ends")
    ax.set(ylim=(-0.04, 1.04), ylabel="share of the starts")


def draw_probability(record: xr.Dataset, ax: Axes) -> None:
    """Draw the probability of an end over σ: the integral as a curve, the samples as points.

    Points have 95 % intervals; limits of the integral in σ other than 0 and 1 are dotted lines.
    """
    sigma, a = record["sigma"].to_numpy(), record.attrs
    known = "integral" in record
    small, large = (a["limit_small_sigma"], a["limit_large_sigma"]) if known else (0.5, 0.5)
    flip = bool(small == 1 and large < 1)  # the probability of the rarer end
    other = record["integral"].attrs.get("of") if known else None

    def probability(key: str) -> np.ndarray:
        """The record's variable, or 1 minus it where the rarer end is drawn."""
        values = record[key].to_numpy()
        return 1 - values if flip else values

    def with_interval(key: str, **style: Any) -> tuple[np.ndarray, np.ndarray]:
        """Draw a share over σ with its interval; return the share and the upper ends, (σ,)."""
        share, ends = probability(key), [probability(f"{key}_{end}") for end in ("low", "high")]
        low, high = np.sort(ends, axis=0)
        # the interval of a share of 0 or 1 is cut there only within rounding
        reach = np.maximum(np.stack([share - low, high - share]), 0)
        ax.errorbar(sigma, share, reach, capsize=2, zorder=3, linewidth=1.0, markersize=3.5,
                    **style)  # fmt: skip
        return share, high

    if known:
        whose = f" of the {other}" if other else ""
        ax.plot(
            sigma, probability("integral"), color=INK["global_minimum"], linewidth=1.8,
            linestyle="dashed" if other else "solid",
            label=f"integral over the analytic basin{whose}",
        )  # fmt: skip
    fraction, high = with_interval(
        "fraction", color=INK["local_minimum"], fmt="o",
        label=f"gradient flow of {a['samples']} starts per $\\sigma$, 95 % interval",
    )  # fmt: skip
    if "learned" in record:
        with_interval(
            "learned", color=INK["unresolved"], fmt="s", markerfacecolor="white",
            label=f"the same starts trained, 95 % interval:\n{optimizer_caption(record)}",
        )  # fmt: skip
    floor = 0.1 / float(a["samples"])
    if 0 < small < 1 or small == large:
        ax.set_ylim(-0.04, 1.08)
    else:
        ax.set_yscale("log")
        ax.set_ylim(floor, 2.0)
        none = fraction <= 0
        ax.plot(sigma[none], high[none], "v", color=INK["local_minimum"], markersize=4,
                label="none of them: end of the interval" if none.any() else None)  # fmt: skip
    for limit, text in ((small, "0"), (large, "\\infty")):
        if known and not other and (small == large or limit not in (0, 1)):
            when = "any $\\sigma$" if small == large else f"limit as $\\sigma \\to {text}$"
            value = 1 - limit if flip else limit
            ax.axhline(value, color=SOFT, linewidth=1.2, linestyle=":", zorder=1)
            ax.annotate(  # above it at the left, which the curve leaves free
                f"{when}: {value:g}", (0.02, value), xycoords=("axes fraction", "data"),
                xytext=(0, 4), textcoords="offset points", ha="left", va="bottom", color=SOFT,
                fontsize="small",
            )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlabel(name_of(record, "sigma"))
    ax.set_ylabel(f"probability of {_EVENT[flip]}")


def draw_training(record: xr.Dataset, ax: Axes | None = None, **look: Unpack[Look]) -> Any:
    """Draw loss curves of every trained model, and the losses of the baselines as dotted lines.

    Every baseline has its name and value at the right; equal ones share a line and are named
    together. Models of one chain share a colour and a line style.
    """
    canvas = Canvas(ax, 7.0, 4.5, look)
    ax = canvas.axes()
    steps, losses = record["step"].to_numpy(), record["loss"].to_numpy()
    chains: list[tuple[float, ...]] = [()] * record.sizes["model"]
    if "p" in record:
        pairs = zip(record["p"].to_numpy().tolist(), record["q"].to_numpy().tolist(), strict=True)
        chains = list(pairs)
    baselines = [str(name) for name in record["baseline"].to_numpy()]
    handles, lines, a = [], {}, record.attrs
    kernels = "one kernel" if a.get("prior") == "fixed" else f"kernels: {a.get('prior')}"
    for i, chain in enumerate(dict.fromkeys(chains)):
        of_chain = [k for k, other in enumerate(chains) if other == chain]
        colour, line = _COLOURS[i % len(_COLOURS)], _LINES[i % len(_LINES)]
        ax.plot(steps, losses[:, of_chain], color=colour, linestyle=line, linewidth=1.0)
        seeds = f", {len(of_chain)} models" if len(of_chain) > 1 else ""
        words = f"$S$ = {a.get('states')} states, order {a.get('order')}, {kernels}"
        if chain:
            words = "$p$ = {:g}, $q$ = {:g}:  $p + q$ = {:.6g}".format(*chain, sum(chain))
        label = f"{words}{seeds}"
        handles.append(Line2D([], [], color=colour, linestyle=line, label=label))
        losses_of = record["baseline_loss"].to_numpy()[of_chain[0]].tolist()
        lines[chain] = dict(zip(baselines, losses_of, strict=True))
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
    name_lines(ax, known, short=canvas.narrow)
    settings = json.loads(record.attrs["settings"])
    recipe, arch = settings.get("recipe", settings), settings.get("arch", settings)
    sizes = [f"{symbol} = {arch[name]}" for symbol, name in
             (("$d$", "d"), ("$N$", "length"), ("layers", "layers")) if name in arch]  # fmt: skip
    sampled = recipe.get("loss") == "sampled"
    on = f"batches of {recipe['batch']}" if sampled else "the exact loss"
    name = recipe.get("trainer", "?")
    if name == "adamw" and recipe.get("weight_decay") == 0:  # AdamW without decay
        name = "adam"
    if name == "sgd" and recipe.get("loss") == "population":
        name = "gd"
    trainer = TRAINERS.get(name, name)
    trainer += f" and momentum {recipe['momentum']:g}" if recipe.get("momentum") else ""
    constants = adam_words(recipe) if name.startswith("adam") else []
    shown = record.attrs.get("loss_is")
    title = [f"Training with {trainer} on {on}, {', '.join(sizes)}"]
    title += [f"the loss shown: {shown}" if shown else ""]
    title += [f"{trainer}: {', '.join(constants)}"] if constants else []
    return canvas.complete(title, handles, columns=1)


def name_lines(ax: Axes, known: list[tuple[str, float]], short: bool = False) -> None:
    """Draw a dotted line for every (name, loss) of ``known``, with its name on the right.

    Equal losses share a line. Their values follow the names unless ``short``.
    """
    rows: list[tuple[float, list[str]]] = []
    for name, loss in sorted(known, key=lambda line: line[1]):
        name = _NAMES.get(name, name)
        if not rows or loss - rows[-1][0] > 1e-9:
            rows.append((loss, [name]))
        elif name not in rows[-1][1]:
            rows[-1][1].append(name)
    low, high = ax.get_ylim()
    lines = max(len(names) for _, names in rows) if short else 1
    height = 72 * ax.get_position().height * figure_of(ax).get_figheight()
    gap = 1.4 * lines * in_points("small") / height
    places = _apart([(loss - low) / (high - low) for loss, _ in rows], gap)
    beside = from_style_sheet("text.color", SOFT)
    for (loss, names), place in zip(rows, places, strict=True):
        text = " =\n".join(names) if short else f"{' = '.join(names)} {loss:.4f}"
        ax.axhline(loss, color=SOFT, linewidth=0.8, linestyle=":", zorder=3)
        ax.annotate(
            text, (1.0, loss), xytext=(1.03, place), color=beside, fontsize="small",
            xycoords=("axes fraction", "data"), textcoords="axes fraction", va="center",
            arrowprops={"arrowstyle": "-", "color": beside, "linewidth": 0.6, "shrinkA": 0,
                        "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _apart(places: list[float], gap: float) -> list[float]:
    """Move increasing places as little as needed to lie ``gap`` apart, by pooling neighbours."""
    pools: list[list[float]] = []  # sums of what the first of a pool wants, and counts
    for place in places:
        pools.append([place, 1.0])
        while len(pools) > 1:
            (sum0, n0), (sum1, n1) = pools[-2:]
            if sum0 / n0 + n0 * gap <= sum1 / n1:
                break
            pools[-2:] = [[sum0 + sum1 - n1 * n0 * gap, n0 + n1]]
    return [s / n + i * gap for s, n in pools for i in range(int(n))]
