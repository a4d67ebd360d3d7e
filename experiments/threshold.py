"""Basins through p + q = 1, and times to learn by the flow and by descent.

The first figure shows the plane (w, e) at p = 0.5, q = 0.4, 0.5, 0.6: where the canonical model and
the rank-one model (N = 4, starts lifted from the plane) trap a start. Below p + q = 1 the canonical
model traps small |e| at w < −1/√2 and the rank-one model nothing; at 1 no start is trapped; above 1
both trap the starts with w above a line, small |e| at every w > −1/2.

    python experiments/threshold.py     a minute on one core
"""

from typing import Any

import numpy as np
import papers
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from papers import BLUE, GREEN, GREY, experiment

import flowsim
from flowsim import Label
from full_model import Architecture, Recipe, RunSettings, train

P, LENGTH, FRACTION, CELLS = 0.5, 4, 0.01, 96
QS = (0.4, 0.5, 0.6)
DISTANCES = (-0.4, -0.2, -0.1, -0.05, -0.02, -0.01, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
SIGMAS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: The chain on either side at which σ and d are varied.
SIDES = {"p + q < 1": (0.2, 0.3), "p + q > 1": (0.5, 0.8)}
SIZES = (2, 4, 8, 16, 32)


def compute(cells: int = CELLS, starts: int = 200, seeds: int = 8, steps: int = 500) -> xr.Dataset:
    """Labels over (w, e) of both models, and times."""
    along = (np.arange(cells) + 0.5) / cells * 4 - 2
    e, w = np.meshgrid(along, along, indexing="ij")
    plane = np.stack([e.ravel(), w.ravel()], 1)
    label = np.empty((len(QS), 2, cells, cells), dtype=np.int8)
    for i, q in enumerate(QS):
        rank_one: Any = flowsim.model("rank-one", P, q, length=LENGTH)
        for j, (model, points) in enumerate((
            (flowsim.model("canonical", P, q), plane),
            (rank_one, np.asarray(rank_one.from_canonical(plane))),
        )):  # fmt: skip
            label[i, j] = flowsim.find_limits(model, points).label.reshape(e.shape)
    normal = np.random.default_rng(0).normal(size=(starts, 2))
    near = [_times(flowsim.model("canonical", P + x / 2, 1 - P + x / 2), normal) for x in DISTANCES]
    small = [
        [_times(flowsim.model("canonical", *chain), s * normal) for s in SIGMAS]
        for chain in SIDES.values()
    ]
    whole = [[_whole_times(chain, d, seeds, steps) for d in SIZES] for chain in SIDES.values()]
    return xr.Dataset(
        {
            "label": (("q", "model", "e", "w"), label),
            "time_near": (("distance", "start"), np.array(near)),
            "time_small": (("side", "sigma", "start"), np.array(small)),
            "time_whole": (("side", "d", "seed"), np.array(whole)),
        },
        {
            "q": list(QS), "model": ["canonical", "rank-one"], "e": along, "w": along,
            "distance": list(DISTANCES), "sigma": list(SIGMAS), "d": list(SIZES),
            "side": list(SIDES),
        },
    )  # fmt: skip


def _times(model: Any, starts: np.ndarray) -> np.ndarray:
    """Times at which 1 % of the gap is left open, to 2 %; NaN of starts that never learn."""
    at = np.concatenate([[0.0], np.geomspace(0.1, 1e5, 700)])
    share = np.asarray(model.excess(flowsim.trajectories(model, starts, at)))
    there = share <= FRACTION * model.chain.mutual_information
    return np.where(there.any(0), at[there.argmax(0)], np.nan)


def _whole_times(chain: tuple[float, float], d: int, seeds: int, steps: int) -> np.ndarray:
    """Steps times rate until 1 % of the gap is open, from the balanced start; NaN if not then."""
    rate = 0.1
    p, q = chain
    record, _ = train(
        RunSettings(
            Architecture(d, LENGTH), Recipe("gd", steps=steps, learning_rate=rate), (p,) * seeds,
            (q,) * seeds, seeds=tuple(range(seeds)), init="balanced", telemetry_every=5,
            dtype="float64",
        )
    )  # fmt: skip
    share = (record.loss - record.entropy_rate) / (record.stationary_entropy - record.entropy_rate)
    there = (share <= FRACTION).transpose("model", "step").values
    step = record.step.values[there.argmax(1)]
    return np.where(there.any(1), step * rate, np.nan)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Trapped shares of the window, median times, and the slopes of their logarithms."""
    trapped = (record.label == Label.LOCAL_MINIMUM).mean(("e", "w"))
    near = record.time_near.median("start")
    slopes = {}
    for sign in (-1, 1):
        part = near.sel(distance=near.distance[np.sign(near.distance) == sign])
        slopes["below" if sign < 0 else "above"] = float(
            np.polyfit(np.log(abs(part.distance)), np.log(part), 1)[0]
        )
    small = record.time_small.median("start")
    return {
        "trapped": {f"{P}, {q}": dict(zip(record.model.values, map(float, row), strict=True))
                    for q, row in zip(QS, trapped.values, strict=True)},
        "time_against_distance": dict(zip(map(str, DISTANCES), map(float, near), strict=True)),
        "slope_against_distance": slopes,
        "time_against_sigma": {
            side: dict(zip(map(str, SIGMAS), map(float, small.sel(side=side)), strict=True))
            for side in SIDES
        },
        "time_against_d": {
            side: {
                str(d): papers.median(record.time_whole.sel(side=side, d=d).values) for d in SIZES
            }
            for side in SIDES
        },
        "seeds_that_learn": {
            side: {str(d): int(record.time_whole.sel(side=side, d=d).notnull().sum())
                   for d in SIZES}
            for side in SIDES
        },
    }  # fmt: skip


def draw(record: xr.Dataset) -> dict[str, Figure]:
    """The basins, and the times."""
    return {"threshold": _basins(record), "time_to_learn": _times_drawn(record)}


def _basins(record: xr.Dataset) -> Figure:
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    grid = figure.subplots(1, len(QS), sharey=True)
    for axes, q in zip(grid, QS, strict=True):
        trapped = record.label.sel(q=q) == Label.LOCAL_MINIMUM
        canonical, rank_one = (trapped.sel(model=m).values for m in ("canonical", "rank-one"))
        colour = np.where(rank_one, 2.0, np.where(canonical, 1.0, 0.0))
        axes.contourf(record.w, record.e, colour, levels=[-0.5, 0.5, 1.5, 2.5],
                      colors=["#CFE3F2", "#F6D9C4", "#E9A77B"])  # fmt: skip
        for share, style in ((canonical, "--"), (rank_one, "-")):
            if share.any():
                axes.contour(record.w, record.e, share.astype(float), levels=[0.5],
                             colors="black", linewidths=1.1, linestyles=style)  # fmt: skip
        total = P + q
        sign = "<" if total < 1 else ">" if total > 1 else "="
        axes.set_title(f"$p$ = {P:g}, $q$ = {q:g}: $p + q$ {sign} 1", fontsize=10)
        axes.set(xlabel="feed-forward weight $w$")
    grid[0].set_ylabel("embedding $e$")
    words = (("#CFE3F2", "learns"), ("#F6D9C4", "trapped in two numbers alone (border dashed)"),
             ("#E9A77B", "trapped in the rank-one model too"))  # fmt: skip
    handles = [grid[0].fill_between([], [], color=c, label=word) for c, word in words]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _times_drawn(record: xr.Dataset) -> Figure:
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    near, small, whole = figure.subplots(1, 3)
    times = record.time_near.median("start")
    for sign, colour, marker, words in (
        (-1, BLUE, "o", "$p + q < 1$"),
        (1, GREEN, "s", "$p + q > 1$"),
    ):
        part = times.sel(distance=times.distance[np.sign(times.distance) == sign])
        near.loglog(abs(part.distance), part, color=colour, marker=marker, ms=4, label=words)
    near.loglog([0.01, 0.1], [300, 30], color=GREY, lw=0.8, ls=":", label="$1/|p + q - 1|$")
    near.set(
        xlabel="$|p + q - 1|$",
        ylabel="time until 1 % of the gap is open",
        title="canonical flow, σ = 1",
    )
    for side, colour, marker in zip(SIDES, (BLUE, GREEN), "os", strict=True):
        small.semilogx(record.sigma, record.time_small.sel(side=side).median("start"), color=colour,
                       marker=marker, ms=4)  # fmt: skip
        part = record.time_whole.sel(side=side)
        whole.semilogx(record.d, part.median("seed"), color=colour, marker=marker, ms=4)
        low, high = part.min("seed"), part.max("seed")
        whole.fill_between(record.d, low, high, color=colour, alpha=0.15, lw=0)
    small.set(xlabel="σ of the starts that learn", title="canonical flow")
    whole.set(xlabel="width $d$", title="whole transformer, balanced start", xticks=SIZES,
              xticklabels=SIZES)  # fmt: skip
    whole.set_ylim(0, 50)
    whole.xaxis.set_minor_locator(NullLocator())
    for axes in (near, small, whole):
        axes.title.set_fontsize(10)
    papers.legend_below(near, 3)
    return figure


main = experiment(__name__, compute, numbers, draw)
