"""The probability that a Gaussian initialization reaches the global minima, in both regimes.

    python experiments/gaussian.py

draws figures/gaussian.png, the gradient flow of 4096 starts per scale beside the integral over the
analytic basin, and writes its numbers to figures/gaussian.json.

What it shows: a small Gaussian start is almost surely trapped for p + q > 1 and almost surely
reaches the global minima for p + q < 1, where the probability not to is drawn; a
large one does so with probability 1/2 and 3/4.
"""

import json
from pathlib import Path

import numpy as np
import torch
from papers import made, rounded

from flowsim import BinaryChain, CanonicalModel, draw, gaussian_record, summarize
from flowsim.drawing.style import new_figure, save_figure

FIGURES = Path(__file__).parents[1] / "figures"


def main() -> None:
    """Follow, integrate and draw."""
    torch.set_num_threads(1)
    figure, numbers = new_figure(11.0, 5.2), {"made": made("python experiments/gaussian.py")}
    for axes, (p, q) in zip(figure.subplots(1, 2), [(0.5, 0.8), (0.2, 0.3)], strict=True):
        record = gaussian_record(CanonicalModel(BinaryChain(p, q)), np.geomspace(0.02, 3, 40))
        draw(record, ax=axes)
        names = ("intervals_missed", "wrong", "unresolved", "largest_relative_energy_drift")
        numbers[f"p = {p}, q = {q}"] = summarize(record)
        print(p, q, {name: record.attrs[name] for name in names})
    save_figure(figure, FIGURES / "gaussian.png")
    (FIGURES / "gaussian.json").write_text(json.dumps(rounded(numbers), indent=1) + "\n")


if __name__ == "__main__":
    main()
