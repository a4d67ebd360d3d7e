"""The committed phase portraits: both regimes, p far from q, two models, and five states.

    python experiments/portraits.py

draws figures/portrait_*.png, and writes the numbers of each to figures/portraits.json.
"""

from typing import Any

import xarray as xr
from matplotlib.figure import Figure
from papers import experiment

from flowsim import draw, model, summarize
from flowsim import portrait as portrait_record
from flowsim.drawing import draw_models_side_by_side

CHAINS = {
    "switching_above_one": (0.5, 0.8),
    "switching_below_one": (0.2, 0.3),
    "far_from_symmetric": (0.05, 0.6),
    "switching_one": (0.3, 0.7),
}
#: Chains of both models, the first drawn with both, and N of the rank-one model.
BOTH, LENGTH = ("switching_above_one", "switching_below_one"), 8
#: p on both sides of the threshold 4/5 of five states.
FIVE = (0.9, 0.7)


def compute() -> dict[str, xr.Dataset]:
    """Every portrait, and for two chains the rank-one model's too."""
    found = {name: portrait_record(model("canonical", *chain)) for name, chain in CHAINS.items()}
    for name in BOTH:
        lifted = model("rank-one", *CHAINS[name], length=LENGTH)
        found[f"models_{name}"] = portrait_record(lifted, resolution=128)
    for p in FIVE:
        plane = model("states", p, states=5)
        found[f"states_{p}"] = portrait_record(plane, window={"w": (-1.5, 1.5), "e": (-3.0, 3.0)})
    return found


def numbers(records: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Summary of each portrait."""
    return {name: summarize(record) for name, record in records.items()}


def figure_of(records: dict[str, xr.Dataset]) -> dict[str, Figure]:
    """A figure each; that of the second regime with lines of the energy."""
    figures = {name: draw(records[name], energy=name == "switching_below_one") for name in CHAINS}
    both = f"models_{BOTH[0]}"
    figures[both] = draw_models_side_by_side([records[BOTH[0]], records[both]])
    figures["states"] = draw_models_side_by_side([records[f"states_{p}"] for p in FIVE])
    return {f"portrait_{name}": figure for name, figure in figures.items()}


main = experiment(__name__, compute, numbers, figure_of, record=False)
