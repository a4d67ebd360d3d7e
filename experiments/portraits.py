"""The committed phase portraits: both regimes, p far from q, p + q = 1, and two models.

    python experiments/portraits.py

draws figures/portrait_*.png, and writes the numbers of each to figures/portraits.json; with
--records also the record of each to figures/records (a few hundred kB each, and not committed).

What they show (LG Fig. 1 draws the first two as energy lines): the basins depend on p and q only
through the sign of 1 − p − q, so the third picture has the basins of the second although its minima
curve lies elsewhere; at p + q = 1 there is no bad basin at all. The pictures with two models have
the canonical one beside the rank-one one, whose positions move: its bad basin begins at w = −1/2
for p + q > 1, and for p + q < 1 it has none.
"""

import json
import sys
from pathlib import Path

import torch
from papers import made, rounded

from flowsim import draw, draw_models_side_by_side, model, portrait_record, summarize, write_record
from flowsim.drawing.style import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
CHAINS = {
    "switching_above_one": (0.5, 0.8),
    "switching_below_one": (0.2, 0.3),
    "far_from_symmetric": (0.05, 0.6),
    "switching_one": (0.3, 0.7),
}
#: Chains on which both models are drawn, and N of the rank-one model.
BOTH, LENGTH = ("switching_above_one", "switching_below_one"), 8


def main(records: bool = False) -> None:
    """Draw every portrait, and keep the records if asked."""
    torch.set_num_threads(1)
    found, numbers = {}, {"made": made("python experiments/portraits.py")}
    for name, (p, q) in CHAINS.items():
        found[name] = portrait_record(model("canonical", p, q))
        figure = draw(found[name], energy=name == "switching_below_one")
        save_figure(figure, FIGURES / f"portrait_{name}.png")
    for name in BOTH:
        p, q = CHAINS[name]
        lifted = portrait_record(model("rank-one", p, q, length=LENGTH), resolution=128)
        figure = draw_models_side_by_side([found[name], lifted])
        save_figure(figure, FIGURES / f"portrait_models_{name}.png")
        found[f"models_{name}"] = lifted
    for name, record in found.items():
        if records:
            (FIGURES / "records").mkdir(exist_ok=True)
            write_record(record, FIGURES / "records" / f"portrait_{name}.nc")
        numbers[name] = summarize(record)
        print(name, {key: value for key, value in record.attrs.items() if "cells" in key})
    (FIGURES / "portraits.json").write_text(json.dumps(rounded(numbers), indent=1) + "\n")


if __name__ == "__main__":
    main(records="--records" in sys.argv)
