"""What a model's compiled half saves: the same starts with it, and by the engine for any loss.

    python benchmarks/engines.py [--starts 64] [--only NAME ...]

Starts are drawn evenly from [−2, 2] in every coordinate, the same for both engines. The table has
the milliseconds of CPU time for a start, how many starts stay unresolved, and how many labels
differ where both engines decide. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import flowsim
from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.labelling import label_ends
from flowsim.flow.options import Limits, Steps

CHAIN = flowsim.BinaryChain(0.5, 0.8)
MODELS: dict[str, Callable[[], flowsim.Model]] = {
    "canonical": lambda: flowsim.models.CanonicalModel(CHAIN),
    "linear": lambda: flowsim.models.LinearAttentionModel(CHAIN),
    "untied": lambda: flowsim.models.UntiedModel(CHAIN),
    "states": lambda: flowsim.model("states", 0.8, states=3),
    "rank-one": lambda: flowsim.models.RankOneModel(CHAIN, 8),
    "rank-one-attention": lambda: flowsim.models.RankOneModel(CHAIN, 8, attention=True),
    "uniform": lambda: flowsim.models.UniformAttentionModel(CHAIN, 8),
    "induction": lambda: flowsim.model("induction"),
}


def timed(follow: Callable[[], Limits], count: int) -> tuple[Limits, float]:
    """What is found, and the milliseconds of CPU time for a start."""
    began = time.process_time()
    return follow(), 1e3 * (time.process_time() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':>20}{'compiled ms':>13}{'any loss ms':>13}{'ratio':>8}{'unresolved':>12}"
          f"{'any loss':>10}{'differing':>11}")  # fmt: skip
    for name in given.only:
        model, n = MODELS[name](), given.starts
        generator = torch.Generator().manual_seed(0)
        drawn = torch.rand(n, len(model.coordinates), dtype=torch.float64, generator=generator)
        starts = 4 * drawn - 2

        def any_loss(model: flowsim.Model = model, starts: torch.Tensor = starts) -> Limits:
            parts = RosenbrockSolver(model).ends(starts, Steps(1e-6, 1e-12, 3000))
            return Limits.joined([label_ends(model, part) for part in parts], starts.shape[:-1])

        flowsim.find_limits(model, starts)  # compiles
        own, compiled = timed(lambda: flowsim.find_limits(model, starts), n)  # noqa: B023
        other, plain = timed(any_loss, n)
        open_, theirs = own.label == 0, other.label == 0
        differing = int(((own.label != other.label) & ~open_ & ~theirs).sum())
        print(f"{name:>20}{compiled:13.4f}{plain:13.2f}{plain / compiled:8.0f}{int(open_.sum()):12}"
              f"{int(theirs.sum()):10}{differing:11}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
