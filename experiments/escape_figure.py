"""The figure of experiments/adamw_escape.py, and the steps of its runs."""

import numpy as np
import xarray as xr
from escape_cells import FITTED, UNSEEN, cells_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import BLUE, GREY, ORANGE, PINK, SKY, letter_titles

from flowsim import BinaryChain


def draw(record: xr.Dataset) -> Figure:
    """How long after its crossing a run of AdamW leaves; and what becomes of runs, by size."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=(1, 1.1))
    _draw_delay(panels[0], record)
    _draw_sizes(panels[1], record)
    letter_titles(panels)
    figure.suptitle(
        "AdamW leaves the unigram after $\\lambda_{min}(S)$ has fallen below 0, "
        "and more often if the layer is wide", fontsize=11,
    )  # fmt: skip
    return figure


def times(record: xr.Dataset) -> dict[str, np.ndarray]:
    """Steps of escape and of crossing, and which runs diverged.

    NaN for none; a run that diverged neither escapes nor crosses.
    """
    smallest, left, step = record.smallest.values, record.share.values < 0.5, record.step.values
    sound = np.isfinite(record.share.values[..., -1])
    return {
        "escape": np.where(left.any(-1) & sound, step[left.argmax(-1)].astype(float), np.nan),
        "crossing": np.where(sound, crossed_at(smallest, float(step[1])), np.nan),
        "diverged": ~sound,
    }  # fmt: skip


def crossed_at(smallest: np.ndarray, every: float) -> np.ndarray:
    """The step at which λ_min(S) (…, look) is 0; NaN where no look is below.

    √μ grows about evenly, so it is what is interpolated between two looks.
    """
    below = smallest < 0
    at = np.maximum(below.argmax(-1), 1)[..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(np.maximum(1 - smallest / smallest[..., :1], 0))
        before, after = (np.take_along_axis(root, k, -1)[..., 0] for k in (at - 1, at))
        step = every * (at[..., 0] - 1 + (1 - before) / (after - before))
    return np.where(below.any(-1), np.where(below[..., 0], 0.0, step), np.nan)


def of_chain(record: xr.Dataset, chain: BinaryChain) -> np.ndarray:
    """Mask of the runs of a chain."""
    return ((record.p == chain.p) & (record.q == chain.q)).values


def _draw_delay(axes: Axes, record: xr.Dataset) -> None:
    """Steps from the first look with a negative eigenvalue to the first at which half is closed."""
    found, every = times(record), float(record.step[1])
    adam = [cell.trainer == "adamw" for cell in cells_of(record)]
    left, crossed = found["escape"][adam], np.ceil(found["crossing"][adam] / every) * every
    delay = (left - crossed)[np.isfinite(left)]
    most = 10 * every
    bins = np.arange(-1.5, 11.5) * every
    count, _ = np.histogram(np.where(np.isfinite(delay), np.minimum(delay, most), -every), bins)
    at = np.arange(-1, 11)
    colours = [PINK] * (at < 0).sum() + [SKY] + [BLUE] * (at > 0).sum()
    axes.bar_label(axes.bar(at, count, 0.85, color=colours), fontsize=8, padding=2)
    words = ["later", "same\nlook", *(f"{k * every:.0f}" for k in at[2:-1]), "more"]
    axes.set_xticks(at, words, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel="steps from the first look with $\\lambda_{min}(S) < 0$ to the escape",
             ylabel="escapes",
             title=f"all {np.isfinite(left).sum()} escapes of AdamW, looks every {every:.0f} steps",
             )  # fmt: skip


def _draw_sizes(axes: Axes, record: xr.Dataset) -> None:
    """Shares that escape, cross or stay: AdamW by size, and all of the other trainers."""
    settings, found, runs = cells_of(record), times(record), record.sizes["run"]
    rows = {f"d = {c.d}, r = {c.r}": [i] for i, c in enumerate(settings) if c.group == "size"}
    for word, trainer in (("SGD, momentum 0.9", "sgd"), ("gradient descent", "gd")):
        rows[word] = [i for i, cell in enumerate(settings) if cell.trainer == trainer]
    left, crossed = (np.isfinite(found[k]) for k in ("escape", "crossing"))
    lost = found["diverged"]
    alone, kept = crossed & ~left, ~crossed & ~left & ~lost
    parts = (("escaped", left, BLUE, ""), ("S negative, no escape", alone, "#9ecae1", "//"),
             ("trapped", kept, ORANGE, ".."), ("diverged", lost, GREY, "xx"))  # fmt: skip
    below = np.zeros(len(rows))
    for word, on, colour, hatch in parts:
        share = np.array([on[own].mean() if own else 0.0 for own in rows.values()])
        axes.barh(range(len(rows)), share, 0.8, below, color=colour, hatch=hatch,
                  edgecolor="white", lw=0.3, label=word)  # fmt: skip
        below = below + share
    axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
    chains = len(FITTED) + len(UNSEEN)
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, 1), xlabel="share of runs",
             title=f"AdamW at 0.001 on batches of 16, {record.attrs['steps']} steps;\n"
                   f"{chains} chains, {runs} runs a row; the last two rows: all rates")  # fmt: skip
    axes.legend(fontsize=9, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
