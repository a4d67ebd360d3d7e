"""How long the explorer's first boundary takes to compute where no closed form has it.

    python benchmarks/explorer_line.py

For each model, medians over ten chains near (0.5, 0.8), in milliseconds of the processor: curves
and arrows, the coarsest cells (8 x 8, of the rank-one model with attention 4 x 4), and the line
between them, which is what follows a slider's move before finer cells do; drawing in the browser
comes to it (benchmarks/explorer.py).
"""

import statistics
import time
from itertools import pairwise

import torch

from flowsim.explorer.layers import border, landscape, refined, warm
from flowsim.explorer.view import View

VIEWS = {
    "canonical, bias as a coordinate": View().with_model("canonical", bias="dynamic"),
    "uniform, N = 8": View().with_model("uniform"),
    "rank-one, N = 8": View().with_model("rank-one"),
    "rank-one with attention, N = 8": View().with_model("rank-one", attention=True),
}


def main() -> None:
    """Compute and print."""
    torch.set_num_threads(1)
    for name, view in VIEWS.items():
        warm(view)
        lines = [measured(view.with_arguments(p=0.46 + 0.01 * i)) for i in range(-1, 10)][1:]
        parts = [1000 * statistics.median(column) for column in zip(*lines, strict=True)]
        total = 1000 * statistics.median(sum(line) for line in lines)
        words = ", ".join(f"{x:.0f}" for x in parts)
        print(f"{name}: {total:.0f} ms (curves, cells, line: {words})", flush=True)


def measured(view: View) -> tuple[float, ...]:
    """Seconds of the processor for curves, the coarsest cells, and their line."""
    times = [time.process_time()]
    landscape(view, fine=False)
    times.append(time.process_time())
    cells = next(refined(view, lambda: False))
    times.append(time.process_time())
    border(view, cells, lambda: False)
    times.append(time.process_time())
    return tuple(b - a for a, b in pairwise(times))


if __name__ == "__main__":
    main()
