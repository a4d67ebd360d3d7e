"""Why noise frees starts from the trap in which the rank-one model rightly sees them.

200 starts e > 0 at p + q > 1, d = 8, N = 8, with noise 0.02 on all weights but attention's, one run
each as in agreement.py: of those that the rank-one model calls trapped two come to the global
minimum at either chain (noisy_misses.json), one at the basin's boundary, the other from
e = w = 1.9, twelve cells away from it. What we find:

- From (1.9, 1.9) at (0.5, 0.8), with other seeds, 3 of 4 runs with all of the noise leave the trap,
  and 3 of 4 with its components orthogonal to α alone; with its components along α alone none of 4
  does. The others, and all with noise 0.01 and less, are undecided after 20 000 steps of descent.
- Small steps off the manifold obey a linear equation along the rank-one orbit (transverse.py). It
  gives the embedding's component across, as full training has it, to 15 % up to time 64, while
  that grows from 0.06 to 0.5.
- Its gain, the most by which a unit step off the manifold is multiplied in the embedding up to
  time 200, is largest at these very starts among all that the rank-one model calls trapped: 26 at
  (0.5, 0.8), all others being at most 16, and 21 at (0.9, 0.9), others 19. At N = 1024 it is at
  most 9; no noisy runs were made there.
- At the misses the gain comes late, at times 200 and 130; at the runners-up it comes at times 20 to
  30 and falls again. From two of these, (1.9, 1.7) and (1.7, 1.9) at (0.5, 0.8), runs with noise
  0.02 and 0.04 stay, 4 of 4 each, and 2 of 4 with noise 0.08 leave.

So the trap's bottom is no saddle: at e = 0 a step across costs π₀π₁(p + q − 1)η², and nothing else
couples to second order. The way there is unstable: turning W_1 or W_2 alone costs nothing, so that
the loss falls across wherever either couples to η. From this corner the way is long. Its gap Δ = 30
puts the bias at −13, from where it climbs at the rate π₀p. Until it is up, whatever raises all
logits grows, η and the positions' component across at about the rate π₀p/√N = 0.11 together (at
N = 1024 it is eleven times smaller), and afterwards the embedding falls to zero no faster than the
bias lets it. How small a noise the corner bears, or whether any, was not determined.

Small W_V and W_O grow on the same orbits, all d directions alike (attention_gain in transverse.py),
which is why attention's noise alone frees runs from this corner too.

    python experiments/noisy_misses.py [--overwrite] [--until 200] [--seeds 4]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import Case, run
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from papers import BLUE, GREY, ORANGE, caption, run_script
from torch import Tensor
from transverse import follow

from flowsim.chain import BinaryChain
from flowsim.flow.limits import find_limits
from flowsim.landscape.labels import Label
from flowsim.models.rank_one import RankOneModel
from full_model import Comparison, FullSide, SideBySide, Weights, grid_points
from full_model.comparison.full_side import lifted_weights
from full_model.comparison.steps import step_until

NAME = "noisy_misses"
#: Cells a side of the grid of starts.
GRID = 20
DEFAULT = {"until": 200.0, "seeds": 4}
CHAINS, LENGTHS, NOISE = (BinaryChain(0.5, 0.8), BinaryChain(0.9, 0.9)), (8, 1024), 0.02
CORNER, NEIGHBOURS = (1.9, 1.9), ((1.9, 1.7), (1.7, 1.9))
#: Start, deviation of the noise, and the part of it that is added.
TRIALS = [
    (CORNER, 0.02, "all"),
    (CORNER, 0.02, "across"),
    (CORNER, 0.02, "along"),
    (CORNER, 0.01, "all"),
    (CORNER, 0.005, "all"),
    (CORNER, 0.002, "all"),
    *[(start, noise, "all") for start in NEIGHBOURS for noise in (0.02, 0.04, 0.08)],
]


def across(name: str, weight: Tensor) -> Tensor:
    """The part of a weight (M, …, d, …) orthogonal to α = 1/√d in the space of the embedding."""
    if name == "bias":
        return torch.zeros_like(weight)
    axis = -2 if name == "0.down" else -1
    return weight - weight.mean(axis, keepdim=True)


def start(chain: BinaryChain, at: tuple[float, float], noise: float, part: str, seeds: range,
          length: int = 8) -> tuple[FullSide, Weights]:  # fmt: skip
    """Full models with that start, one per seed, and their weights."""
    settings = Comparison(
        chain.p, chain.q, "rank-one", length=length, noise=noise, noise_on="others",
        seed=seeds.start,
    )  # fmt: skip
    points = torch.tensor([at] * len(seeds), dtype=torch.float64)
    full = FullSide(settings, points)
    weights = full.field.weights(full.state)
    if part != "all":
        clean = lifted_weights(Comparison(chain.p, chain.q, length=length), points)
        for name, weight in weights.items():
            off = across(name, weight - clean[name])
            weights[name] = clean[name] + off if part == "across" else weight - off
    return full, weights


def trials(chain: BinaryChain, seeds: int) -> list[dict[str, Any]]:
    """How many runs of each of ``TRIALS`` leave the trap."""
    starts = [start(chain, *trial, range(1000, 1000 + seeds)) for trial in TRIALS]
    points = torch.tensor([at for at, _, _ in TRIALS], dtype=torch.float64)
    points = points.repeat_interleave(seeds, 0)
    settings = Comparison(chain.p, chain.q, "rank-one", noise=NOISE, noise_on="others")
    whole = SideBySide(settings, points, RankOneModel(chain, settings.length))
    whole.full.state = torch.cat([full.field.state(weights) for full, weights in starts])
    whole.run()
    found = []
    for (at, noise, part), outcome in zip(TRIALS, whole.full.outcome.split(seeds), strict=True):
        line: dict[str, Any] = {"start": list(at), "noise": noise, "part": part, "runs": seeds}
        line |= {label.name.lower(): int((outcome == label).sum()) for label in Label}
        found.append(line)
    return found


def amplitudes(weights: Weights, length: int) -> Tensor:
    """(4, d): the components (η, P, a, c) of one model's weights across the manifold."""
    parts = {name: across(name, weight)[0] for name, weight in weights.items()}
    root = parts["0.up"].shape[0] ** 0.5
    return torch.stack(
        [
            parts["embedding"],
            length**0.5 * parts["positions"].mean(0),
            parts["0.up"].sum(0) / root,
            parts["0.down"].sum(1) / root,
        ]
    )


def growth(chain: BinaryChain, at: tuple[float, float], seed: int, until: float) -> dict[str, Any]:
    """The embedding's component across, in training and by the linear theory, over time."""
    models, weights = start(chain, at, NOISE, "all", range(seed, seed + 1))
    times = torch.linspace(0, until, 65)[1:]
    first, length = amplitudes(weights, 8), models.settings.length
    model = RankOneModel(chain, length)
    theta = model.from_canonical(torch.tensor([at], dtype=torch.float64))
    _, _, propagators = follow(model, theta, until, times)
    linear = (propagators @ first)[:, 0].norm(dim=-1)
    full = [
        amplitudes(models.field.weights(state), length)[0].norm()
        for state in trained(models, times)
    ]
    return {
        "time": [0.0, *times.tolist()],
        "full": [float(first[0].norm()), *map(float, full)],
        "linear": [float(first[0].norm()), *linear.tolist()],
    }


def trained(models: FullSide, times: Tensor) -> list[Tensor]:
    """The full weights at the given times, flattened."""
    states = []
    for at in times.tolist():
        step_until(models.field, models.state, models.time, models.steps, at,
                   models.steps >= 0)  # fmt: skip
        states.append(models.state.clone())
    return states


def _freed(chain: BinaryChain, length: int) -> np.ndarray:
    """Which starts with noise on all but attention come to the global minimum, d = 8."""
    case = Case(chain.p, chain.q, 8, length, NOISE, "others", GRID)
    with tempfile.TemporaryDirectory() as folder:
        record, _ = run(case, Path(folder))
    return record["outcome"].to_numpy() == Label.GLOBAL_MINIMUM


def compute(until: float, seeds: int) -> dict[str, Any]:
    """Gains of all starts that the rank-one model calls trapped, growth and trials at a corner."""
    gains: dict[Any, Any] = {}
    for chain in CHAINS:
        for length in LENGTHS:
            points = grid_points(GRID, GRID // 2, e_range=(0.0, 2.0))
            model = RankOneModel(chain, length)
            label = find_limits(model, model.from_canonical(points)).label
            rows = label == Label.LOCAL_MINIMUM
            e, w = points[rows].numpy().T  # (−e, w) has the mirrored orbit, and the same gain
            gain, when, _ = follow(model, model.from_canonical(points[rows]), until)
            freed = _freed(chain, length)[rows] if length == LENGTHS[0] else None
            gains[chain, length] = {
                "e": e, "w": w, "gain": gain.numpy(), "when": when.numpy(),
                "missed": set() if freed is None else {(e[i], w[i]) for i in np.flatnonzero(freed)},
                "misses": None if freed is None else int(freed.sum()), "starts": len(e),
            }  # fmt: skip
    return {
        "gains": gains,
        "growth": growth(CHAINS[0], CORNER, 399, 64.0),
        "trials": trials(CHAINS[0], seeds),
    }


def numbers(found: dict[str, Any]) -> dict[str, Any]:
    """The largest gains and whose they are, the linear theory's error, and the trials."""
    result: dict[str, Any] = {}
    for (chain, length), part in found["gains"].items():
        order = np.argsort(-part["gain"])
        at = [(part["e"][i], part["w"][i]) for i in order]
        missed = [i for i in order if (part["e"][i], part["w"][i]) in part["missed"]]
        result[f"p={chain.p:g} q={chain.q:g} N={length}"] = {
            "starts called trapped": part["starts"],
            "misses among them": part["misses"],
            "starts missed (up to the sign of e)": [
                [round(x, 3) for x in at[list(order).index(i)]] for i in missed
            ],
            "their gains": [float(part["gain"][i]) for i in missed],
            "largest gain of the others": float(
                max((g for i, g in enumerate(part["gain"]) if i not in missed), default=1.0)
            ),
            "largest gains": [
                {"e": round(e, 3), "w": round(w, 3), "gain": float(part["gain"][i]),
                 "at time": float(part["when"][i])}
                for (e, w), i in zip(at[:4], order, strict=False)
            ],
        }  # fmt: skip
    line = found["growth"]
    full, linear = np.array(line["full"]), np.array(line["linear"])
    error = np.abs(linear / full - 1)
    result["growth at (1.9, 1.9), p=0.5 q=0.8 N=8"] = line | {
        "largest relative error of the linear theory": float(error.max())
    }
    result["trials at p=0.5 q=0.8 N=8"] = found["trials"]
    return result


def draw(found: dict[str, Any]) -> Figure:
    """Gains over the starts at N = 8 and N = 1024, and the growth from one start."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    figure.suptitle(
        "Growth of small displacements off the rank-one manifold, without attention: "
        f"{caption(CHAINS[0])}, $d$ = 8"
    )
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    for ax, length in zip(axes, LENGTHS, strict=False):
        part = found["gains"][CHAINS[0], length]
        rows, columns = np.unique(part["e"]), np.unique(part["w"])
        image = np.full((len(rows), len(columns)), np.nan)
        at = np.searchsorted(rows, part["e"]), np.searchsorted(columns, part["w"])
        image[at] = part["gain"]
        mesh = ax.pcolormesh(columns, rows, image, cmap="cividis", norm=LogNorm(1, 30))
        for e, w in part["missed"]:
            ax.scatter(w, e, s=200, marker="o", facecolors="none", edgecolors=ORANGE, linewidths=2,
                       clip_on=False, zorder=3)  # fmt: skip
        ax.set(xlim=(-2, 2), ylim=(0, 2), xlabel="feed-forward weight $w$",
               ylabel="embedding $e$ ($-e$ is the same)")  # fmt: skip
        ran = "" if part["misses"] is None else ", one noisy run a start"
        ax.set_title(f"$N$ = {length}{ran}", fontsize=10)
        ax.text(-1.4, 1, "global basin", ha="center", fontsize=9)
    ticks = [1, 2, 5, 10, 20, 30]
    bar = figure.colorbar(mesh, ax=axes[:2], location="bottom", shrink=0.7, ticks=ticks)
    bar.ax.set_xticklabels([str(tick) for tick in ticks])
    bar.minorticks_off()
    bar.set_label("largest gain of a displacement off the manifold, for starts called trapped\n"
                  "(circle: training leaves it, noise 0.02 on all but attention)")  # fmt: skip
    line, ax = found["growth"], axes[2]
    ax.semilogy(line["time"], line["full"], color=BLUE, lw=2, label="full transformer")
    ax.semilogy(line["time"], line["linear"], color=ORANGE, lw=1.6, ls="--", label="linear theory")
    marks = [0.05, 0.1, 0.2, 0.5]
    ax.set_yticks(marks, [str(mark) for mark in marks])
    ax.minorticks_off()
    ax.set(xlabel="gradient-flow time", ylim=(0.05, 0.7),
           ylabel=r"norm of the embedding orthogonal to $\alpha$")  # fmt: skip
    ax.set_title("$N$ = 8, from $e = w = 1.9$, noise 0.02 (seed 399)", fontsize=10)
    ax.grid(color=GREY, alpha=0.2)
    ax.legend(frameon=False)
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Measure and draw; the exit code."""
    return run_script(
        __doc__, NAME, compute, numbers, draw, DEFAULT, {}, arguments, keep_record=False
    )


if __name__ == "__main__":
    sys.exit(main())
