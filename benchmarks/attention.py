"""Field evaluations per second of the attention model, with the law of the past compressed or not.

For N = 64, 256 and 1024, gradients at optimal bias for points spread evenly over |e|, |w| ≤ 3 and
|a| ≤ 1 or 3, on one thread. One field evaluation is the gradient at one point. Both sides solve for
the bias in the same way; uncompressed sums run over all distinct atoms of the law. Memory is that
of the stored law or nodes. Run from the repository: python benchmarks/attention.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from flowsim import BinaryChain
from flowsim.models.uniform.model import UniformAttentionModel
from flowsim.models.uniform.table import LawTable, law_table


def points(count: int, reach: float) -> torch.Tensor:
    """(count, 3) points (e, w, a), the same in every run."""
    generator = torch.Generator().manual_seed(0)
    unit = 2 * torch.rand(count, 3, dtype=torch.float64, generator=generator) - 1
    return unit * torch.tensor([3.0, 3.0, reach])


def seconds(model: UniformAttentionModel, theta: torch.Tensor) -> float:
    """Wall time of one gradient of all points."""
    start = time.perf_counter()
    model.gradient(theta)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--p", type=float, default=0.5)
    parser.add_argument("--q", type=float, default=0.8)
    parser.add_argument("--rounds", type=int, default=5, help="the median of these is printed")
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024])
    options = parser.parse_args()
    torch.set_num_threads(1)
    chain = BinaryChain(options.p, options.q)
    print(f"p = {chain.p}, q = {chain.q}; evaluations per second, one thread")
    head = ("N", "|a| ≤", "all atoms", "compressed", "ratio", "MiB atoms", "MiB nodes", "built in")
    print("".join(f"{title:>12}" for title in head))
    for length in options.lengths:
        start = time.perf_counter()
        LawTable(chain, length, False, True)
        built = time.perf_counter() - start
        few = UniformAttentionModel(chain, length)
        exact = UniformAttentionModel(chain, length, compress=False)
        for reach in (1.0, 3.0):
            many, sample = points(8192, reach), points(max(4, 40000 // length), reach)
            seconds(few, many), seconds(exact, sample)  # builds the nodes of every slope
            rounds = [(seconds(few, many), seconds(exact, sample)) for _ in range(options.rounds)]
            fast = len(many) / statistics.median(r[0] for r in rounds)
            slow = len(sample) / statistics.median(r[1] for r in rounds)
            tables = [law_table(chain, length, False, whether) for whether in (False, True)]
            sizes = [(x.reals.nbytes + x.ints.nbytes) / 2**20 for x in tables]
            numbers = f"{slow:12.4g}{fast:12.4g}{fast / slow:12.1f}{sizes[0]:12.2f}{sizes[1]:12.2f}"
            print(f"{length:12}{reach:12}{numbers}{built:10.2f} s", flush=True)


if __name__ == "__main__":
    main()
