"""Does the full transformer go where the reduced flows say? Measured, and the misses explained.

The papers reduce the single layer to the canonical coordinates (e, w) and read the basins of its
training off them (LG); neither measures how often training agrees. Here starts (e, w) of a grid
over 0 < e ≤ 2, |w| ≤ 2 (−e is the same run, with noise the same in law) are lifted into full
transformers, softmax attention and all, bias at its optimum, at four chains, and trained on the
exact population loss until their own loss and curvature decide where they went. Noise N(0, 0.02²)
or N(0, 0.1²) is added to all weights, to those of attention alone, or to all others.

Every run takes up to 5 000 steps of gradient descent, each 0.8 over its own Gauss-Newton trace;
what these leave open, in steep valleys and along ReLU's kinks, is followed from its start by
gradient flow, whose exponential steps neither shortens. Without noise nothing is random, attention
stays zero, and agreement with the rank-one model is a check that theory and code agree.

    python experiments/agreement.py [--grid 20] [--jobs 2]
"""

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import experiment, legend_below, parts_folder, right
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.labels import Label
from flowsim.models.canonical.basins import reaches_global_minimum
from flowsim.models.canonical.model import CanonicalModel
from flowsim.models.rank_one.model import RankOneModel
from flowsim.records.attributes import provenance
from flowsim.records.netcdf import read_record, write_record
from flowsim.scan.workers import run_chunks
from full_model import Architecture, Comparison, classify, compare, grid_points, lift_rank_one
from full_model.comparison.fields import FullField
from full_model.comparison.side_by_side import SideBySide
from full_model.comparison.steps import step_until

CHAINS = ((0.5, 0.8), (0.9, 0.9), (0.2, 0.3), (0.1, 0.1))
#: d and N of the transformers.
WIDE, NARROW, LONG = (8, 8), (4, 6), (8, 1024)
NOISE, LOUD = 0.02, 0.1
#: Steps of descent after which a run is followed by the flow.
DESCENT = 5000
GLOBAL, LOCAL = int(Label.GLOBAL_MINIMUM), int(Label.LOCAL_MINIMUM)
KEPT = ("predicted", "outcome", "open_share", "by_flow", "e", "w", "end", "largest_drift",
        "largest_distance")  # fmt: skip
ON = {"all": "all weights", "attention": "attention", "others": "all but attention"}
#: Steps after which an orbit with slow positions is left open.
MOST_STEPS = 50_000
VARIANTS = ("canonical", "moving bias", "metric of w", "slow positions", "rank-one")


@dataclass(frozen=True)
class Case:
    """One ensemble: the starts with e > 0 of a grid × grid over |e|, |w| ≤ 2."""

    p: float
    q: float
    d: int
    length: int
    noise: float
    noise_on: str
    grid: int

    @property
    def title(self) -> str:
        noise = f" noise {self.noise:g} on {ON[self.noise_on]}" if self.noise else ""
        return f"p={self.p:g} q={self.q:g} d={self.d} N={self.length}{noise}"

    def settings(self, trainer: str = "gd") -> Comparison:
        """Settings of the comparison; the flow has its own bound on steps."""
        return Comparison(
            self.p, self.q, "rank-one", trainer, self.d, self.length, self.noise, self.noise_on,
            steps=DESCENT if trainer == "gd" else None,
        )  # fmt: skip


def all_cases(grid: int) -> list[Case]:
    """Every ensemble, what matters most first."""
    rows = [
        (WIDE, 0.0, "all"), (NARROW, 0.0, "all"),
        *[(size, NOISE, on) for size in (WIDE, NARROW) for on in ON],
        *[(NARROW, LOUD, on) for on in ON],
        (LONG, 0.0, "all"), *[(WIDE, LOUD, on) for on in ON],
    ]  # fmt: skip
    return [Case(*chain, *size, noise, on, grid) for size, noise, on in rows for chain in CHAINS]


def run(case: Case, state: Path | None) -> xr.Dataset:
    """The record of one ensemble without its curves, kept in the folder: a worker's task."""
    torch.set_num_threads(1)
    path = state / f"{case.title} {case.grid}.nc".replace(" ", "_") if state else None
    if path and path.exists():
        return read_record(path, "agreement")
    began = time.process_time()
    points = grid_points(case.grid, case.grid // 2, window={"e": (0.0, 2.0)})
    record = compare(case.settings(), points)
    names = [name for name, v in record.items() if v.dims == ("point",)]
    kept = record[names].load()
    kept.attrs = provenance(record.attrs | {"kind": "agreement"})
    kept["largest_drift"] = record["drift"].max("time")
    kept["largest_distance"] = record["distance"].max("time")
    kept["by_flow"] = xr.zeros_like(kept["outcome"]).assign_attrs({})
    for row in np.flatnonzero(kept["outcome"] == Label.UNRESOLVED):
        _follow_by_flow(case, points, kept, int(row))
    if path:
        write_record(kept, path)
    print(f"{case.title}: {time.process_time() - began:.0f} s of one core", file=sys.stderr)
    return kept


def _follow_by_flow(case: Case, points: torch.Tensor, kept: xr.Dataset, row: int) -> None:
    """Put what gradient flow from the same weights comes to in place of the open run."""
    settings, here = case.settings("flow"), points[row : row + 1]
    whole = SideBySide(settings, here, (settings.seed + row,))
    whole.run()
    found = whole.found()
    for name in ("outcome", "end_reason", "steps", "end", "open_share", "curvature"):
        kept[name][row] = found[name][0]
    kept["by_flow"][row] = 1
    for name in ("drift", "distance"):
        kept[f"largest_{name}"][row] = np.nanmax(found[name])


def compute(grid: int = 20, jobs: int = 2) -> xr.Dataset:
    """Starts, predictions and outcomes of all ensembles, one after the other."""
    if grid % 2 or grid < 2:
        raise InputError("--grid must be even and positive")
    cases, work = all_cases(grid), partial(run, state=parts_folder())
    with closing(run_chunks(work, cases.__getitem__, range(len(cases)), jobs)) as results:
        found = dict(results)
    return joined({case: found[i] for i, case in enumerate(cases)}, grid)


def joined(found: dict[Case, xr.Dataset], grid: int) -> xr.Dataset:
    """All ensembles in one record, one after the other."""
    data = {name: ("point", np.concatenate([r[name].to_numpy() for r in found.values()]))
            for name in KEPT}  # fmt: skip
    which = np.concatenate([np.full(r.sizes["point"], i) for i, r in enumerate(found.values())])
    data["case_of_point"] = ("point", which.astype(np.int16))
    attrs = {"kind": "agreement", "cases": [case.title for case in found], "grid": grid}
    record = xr.Dataset(data, attrs=attrs)
    first = next(iter(found.values()))
    for name in ("predicted", "outcome"):
        record[name].attrs = first[name].attrs
    return record


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Summary of every ensemble for agreement.json."""
    known = {case.title: case for case in all_cases(record.attrs["grid"])}
    which = record["case_of_point"].to_numpy()
    return {"lines": [summarize_case(known[name], record.isel(point=which == i))
                      for i, name in enumerate(record.attrs["cases"])]}  # fmt: skip


def agreement_of(agree: np.ndarray, noise: float) -> dict[str, Any]:
    """Agreement; with its 95 % interval where noise was drawn."""
    found = right(agree)
    return {name: x for name, x in found.items() if noise or name != "interval"}


def summarize_case(case: Case, record: xr.Dataset) -> dict[str, Any]:
    """The numbers of one ensemble."""
    chain, outcome = BinaryChain(case.p, case.q), record["outcome"].to_numpy()
    points = torch.from_numpy(np.stack([record["e"], record["w"]], -1))
    decided = outcome != 0
    predicted = record["predicted"].to_numpy()
    canonical = canonical_labels(chain, points)
    wrong = decided & (predicted != outcome)
    misses = [
        {"e": round(float(record["e"][i]), 6), "w": round(float(record["w"][i]), 6),
         "predicted": int(predicted[i]), "found": int(outcome[i])}
        for i in np.flatnonzero(wrong)
    ]  # fmt: skip
    line: dict[str, Any] = {
        "case": case.title,
        **{name: getattr(case, name) for name in ("d", "length", "noise", "noise_on", "grid")},
        "points": len(outcome),
        "unresolved": int((~decided).sum()),
        "followed_by_flow": int(record["by_flow"].sum()),
        "outcomes": {n: int((outcome == v).sum()) for n, v in (("global", 1), ("local", 2))},
        "rank-one": agreement_of((predicted == outcome)[decided], case.noise),
        "rank_one_misses": misses,
        "canonical": agreement_of((canonical == outcome)[decided], case.noise),
        "canonical_global_found_local": int(((canonical == GLOBAL) & (outcome == LOCAL)).sum()),
        "canonical_local_found_global": int(((canonical == LOCAL) & (outcome == GLOBAL)).sum()),
        "last_decided_at_time": float(record["end"].max()),
        "largest_drift_from_the_manifold": float(record["largest_drift"].max()),
        "largest_distance_from_the_rank_one_orbit": float(record["largest_distance"].max()),
    }
    if not case.noise and case.d == WIDE[0]:
        missed = decided & (canonical != outcome)
        line["variants"] = {}
        for variant in VARIANTS:
            label = variant_labels(chain, case.length, points, variant)
            line["variants"][variant] = {
                **agreement_of((label == outcome)[decided], 0.0),
                "canonical_misses_explained": int((label == outcome)[missed].sum()),
                "new_misses": int(((label != outcome) & decided & ~missed).sum()),
            }
        line["canonical_misses"] = int(missed.sum())
    return line


def canonical_labels(chain: BinaryChain, points: Tensor) -> np.ndarray:
    """The canonical flow's labels of points (n, 2)."""
    return find_limits(CanonicalModel(chain), points).label.numpy()


def variant_labels(chain: BinaryChain, length: int, points: Tensor, variant: str) -> np.ndarray:
    """Predictions of the flow with one difference switched on."""
    if variant == "canonical":
        return canonical_labels(chain, points)
    if variant == "moving bias":
        model = CanonicalModel(chain, "dynamic")
        bias = CanonicalModel(chain).optimal_bias(points)
        return find_limits(model, torch.cat([points, bias.unsqueeze(-1)], -1)).label.numpy()
    if variant == "metric of w":
        # w′ eightfold slower: e² − 8(w² + sign(w) log|w|)… is conserved, and the separatrix is
        # e² = 8(w² − log|w| + E_s), as without the factor (docs/derivations/03.md)
        scaled = points.clone()
        scaled[:, 0] /= np.sqrt(8)
        found = reaches_global_minimum(chain, scaled).numpy()
        return np.where(found, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM)
    if variant == "slow positions":
        return _slow_labels(chain, length, points)
    rank_one = RankOneModel(chain, length)
    return find_limits(rank_one, rank_one.from_canonical(points)).label.numpy()


class _SlowPositions:
    """The rank-one field with w's metric as in the canonical model and the bias at its optimum."""

    def __init__(self, model: RankOneModel) -> None:
        self.model = model
        self.metric = torch.tensor(model.metric, dtype=torch.float64)
        self.metric[2:4] = 0.5  # w₁ = ±w₂ together make dw²

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.cat([state[:, :4], self.model.optimal_bias(state).unsqueeze(-1)], -1)
        gradient = self.model.gradient(state)
        gradient[:, 4] = 0.0
        # w moves eight times faster than the model's stiffness says
        return gradient, 8 * self.model.stiffness(state)


def _slow_labels(chain: BinaryChain, length: int, points: Tensor) -> np.ndarray:
    """Labels with slow positions alone, by what lifts of the orbits show on their way."""
    model = RankOneModel(chain, length)
    field = _SlowPositions(model)
    full = FullField(Architecture(1, length, attention="none"), chain, shared=True)
    state = model.from_canonical(points)
    count = len(points)
    time, steps = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    label = torch.zeros(count, dtype=torch.int8)
    until, horizon = 0.25, Comparison(chain.p, chain.q, length=length).last_time
    while until < horizon and bool(((label == 0) & (steps < MOST_STEPS)).any()):
        step_until(field, state, time, steps, until, label == 0, most=MOST_STEPS)
        rows = (label == 0).nonzero()[:, 0]
        here = state[rows].clone()
        here[:, 4] = model.optimal_bias(here)
        weights = full.weights(full.state(lift_rank_one(model.point(here), full.arch)))
        found = classify(chain, model.loss(here), weights, full.gradient, full.metric_weights())
        label[rows] = found.label
        until *= 2**0.5
    return label.numpy()


def draw(_: xr.Dataset, numbers: dict[str, Any]) -> dict[str, Figure]:
    """Share of training that every variant predicts: a panel for each N, a mark for each chain."""
    rows = [line for line in numbers["lines"] if "variants" in line]
    lengths = sorted({line["length"] for line in rows})
    figure = Figure(figsize=(9.6, 4.3), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(lengths), sharey=True))
    styles = [("o", "#00537f"), ("s", "#7fb6da"), ("^", "#00694c"), ("v", "#8fd0b8")]
    for ax, length in zip(axes, lengths, strict=True):
        own = [line for line in rows if line["length"] == length]
        for k, (line, (marker, colour)) in enumerate(zip(own, styles, strict=False)):
            p, q = (part[2:] for part in line["case"].split()[:2])
            shares = [100 * line["variants"][v]["agreement"] for v in VARIANTS]
            ax.plot(
                shares, np.arange(len(VARIANTS)) + 0.15 * (k - 1.5), marker, color=colour, ms=7,
                mec="#333333", mew=0.5, label=f"$p$ = {p}, $q$ = {q}",
            )  # fmt: skip
        ax.set(yticks=range(len(VARIANTS)), yticklabels=VARIANTS, xlim=(70, 102),
               xlabel="starts predicted right, %")  # fmt: skip
        ax.grid(axis="x", color="#dddddd", lw=0.6)
        ax.set_title(f"$d$ = 8, $N$ = {length}, {own[0]['points']} starts, no noise", fontsize=10)
    axes[0].invert_yaxis()
    legend_below(axes[0], 4)
    figure.suptitle(
        "The canonical model with one difference to the rank-one model switched on at a time,\n"
        "against training of the whole transformer from lifted starts",
        fontsize=11,
    )
    return {"agreement_reasons": figure}


main = experiment(__name__, compute, numbers, draw)
