"""Does the full transformer go where the reduced flows say? Measured, and the misses explained.

The papers reduce the single layer to the canonical coordinates (e, w) and read the basins of its
training off them (LG); neither measures how often training agrees. Here 20 × 20 points of
[-2, 2]² are lifted into full transformers (d = 8, bias at its optimum) at four chains, N = 8 and
N = 1024, and trained by gradient descent on the exact population loss, each run with a learning
rate of 0.8 over its own Gauss-Newton trace, until its own loss and curvature decide where it went;
the horizon grows with N. The same starts with N(0, 0.02²) on every weight are trained too (at
N = 1024 these are 1 024 different positions).

The outcomes are held against the rank-one model, against the canonical model, and against variants
that switch on one difference between the two at a time: a bias that moves instead of sitting at
its optimum; the metric of w, 8 dw² instead of dw²; positions that move on their own, N times
slower than the embedding, instead of staying at −e/2. AdamW with the papers' numbers (softmax
attention, batches of 16 sequences) runs from coarser grids with the same noise, at N = 64 for 3 000
steps and at the papers' N = 1024 for 8 000, in single precision there: its plateau at the unigram
and its escape are recorded. The 16 runs at N = 1024 take 25 minutes of one core at each of the two
chains; the rest takes about as long as one of them.

What we find is written to agreement.json with every number, drawn in agreement.png (where the
canonical model fails) and agreement_reasons.png (why):

- Every lifted run, 3 200 in all, ends where the rank-one model says, on the boundary too (no band
  is left out); all are decided.
- With the noise 794 of 800 runs at N = 8 and p + q > 1 do, and all 2 400 others. Of the six misses
  two lie at the basin's boundary; four start at |e| = w = 1.9, twelve cells away from it. There the
  way into the trap is unstable to steps off the manifold, more than anywhere else tried:
  noisy_misses.py shows it.
- The canonical model is right for 93.5 to 94.5 % of the lifted starts where p + q > 1: all its
  misses are starts that it lets reach the global minimum and that training traps. The metric of w
  alone explains 20 of 22 to 24 of 26 of them. It is right for 87 % where p + q < 1: its bad basin
  does not exist in the full model. The embedding falls onto the ReLU's kink at −ρ, slides along it,
  as the positions move, to the global minimum; positions that move on their own
  explain all 52 misses, and the metric of w alone makes the prediction worse.
- AdamW is not gradient flow: of the 40 starts that the rank-one model calls trapped at (0.5, 0.8),
  27 have learned the bigram after 3 000 steps, escaping after 360 steps in the median and 1 740 at
  most; the others are unresolved, not trapped. At N = 1024 and 8 000 steps it is 7 of 10, after 320
  steps in the median and 6 480 at most; the other three are on the plateau at the end. All starts
  learn at (0.2, 0.3), 64 at N = 64 and 16 at N = 1024.

    python experiments/agreement.py [--out figures/agreement] [--grid 20] [--noise-grid 20]
                                    [--long-noise-grid 20] [--adamw-grid 8]
                                    [--papers-adamw-grid 4] [--jobs 2] [--overwrite]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from agreement_figures import draw_maps, draw_reasons
from agreement_variants import VARIANTS, canonical_labels, variant_labels

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.landscape.labels import Label
from flowsim.records.netcdf import write_record
from flowsim.records.provenance import provenance
from full_model import Comparison, compare, grid_points, wilson

CHAINS = ((0.5, 0.8), (0.9, 0.9), (0.2, 0.3), (0.1, 0.1))
LENGTHS = (8, 1024)
NOISE = 0.02
GLOBAL, LOCAL = int(Label.GLOBAL_MINIMUM), int(Label.LOCAL_MINIMUM)


@dataclass(frozen=True)
class Case:
    """One ensemble."""

    p: float
    q: float
    length: int
    noise: float
    grid: int
    trainer: str = "gd"
    steps: int | None = None
    dtype: str = "float64"

    @property
    def noise_on(self) -> str:
        """Which weights have noise: attention's only where its exact loss can be summed."""
        return "all" if self.trainer == "adamw" or self.length <= 16 else "others"

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
        case.p,
        case.q,
        "rank-one",
        case.trainer,
        8,
        case.length,
        case.noise,
        case.noise_on,
        steps=case.steps,
        dtype=case.dtype,
    )
    record = compare(settings, grid_points(case.grid, case.grid), path, resume=path.exists())
    summary = {"largest_drift": float(record["drift"].max())}
    if "distance" in record:
        summary["largest_distance"] = float(record["distance"].max())
    kept = record[[name for name, v in record.items() if v.dims == ("point",)]]
    kept.attrs = record.attrs | summary
    return kept, time.process_time() - began


def study(case: Case, state: Path) -> tuple[xr.Dataset, dict[str, Any], float]:
    """Record and numbers of one ensemble, and the CPU seconds that both took: a worker's task."""
    record, seconds = run(case, state)
    began = time.process_time()
    line = numbers(case, record)
    return record, line, seconds + time.process_time() - began


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
        line |= {"length": case.length, "steps": case.steps, "dtype": case.dtype}
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures/agreement"))
    parser.add_argument("--grid", type=int, default=20)
    parser.add_argument("--noise-grid", type=int, default=20)
    parser.add_argument("--long-noise-grid", type=int, default=20)
    parser.add_argument("--adamw-grid", type=int, default=8)
    parser.add_argument("--adamw-steps", type=int, default=3000)
    parser.add_argument("--adamw-length", type=int, default=64)
    parser.add_argument("--papers-adamw-grid", type=int, default=4)
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
        if options.papers_adamw_grid:
            size = options.papers_adamw_grid
            papers = NOISE, size, "adamw", 8000, "float32"
            cases += [Case(*pq, 1024, *papers) for pq in CHAINS[::2]]
        if options.long_noise_grid:
            cases += [Case(*pq, 1024, NOISE, options.long_noise_grid) for pq in CHAINS]
        state = out.with_name(out.name + "_state")
        state.mkdir(exist_ok=True)
        found, lines = {}, {}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, context) as pool:
            longest_first = sorted(cases, key=lambda case: case.trainer != "adamw")
            futures = {pool.submit(study, case, state): case for case in longest_first}
            for future in as_completed(futures):
                case, (found[case], lines[case], seconds) = futures[future], future.result()
                print(f"{case.name}: {seconds:.0f} s of one core", file=sys.stderr, flush=True)
        found = {case: found[case] for case in cases}
        in_order = [lines[case] for case in cases]
        print(json.dumps(in_order, indent=1))
        out.with_suffix(".json").write_text(json.dumps(in_order, indent=1) + "\n")
        columns = [(length, noise) for noise in (0.0, NOISE) for length in LENGTHS]
        draw_maps(found, CHAINS, columns, files[0])
        draw_reasons(in_order, reasons)
        write_record(_joined(found), files[2])
        shutil.rmtree(state)  # a later run must not go on from this code's ensembles
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
