"""What refining the basin boundary costs, and how near it comes to the analytic one.

    python experiments/boundary.py

halves the crossed cells of coarse grids K times, in the plane and in space, writes
figures/boundary.json (starts followed, of how many in the full fine grid, distances in finest
cells) and draws figures/boundary_plane.png and, in slices, figures/boundary_space.png.

What they show: the share of starts falls by about two with every level in the plane and in space.
Its points are found by bisection: none is farther than 0.001 of a finest cell from the closed form,
and the closed form is nowhere more than 0.51 of a cell from the points found.
"""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from papers import experiment

from flowsim import draw, model, refine_boundary
from flowsim.drawing.style import new_figure

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
    plane = draw(first[4])
    plane.axes[0].set_xlim(-3, 0.75)  # nothing happens beyond
    return {"boundary_plane": plane, "boundary_space": slices(first[-1])}


def slices(record: xr.Dataset) -> Figure:
    """The surface at four values of a: its points that lie on edges of cells there."""
    figure = new_figure(7.0, 6.2)
    axes = figure.subplots()
    for value, name, mark in ((-3, "−3", "v"), (-2, "−2", "^"), (-1 / 3, "−1/3", "s"),
                              (1 / 3, "1/3", "o")):  # fmt: skip
        on = np.abs(record.boundary_a.values - value) < 1e-9
        axes.plot(record.boundary_w[on], record.boundary_e[on], mark, markersize=4,
                  markerfacecolor="none", color=mpl.colormaps["cividis"]((value + 3) / 4.6),
                  label=f"$a$ = {name}")  # fmt: skip
    axes.set(xlabel="feed-forward weight $w$", ylabel="embedding $e$", ylim=(0, 2))
    axes.set_title("Linear attention: in every slice the starts below its line are trapped\n"
                   "($p$ = 0.5, $q$ = 0.8; level parts: $e = \\sqrt{2}\\,|1 + a|$)")  # fmt: skip
    axes.legend(title="slice at", frameon=False)
    return figure


main = experiment(__name__, compute, numbers, drawn, record=False)
