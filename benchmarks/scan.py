"""Basin scans and trajectories against scipy, torchdiffeq and diffrax, taking turns in one run.

    python benchmarks/scan.py [--only scan fresh band trajectories attention scaling] [--quick]

The chain is p = 0.5, q = 0.8. Every contender has a process of its own and stays in it: the first
run is cold and gives the compile time, then all run in turn, round after round, and medians count.
CPU time is user and system time of all threads; flowsim, torchdiffeq and scipy have one thread,
diffrax takes what it wants. Peak memory is that of the process, libraries included.

- scan: grids of 512 × 512 and 128 × 128 cells on [−2, 2]², labels checked with the closed form of
  the basins; slow contenders take a coarser grid, which the table states.
- fresh: the same scan from the start of a process to a finished file, everything counted.
- band: starts with |E/E_s − 1| ≤ 1e-4, on the separatrix as far as a scan can see.
- trajectories: 256, 1024 and 4096 paths saved at 200 times to T = 100 in physical time, with the
  largest error against a much finer run of diffrax. All stay below 2e-6; flowsim is also shown at
  its default tolerance, and, with 4096, with ``integrate``, whose batch shares its steps and steps
  onto every time.
- attention: uniform attention over 64 and 1024 positions, |a| ≤ 0.9, from 64, 1024 and 4096 starts;
  diffrax on the same compressed law with the solver that suits it best; there is no closed form, so
  labels are compared with flowsim's.
- scaling: the cost of a point and the peak memory against the number of points.

It needs the extra ``benchmark``. Install it with pip install -e ".[benchmark]".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from worker import UNRESOLVED, Worker, take_turns, whole_process

Row = dict[str, Any]

#: Saddle energy −(1 + log 2)/2, the level of the separatrix.
SADDLE_ENERGY = -(1 + np.log(2)) / 2
FLOWSIM = str(Path(sys.executable).with_name("flowsim"))
PEERS = str(Path(__file__).with_name("peers_diffrax.py"))
#: Rows that ratios refer to.
YARDSTICK = "diffrax, physical time"

#: Contenders of a scan: module, name, options, and the side of its grid relative to the full one.
SCAN: dict[str, tuple[str, str, dict[str, Any], float]] = {
    YARDSTICK: ("peers_diffrax", "limits", {}, 1),
    "diffrax, rescaled field": ("peers_diffrax", "limits", {"rescaled": True}, 1),
    "scipy, point by point": ("peers_torch", "point by point", {}, 1 / 32),
    "torchdiffeq, physical time": ("peers_torch", "physical", {}, 1 / 8),
    "torchdiffeq, rescaled field": ("peers_torch", "rescaled", {}, 1 / 4),
    "flowsim": ("peers_flowsim", "limits", {}, 1),
    "closed form, no integration": ("peers_flowsim", "closed form", {}, 1),
}


def grid(cells: int) -> np.ndarray:
    """Cell centres of [−2, 2]², shape (cells², 2): (e, w)."""
    centres = (np.arange(cells) + 0.5) / cells * 4 - 2
    e, w = np.meshgrid(centres, centres, indexing="ij")
    return np.stack([e.ravel(), w.ravel()], axis=1)


def band(count: int) -> np.ndarray:
    """Starts beside the separatrix of p + q > 1: −1/√2 < w < 0 and |E/E_s − 1| ≤ 1e-4."""
    random = np.random.default_rng(0)
    w = random.uniform(-0.7, -0.01, count)
    energy = SADDLE_ENERGY * (1 + random.uniform(-1e-4, 1e-4, count))
    e = np.sqrt(energy + w * w - np.log(-w))
    return np.stack([random.choice([-1.0, 1.0], count) * e, w], axis=1)


def closed_form(starts: np.ndarray) -> np.ndarray:
    """The true labels, from a process of their own."""
    worker = Worker("peers_flowsim", "closed form", starts)
    worker.close()
    return worker.result


def mistakes(found: np.ndarray, truth: np.ndarray) -> Row:
    unresolved = found == UNRESOLVED
    return {
        "wrong": int(((found != truth) & ~unresolved).sum()),
        "unresolved": int(unresolved.sum()),
    }


def with_ratios(rows: dict[str, Row], yardstick: str = YARDSTICK, key: str = "cpu_us") -> None:
    for row in rows.values():
        row["ratio"] = row[key] / rows[yardstick][key]


def label_table(
    names: list[str], starts: Callable[[float], np.ndarray], rounds: int
) -> dict[str, Row]:
    """The chosen contenders of ``SCAN`` on starts(side), their labels checked."""
    samples = {part: starts(part) for part in {SCAN[name][3] for name in names}}
    truth = {part: closed_form(sample) for part, sample in samples.items()}
    workers, checked = {}, {}
    for name in names:
        module, contender, options, part = SCAN[name]
        workers[name] = Worker(module, contender, samples[part], **options)
        checked[name] = mistakes(workers[name].result, truth[part])
    rows: dict[str, Row] = take_turns(workers, rounds)
    for name, row in rows.items():
        row |= checked[name]
    with_ratios(rows)
    return rows


def scan(quick: bool, rounds: int) -> dict[str, Row]:
    """Everyone at 512², diffrax and flowsim at 128² too."""
    small = label_table([YARDSTICK, "flowsim"], lambda _: grid(128), rounds)
    found = {f"{name}, 128²": row for name, row in small.items()}
    if quick:
        return found
    return label_table(list(SCAN), lambda part: grid(round(512 * part)), rounds) | found


def near_separatrix(quick: bool, rounds: int) -> dict[str, Row]:
    names = [name for name in SCAN if name.startswith(("diffrax", "flowsim"))]
    return label_table(names, lambda _: band(2_000 if quick else 20_000), rounds)


def fresh(quick: bool, rounds: int) -> dict[str, Row]:
    """Whole processes, from their start to a record on disk."""
    cells = 128 if quick else 512
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "scan")
        ours = ["scan", "--p", "0.5", "--q", "0.8", "--grid", f"{cells}x{cells}", "--quiet"]
        window = ["--e-range", "-2:2", "--w-range", "-2:2", "--overwrite", "--out", f"{out}.nc"]
        commands = {
            YARDSTICK: [sys.executable, PEERS, str(cells), f"{out}.npz"],
            "flowsim scan": [FLOWSIM, *ours, *window],
        }
        times: dict[str, list[Row]] = {name: [] for name in commands}
        for turn in range(rounds + 1):  # the first one warms the disk
            for name, command in commands.items():
                found = whole_process(command)
                times[name] += [found] * (turn > 0)
    rows = {
        name: {key: statistics.median(row[key] for row in found) for key in found[0]}
        for name, found in times.items()
    }
    with_ratios(rows, key="cpu_s")
    for row in rows.values():
        row["wall_ratio"] = row["wall_s"] / rows[YARDSTICK]["wall_s"]
    return rows


def trajectories(quick: bool, rounds: int) -> dict[str, Row]:
    """At every size diffrax and flowsim; at the largest the others too."""
    rows: dict[str, Row] = {}
    for cells in (16,) if quick else (16, 32, 64):
        rows |= paths(cells, cells == 64, rounds)
    return rows


def paths(cells: int, everyone: bool, rounds: int) -> dict[str, Row]:
    """Paths from cells² starts, with the largest error against a much finer run."""
    starts, task = grid(cells), {"times": np.linspace(0, 100, 200).tolist()}
    name, size = "trajectories", f"{cells**2}"
    exact = {"solver": "Dopri8", "rtol": 1e-12, "atol": 1e-13, "step_to": True, "batch": 64}
    worker = Worker("peers_diffrax", name, starts, **task, **exact)
    worker.close()
    tuned = {"solver": "Dopri5", "rtol": 2e-8, "atol": 2e-9, "batch": 128}
    default, shared = {"rtol": 1e-10, "atol": 1e-12}, {"rtol": 1e-7, "atol": 1e-8, "shared": True}
    plain = {"method": "dopri5", "rtol": 1e-8, "atol": 1e-9, "batch": 4096}
    workers = {
        f"diffrax, {size}": Worker("peers_diffrax", name, starts, **task, **tuned),
        f"flowsim, {size}": Worker("peers_flowsim", name, starts, **task, rtol=5e-8, atol=5e-8),
        f"flowsim, default, {size}": Worker("peers_flowsim", name, starts, **task, **default),
    }
    if everyone:
        workers["flowsim, integrate"] = Worker("peers_flowsim", name, starts, **task, **shared)
        workers["torchdiffeq"] = Worker("peers_torch", name, starts, **task, **plain)
    errors = {key: float(np.abs(w.result - worker.result).max()) for key, w in workers.items()}
    rows: dict[str, Row] = take_turns(workers, rounds)
    for key, row in rows.items():
        row["error"] = errors[key]
    with_ratios(rows, f"diffrax, {size}")
    return rows


def attention(quick: bool, rounds: int) -> dict[str, Row]:
    unit, rows = 2 * np.random.default_rng(0).random((4096, 3)) - 1, {}
    law = {"level": 4, "halley": 2}  # nodes for slopes up to 16, and steps to the optimal bias
    # the quickest found at each length that makes no mistake; the longer, the stiffer
    quickest = {
        64: {"solver": "Tsit5", "rtol": 1e-5, "batch": 2},
        1024: {"solver": "Kvaerno3", "rtol": 1e-4, "batch": 16},
    }
    for length, best in quickest.items():
        task = {"atol": 1e-7, "rest": 1e-5} | best
        for count in (64,) if quick else (64, 1024, 4096):
            starts, which = unit[:count] * [2, 2, 0.9], f"N = {length}, {count}"
            ours, theirs = f"flowsim, {which}", f"diffrax, {which}"
            workers = {
                theirs: Worker("peers_diffrax", "attention", starts, length=length, **task, **law),
                ours: Worker("peers_flowsim", "attention", starts, length=length),
            }
            found = {name: worker.result for name, worker in workers.items()}
            pair: dict[str, Row] = take_turns(workers, rounds)
            differing = mistakes(found[theirs], found[ours])["wrong"]
            for name, row in pair.items():
                unresolved = int((found[name] == UNRESOLVED).sum())
                row |= {"differing": differing, "unresolved": unresolved}
            with_ratios(pair, theirs)
            rows |= pair
    return rows


def scaling(quick: bool, rounds: int) -> dict[str, Row]:
    """Every size in processes of its own; ``flowsim scan`` also shows what a scan to disk takes."""
    rows: dict[str, Row] = {}
    sizes = (64, 256) if quick else (64, 256, 1024)
    names = (YARDSTICK, "flowsim")
    for cells in sizes:
        workers = {}
        for name in names:
            module, contender, options, _ = SCAN[name]
            workers[f"{name}, {cells}²"] = Worker(module, contender, grid(cells), **options)
        found: dict[str, Row] = take_turns(workers, rounds)
        with_ratios(found, f"{YARDSTICK}, {cells}²")
        rows |= found
    with tempfile.TemporaryDirectory() as folder:
        for cells in (*sizes, *(() if quick else (3163,))):
            out = ["--quiet", "--out", os.path.join(folder, f"{cells}.nc")]
            side = ["--e-range", "-2:2", "--w-range", "-2:2", "--grid", f"{cells}x{cells}"]
            spent = whole_process([FLOWSIM, "scan", "--p", "0.5", "--q", "0.8", *side, *out])
            rows[f"flowsim scan, {cells}²"] = {"starts": cells**2} | spent
    return rows


SECTIONS = {
    "scan": scan,
    "fresh": fresh,
    "band": near_separatrix,
    "trajectories": trajectories,
    "attention": attention,
    "scaling": scaling,
}

#: Columns in their order, with the heading and the format of each.
COLUMNS = {
    "starts": ("starts", "d"),
    "cpu_us": ("CPU µs/start", ".4g"),
    "wall_us": ("wall µs/start", ".4g"),
    "cpu_s": ("CPU s", ".3f"),
    "wall_s": ("wall s", ".3f"),
    "ratio": ("CPU ratio", ".3g"),
    "wall_ratio": ("wall ratio", ".3g"),
    "wrong": ("wrong", "d"),
    "differing": ("differing", "d"),
    "unresolved": ("unresolved", "d"),
    "error": ("error", ".1e"),
    "compile_cpu_s": ("cold CPU s", ".2f"),
    "compile_wall_s": ("cold wall s", ".2f"),
    "peak_mib": ("peak MiB", ".0f"),
}


def table(rows: dict[str, Row]) -> str:
    """The rows as text; a column appears if some row has it."""
    columns = [key for key in COLUMNS if any(key in row for row in rows.values())]
    lines = [" " * 30 + "".join(f"{COLUMNS[key][0]:>15}" for key in columns)]
    for name, row in rows.items():
        cells = (format(row[key], COLUMNS[key][1]) if key in row else "" for key in columns)
        lines.append(f"{name:30}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=5, help="the medians of these are printed")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", action="store_true", help="one line of JSON per section")
    options = parser.parse_args()
    for name in options.only:
        began = os.getloadavg()[0]
        rows = SECTIONS[name](options.quick, options.rounds)
        load = [round(began, 1), round(os.getloadavg()[0], 1)]
        if options.json:
            print(json.dumps({"section": name, "load": load, "rows": rows}), flush=True)
        else:
            print(f"{name} (load average {load[0]} to {load[1]})\n{table(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
