"""How long one hundred branches of a model of three coordinates take, each around two folds.

    python benchmarks/continuation.py [--branches 100] [--rounds 3]

Of ¼(x² − 1)² + gx + ½(y − x²)² + (z − xy)², traced from as many places of its branch over g in
(−1, 1), stability and both folds included; the seconds are the best of the rounds.
"""

import argparse
import time

import torch
from torch import Tensor

import flowsim
from flowsim.bifurcation.branches import Tracer
from flowsim.bifurcation.events import events_of
from flowsim.bifurcation.system import System


class Bent(flowsim.Model):
    coordinates = ("x", "y", "z")

    def __init__(self, g: float = 0.0):
        self.g = g

    def loss(self, theta: Tensor) -> Tensor:
        x, y, z = theta.unbind(-1)
        tilted = (x**2 - 1) ** 2 / 4 + self.g * x
        return tilted + (y - x**2) ** 2 / 2 + (z - x * y) ** 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--branches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    system = System(flowsim.ModelSpec(Bent), "g", -1.0, 1.0)
    tracer = Tracer(system, torch.ones(3).double())
    x = torch.linspace(-1.3, 1.3, options.branches).double()
    starts, values = torch.stack([x, x**2, x**3], 1), x - x**3
    found: list[tuple[float, float]] = []
    for _ in range(options.rounds):
        begun, used = time.perf_counter(), time.process_time()
        branches = tracer.trace(starts, values)
        found.append((time.perf_counter() - begun, time.process_time() - used))
    folds = [event.value for event in events_of(tracer, branches[:1])]
    points = sum(len(branch.value) for branch in branches)
    off = max(abs(abs(fold) - 2 / 27**0.5) for fold in folds)
    print(f"{len(branches)} branches, {points} points, folds off by {off:.1e}")
    print("seconds {:.2f}, of the processor {:.2f}".format(*min(found)))


if __name__ == "__main__":
    main()
