"""Does the full transformer go where the reduced flows say? Measured, and the misses explained.

The papers reduce the single layer to the canonical coordinates (e, w) and read the basins of its
training off them (LG); neither measures how often training agrees. Here 20 × 20 points of
[-2, 2]² are lifted into full transformers (d = 8, bias at its optimum) at four chains, N = 8 and
N = 1024, and trained by gradient descent on the exact population loss, each run with a learning
rate of 0.8 over its own Gauss-Newton trace, until its own loss and curvature decide where it went;
the horizon grows with N. The same starts with N(0, 0.02²) on every weight are trained too (at
N = 1024 these are 1 024 different positions, and two thirds of the study's ten minutes).

The outcomes are held against the rank-one model, against the canonical model, and against variants
that switch on one difference between the two at a time: a bias that moves instead of sitting at
its optimum; the metric of w, 8 dw² instead of dw²; positions that move on their own, N times
slower than the embedding, instead of staying at −e/2. AdamW with the papers' numbers (softmax
attention, batches of 16 sequences, N = 64 by default) runs from a coarser grid with the same noise:
its plateau at the unigram and its escape are recorded.

What we find is written to agreement.json with every number, drawn in agreement.png (where the
canonical model fails) and agreement_reasons.png (why):

- Every lifted run, 3 200 in all, ends where the rank-one model says, on the boundary too (no band
  is left out); all are decided.
- With the noise 794 of 800 runs at N = 8 and p + q > 1 do, and all 2 400 others. Of the six misses
  two lie at the basin's boundary; four start at |e| = w = 1.9, twelve cells away from it. Gradient
  flow of the full model leaves there too (tried at (1.9, 1.9), (0.5, 0.8), for two noises). A
  likely reason, not shown: the trap on the manifold is shallow along (e, b) there, and what noise
  adds off the manifold leaves it first.
- The canonical model is right for 93.5 to 94.5 % of the lifted starts where p + q > 1: all its
  misses are starts that it lets reach the global minimum and that training traps. The metric of w
  alone explains 20 of 22 to 24 of 26 of them. It is right for 87 % where p + q < 1: its bad basin
  does not exist in the full model. The embedding falls onto the ReLU's kink at −ρ, slides along it,
  as the positions move, to the global minimum; positions that move on their own
  explain all 52 misses, and the metric of w alone makes the prediction worse.
- AdamW is not gradient flow: of the 40 starts that the rank-one model calls trapped at (0.5, 0.8),
  27 have learned the bigram after 3 000 steps, escaping after 360 steps in the median and 1 740 at
  most; the others are unresolved, not trapped. All starts learn at (0.2, 0.3).

    python experiments/agreement.py [--out figures/agreement] [--grid 20] [--noise-grid 20]
                                    [--long-noise-grid 20] [--adamw-grid 8] [--jobs 2] [--overwrite]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.agreement import wilson
from flowsim.chain import BinaryChain
from flowsim.descent import ReducedField, advance
from flowsim.errors import InputError
from flowsim.landscape import SADDLE_ENERGY, SADDLE_W, Label, reaches_global_minimum
from flowsim.limits import find_limits
from flowsim.models import CanonicalModel
from flowsim.rank_one import RankOneModel
from flowsim.results import provenance, write_record
from full_model.comparison import Comparison, compare
from full_model.comparison_session import rank_one_point
from full_model.fields import AttentionFreeField
from full_model.lift import lift_rank_one
from full_model.outcome import classify
from full_model.starts import grid_points
from full_model.transformer import Architecture

CHAINS = ((0.5, 0.8), (0.9, 0.9), (0.2, 0.3), (0.1, 0.1))
LENGTHS = (8, 1024)
NOISE = 0.02
GLOBAL, LOCAL = int(Label.GLOBAL_MINIMUM), int(Label.LOCAL_MINIMUM)
VARIANTS = ("canonical", "moving bias", "metric of w", "slow positions", "rank-one")
COLOURS = {"global": "#7fb6da", "local": "#e8965a", "miss": "#111111"}


@dataclass(frozen=True)
class Case:
    """One ensemble."""

    p: float
    q: float
    length: int
    noise: float
    grid: int
    trainer: str = "gd"
    steps: int = 8000
    dtype: str = "float64"

    @property
    def name(self) -> str:
        noise = f" noise {self.noise:g}" if self.noise else ""
        return f"{self.trainer} p={self.p:g} q={self.q:g} N={self.length}{noise}"


def run(case: Case, state: Path) -> tuple[xr.Dataset, float]:
    """The record of one ensemble without its curves, and the CPU seconds it took.

    A checkpoint in the folder ``state`` lets an interrupted experiment go on where it was.
    """
    torch.set_num_threads(1)
    path = state / f"{case.name} {case.grid}.safetensors".replace(" ", "_")
    began = time.process_time()
    settings = Comparison(
        case.p, case.q, "rank-one", case.trainer, 8, case.length, case.noise, steps=case.steps,
        dtype=case.dtype,
    )
    record = compare(settings, grid_points(case.grid, case.grid), path, resume=path.exists())
    summary = {"largest_drift": float(record["drift"].max())}
    if "distance" in record:
        summary["largest_distance"] = float(record["distance"].max())
    kept = record[[name for name, v in record.items() if v.dims == ("point",)]]
    kept.attrs = record.attrs | summary
    return kept, time.process_time() - began


def canonical_labels(chain: BinaryChain, points: Tensor) -> np.ndarray:
    return find_limits(CanonicalModel(chain), points).label.numpy()


def variant_labels(chain: BinaryChain, length: int, points: Tensor, variant: str) -> np.ndarray:
    """What the flow with one difference switched on predicts."""
    if variant == "canonical":
        return canonical_labels(chain, points)
    if variant == "moving bias":
        model = CanonicalModel(chain, "dynamic")
        bias = CanonicalModel(chain).optimal_bias(points)
        return find_limits(model, torch.cat([points, bias.unsqueeze(-1)], -1)).label.numpy()
    if variant == "metric of w":
        # w′ eightfold slower: e² − 8(w² + sign(w) log|w|)… is conserved, and the separatrix is
        # e² = 8(w² − log|w| + E_s), as without the factor (spec of the canonical model)
        scaled = points.clone()
        scaled[:, 0] /= np.sqrt(8)
        found = reaches_global_minimum(chain, scaled).numpy()
        return np.where(found, GLOBAL, LOCAL)
    return _rank_one_labels(chain, length, points, variant)


class _SlowPositions(ReducedField):
    """The rank-one field with w's metric as in the canonical model and the bias at its optimum."""

    def __init__(self, model: RankOneModel) -> None:
        super().__init__(model)
        self.metric = self.metric.clone()
        self.metric[2:4] = 0.5  # w₁ = ±w₂ together make dw²

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.cat([state[:, :4], self.model.optimal_bias(state).unsqueeze(-1)], -1)
        gradient, stiffness = super().__call__(state)
        gradient[:, 4] = 0.0
        return gradient, 8 * stiffness  # w moves eight times faster than stiffness believes


def _rank_one_labels(chain: BinaryChain, length: int, points: Tensor, variant: str) -> np.ndarray:
    """Labels of the rank-one model ("rank-one"), or with slow positions alone."""
    model = RankOneModel(chain, length)
    field = _SlowPositions(model) if variant == "slow positions" else ReducedField(model)
    judge = AttentionFreeField(Architecture(1, length, attention="none"), chain, shared=True)
    state = model.from_canonical(points)
    count = len(points)
    clock, steps = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    label = torch.zeros(count, dtype=torch.int8)
    until, horizon = 0.25, Comparison(chain.p, chain.q, length=length).horizon
    while until < horizon and bool((label == 0).any()):
        advance(field, state, clock, steps, until, label == 0)
        rows = (label == 0).nonzero()[:, 0]
        here = state[rows].clone()
        if variant == "slow positions":
            here[:, 4] = model.optimal_bias(here)
        weights = judge.weights(judge.state(lift_rank_one(rank_one_point(model, here), judge.arch)))
        found = classify(chain, model.loss(here), weights, judge.gradient, judge.metric_weights())
        label[rows] = found.label
        until *= 2**0.5
    return label.numpy()


def share(agree: np.ndarray) -> dict[str, Any]:
    """Agreement with its 95 % interval."""
    count, total = int(agree.sum()), len(agree)
    low, high = wilson(count, total)
    return {
        "agree": count,
        "decided": total,
        "agreement": count / total if total else None,
        "interval": [low, high],
    }


def boundary_distance(record: xr.Dataset, wrong: np.ndarray) -> float:
    """Largest distance of a wrong point to the nearest point of another prediction, in cells."""
    points = np.stack([record["e"], record["w"]], -1)
    predicted = record["predicted"].to_numpy()
    cell = np.diff(np.unique(points[:, 1])).min()
    far = 0.0
    for i in np.flatnonzero(wrong):
        others = points[predicted != predicted[i]]
        if len(others) == 0:
            return float("inf")
        far = max(far, float(np.abs(others - points[i]).max(axis=1).min() / cell))
    return far


def numbers(case: Case, record: xr.Dataset) -> dict[str, Any]:
    """All that agreement.json says of one ensemble."""
    chain, outcome = BinaryChain(case.p, case.q), record["outcome"].to_numpy()
    points = torch.from_numpy(np.stack([record["e"], record["w"]], -1))
    decided = outcome != 0
    predicted = record["predicted"].to_numpy()
    canonical = canonical_labels(chain, points)
    line: dict[str, Any] = {
        "case": case.name,
        "points": len(outcome),
        "unresolved": int((~decided).sum()),
        "outcomes": {n: int((outcome == v).sum()) for n, v in (("global", 1), ("local", 2))},
        "rank-one": share((predicted == outcome)[decided]),
        "canonical": share((canonical == outcome)[decided]),
    }
    if case.trainer == "adamw":
        escape, stay = record["escape"].to_numpy(), record["plateau_length"].to_numpy()
        for label, name in ((GLOBAL, "global"), (LOCAL, "local")):
            here = (predicted == label) & np.isfinite(escape)
            line[f"predicted_{name}"] = {
                "runs": int((predicted == label).sum()),
                "learned": share((outcome == GLOBAL)[predicted == label]),
                "escape_step_median": float(np.median(escape[here])) if here.any() else None,
                "escape_step_max": float(escape[here].max()) if here.any() else None,
                "plateau_steps_median": float(np.median(stay[here])) if here.any() else None,
            }
        line["still_on_the_plateau"] = int(record.attrs["on_plateau_at_end"])
        return line
    wrong = decided & (predicted != outcome)
    line["rank_one_misses_within_cells_of_the_boundary"] = boundary_distance(record, wrong)
    line |= {
        "canonical_global_found_local": int(((canonical == GLOBAL) & (outcome == LOCAL)).sum()),
        "canonical_local_found_global": int(((canonical == LOCAL) & (outcome == GLOBAL)).sum()),
        "last_decided_at_time": float(record["end"].max()),
        "steps": int(record["steps"].sum()),
        "largest_drift_from_the_manifold": record.attrs["largest_drift"],
        "largest_distance_from_the_rank_one_orbit": record.attrs.get("largest_distance"),
    }
    if not case.noise:
        missed = decided & (canonical != outcome)
        line["variants"] = {}
        for variant in VARIANTS:
            label = variant_labels(chain, case.length, points, variant)
            line["variants"][variant] = {
                **share((label == outcome)[decided]),
                "canonical_misses_explained": int((label == outcome)[missed].sum()),
                "new_misses": int(((label != outcome) & decided & ~missed).sum()),
            }
        line["canonical_misses"] = int(missed.sum())
    return line


def draw_maps(found: dict[Case, xr.Dataset], path: Path) -> None:
    """Where training goes, with the canonical and the rank-one model's misses marked."""
    columns = [(8, 0.0), (1024, 0.0), (8, NOISE), (1024, NOISE)]
    figure, axes = plt.subplots(4, 4, figsize=(11, 11.6), sharex=True, sharey=True,
                                layout="constrained")  # fmt: skip
    for i, (p, q) in enumerate(CHAINS):
        for j, (length, noise) in enumerate(columns):
            ax = axes[i, j]
            record = next(
                (r for c, r in found.items()
                 if (c.p, c.q, c.length, c.noise, c.trainer) == (p, q, length, noise, "gd")), None,
            )  # fmt: skip
            if record is None:
                ax.set_axis_off()
                continue
            w, e = record["w"].to_numpy(), record["e"].to_numpy()
            outcome, rank_one = record["outcome"].to_numpy(), record["predicted"].to_numpy()
            points = torch.from_numpy(np.stack([e, w], -1))
            canonical = canonical_labels(BinaryChain(p, q), points)
            side = 118 / np.sqrt(len(w))
            for label, colour in ((1, "global"), (2, "local")):
                on = outcome == label
                ax.scatter(w[on], e[on], s=side**2, marker="s", c=COLOURS[colour], linewidths=0)
            on = outcome == 0
            ax.scatter(w[on], e[on], s=side**2, marker="s", c="#888888", linewidths=0)
            miss = (outcome != 0) & (canonical != outcome)
            ax.scatter(w[miss], e[miss], s=side**2 * 0.6, marker="x", c="#111111", linewidths=0.8)
            miss_1 = (outcome != 0) & (rank_one != outcome)
            ax.scatter(w[miss_1], e[miss_1], s=side**2 * 1.4, marker="o", facecolors="none",
                       edgecolors="#7a1fa2", linewidths=1.4)  # fmt: skip
            _separatrix(ax, BinaryChain(p, q))
            kept = outcome != 0
            ax.set_title(
                f"rank-one {np.mean((rank_one == outcome)[kept]):.1%}, "
                f"canonical {np.mean((canonical == outcome)[kept]):.1%}",
                fontsize=8.5,
            )
            ax.set(xlim=(-2, 2), ylim=(-2, 2))
            if i == 0:
                extra = f"\nnoise {noise:g} on every weight" if noise else "\nlifted starts"
                ax.annotate(f"$N$ = {length}{extra}", (0.5, 1.14), xycoords="axes fraction",
                            ha="center", fontsize=10)  # fmt: skip
            if j == 0:
                sign = ">" if p + q > 1 else "<"
                ax.set_ylabel(f"$p$ = {p:g}, $q$ = {q:g}  ($p+q$ {sign} 1)\nembedding $e$")
            if i == 3:
                ax.set_xlabel("feed-forward weight $w$")
    entries = [
        plt.Line2D([], [], marker="s", ls="", ms=9, color=COLOURS["global"]),
        plt.Line2D([], [], marker="s", ls="", ms=9, color=COLOURS["local"]),
        plt.Line2D([], [], marker="x", ls="", ms=6, color="#111111"),
        plt.Line2D([], [], marker="o", ls="", ms=8, mfc="none", mec="#7a1fa2", mew=1.4),
        plt.Line2D([], [], color="#111111", lw=1.2),
    ]
    names = ["training reaches the global minimum", "training is trapped at the unigram",
             "canonical model wrong", "rank-one model wrong", "canonical separatrix"]  # fmt: skip
    figure.legend(entries, names, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Gradient descent of the full transformer, and where the predictions fail")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _separatrix(ax: Any, chain: BinaryChain) -> None:
    w = np.linspace(-2, 0, 400)[:-1]
    w = w[w >= SADDLE_W] if chain.second_eigenvalue < 0 else w[w <= SADDLE_W]
    e = np.sqrt(np.maximum(w**2 - np.log(-w) + SADDLE_ENERGY, 0))
    for sign in (1, -1):
        ax.plot(w, sign * e, color="#111111", lw=1.2)


def draw_reasons(lines: list[dict[str, Any]], path: Path) -> None:
    """Agreement of every variant with full training."""
    rows = [line for line in lines if "variants" in line]
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), sharey=True, layout="constrained")
    colours = ["#8c8c8c", "#b5a642", "#d98032", "#4e9bc7", "#00537f"]
    for line, ax in zip(sorted(rows, key=lambda x: "N=1024" in x["case"]), axes.flat, strict=False):
        values = [line["variants"][v]["agreement"] for v in VARIANTS]
        bounds = np.array([line["variants"][v]["interval"] for v in VARIANTS])
        error = np.abs(bounds.T - np.array(values))
        for i, (value, reach, colour) in enumerate(zip(values, error.T, colours, strict=True)):
            ax.errorbar(value, i, xerr=reach[:, None], fmt="o", color=colour, capsize=3, ms=7)
            ax.text(0.565, i, f"{value:.1%}", va="center", fontsize=9)
        ax.set(xlim=(0.55, 1.02), yticks=range(len(VARIANTS)), yticklabels=VARIANTS)
        ax.grid(axis="x", color="#dddddd", lw=0.6)
        ax.set_title(
            line["case"].removeprefix("gd ").replace(" ", ", ").replace("=", " = "), fontsize=9.5
        )
    axes[0, 0].invert_yaxis()
    for ax in axes[1]:
        ax.set_xlabel("share of starts predicted right")
    figure.suptitle("Why the canonical model fails: one difference to the rank-one model at a time")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures/agreement"))
    parser.add_argument("--grid", type=int, default=20)
    parser.add_argument("--noise-grid", type=int, default=20)
    parser.add_argument("--long-noise-grid", type=int, default=20)
    parser.add_argument("--adamw-grid", type=int, default=8)
    parser.add_argument("--adamw-steps", type=int, default=3000)
    parser.add_argument("--adamw-length", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--overwrite", action="store_true")
    options = parser.parse_args(arguments)
    out: Path = options.out
    reasons = out.with_name(out.name + "_reasons.png")
    files = [out.with_suffix(".png"), out.with_suffix(".json"), out.with_suffix(".nc"), reasons]
    try:
        if not options.overwrite and any(file.exists() for file in files):
            raise InputError(f"{out} exists: pass --overwrite or another --out")
        out.parent.mkdir(parents=True, exist_ok=True)
        cases = [Case(*pq, n, 0.0, options.grid) for pq in CHAINS for n in LENGTHS]
        cases += [Case(*pq, 8, NOISE, options.noise_grid) for pq in CHAINS]
        if options.adamw_grid:
            cases += [
                Case(*pq, options.adamw_length, NOISE, options.adamw_grid, "adamw",
                     options.adamw_steps)
                for pq in CHAINS[::2]
            ]  # fmt: skip
        if options.long_noise_grid:
            cases += [Case(*pq, 1024, NOISE, options.long_noise_grid) for pq in CHAINS]
        state = out.with_name(out.name + "_state")
        state.mkdir(exist_ok=True)
        found, lines = {}, {}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, context) as pool:
            futures = {pool.submit(run, case, state): case for case in cases}
            for future in as_completed(futures):
                case, (record, seconds) = futures[future], future.result()
                found[case], lines[case] = record, numbers(case, record)
                print(f"{case.name}: {seconds:.0f} s of one core", file=sys.stderr, flush=True)
        found = {case: found[case] for case in cases}
        in_order = [lines[case] for case in cases]
        print(json.dumps(in_order, indent=1))
        out.with_suffix(".json").write_text(json.dumps(in_order, indent=1) + "\n")
        draw_maps(found, files[0])
        draw_reasons(in_order, reasons)
        write_record(_joined(found), files[2])
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _joined(found: dict[Case, xr.Dataset]) -> xr.Dataset:
    """Starts, predictions and outcomes of all cases, one after the other."""
    names = ("predicted", "outcome", "open_share")
    data = {
        name: ("point", np.concatenate([r[name].to_numpy() for r in found.values()]))
        for name in names
    }
    for name in ("e", "w"):
        data[name] = ("point", np.concatenate([r[name].to_numpy() for r in found.values()]))
    which = np.concatenate([np.full(r.sizes["point"], i) for i, r in enumerate(found.values())])
    data["case_of_point"] = ("point", which.astype(np.int16))
    attrs = provenance({"kind": "agreement", "cases": [case.name for case in found]})
    first = next(iter(found.values()))
    record = xr.Dataset(data, attrs=attrs)
    for name in ("predicted", "outcome"):
        record[name].attrs = first[name].attrs
    return record


if __name__ == "__main__":
    sys.exit(main())
