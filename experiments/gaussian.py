"""The probability that a Gaussian initialization reaches the global minima, in both regimes.

    python experiments/gaussian.py

draws figures/gaussian.png, the gradient flow of 4096 starts per scale beside the integral over the
analytic basin, and writes its numbers to figures/gaussian.json.

For p + q < 1 the probability not to reach them is drawn. What it shows: docs/results/starts.md.
"""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, experiment

from flowsim import CanonicalModel, draw, gaussian_record, summarize
from flowsim.drawing.style import new_figure

CHAINS = {f"p = {c.p}, q = {c.q}": c for c in (ABOVE, BELOW)}


def compute(scales: int = 40) -> dict[str, xr.Dataset]:
    """Starts of every scale followed, by chain."""
    sigma = np.geomspace(0.02, 3, scales)
    return {name: gaussian_record(CanonicalModel(chain), sigma) for name, chain in CHAINS.items()}


def numbers(records: dict[str, xr.Dataset]) -> dict[str, Any]:
    """What is found in each."""
    return {name: summarize(record) for name, record in records.items()}


def drawn(records: dict[str, xr.Dataset]) -> Figure:
    """A panel a chain."""
    figure = new_figure(11.0, 5.2)
    for axes, record in zip(figure.subplots(1, 2), records.values(), strict=True):
        draw(record, ax=axes)
        total = record.attrs["p"] + record.attrs["q"]
        small = "is trapped" if total > 1 else "learns"
        axes.set_title(f"$p + q$ = {total:g}: a small Gaussian start {small}")
    return figure


main = experiment(__name__, compute, numbers, drawn, record=False)
