"""The committed phase portraits: both regimes, p far from q, and p + q = 1.

    python experiments/portraits.py

draws figures/portrait_*.png and writes the record of each beside the others in figures/records
when called with --records (they are a few hundred kB each and are not committed).

What they show (LG Fig. 1 draws the first two as energy lines): the basins depend on p and q only
through the sign of 1 − p − q, so the third picture has the basins of the second although its minima
curve lies elsewhere; at p + q = 1 there is no bad basin at all.
"""

import sys
from pathlib import Path

from flowsim import BinaryChain, CanonicalModel, draw_portrait, portrait_record, write_record

FIGURES = Path(__file__).parents[1] / "figures"
CHAINS = {
    "switching_above_one": (0.5, 0.8),
    "switching_below_one": (0.2, 0.3),
    "far_from_symmetric": (0.05, 0.6),
    "switching_one": (0.3, 0.7),
}


def main(records: bool = False) -> None:
    """Draw every portrait, and keep the records if asked."""
    for name, (p, q) in CHAINS.items():
        record = portrait_record(CanonicalModel(BinaryChain(p, q)))
        figure = draw_portrait(record, energy=name == "switching_below_one")
        figure.savefig(FIGURES / f"portrait_{name}.png", dpi=90)
        if records:
            (FIGURES / "records").mkdir(exist_ok=True)
            write_record(record, FIGURES / "records" / f"portrait_{name}.nc")
        print(name, {key: value for key, value in record.attrs.items() if "cells" in key})


if __name__ == "__main__":
    main(records="--records" in sys.argv)
