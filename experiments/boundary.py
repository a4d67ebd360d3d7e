"""What refining the basin boundary costs, and how near it comes to the analytic one.

    python experiments/boundary.py

halves the crossed cells of coarse grids K times, in the plane and in space, writes
figures/boundary.json (starts followed, of how many in the full fine grid, distances in finest
cells) and draws figures/boundary_plane.png and figures/boundary_space.png.

What they show: the share of starts falls by about two with every level in the plane and in space.
Its points are found by bisection: none is farther than 0.001 of a finest cell from the closed form,
and the closed form is nowhere more than 0.51 of a cell from the points found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from papers import experiment

from flowsim import draw, model, refine_boundary

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.05, 0.6)]
#: Of every model: the axes of its coarse grid, how many chains, and how often cells are halved.
GRIDS = {
    "canonical": ({"e": np.linspace(-3, 3, 33), "w": np.linspace(-3, 3, 33)}, 3, 6),
    "linear": ({"e": np.linspace(0.05, 2, 13), "w": np.linspace(-2, 2, 13),
                "a": np.linspace(-3, 1, 13)}, 2, 4),
}  # fmt: skip


def compute() -> list[xr.Dataset]:
    """Refine every model's boundary at every chain, by level."""
    return [
        refine_boundary(model(name, *chain), axes, levels=levels)
        for name, (axes, chains, most) in GRIDS.items()
        for chain in CHAINS[:chains]
        for levels in range(most)
    ]


def numbers(records: list[xr.Dataset]) -> dict[str, Any]:
    """What each cost, and how near it came."""
    names = ("levels", "evaluated", "full", "fraction", "distance", "missed", "disagree")
    return {"runs": [
        {k: record.attrs[k] for k in ("model", "p", "q")}
        | {name: round(record.attrs[f"refine_{name}"], 4) for name in names} for record in records
    ]}  # fmt: skip


def drawn(records: list[xr.Dataset]) -> dict[str, Figure]:
    """The boundary at (0.5, 0.8): in the plane after four halvings, in space after three."""
    first = [record for record in records if (record.attrs["p"], record.attrs["q"]) == CHAINS[0]]
    plane, space = draw(first[4]), draw(first[-1])
    plane.axes[0].set_xlim(-3, 0.75)  # nothing happens beyond
    space.axes[0].text2D(
        0.02, 0.9, "left sheet: $a$ < −1, where 1 + $a$, and with it the\n"
        "sign of the gap and the trapped side, have changed",
        transform=space.axes[0].transAxes, fontsize=9,
    )  # fmt: skip
    return {"boundary_plane": plane, "boundary_space": space}


main = experiment(__name__, compute, numbers, drawn, record=False)
