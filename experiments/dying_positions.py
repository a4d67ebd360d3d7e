"""When does a position die from the balanced start, and does a bound foretell it?

A position is dead once all of its hidden units are shut for both of its symbols. With attention
that has two meanings: shut for every sequence, or for p_n + x e alone, without what attention
adds. At the balanced start (experiments/balanced_start.py) none is. Descent is looked at every
step, and every ten steps from step 100 on: (0.6, 0.85), d = 4, r = 16, N = 5, the rate 0.1,
several deviations of the other weights, softmax attention and none. A run is at the bigram if
less than 5 % of the gap is open at the end.

Without attention the first weights set a distance s that all weights together have to move before
a position can die, and the time s²/(L(0) − entropy rate) before which gradient flow kills none
(docs/derivations/17.md). Both stand beside what happened.

    python experiments/dying_positions.py [--quick]      about two minutes on one core

--quick takes 4 seeds and 200 steps.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import BLUE, GREEN, ORANGE, experiment

from flowsim import BinaryChain, Recipe
from full_model import (
    Architecture,
    MarkovSource,
    PopulationLoss,
    Trainer,
    all_sequences,
    forward,
    initial_weights,
)
from full_model.model.architecture import flatten

#: Steps between looks, from step 100 on.
LOOK = 10
CHAIN, RATE = BinaryChain(0.6, 0.85), 0.1
DEVIATIONS = (0.02, 0.3, 0.6, 0.8, 1.0)
#: What is trained, and what a position is taken to read: its attention, and the colour.
CASES = {
    "softmax, every sequence": ("softmax", "softmax", BLUE),
    "softmax, own symbol alone": ("softmax", "none", GREEN),
    "no attention": ("none", "none", ORANGE),
}


def compute(seeds: int = 32, steps: int = 4000) -> xr.Dataset:
    """Of every run (case, deviation, seed): deaths, distances, losses."""
    parts = [_followed(kind, read, seeds, steps) for kind, read, _ in CASES.values()]
    return xr.concat(parts, dim=xr.Variable("case", list(CASES)))


def _followed(kind: str, read: str, seeds: int, steps: int) -> xr.Dataset:
    """The runs of one case, all deviations trained together."""
    arch, source = Architecture(4, 5, hidden=16, attention=kind), MarkovSource.of(CHAIN)
    reader = replace(arch, attention=read)
    starts = [initial_weights(arch, "balanced", range(seeds), std=std) for std in DEVIATIONS]
    start = {name: torch.cat([w[name] for w in starts]) for name in arch.shapes}
    trainer = Trainer(arch, start, source, Recipe("gd", steps, learning_rate=RATE))
    loss, tokens = PopulationLoss(arch, source), all_sequences(arch.length)
    before = loss(start).detach().numpy()
    dead = _dead(reader, start, tokens)
    died, moved = np.where(dead.any(1), 0.0, np.nan), np.full(len(dead), np.nan)
    for step in [*range(1, min(100, steps)), *range(100, steps + 1, LOOK)]:
        trainer.advance(step - trainer.step)
        dead = _dead(reader, trainer.weights, tokens)
        new = dead.any(1) & np.isnan(died)
        if new.any():
            way = flatten(arch.shapes, trainer.weights) - flatten(arch.shapes, start)
            died[new], moved[new] = step, way.norm(dim=1).numpy()[new]
    after = loss(trainer.weights).detach().numpy()
    share = (after - CHAIN.entropy_rate) / (CHAIN.stationary_entropy - CHAIN.entropy_rate)
    needed = _needed(start) if kind == "none" else np.full(len(dead), np.nan)
    found = {"died": died, "moved": moved, "dead_at_end": dead.sum(1).astype(float),
             "needed": needed, "bound": needed**2 / (before - CHAIN.entropy_rate),
             "open_share": share}  # fmt: skip
    axes = ("deviation", "seed")
    return xr.Dataset({name: (axes, x.reshape(-1, seeds)) for name, x in found.items()},
                      {"deviation": list(DEVIATIONS)})  # fmt: skip


@torch.no_grad()
def _dead(arch: Architecture, weights: dict[str, torch.Tensor], tokens: torch.Tensor) -> np.ndarray:
    """Which positions have all units shut for every sequence, (run, position)."""
    trace: dict[str, torch.Tensor] = {}
    forward(arch, weights, tokens, trace)
    read = torch.einsum("mbnd,mrd->mbnr", trace["0.y"], weights["0.up"])
    return (read <= 0).all(3).all(1).numpy()


def _needed(start: dict[str, torch.Tensor]) -> np.ndarray:
    """s: no position can die before the weights have moved so far, (run,); without attention."""
    rows, best = start["0.up"], []
    for symbol in (0, 1):
        y = start["positions"] + symbol * start["embedding"][:, None]
        read = torch.einsum("mnd,mrd->mnr", y, rows).amax(2).clamp(min=0)
        k = 1.0 + symbol
        slope = (k * rows.square().sum(2)[:, :1] + y.square().sum(2)).sqrt()
        best.append(((slope**2 + 2 * k**0.5 * read).sqrt() - slope) / k**0.5)
    return torch.maximum(*best).amin(1).numpy()


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per case and deviation: deaths, when, ends, and the bound."""
    found: dict[str, Any] = {}
    for kind in CASES:
        for std in DEVIATIONS:
            part = record.sel(case=kind, deviation=std)
            some = np.isfinite(part.died.values)
            span = {name: _span(part[name].values) for name in ("needed", "bound")}
            late = {name: _span(part[name].values[some]) for name in ("died", "moved")}
            ratio = {"moved_over_needed": _span((part.moved / part.needed).values[some])}
            found[f"{kind}; {std}"] = {
                "runs": len(some), "lose a position": int(some.sum()),
                "dead at the end": int((part.dead_at_end > 0).sum()),
                "bigram": int((part.open_share < 0.05).sum()),
                "bigram of those": int((part.open_share.values[some] < 0.05).sum()),
            } | span | late | ratio  # fmt: skip
    return found


def _span(values: np.ndarray) -> list[float] | None:
    """Least, median and largest; None of nothing."""
    known = values[np.isfinite(values)]
    return [float(f(known)) for f in (np.min, np.median, np.max)] if len(known) else None


def draw(record: xr.Dataset) -> Figure:
    """The time of the first death against the deviation, beside the bound."""
    figure = Figure(figsize=(6.8, 4.3), layout="constrained")
    axes = figure.subplots()
    spread = np.random.default_rng(0).uniform(-0.02, 0.02, record.sizes["seed"])
    for kind, (*_, colour) in CASES.items():
        none = "" if record.died.sel(case=kind).notnull().any() else " (none)"
        for std in DEVIATIONS:
            part = record.sel(case=kind, deviation=std)
            label = f"first death: {kind}{none}" if std == DEVIATIONS[0] else None
            axes.plot(std + spread, RATE * part.died, "o", color=colour, alpha=0.7, label=label)
            label = "bound, without attention" if label and kind == "no attention" else None
            axes.plot(std + spread, part.bound, ".", color="0.6", ms=3, label=label)
    axes.set(yscale="log", xlabel="deviation of the first weights", ylabel="time: step × rate")
    axes.set_title(f"Positions that die from the balanced start, {len(spread)} seeds each")
    axes.legend(fontsize=8)
    return figure


main = experiment(__name__, compute, numbers, draw, quick={"seeds": 4, "steps": 200})
