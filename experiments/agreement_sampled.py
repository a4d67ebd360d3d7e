"""Does the rank-one flow still say where training goes at N = 64, on sampled batches?

Starts e > 0 of a grid over |e|, |w| ≤ 2 are lifted into transformers with softmax attention (d = 4
and 8, N = 64), at the chains of agreement.py, with noise N(0, 0.02²) on every weight. SGD at a rate
of 0.2 follows 32 new sequences a step, 1 000 steps. A run has learned when its loss has come, for
good, to a tenth of the gap between unigram and bigram. A start that the rank-one flow takes to the
global minima late counts as missed.

    python experiments/agreement_sampled.py     about 7 minutes on one core
"""

from typing import Any

import numpy as np
import xarray as xr
from papers import experiment, right, stacked, timed

from flowsim.chain import BinaryChain
from flowsim.labels import Label
from full_model import Comparison, compare, grid_points

CHAINS = tuple(BinaryChain(*pair) for pair in ((0.5, 0.8), (0.9, 0.9), (0.2, 0.3), (0.1, 0.1)))
WIDTHS = (4, 8)
#: Chain and d of every line, by its name.
CASES = {f"p={c.p:g} q={c.q:g} d={d}": (c, d) for d in WIDTHS for c in CHAINS}
LENGTH, NOISE, BATCH, RATE = 64, 0.02, 32, 0.2
KEPT = ("flow_predicted", "outcome", "not_finite")


def compute(cells: int = 8, seeds: int = 3, steps: int = 1000) -> xr.Dataset:
    """Outcomes over (case, seed, point), and what the flow says."""
    points = grid_points(cells, cells // 2, window={"e": (0.0, 2.0)})
    found = {}
    for name in timed(CASES):
        chain, d = CASES[name]
        parts = {}
        for seed in range(0, 1000 * seeds, 1000):
            settings = Comparison(
                chain.p, chain.q, "rank-one", "sgd", d, LENGTH, NOISE, steps=steps, batch=BATCH,
                learning_rate=RATE, seed=seed, dtype="float32",
            )  # fmt: skip
            parts[seed] = compare(settings, points)[[*KEPT]]
        found[name] = stacked(parts, "seed")
    return stacked(found).reset_coords().assign_attrs(steps=steps)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Share of starts with the flow right, over all seeds and for each of them."""
    found: dict[str, Any] = {}
    for name, (_, d) in CASES.items():
        own = record.sel(case=name)
        learned, flow = (own[k].to_numpy() == Label.GLOBAL_MINIMUM
                         for k in ("outcome", "flow_predicted"))  # fmt: skip
        agree = learned == flow
        found[name] = {
            "d": d, "length": LENGTH, "noise": NOISE, "batch": BATCH, "learning_rate": RATE,
            "steps": int(record.attrs["steps"]),
            "starts": agree.shape[1], "seeds": agree.shape[0],
            "not_finite": int(own["not_finite"].sum()),
            "right": [*map(right, agree)],
            "wrong": [{"e": float(own["e"][i]), "w": float(own["w"][i]),
                       "seeds": int((~agree[:, i]).sum())}
                      for i in np.flatnonzero(~agree.all(axis=0))],
            **{key: {"runs": int(where.sum()), "learned": int(learned[where].sum())}
               for key, where in (("flow_global", flow), ("flow_trapped", ~flow))},
            "starts_where_seeds_differ": int((learned.any(axis=0) & ~learned.all(axis=0)).sum()),
        }  # fmt: skip
    return found


main = experiment(__name__, compute, numbers, None)
