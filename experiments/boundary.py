"""What refining the basin boundary costs, and how near it comes to the analytic one.

    python experiments/boundary.py

halves the crossed cells of coarse grids K times, in the plane and in space, writes
figures/boundary.json (starts followed, of how many in the full fine grid, distances in finest
cells) and draws figures/boundary_plane.png and figures/boundary_space.png.

What they show: the share of starts falls by about two with every level in the plane and in space.
Its points are found by bisection: none is farther than 0.001 of a finest cell from the closed form,
and the closed form is nowhere more than 0.51 of a cell from the points found.
"""

import json
from pathlib import Path

import numpy as np
import torch
from papers import made

from flowsim import BinaryChain, CanonicalModel, LinearAttentionModel, draw, refine_boundary
from flowsim.drawing.style import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.05, 0.6)]


def main() -> None:
    """Refine, count and draw."""
    torch.set_num_threads(1)
    line, half = np.linspace(-3, 3, 33), np.linspace(0.05, 2, 13)
    wide = np.linspace(-2, 2, 13)
    table = []
    for p, q in CHAINS:
        plane = CanonicalModel(BinaryChain(p, q))
        for levels in range(6):
            record = refine_boundary(plane, {"e": line, "w": line}, levels=levels)
            table.append(row(record))
            if (p, q, levels) == (0.5, 0.8, 4):
                figure = draw(record)
                figure.axes[0].set_xlim(-3, 0.75)  # nothing happens beyond
                save_figure(figure, FIGURES / "boundary_plane.png")
    for p, q in CHAINS[:2]:
        space = LinearAttentionModel(BinaryChain(p, q))
        for levels in range(4):
            axes = {"e": half, "w": wide, "a": np.linspace(-3, 1, 13)}
            record = refine_boundary(space, axes, levels=levels)
            table.append(row(record))
            if (p, q, levels) == (0.5, 0.8, 3):
                figure = draw(record)
                figure.axes[0].text2D(
                    0.02, 0.9, "left sheet: $a$ < −1, where 1 + $a$, and with it the\n"
                    "sign of the gap and the trapped side, have changed",
                    transform=figure.axes[0].transAxes, fontsize=9,
                )  # fmt: skip
                save_figure(figure, FIGURES / "boundary_space.png")
    found = {"made": made("python experiments/boundary.py"), "runs": table}
    (FIGURES / "boundary.json").write_text(json.dumps(found, indent=1) + "\n")


def row(record):
    """One line of the table, also printed."""
    a = record.attrs
    kept = {name: a[name] for name in ("model", "p", "q")}
    names = ("levels", "evaluated", "full", "fraction", "distance", "missed", "disagree")
    kept |= {name: round(a[f"refine_{name}"], 4) for name in names}
    print(kept, flush=True)
    return kept


if __name__ == "__main__":
    main()
