"""Why noise frees four starts from the trap in which the rank-one model rightly sees them.

agreement.py finds six runs with noise 0.02 on every weight, N = 8 and p + q > 1, that end elsewhere
than the rank-one model says. Two start at the basin's boundary; four start at |e| = w = 1.9, twelve
cells from it, and reach the global minimum. What we find:

- The noise that does it is the noise across the manifold. From (1.9, 1.9) at (0.5, 0.8), with other
  seeds, runs with all of the noise and with its components orthogonal to α alone leave the trap,
  4 of 4 each; with its components along α alone 0 of 4 do. A tenth of the noise is enough too.
- Small steps off the manifold obey a linear equation along the rank-one orbit, which is solved here
  (``transverse_hessian``). It gives the embedding's component across, as full training has it, to
  15 % up to time 64, while it grows from 0.06 to 0.5.
- Its gain, the most by which a unit step off the manifold is multiplied in the embedding up to
  time 200, is largest at these very starts among all that the rank-one model calls trapped: 26 at
  (0.5, 0.8), all others being at most 16, and 21 at (0.9, 0.9), others 19. At N = 1024 it is at
  most 9, and there are no misses. From the runners-up, (1.9, 1.7) and (1.7, 1.9) at (0.5, 0.8),
  runs with noise 0.02 and 0.04 stay, 4 of 4 each, and all with noise 0.08 leave.

So the trap's bottom is no saddle: at e = 0 a step across costs π₀π₁(p + q − 1)η², and nothing else
couples to second order. Unstable is the way there, wherever e ≠ 0, for turning W_1 or W_2 alone
costs nothing, and both couple to η. From this corner the way is long: the gap Δ = 30 puts the
bias at −13, from where it climbs at the rate π₀p; until it is up, what raises all logits
grows, η and the positions' component across at about the rate π₀p/√N = 0.11 together (at N = 1024
it is eleven times smaller), and afterwards the embedding must wait for the bias to fall to zero.
How small a noise the corner bears, or whether any, was not determined.

    python experiments/noisy_misses.py [--overwrite] [--until 200] [--seeds 4]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from papers import BLUE, FIGURES, GREY, ORANGE, caption, run_script
from torch import Tensor

from flowsim.bias import residual_given
from flowsim.chain import BinaryChain
from flowsim.descent import advance
from flowsim.landscape import Label
from flowsim.rank_one import WIDTH_RATIO, RankOneModel
from flowsim.results import read_record
from full_model.comparison import Comparison
from full_model.comparison_session import Session, lifted_weights
from full_model.transformer import Weights

NAME = "noisy_misses"
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


def transverse_hessian(model: RankOneModel, theta: Tensor) -> Tensor:
    """Second derivatives of the loss across the manifold, (M, 4, 4), at θ (M, 5).

    For one direction orthogonal to α, with η that component of the embedding, P/√N of every
    position, a/√r of every row of W_1 and c/√r of every column of W_2 (unit metric each), and
    Y_x = ρ + x e, the logits change by

        ηP/√N + x η² + 1{w₁Y_x > 0} 2[w₁ Y_x ηc + w₂ e a(P/√N + x η)]     (2 = √(r/d))

    beyond third order; the d − 1 directions do not mix. Axes (η, P, a, c). Own derivation.
    """
    e, rho, w1, w2, b = theta.unbind(-1)
    root, width = model.length**0.5, WIDTH_RATIO**0.5
    hessian = theta.new_zeros(len(theta), 4, 4)
    for x, chance in enumerate(model.chain.stationary):
        y = rho + x * e
        logit = e * (y + WIDTH_RATIO * w2 * (w1 * y).clamp(min=0)) + b
        omega = chance * residual_given(model.chain, x, logit)  # ∂L/∂f_x
        opened = omega * width * (w1 * y > 0)
        hessian[:, 0, 0] += 2 * x * omega
        for (i, j), entry in {
            (0, 1): omega / root,
            (0, 2): x * opened * w2 * e,
            (0, 3): opened * w1 * y,
            (1, 2): opened * w2 * e / root,
        }.items():
            hessian[:, i, j] += entry
            hessian[:, j, i] += entry
    return hessian


def follow(
    model: RankOneModel, theta: Tensor, until: float, save: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient descent on the manifold, and what it does to small steps off it.

    Args:
        theta: (M, 5) starts.
        until: time to stop at.
        save: (T,) increasing times at which to keep the propagator, one row only.

    Returns:
        The largest factor (M,) by which the embedding's component across has outgrown a unit
        step off the manifold in (η, P, a, c), the time (M,) of it, and propagators (T, 4, 4).
    """
    state, metric = theta.clone(), theta.new_tensor(model.metric)
    propagator = torch.eye(4, dtype=theta.dtype).repeat(len(theta), 1, 1)
    clock = theta.new_zeros(len(theta))
    gain, when = theta.new_ones(len(theta)), clock.clone()
    kept: list[Tensor] = []
    while len(rows := (clock < until).nonzero()[:, 0]):
        here = state[rows]
        aim = until if save is None or len(kept) == len(save) else float(save[len(kept)])
        step = torch.minimum(0.8 / model.stiffness(here), aim - clock[rows])[:, None]
        moved = propagator[rows] - step[..., None] * (
            transverse_hessian(model, here) @ propagator[rows]
        )
        propagator[rows], state[rows] = moved, here - step * model.gradient(here) / metric
        clock[rows] += step[:, 0]
        if save is not None and float(clock[0]) >= aim and len(kept) < len(save):
            kept.append(propagator[0].clone())
        size = moved[:, 0].norm(dim=-1)
        grown = size > gain[rows]
        gain[rows[grown]], when[rows[grown]] = size[grown], clock[rows[grown]]
    return gain, when, torch.stack(kept) if kept else propagator[:0]


def across(name: str, weight: Tensor) -> Tensor:
    """The part of a weight (M, …, d, …) orthogonal to α = 1/√d in the space of the embedding."""
    if name == "bias":
        return torch.zeros_like(weight)
    axis = -2 if name == "0.down" else -1
    return weight - weight.mean(axis, keepdim=True)


def start(chain: BinaryChain, at: tuple[float, float], noise: float, part: str, seeds: range,
          length: int = 8) -> tuple[Session, Weights]:  # fmt: skip
    """A session of the comparison with that start once per seed, and its weights."""
    settings = Comparison(
        chain.p, chain.q, "rank-one", length=length, noise=noise, seed=seeds.start
    )
    points = torch.tensor([at] * len(seeds), dtype=torch.float64)
    session = Session(settings, points, RankOneModel(chain, length))
    weights = session.field.weights(session.full)
    if part != "all":
        clean = lifted_weights(Comparison(chain.p, chain.q, length=length), session.arch, points)
        for name, weight in weights.items():
            off = across(name, weight - clean[name])
            weights[name] = clean[name] + off if part == "across" else weight - off
    return session, weights


def trials(chain: BinaryChain, seeds: int) -> list[dict[str, Any]]:
    """How many runs of each of ``TRIALS`` leave the trap."""
    starts = [start(chain, *trial, range(1000, 1000 + seeds)) for trial in TRIALS]
    points = torch.cat([session.points for session, _ in starts])
    settings = Comparison(chain.p, chain.q, "rank-one", noise=NOISE)
    whole = Session(settings, points, RankOneModel(chain, settings.length))
    whole.full = torch.cat([session.field.state(weights) for session, weights in starts])
    whole.run(None, None)
    found = []
    for (at, noise, part), outcome in zip(TRIALS, whole.outcome.split(seeds), strict=True):
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
    session, weights = start(chain, at, NOISE, "all", range(seed, seed + 1))
    times = torch.linspace(0, until, 65)[1:]
    first, length = amplitudes(weights, 8), session.settings.length
    model = RankOneModel(chain, length)
    _, _, propagators = follow(model, model.from_canonical(session.points), until, times)
    linear = (propagators @ first)[:, 0].norm(dim=-1)
    full = [
        amplitudes(session.field.weights(state), length)[0].norm()
        for state in trained(session, times)
    ]
    return {
        "time": [0.0, *times.tolist()],
        "full": [float(first[0].norm()), *map(float, full)],
        "linear": [float(first[0].norm()), *linear.tolist()],
    }


def trained(session: Session, times: Tensor) -> list[Tensor]:
    """The full weights of a session at the given times, flattened."""
    states = []
    for at in times.tolist():
        advance(session.field, session.full, session.clock, session.steps, at,
                session.steps >= 0)  # fmt: skip
        states.append(session.full.clone())
    return states


def compute(until: float, seeds: int) -> dict[str, Any]:
    """Gains of all starts that the rank-one model calls trapped, growth and trials at a corner."""
    study = read_record(FIGURES / "agreement.nc", "agreement")
    names = list(study.attrs["cases"])
    gains = {}
    for chain in CHAINS:
        for length in LENGTHS:
            case = f"gd p={chain.p:g} q={chain.q:g} N={length} noise {NOISE:g}"
            rows = study["case_of_point"].to_numpy() == names.index(case)
            rows &= (study["predicted"] == Label.LOCAL_MINIMUM).to_numpy()
            e, w, outcome = (study[name].to_numpy()[rows] for name in ("e", "w", "outcome"))
            model = RankOneModel(chain, length)
            half = e > 0  # (−e, w) has the mirrored orbit, and the same gain
            points = torch.from_numpy(np.stack([e[half], w[half]], -1))
            gain, when, _ = follow(model, model.from_canonical(points), until)
            missed = outcome == Label.GLOBAL_MINIMUM
            gains[chain, length] = {
                "e": e[half], "w": w[half], "gain": gain.numpy(), "when": when.numpy(),
                "missed": {(abs(e[i]), w[i]) for i in np.flatnonzero(missed)},
                "misses": int(missed.sum()), "starts": len(e),
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
    figure.suptitle(f"Growth of small steps off the rank-one manifold;  {caption(CHAINS[0])}")
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
        ax.set(xlim=(-2, 2), ylim=(0, 2), xlabel="feed-forward weight $w$", ylabel="embedding $e$")
        ax.set_title(f"$N$ = {length}", fontsize=10)
        ax.text(-1.4, 1, "global basin", ha="center", fontsize=9)
    ticks = [1, 2, 5, 10, 20, 30]
    bar = figure.colorbar(mesh, ax=axes[:2], location="bottom", shrink=0.7, ticks=ticks)
    bar.ax.set_xticklabels([str(tick) for tick in ticks])
    bar.minorticks_off()
    bar.set_label("largest gain of a step off the manifold, for starts called trapped\n"
                  "(circle: the full model leaves the trap, with noise 0.02)")  # fmt: skip
    line, ax = found["growth"], axes[2]
    ax.semilogy(line["time"], line["full"], color=BLUE, lw=2, label="full transformer")
    ax.semilogy(line["time"], line["linear"], color=ORANGE, lw=1.6, ls="--", label="linear theory")
    marks = [0.05, 0.1, 0.2, 0.5]
    ax.set_yticks(marks, [str(mark) for mark in marks])
    ax.minorticks_off()
    ax.set(xlabel="time", ylabel="embedding off the manifold", ylim=(0.05, 0.7))
    ax.set_title("$N$ = 8, from $e = w = 1.9$ with noise 0.02", fontsize=10)
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
