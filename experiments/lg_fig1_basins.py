"""Energy lines and basins of the canonical flow in (w, e), in both regimes (LG Fig. 1).

The paper shows: lines of the energy e² − w² − sign(w) log|w|, along which the gradient flow
runs, and which part of the plane flows to the global minima and which to the bad local minima, for
p + q > 1 and for p + q < 1.

We find: the same. Of the window |e|, |w| ≤ 3, 52.6 % is trapped at (0.5, 0.8) and 17.6 % at
(0.2, 0.3). The basins are coloured by integrating the flow from every one of the 208² cells; the
closed form is only drawn over them, and all cells that it does not cut agree with it, none
unresolved. The largest drift in energy is 3.3e-10.

We differ: nowhere in this figure. It is the flow of the canonical coordinates, which full
training does not preserve (lg_losses.py), and gradient flow, which AdamW is not. The authors' own
three-parameter code runs momentum SGD where its option says adamw, so its orbits cannot be
expected on these lines.

    python experiments/lg_fig1_basins.py [--papers]     half a minute on one core

--papers takes 512² cells. ``flowsim portrait --energy`` draws either panel for any chain.
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
