"""The figure of experiments/adamw_escape.py, and the steps of its runs."""

import numpy as np
import xarray as xr
from escape_cells import FITTED, NO_EPSILON, UNSEEN, Cell, cells_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import BLUE, GREY, ORANGE, PINK, SKY, letter_titles

from flowsim import BinaryChain


def draw(record: xr.Dataset) -> Figure:
    """When runs leave, beside when S has a negative eigenvalue; and the share of every setting."""
    figure = Figure(figsize=(13, 9.5), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=(1, 1.2))
    _draw_crossing(panels[0], record)
    _draw_others(panels[1], record)
    letter_titles(panels)
    figure.suptitle(
        "AdamW leaves the unigram no earlier than $\\lambda_{min}(S)$ falls below 0\n"
        f"tied softmax layer, $p + q > 1$, {record.attrs['steps']} steps, {record.sizes['run']} "
        f"runs a setting on {len(FITTED) + len(UNSEEN)} chains",
        fontsize=11,
    )
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


def _draw_crossing(axes: Axes, record: xr.Dataset) -> None:
    """Escape against crossing, every run that did both, by what it was trained with."""
    found, settings = times(record), cells_of(record)
    rng = np.random.default_rng(0)
    kinds = (("AdamW, batches", BLUE, "o", lambda c: c.trainer == "adamw" and c.batch),
             ("AdamW, exact loss", SKY, "s", lambda c: c.trainer == "adamw" and not c.batch),
             ("SGD and gradient descent", PINK, "^", lambda c: c.trainer != "adamw"))  # fmt: skip
    for word, colour, mark, chosen in kinds:
        here = [i for i, cell in enumerate(settings) if chosen(cell)]
        x, y = (found[name][here].ravel() for name in ("crossing", "escape"))
        x = np.ceil(x / record.step.values[1]) * record.step.values[1]  # at looks, as escapes are
        noise = rng.uniform(0.97, 1.03, (2, len(x)))
        word = f"{word}: {int(np.isfinite(x + y).sum())} of {len(x)} runs"
        axes.plot(x * noise[0], y * noise[1], mark, color=colour, ms=3, mew=0, alpha=0.5,
                  label=word)  # fmt: skip
    low = record.step.values[1]
    axes.plot([low, record.attrs["steps"]], [low, record.attrs["steps"]], "k--", lw=1)
    limits = (0.8 * low, 1.2 * record.attrs["steps"])
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits,
             xlabel="first look with $\\lambda_{min}(S) < 0$",
             ylabel="first look at which half of the gap is closed",
             title="the trap goes no later than the loss falls")  # fmt: skip
    axes.legend(fontsize=8, loc="lower right")


def _draw_others(axes: Axes, record: xr.Dataset) -> None:
    """Shares that escape, cross or stay, for every setting."""
    settings, found, runs = cells_of(record), times(record), record.sizes["run"]
    left, crossed = (np.isfinite(found[k]) for k in ("escape", "crossing"))
    lost = found["diverged"]
    parts = (("escaped", left.sum(1), BLUE, ""), ("crossed alone", (crossed & ~left).sum(1),
             "#9ecae1", "//"), ("trapped", (~crossed & ~left & ~lost).sum(1), ORANGE, ".."),
             ("diverged", lost.sum(1), GREY, "xx"))  # fmt: skip
    below = np.zeros(len(settings))
    for word, count, colour, hatch in parts:
        axes.barh(range(len(settings)), count / runs, 0.8, below, color=colour, hatch=hatch,
                  edgecolor="white", lw=0.3, label=word)  # fmt: skip
        below = below + count / runs
    axes.set_yticks(range(len(settings)), [_short(cell) for cell in settings], fontsize=7.5)
    axes.set(ylim=(len(settings) - 0.4, -0.6), xlabel="share of runs",
             title="every setting; where nothing is said: AdamW, rate 0.001, $\\epsilon$ = 1e-8,\n"
                   "$\\beta_2$ = 0.95, batches of 16, N = 16, d = 8, r = 32")  # fmt: skip
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.05))


def _short(cell: Cell) -> str:
    """Short name of a cell by its own settings."""
    size, rate, batch = f"d {cell.d}, r {cell.r}", f"rate {cell.rate:g}", f"batch {cell.batch}"
    words = {
        "size": size, "rate": f"{size}, {rate}",
        "epsilon": f"ε {0 if cell.epsilon == NO_EPSILON else cell.epsilon:g}",
        "beta2": f"β₂ {cell.beta2:g}", "batch": batch, "length": f"N {cell.length}",
        "start": f"b known, σ {cell.deviation:g}",
        "bias": "b known, " + (batch if cell.batch != 16 else rate if cell.rate != 1e-3 else size),
        "exact": f"exact, N 6, {size}",
        "momentum": f"SGD 0.9, d {cell.d}, {rate}", "descent": f"GD, N 6, d {cell.d}, {rate}",
    }  # fmt: skip
    return words[cell.group]
