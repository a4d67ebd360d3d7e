"""Below the threshold too, full training of S states can end between the two losses: where.

Symmetric chain of S states with the second eigenvalue λ = 0.16, so p is below (S − 1)/S. One layer
without attention, tied, S logits, one position, m hidden units for each state, gradient descent on
the exact loss. Starts: points of the plane (e, w) with 0 < e < 2 and −2 < w < 0 that the plane
traps, lifted, with noise 0.02 on every weight; and Gaussian ones of deviation 0.02, 0.5 and 1.

Such ends split the states into blocks. The embeddings of a block are a simplex or, from five
states on, a ring (a regular polygon); those of different blocks are orthogonal; a lone state's is
0. ``split_loss`` is their loss (docs/derivations/13.md). Criteria: a run has learned below 1 % of
the gap; it is at a split within 0.2 % of the gap from that loss, if its embeddings have that rank,
and cosines within 0.1 of that split's; the others are open. Runs near such a loss are moved by 1e-3
in every weight, four times, and return if they are then within 0.2 % of the loss that they had.
The use of cosines was decided after these runs: by the loss alone 22 ends were misnamed.

    python experiments/states_ends.py [--quick]      about five minutes on one core

--quick takes 4 starts for each setting and a tenth of the steps.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import states_descent as layer
import torch
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import BLUE, GREEN, GREY, SKY, experiment, timed
from states_descent import Blocks, Weights

from flowsim import MarkovChain
from full_model import Architecture, initial_weights, lift_states, wilson

#: S and p above the threshold, where experiments/states_agreement.py leaves runs open.
ABOVE = ((3, 0.8), (5, 0.95))
EIGENVALUE, NOISE, NEAR, ALIKE, RATE = 0.16, 0.02, 0.002, 0.1, 0.1
LIFTED = "trapped by the plane"
GAUSSIAN = (0.02, 0.5, 1.0)
#: S, d, m, start.
SETTINGS = (
    *((6, d, m, LIFTED) for m in (1, 2, 3, 4) for d in range(5, 12)),
    *((s, d, 3, LIFTED) for s in (3, 4, 5, 7) for d in range(s - 1, 2 * s - 1)),
    *((6, d, 3, f"N(0, {x:g}²)") for x in GAUSSIAN for d in (5, 6, 7, 8)),
)


def chance(states: int) -> float:
    """p at the second eigenvalue."""
    return (1 - EIGENVALUE) * (states - 1) / states


def share_of(states: int, loss: float, p: float | None = None) -> float:
    """The open share of the gap between unigram and bigram, at p or at the second eigenvalue."""
    chain = MarkovChain.symmetric(states, chance(states) if p is None else p)
    return (loss - chain.entropy_rate) / (chain.stationary_entropy - chain.entropy_rate)


def compute(runs: int = 16, steps: int = 20_000) -> xr.Dataset:
    """Results of every run: open share, gradient, rank, kinks, gain, copies that return."""
    names = ("share", "gradient", "rank", "at_kinks", "gain", "returned")
    found = np.full((len(names), len(SETTINGS), runs), np.nan)
    grams = np.full((len(SETTINGS), runs, 7, 7), np.nan)
    for i, (states, d, m, start) in enumerate(timed(SETTINGS)):
        for k, weights in enumerate(starts(states, d, m, start, runs)):
            found[:, i, k] = followed(weights, steps)
            if not found[0, i, k] < 0.01:
                e = layer.centred(weights[0])
                e /= np.linalg.norm(e, axis=1)[:, None] + 1e-9
                grams[i, k, :states, :states] = e @ e.T
    axes = ("setting", "run")
    record = xr.Dataset({n: (axes, x.astype("float32")) for n, x in zip(names, found, strict=True)})
    record["cosine"] = ((*axes, "state", "other"), grams.astype("float32"))
    return record.assign_coords(setting=["; ".join(map(str, s)) for s in SETTINGS])


def starts(states: int, d: int, m: int, start: str, runs: int) -> Iterator[Weights]:
    """Weights of every run: embeddings, position, W_1, W_2ᵀ, bias."""
    arch = Architecture(d, 1, hidden=m * states, states=states, output="states", attention="none")
    for seed in range(runs):
        if start == LIFTED:
            rng = np.random.default_rng(seed)
            point = trapped_point(m, rng)
            weights = {n: x.numpy() for n, x in lift_states(point, arch).items()}
            weights = {n: x + NOISE * rng.normal(size=x.shape) for n, x in weights.items()}
        else:
            deviation = float(start[5:-2])
            drawn = initial_weights(arch, "gaussian", [seed], std=deviation)
            weights = {n: x[0].numpy() for n, x in drawn.items()}
        yield [np.ascontiguousarray(x) for x in (
            weights["embedding"], weights["positions"][0], weights["0.up"], weights["0.down"].T,
            weights["bias"])]  # fmt: skip


def trapped_point(m: int, rng: np.random.Generator) -> torch.Tensor:
    """A random (e, w) that the plane traps below the threshold."""
    while True:
        e, w = rng.uniform(0, 2), rng.uniform(-2, 0)
        omega = np.sqrt(m) * w
        if omega < -1 and e**2 < 2 * omega**2 - 2 - 4 * np.log(-omega):
            return torch.tensor([e, w], dtype=torch.float64)


def trained(weights: Weights, steps: int) -> tuple[float, float]:
    """Open share and size of the gradient after descent, in place, at the rate and then at 1/10."""
    states = len(weights[0])
    law = layer.symmetric_law(states, chance(states))
    for rate, count in ((RATE, steps), (RATE / 10, steps // 10)):
        loss, size = layer.descend(*weights, law, rate, count)  # type: ignore[call-arg]
    return share_of(states, loss), size


def followed(weights: Weights, steps: int) -> tuple[float, ...]:
    """The numbers of one run, whose weights become those of its end."""
    share, size = trained(weights, steps)
    e, p, up, _, _ = weights
    at_kinks = int((abs((e + p) @ up.T).min(0) < 1e-3).sum())
    returned, rank = np.nan, layer.rank(e)
    if nearest(len(e), rank, share):
        rng, returned = np.random.default_rng(0), 0
        for _ in range(4):
            copy = [x + 1e-3 * rng.normal(size=x.shape) for x in weights]
            returned += abs(trained(copy, steps // 2)[0] - share) < NEAR
    return share, size, rank, at_kinks, layer.gain_across(weights), returned


def nearest(states: int, among: int, share: float) -> list[Blocks]:
    """The splits of that rank whose loss is at that share."""
    return [blocks for blocks, value in partition_losses(states).items()
            if sum(rank for _, rank in blocks) == among and abs(value - share) < NEAR]  # fmt: skip


def kinds_of(states: int, lines: xr.Dataset) -> np.ndarray:
    """The split at which each run is, "" of none, in the shape of the runs."""
    found = np.full(lines.share.shape, "", dtype=object)
    for at in np.ndindex(found.shape):
        cosine = lines.cosine.values[at][:states, :states]
        for blocks in nearest(states, int(lines["rank"].values[at]), float(lines.share.values[at])):
            if apart(cosine, blocks) < ALIKE:
                found[at] = split_name(blocks)
    return found.astype(str)


def apart(cosine: np.ndarray, blocks: Blocks) -> float:
    """Distance of cosines (S, S) from a split's, in the best order of states."""
    order = np.array(list(permutations(range(len(cosine)))))
    off = abs(cosine[order[:, :, None], order[:, None, :]] - layer.cosines_of(blocks))
    return float(np.nanmax(off, (1, 2)).min())


def split_name(blocks: Blocks) -> str:
    """Name of a split in figure and table."""
    return " + ".join(str(k) if among == k - 1 else f"ring of {k}" for k, among in blocks)


@cache
def partition_losses(states: int) -> dict[Blocks, float]:
    """Open shares of all splits between the bigram, rank S − 1, and the unigram, rank 0."""
    return {blocks: share_of(states, layer.split_loss(blocks, chance(states)))
            for blocks in layer.splits(states)
            if 0 < sum(rank for _, rank in blocks) < states - 1}  # fmt: skip


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per setting: how many learn, are at a split, are open; and the splits' losses."""
    found: dict[str, Any] = {}
    for (states, d, m, start), name in zip(SETTINGS, record.setting.values, strict=True):
        line = record.sel(setting=name)
        share = line.share.values
        kinds = kinds_of(states, line)
        at = kinds != ""
        learned = share < 0.01
        rest = ~at & ~learned
        found[str(name)] = {
            "states": states, "d": d, "m": m, "start": start, "runs": len(share),
            "learned": int(learned.sum()), "at splits": dict(Counter(kinds[at].tolist())),
            "interval": wilson(int(at.sum()), len(share)), "open": int(rest.sum()),
            "open_share": sorted(float(x) for x in share[rest]),
            "largest gradient at splits": float(line.gradient.values[at].max(initial=0)),
            "copies that return": [int(line.returned.values[at].sum()), 4 * int(at.sum())],
            "units at kinks": sorted(int(x) for x in line.at_kinks.values[at]),
            "gain across at splits": sorted(float(x) for x in line.gain.values[at]),
            "gain across where open": sorted(float(x) for x in line.gain.values[rest]),
        }  # fmt: skip
    found["levels"] = {
        f"S = {s}": {split_name(blocks): x for blocks, x in partition_losses(s).items()}
        for s in (3, 4, 5, 6, 7)
    }
    found["minima of rank K above the threshold"] = {
        f"S = {s}, p = {p}": {
            f"K = {k}": [share_of(s, loss, p) for loss in layer.rank_losses(s, p, k)]
            for k in range(1, s - 1)
        }
        for s, p in ABOVE
    }
    return found


def draw(record: xr.Dataset) -> Figure:
    """Open shares against d beside the partitions' levels, and who pairs with whom."""
    figure = Figure(figsize=(12.5, 4.8), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1))  # type: ignore[misc]
    axes = left.subplots()
    six = record.sel(setting=[n for n in record.setting.values if n.startswith("6;")])
    kinds, named = (
        kinds_of(6, six),
        {split_name(blocks): x for blocks, x in partition_losses(6).items()},
    )
    for word, value in named.items():
        if word in kinds:
            axes.axhline(value, color="0.6", lw=0.8, ls="--", zorder=0)
            axes.annotate(word, (11.7, value), fontsize=8, va="bottom", ha="right",
                          xytext=(0, -9 if word == "3 + 3" else 1),
                          textcoords="offset points")  # fmt: skip
    rng = np.random.default_rng(0)
    for m, colour in zip((1, 2, 3, 4), (GREY, GREEN, BLUE, SKY), strict=True):
        for d in range(5, 12):
            share = record.share.sel(setting=f"6; {d}; {m}; {LIFTED}").values
            x = d + 0.18 * (m - 2.5) + rng.uniform(-0.06, 0.06, len(share))
            axes.plot(x, share, "o", color=colour, ms=3.5, mew=0, alpha=0.6,
                      label=f"m = {m}" if d == 5 else None)  # fmt: skip
    axes.set(xlabel="embedding dimension d", ylabel="open share of the gap at the end",
             title="every end from a start that the plane traps; dashed: closed form",
             xlim=(4.5, 11.75), ylim=(-0.03, 0.85))  # fmt: skip
    axes.title.set_fontsize(10)
    axes.legend(fontsize=8, loc="upper right", bbox_to_anchor=(0.88, 1.0))
    for axes, word in zip(right.subplots(1, 3), ("2 + 2 + 2", "3 + 3", "4 + 2"), strict=True):
        cosines(axes, six, kinds == word, word, named[word])
    right.suptitle("cosines between embeddings, one end each", fontsize=10)
    figure.suptitle(
        "Below the threshold training can stop where the six states have fallen into "
        f"groups (p = {chance(6):g}, noise {NOISE}, no attention)",
        fontsize=11.5,
    )
    return figure


def cosines(axes: Axes, six: xr.Dataset, fits: np.ndarray, word: str, level: float) -> None:
    """The cosines of the end nearest to a split's level, its states in the order of blocks."""
    axes.set_title(word, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    if not fits.any():
        return
    off = np.where(fits, abs(six.share.values - level), np.inf)
    cosine = six.cosine.values[np.unravel_index(off.argmin(), off.shape)][:6, :6]
    order: list[int] = []
    for s in range(6):
        order += [t for t in range(6) if t not in order and (t == s or abs(cosine[s, t]) > 0.2)]
    shown = cosine[np.ix_(order, order)]
    axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1)
    for i, j in np.ndindex(6, 6):
        axes.text(j, i, f"{shown[i, j]:.1f}".replace("-0.0", "0.0"), ha="center", va="center",
                  fontsize=6.5, color="w" if abs(shown[i, j]) > 0.6 else "k")  # fmt: skip


main = experiment(__name__, compute, numbers, draw, quick={"runs": 4, "steps": 2000})
