"""Energy lines and basins of the canonical flow in (w, e), in both regimes (LG Fig. 1).

The paper shows: lines of the energy e² − w² − sign(w) log|w|, along which the gradient flow
runs, and which part of the plane flows to the global minima and which to the bad local minima, for
p + q > 1 and for p + q < 1.

    python experiments/lg_fig1_basins.py [--papers]     half a minute on one core
"""

from typing import Any

import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, experiment

from flowsim import portrait as portrait_record
from flowsim.chain import BinaryChain
from flowsim.drawing import draw_models_side_by_side
from flowsim.models import CanonicalModel
from flowsim.portraits import portrait_summary

Portraits = dict[BinaryChain, xr.Dataset]


def compute(resolution: int = 208) -> Portraits:
    """The portrait of either chain: every cell's flow integrated to its limit."""
    return {chain: portrait_record(CanonicalModel(chain), resolution=resolution)
            for chain in (ABOVE, BELOW)}  # fmt: skip


def numbers(records: Portraits) -> dict[str, Any]:
    """Shares of the window, agreement with the closed form, largest drift of the energy."""
    return {f"p = {c.p}, q = {c.q}": portrait_summary(record) for c, record in records.items()}


def draw(records: Portraits) -> Figure:
    """The two portraits side by side, with the energy lines."""
    return draw_models_side_by_side(list(records.values()), energy=True)


main = experiment(__name__, compute, numbers, draw, record=False, papers={"resolution": 512})
