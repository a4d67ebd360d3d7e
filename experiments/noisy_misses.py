"""Why noise frees starts from the trap in which the rank-one model rightly sees them.

200 starts e > 0 at p + q > 1, d = 8, N = 8, with noise 0.02 on all weights but attention's, one run
each as in agreement.py: of those that the rank-one model calls trapped two come to the global
minimum at either chain (noisy_misses.json), one at the basin's boundary, the other from
e = w = 1.9, twelve cells away from it. Small steps off the manifold obey a linear equation along
the rank-one orbit (transverse.py). It gives the embedding's component across, as full training has
it, to 15 % up to time 64, while that grows from 0.06 to 0.5. Its gain is the most by which a unit
step off the manifold is multiplied in the embedding up to time 200. At (1.9, 1.9) it comes late, at
times 200, the end, and 130; at the runners-up it comes at times 20 to 30 and falls again. What the
runs do: docs/results/agreement.md.

The trap's bottom is no saddle: at e = 0 a step across costs π₀π₁(p + q − 1)η², and nothing else
couples to second order. The way there is unstable: turning W_1 or W_2 alone costs nothing, so that
the loss falls across wherever either couples to η. From this corner the way is long. Its gap Δ = 30
puts the bias at −13, from where it climbs at the rate π₀p. Until it is up, whatever raises all
logits grows, η and the positions' component across at about the rate π₀p/√N = 0.11 together (at
N = 1024 it is eleven times smaller), and afterwards the embedding falls to zero no faster than the
bias lets it.

Small W_V and W_O grow on the same orbits, all d directions alike (attention_gain in transverse.py).

    python experiments/noisy_misses.py [--overwrite] [--until 200] [--seeds 4]
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import Case, run
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from papers import BLUE, GREY, ORANGE, caption, experiment, log_axis
from torch import Tensor
from transverse import attention_gain, follow

from flowsim.chain import BinaryChain
from flowsim.flow.orbits import find_limits
from flowsim.labels import Label
from flowsim.models.rank_one.model import RankOneModel
from full_model import Comparison, Weights, grid_points
from full_model.comparison.side_by_side import FullSide, SideBySide, lifted_weights

#: Cells a side of the grid of starts.
GRID = 20
CHAINS, LENGTHS, NOISE = (BinaryChain(0.5, 0.8), BinaryChain(0.9, 0.9)), (8, 1024), 0.02
CORNER, NEIGHBOURS = (1.9, 1.9), ((1.9, 1.7), (1.7, 1.9))
#: Start, deviation of the noise, the part of it that is added, and the weights it is added to.
TRIALS = [
    *[(CORNER, 0.02, part, "others") for part in ("all", "across", "along")],
    *[(CORNER, noise, "all", "others") for noise in (5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4)],
    *[(at, noise, "all", "others") for at in NEIGHBOURS for noise in (0.02, 0.04, 0.08)],
    *[(CORNER, noise, "all", "attention") for noise in (0.02, 2e-3)],
    *[(at, 0.02, "all", "attention") for at in NEIGHBOURS],
]


def across(name: str, weight: Tensor) -> Tensor:
    """The part of a weight (M, …, d, …) orthogonal to α = 1/√d in the space of the embedding."""
    if name == "bias":
        return torch.zeros_like(weight)
    axis = -2 if name == "0.down" else -1
    return weight - weight.mean(axis, keepdim=True)


def start(
    chain: BinaryChain, at: tuple[float, float], noise: float, part: str, on: str, seeds: range,
    trainer: str = "flow",
) -> SideBySide:  # fmt: skip
    """Full models with that start, N = 8, one per seed, and the rank-one model."""
    settings = Comparison(
        chain.p, chain.q, "rank-one", trainer=trainer, noise=noise, noise_on=on, seed=seeds.start
    )
    points = torch.tensor([at] * len(seeds), dtype=torch.float64)
    models = SideBySide(settings, points, RankOneModel(chain, settings.length))
    if part != "all":
        weights = models.full.field.weights(models.full.state)
        clean = lifted_weights(Comparison(chain.p, chain.q), points)
        for name, weight in weights.items():
            off = across(name, weight - clean[name])
            weights[name] = clean[name] + off if part == "across" else weight - off
        models.full.state = models.full.field.state(weights)
    return models


def trials(chain: BinaryChain, seeds: int) -> list[dict[str, Any]]:
    """How many runs of each of ``TRIALS`` leave the trap."""
    found = []
    for at, noise, part, on in TRIALS:
        models = start(chain, at, noise, part, on, range(1000, 1000 + seeds))
        models.run()
        outcome = models.full.outcome
        found.append({
            "start": list(at), "noise": noise, "part": part, "noise on": on, "runs": seeds,
            **{label.name.lower(): int((outcome == label).sum()) for label in tuple(Label)[:4]},
            "decided by time": float(models.full.end.max()),
        })  # fmt: skip
    return found


def amplitudes(weights: Weights, length: int) -> Tensor:
    """(4, d): the components (η, P, a, c) of one model's weights across the manifold."""
    parts = {name: across(name, weight)[0] for name, weight in weights.items()}
    root = parts["0.up"].shape[0] ** 0.5
    return torch.stack([
        parts["embedding"], length**0.5 * parts["positions"].mean(0),
        parts["0.up"].sum(0) / root, parts["0.down"].sum(1) / root,
    ])  # fmt: skip


def growth(chain: BinaryChain, at: tuple[float, float], seed: int, until: float) -> dict[str, Any]:
    """The embedding's component across, in training and by the linear theory, over time."""
    # descent, whose steps the linear theory takes
    models = start(chain, at, NOISE, "all", "others", range(seed, seed + 1), "gd").full
    weights = models.field.weights(models.state)
    times = torch.linspace(0, until, 65)[1:]
    first, length = amplitudes(weights, 8), models.settings.length
    model = RankOneModel(chain, length)
    theta = model.from_canonical(torch.tensor([at], dtype=torch.float64))
    _, _, propagators = follow(model, theta, until, times)
    linear = (propagators @ first)[:, 0].norm(dim=-1).tolist()
    full = [float(amplitudes(models.field.weights(state), length)[0].norm())
            for state in trained(models, times)]  # fmt: skip
    start_at = float(first[0].norm())
    return {"time": [0.0, *times.tolist()], "full": [start_at, *full],
            "linear": [start_at, *linear]}  # fmt: skip


def trained(models: FullSide, times: Tensor) -> list[Tensor]:
    """The full weights at the given times, flattened."""
    states = []
    for at in times.tolist():
        models.move(at)
        states.append(models.state.clone())
    return states


def _freed(chain: BinaryChain, length: int) -> np.ndarray:
    """Which starts with noise on all but attention come to the global minimum, d = 8."""
    case = Case(chain.p, chain.q, 8, length, NOISE, "others", GRID)
    with tempfile.TemporaryDirectory() as folder:
        record = run(case, Path(folder))
    return record["outcome"].to_numpy() == Label.GLOBAL_MINIMUM


def compute(until: float = 200.0, seeds: int = 4) -> dict[str, Any]:
    """Gains of all starts that the rank-one model calls trapped, growth and trials at a corner."""
    gains: dict[Any, Any] = {}
    for chain in CHAINS:
        for length in LENGTHS:
            points = grid_points(GRID, GRID // 2, e_range=(0.0, 2.0))
            model = RankOneModel(chain, length)
            label = find_limits(model, model.from_canonical(points)).label
            rows = label == Label.LOCAL_MINIMUM
            e, w = points[rows].numpy().T  # (−e, w) has the mirrored orbit, and the same gain
            theta = model.from_canonical(points[rows])
            gain, when, _ = follow(model, theta, until)
            part = {"e": e, "w": w, "gain": gain.numpy(), "when": when.numpy()}
            if length == LENGTHS[0]:
                part["freed"] = _freed(chain, length)[rows]
            if (chain, length) == (CHAINS[0], LENGTHS[0]):  # what is drawn; it takes minutes
                part["attention"] = attention_gain(model, theta, until)[0].numpy()
            gains[chain, length] = part
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
        e, w, gain, when = (part[name][order] for name in ("e", "w", "gain", "when"))
        known = "freed" in part
        freed = part["freed"][order] if known else np.zeros(len(e), dtype=bool)
        attention = part["attention"][order].tolist() if "attention" in part else [None] * 4
        result[f"p={chain.p:g} q={chain.q:g} N={length}"] = {
            "starts called trapped": len(e),
            "misses among them": int(freed.sum()) if known else None,
            "starts missed (up to the sign of e)": [
                [round(x, 3) for x in pair] for pair in zip(e[freed], w[freed], strict=True)
            ],
            "their gains": gain[freed].tolist(),
            "largest gain of the others": float(gain[~freed].max(initial=1.0)),
            "largest gains": [
                {"e": round(e[i], 3), "w": round(w[i], 3), "gain": float(gain[i]),
                 "at time": float(when[i]), "of attention": attention[i]}
                for i in range(min(4, len(e)))
            ],
        }  # fmt: skip
    line = found["growth"]
    error = np.abs(np.array(line["linear"]) / np.array(line["full"]) - 1).max()
    result["growth at (1.9, 1.9), p=0.5 q=0.8 N=8"] = line | {
        "largest relative error of the linear theory": float(error)
    }
    result["trials at p=0.5 q=0.8 N=8"] = found["trials"]
    return result


def draw(found: dict[str, Any]) -> Figure:
    """Gains over the starts at N = 8, without and of attention, and the growth from one start."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    figure.suptitle(
        "Growth of small displacements off the rank-one manifold: "
        f"{caption(CHAINS[0])}, $N$ = {LENGTHS[0]}, $d$ = 8"
    )
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    part = found["gains"][CHAINS[0], LENGTHS[0]]
    rows, columns = np.unique(part["e"]), np.unique(part["w"])
    at = np.searchsorted(rows, part["e"]), np.searchsorted(columns, part["w"])
    titles = {"gain": "in all weights but attention's", "attention": "in $W_V$ and $W_O$"}
    for ax, (name, title) in zip(axes, titles.items(), strict=False):
        image = np.full((len(rows), len(columns)), np.nan)
        image[at] = part[name]
        mesh = ax.pcolormesh(columns, rows, image, cmap="cividis", norm=LogNorm(1, 30))
        ax.set(xlim=(-2, 2), ylim=(0, 2), xlabel="feed-forward weight $w$",
               ylabel="embedding $e$ ($-e$ is the same)")  # fmt: skip
        ax.set_title(title, fontsize=10)
        ax.text(-1.4, 1, "global basin", ha="center", fontsize=9)
    axes[0].scatter(part["w"][part["freed"]], part["e"][part["freed"]], s=200, marker="o",
                    facecolors="none", edgecolors=ORANGE, linewidths=2, clip_on=False,
                    zorder=3)  # fmt: skip
    ticks = [1, 2, 5, 10, 20, 30]
    bar = figure.colorbar(
        mesh, ax=axes[:2], location="bottom", shrink=0.9, ticks=ticks, extend="max"
    )
    bar.ax.set_xticklabels([str(tick) for tick in ticks])
    bar.minorticks_off()
    bar.set_label(
        "largest gain of a displacement off the manifold, for starts called trapped\n"
        f"(the yellow cell of $W_V$ and $W_O$: {part['attention'].max():.0f}; "
        "circle: training leaves it, one run each, noise 0.02 on all but attention)"
    )
    line, ax = found["growth"], axes[2]
    ax.plot(line["time"], line["full"], color=BLUE, lw=2, label="full transformer")
    ax.plot(line["time"], line["linear"], color=ORANGE, lw=1.6, ls="--", label="linear theory")
    log_axis(ax, "y", [0.05, 0.1, 0.2, 0.5])
    ax.set(xlabel="gradient-flow time", ylim=(0.05, 0.7),
           ylabel=r"norm of the embedding orthogonal to $\alpha$")  # fmt: skip
    ax.set_title("$N$ = 8, from $e = w = 1.9$, noise 0.02 (seed 399)", fontsize=10)
    ax.grid(color=GREY, alpha=0.2)
    ax.legend(frameon=False)
    return figure


main = experiment(__name__, compute, numbers, draw, record=False)
