"""How long the distances of all cells to another end take, over the time of the scan itself.

    python benchmarks/edge.py [--cells 64] [--rounds 3]

Scan and distances take turns in one process, after a small round that compiles; medians of the
processor's seconds count. The planes: the canonical model, three states and linear attention, whose
separatrices are known; Himmelblau's loss and a double well, whose boundaries are grown from
saddles; a slice of a double well in three coordinates, whose boundary is shot at; and one of
uniform attention, whose boundary is bisected.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import flowsim
from flowsim.boundary import add_edge_distance
from flowsim.flow.solver import solver_of

Plane = dict[str, tuple[float, float]]
CHAIN = {"p": 0.5, "q": 0.8}
WINDOW = {"e": (-3.0, 3.0), "w": (-3.0, 3.0)}


def himmelblau(x: Tensor, y: Tensor) -> Tensor:
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def well(x: Tensor, y: Tensor) -> Tensor:
    return (x**2 - 1) ** 2 / 4 + 0.1 * x + y**2 / 2


def bent_well(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return (x**2 - 1) ** 2 / 4 + 0.1 * x + (y - x * z) ** 2 / 2 + (z - 0.3 * x) ** 2 / 2


#: Models with the window and what is held.
CASES: dict[str, tuple[Callable[[], flowsim.Model], Plane, dict[str, float]]] = {
    "canonical": (lambda: flowsim.model("canonical", **CHAIN), WINDOW, {}),
    "three states": (
        lambda: flowsim.model("states", states=3, p=0.8, hidden_per_state=4),
        WINDOW,
        {},
    ),
    "linear, a = 0.3": (lambda: flowsim.model("linear", **CHAIN), WINDOW, {"a": 0.3}),
    "Himmelblau": (
        lambda: flowsim.from_loss(himmelblau, "himmelblau"),
        {"x": (-5.0, 5.0), "y": (-5.0, 5.0)},
        {},
    ),
    "Himmelblau within 3": (
        lambda: flowsim.from_loss(himmelblau, "himmelblau"),
        {"x": (-3.0, 3.0), "y": (-3.0, 3.0)},
        {},
    ),
    "double well": (
        lambda: flowsim.from_loss(well, "well"),
        {"x": (-2.0, 2.0), "y": (-2.0, 2.0)},
        {},
    ),
    "slice of a well": (
        lambda: flowsim.from_loss(bent_well, "bent"),
        {"x": (-2.0, 2.0), "y": (-2.0, 2.0)},
        {"z": 0.3},
    ),
    "uniform, N = 16, a = 0.3": (
        lambda: flowsim.model("uniform", **CHAIN, length=16),
        WINDOW,
        {"a": 0.3},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[*CASES], choices=[*CASES])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':26}{'scan, s':>10}{'distances, s':>14}{'over the scan':>15}")
    for name in options.only:
        make, window, fixed = CASES[name]
        model = make()
        scans, distances = [], []
        for turn in range(options.rounds + 1):
            cells = options.cells if turn else 4
            axes = {n: flowsim.scan.cell_centres(*side, cells) for n, side in window.items()}
            begun = time.process_time()
            record = flowsim.scan(model, axes, fixed=fixed)
            between = time.process_time()
            if turn or not solver_of(model).batched:
                add_edge_distance(record, model)
            if turn:
                scans.append(between - begun)
                distances.append(time.process_time() - between)
        scan, distance = statistics.median(scans), statistics.median(distances)
        print(f"{name:26}{scan:10.3f}{distance:14.3f}{distance / scan:15.2f}", flush=True)


if __name__ == "__main__":
    main()
