"""The attention models in slices, for p + q above and below one (LG Fig. 2 is in space).

    python experiments/attention_portraits.py [--length 1024]

draws, for uniform attention over N positions and for linear attention, the basins in the slice
a = 0.5; then searches for critical points other than the plane e = 0 and the global minima, and
writes what it found to figures/attention_portraits.json. Some minutes on one core. Orbits in
(w, e, a) are drawn by ``flowsim portrait --view 3d``.

What the paper shows: orbits in (e, w, a) that fall onto the plane of bad minima for p + q > 1 and
leave it for p + q < 1, with the attention dying out at the global minima. We find the same: for
uniform attention every orbit ends at a = 0 on the minima curve or in the plane e = 0, although a
may rise on the way (at N = 2 some run off to a = −∞). The plane's saddle
line bends with a, since uniform attention adds C's term in a; with linear attention it is straight,
and e² > 2(1 + a)² escapes whatever w is. Far outside the paper's window the search, 60 starts a
case, uniform attention at N = 64, finds a further saddle, near (e, w, a) = (0.30, −0.52, −21) at
(0.5, 0.8).
"""

from typing import Any

import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, experiment

from flowsim import (
    AttentionModel,
    LinearAttentionModel,
    draw,
    portrait_record,
    search_critical_points,
)
from flowsim.landscape.critical import CriticalSearch

REGIMES = {"above_one": ABOVE, "below_one": BELOW}
#: Cells a side of the slices.
CELLS = {"uniform": 96, "linear": 208}

Found = tuple[dict[str, xr.Dataset], dict[str, CriticalSearch]]


def compute(length: int = 1024) -> Found:
    """The records of all figures by name, and the searches."""
    records, searches = {}, {}
    for regime, chain in REGIMES.items():
        linear = LinearAttentionModel(chain)
        for name, model in (("uniform", AttentionModel(chain, length)), ("linear", linear)):
            records[f"slice_{name}_{regime}"] = portrait_record(
                model, resolution=CELLS[name], fixed={"a": 0.5}
            )
        for model in (AttentionModel(chain, 64), linear):
            generator = torch.Generator().manual_seed(1)
            searches[f"{type(model).__name__} p={chain.p} q={chain.q}"] = search_critical_points(
                model, generator, starts=60
            )
    return records, searches


def numbers(found: Found) -> dict[str, Any]:
    """What every search found."""
    names = ("starts", "half_width", "on_plane", "global_minima", "not_found")
    lines: dict[str, Any] = {}
    for case, search in found[1].items():
        others = zip(search.theta.tolist(), search.loss.tolist(), search.curvature.tolist(),
                     strict=True)  # fmt: skip
        lines[case] = {name: getattr(search, name) for name in names} | {
            "others": [{"theta": x, "loss": y, "curvature": z} for x, y, z in others]
        }
    return lines


def drawn(found: Found) -> dict[str, Figure]:
    """The slices, without orbits: they leave a slice, and would end there in a basin not theirs."""
    return {name: draw(record, orbits=False) for name, record in found[0].items()}


main = experiment(__name__, compute, numbers, drawn, record=False)
