"""The figure of experiments/adamw_escape.py, from its record."""

import numpy as np
import xarray as xr
from escape_cells import FITTED, NO_EPSILON, UNSEEN, Cell, cells_of
from escape_laws import PARTS, of_chain, predictions, score, times
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, ORANGE, PINK, letter_titles

from flowsim import BinaryChain

CHAINS = dict(zip(FITTED, (GREEN, ORANGE, BLUE), strict=True))


def draw(record: xr.Dataset) -> dict[str, Figure]:
    """When runs leave; the laws of the growth; what is foretold. Panels are (a) to (g) in all."""
    leaves = Figure(figsize=(13, 9.5), layout="constrained")
    laws = Figure(figsize=(15, 5), layout="constrained")
    foretold = Figure(figsize=(11, 5), layout="constrained")
    panels = [*leaves.subplots(1, 2, width_ratios=(1, 1.2)), *laws.subplots(1, 3),
              *foretold.subplots(1, 2)]  # fmt: skip
    for panel, axes in zip((_draw_crossing, _draw_others, _draw_collapse, _draw_size, _draw_derived,
                            _draw_foretold, _draw_scores), panels, strict=True):  # fmt: skip
        panel(axes, record)
    letter_titles(panels)
    leaves.suptitle(
        "AdamW leaves the unigram no earlier than $\\lambda_{min}(S)$ falls below 0\n"
        f"tied softmax layer, $p + q > 1$, {record.attrs['steps']} steps, {record.sizes['run']} "
        f"runs a setting on {len(FITTED) + len(UNSEEN)} chains",
        fontsize=11,
    )
    laws.suptitle(
        "How fast $\\lambda_{min}(S)$ falls follows roughly from the settings", fontsize=11
    )
    foretold.suptitle(
        "On runs that no fit has seen, the law foretells better than the majority\n"
        "whether $\\lambda_{min}(S)$ falls below 0 within the run",
        fontsize=11,
    )
    return {"adamw_escape": leaves, "adamw_escape_laws": laws, "adamw_escape_foretold": foretold}


def _rows(record: xr.Dataset, chain: BinaryChain, part: str) -> np.ndarray:
    """Which runs are of a chain and a part."""
    return np.flatnonzero(of_chain(record, chain) & (record.part.values == part))


def _draw_collapse(axes: Axes, record: xr.Dataset) -> None:
    """√μ over the fitted κt, the median of every cell and fitted chain."""
    settings = cells_of(record)
    foretold, root = predictions(record), times(record)["root"]
    step = record.step.values
    for chain, colour in CHAINS.items():
        rows = _rows(record, chain, "fit")
        for i in np.flatnonzero(foretold["law"]):
            kappa = 1 / foretold["crossing"]["settings"][i, rows[0]]
            middle = np.median(root[i][rows], 0)
            end = int(np.argmax(middle > 1)) + 1 if (middle > 1).any() else len(step)
            marked = settings[i].epsilon >= 1e-7
            axes.plot(kappa * step[1:end], middle[1:end], "--" if marked else "-", lw=0.7,
                      color=colour, alpha=0.7)  # fmt: skip
        axes.plot([], [], "-", color=colour, label=f"$p$ = {chain.p:g}, $q$ = {chain.q:g}")
    axes.plot([], [], "--", color=GREY, lw=0.7, label=r"$\epsilon \geq$ 1e-7")
    axes.plot([0.02, 2], [0.02, 2], "k:", lw=1.5, label=r"$\sqrt{\mu} = \kappa t$")
    axes.set(xscale="log", yscale="log", xlim=(0.02, 5), ylim=(0.02, 1.5),
             xlabel=r"$\kappa t$, $\kappa$ fitted from the settings",
             ylabel=r"$\sqrt{\mu}$ (1: the trap is gone)",
             title="growth towards the crossing, medians")  # fmt: skip
    axes.legend(fontsize=8)


def _draw_size(axes: Axes, record: xr.Dataset) -> None:
    """Crossing step against r d at the rate 0.001, the fitted seeds' quartiles, beside the law."""
    settings = cells_of(record)
    found, foretold, steps = times(record), predictions(record), record.attrs["steps"]
    here = [i for i, cell in enumerate(settings) if cell.group == "size"]
    here.sort(key=lambda i: (settings[i].r * settings[i].d, settings[i].d))
    sizes = np.array([settings[i].r * settings[i].d for i in here], dtype=float)
    marks = {4: "v", 8: "o", 16: "s"}
    for (chain, colour), shift in zip(CHAINS.items(), (0.93, 1.0, 1.07), strict=True):
        rows = _rows(record, chain, "fit")
        for i, x in zip(here, sizes * shift, strict=True):
            d = settings[i].d
            x *= 1 + 0.03 * (np.log2(d) - 3)
            crossing = np.nan_to_num(found["crossing"][i][rows], nan=1.3 * steps)
            low, middle, high = np.quantile(crossing, [0.25, 0.5, 0.75], method="nearest")
            axes.plot([x, x], [low, high], "-", color=colour, lw=0.8)
            axes.plot(x, middle, marks.get(d, "x"), color=colour, ms=4.5, mfc="white")
        law = foretold["crossing"]["settings"][here, rows[0]]
        axes.plot(sizes * shift, law, "_", color=colour, ms=11, mew=1.2,
                  label=f"law, $p$ = {chain.p:g}, $q$ = {chain.q:g}")  # fmt: skip
    for d, mark in marks.items():
        axes.plot([], [], mark, color=GREY, mfc="white", ms=4.5, label=f"$d$ = {d}")
    axes.axhline(1.15 * steps, color="k", lw=0.8, ls=":")
    axes.annotate("above: not within the run", (0.98, 1.55 * steps), fontsize=8, ha="right",
                  xycoords=("axes fraction", "data"))  # fmt: skip
    axes.set(xscale="log", yscale="log", ylim=(50, 2.2 * steps),
             xlabel="$r\\,d$, entries of $W_1$", ylabel="step at which $\\lambda_{min}(S) < 0$",
             title="when the trap goes, by size and chain: median, quartiles")  # fmt: skip
    axes.legend(fontsize=7.5, loc="lower left", ncols=2)


def _draw_derived(axes: Axes, record: xr.Dataset) -> None:
    """κ against the derived κ₀, medians of cell and chain, with b known and b to be learned.

    A median is shown where more than half of the runs cross.
    """
    settings, foretold = cells_of(record), predictions(record)
    found = np.where(foretold["known"], np.exp(foretold["log kappa"]), 0)
    kappa = 1 / foretold["crossing"]["derived"]
    shown = [i for i, c in enumerate(settings) if c.group in ("size", "rate", "bias", "start")]
    for chain, colour in CHAINS.items():
        rows = _rows(record, chain, "fit")
        for i in shown:
            known = settings[i].unigram_bias
            axes.plot(kappa[i, rows[0]], np.median(found[i, rows]), "o" if known else "x", ms=5,
                      color=colour, mew=0.6 if known else 1, alpha=0.9)  # fmt: skip
    ends = np.array([5e-5, 2e-2])
    axes.plot(ends, ends, "k--", lw=1, label="derived, nothing fitted")
    axes.fill_between(ends, ends / 8**0.25, ends * 8**0.25, color="0.88", zorder=0,
                      label="its two ends at $d$ = 8")  # fmt: skip
    axes.plot([], [], "o", color=GREY, ms=5, label="$b$ starts at the unigram's")
    axes.plot([], [], "x", color=GREY, ms=5, label="$b$ starts at 0")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=(2e-5, 1.5e-2),
             xlabel=r"$\kappa_0$, derived (per step)",
             ylabel=r"$\kappa = \sqrt{\mu}/t$ found (per step)",
             title="growth where most runs cross: medians, colours as in (c)")  # fmt: skip
    axes.legend(fontsize=8, loc="upper left")


def _draw_foretold(axes: Axes, record: xr.Dataset) -> None:
    """The crossing found against the one foretold from the settings, runs that no fit has seen."""
    found, foretold, steps = times(record), predictions(record), record.attrs["steps"]
    rng = np.random.default_rng(0)
    for word, colour in (("new seeds", BLUE), ("new chains", ORANGE)):
        used = np.ix_(foretold["law"], record.part.values == word)
        x, y = foretold["crossing"]["settings"][used].ravel(), found["crossing"][used].ravel()
        never = np.isnan(y)
        y = np.where(never, steps * rng.uniform(1.25, 1.6, len(y)), y * rng.uniform(0.97, 1.03))
        axes.plot(x * rng.uniform(0.97, 1.03, len(x)), y, ".", color=colour, ms=3, alpha=0.5,
                  label=f"{word}: {len(x)} runs, {int(never.sum())} do not cross")  # fmt: skip
    ends = [record.step.values[1] / 2, 20 * steps]
    axes.plot(ends, ends, "k--", lw=1)
    axes.axvline(steps, color="k", lw=0.8, ls=":")
    axes.axhline(1.12 * steps, color="k", lw=0.8, ls=":")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=(ends[0], 2 * steps),
             xlabel="crossing foretold from the settings (step)",
             ylabel="crossing found (step)",
             title="foretold and found, runs that the fit has not seen")  # fmt: skip
    axes.legend(fontsize=8, loc="lower right")


def _draw_crossing(axes: Axes, record: xr.Dataset) -> None:
    """Escape against crossing, every run that did both, by what it was trained with."""
    found, settings = times(record), cells_of(record)
    rng = np.random.default_rng(0)
    kinds = (("AdamW, batches", BLUE, "o", lambda c: c.trainer == "adamw" and c.batch),
             ("AdamW, exact loss", ORANGE, "s", lambda c: c.trainer == "adamw" and not c.batch),
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
    """What is particular about a cell."""
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


def _draw_scores(axes: Axes, record: xr.Dataset) -> None:
    """Shares of right predictions, with Wilson's intervals."""
    found = score(record)
    names = (("settings", BLUE), ("derived", ORANGE), ("first tenth", GREEN), ("both", PINK),
             ("majority", GREY))  # fmt: skip
    ticks, place = [], 0.0
    for event, word in (("crossing", "crosses"), ("escape", "escapes")):
        for part in PARTS:
            line = found[event][part]
            for j, (name, colour) in enumerate(names):
                share = line[name]["right"] / line["runs"]
                low, high = line[name]["interval"]
                x = place + 0.17 * (j - 2)
                axes.bar(x, share, 0.155, color=colour, label=None if place else name)
                axes.errorbar(x, share, [[share - low], [high - share]], color="k", capsize=2, lw=1)
            ticks.append((place, part.replace("new ", "new\n") + f"\n{line['runs']} runs"))
            place += 1
        axes.text(place - 2, 1.03, f"{word} within the run?", fontsize=8, ha="center")
        place += 0.4
    axes.set_xticks(*zip(*ticks, strict=True), fontsize=7.5)
    axes.set(ylim=(0, 1.2), ylabel="share of right predictions",
             title="is it foretold? AdamW, batches, ε at most 1e-6")  # fmt: skip
    axes.legend(fontsize=8, ncols=3, loc="upper center")
