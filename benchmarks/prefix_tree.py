"""The whole transformer's exact gradient: compiled sums over prefixes against all sequences.

Both give the same numbers for the same Gaussian models (deviation 0.5, p = 0.5, q = 0.8) on one
thread; the sequences by automatic differentiation in PyTorch, many models at once. The ways take
turns, round after round, and the best round of each counts, in time of the processor, which
neighbours on the machine disturb less:

- loss and gradient: ``PopulationLoss.value_and_gradient`` and ``PrefixTreeLoss``'s;
- field: gradient and stiffness by prefixes, as steps of descent need them.

Run from the repository: python benchmarks/prefix_tree.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from flowsim import BinaryChain
from full_model import Architecture, MarkovSource, PopulationLoss, PrefixTreeLoss, initial_weights
from full_model.comparison.fields import FullField

CHAIN = BinaryChain(0.5, 0.8)


def best(ways: list[Callable[[], object]], rounds: int) -> list[float]:
    """Processor seconds of each way at its best."""
    found = [float("inf")] * len(ways)
    for _ in range(rounds):
        for i, way in enumerate(ways):
            start = time.process_time()
            way()
            found[i] = min(found[i], time.process_time() - start)
    return found


def contenders(arch: Architecture, models: int) -> list[Callable[[], object]]:
    """Loss and gradient by sequences and by prefixes, then the field."""
    source = MarkovSource.of(CHAIN)
    tree, sequences = PrefixTreeLoss(arch, source), PopulationLoss(arch, source)
    field = FullField(arch, CHAIN)
    weights = initial_weights(arch, "gaussian", range(models), std=0.5)
    state = field.state(weights)
    return [
        lambda: sequences.value_and_gradient(weights),
        lambda: tree.value_and_gradient(weights),
        lambda: field(state),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--lengths", type=int, nargs="+", default=[4, 8, 10])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[4, 8])
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    small = Architecture(2, 2)
    PrefixTreeLoss(small, MarkovSource.of(CHAIN))(initial_weights(small, "gaussian", [0]))
    print(f"first call: {time.perf_counter() - start:.1f} s (compiles what the disk has not)")
    print("processor milliseconds of one call on one thread, and their ratio")
    head = ("N", "d", "models", "sequences", "prefixes", "ratio", "field")
    print("".join(f"{title:>11}" for title in head))
    for length in options.lengths:
        for d in options.dimensions:
            for models in options.models:
                times = best(contenders(Architecture(d, length), models), options.rounds)
                one, two, three = (1e3 * seconds for seconds in times)
                numbers = (one, two, one / two, three)
                line = "".join(f"{number:11.4g}" for number in numbers)
                print(f"{length:11}{d:11}{models:11}{line}", flush=True)


if __name__ == "__main__":
    main()
