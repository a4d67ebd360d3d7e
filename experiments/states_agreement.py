"""Does the transformer with S logits go where the plane of S states says, noise on every weight?

The plane (e, w) of S states is a set that training without noise never leaves
(docs/derivations/13.md). Starts of a 20 × 20 grid over |e|, |w| ≤ 2, of which −e is the same run
and 0 < e ≤ 2 is trained, are lifted into whole transformers: one layer, softmax attention, S
logits, m = 4 hidden units for each state, d = 8; N = 4, 3, 2 for S = 2, 3, 5. Normal noise of
deviation 0, 0.02 or 0.1 is added to every weight, the seed of start i being i. Gradient descent on
the exact population loss, each step 0.8 over the run's own bound on the curvature, until loss and
curvature decide, or 5 000 steps are used up.

    python experiments/states_agreement.py [--side 20]     minutes on one core
"""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from papers import experiment, stacked, timed

from flowsim.labels import BASINS, Label
from full_model import Comparison, compare, grid_points, wilson
from full_model.comparison.outcome import EndReason

#: N by S: with noise all S^N sequences are summed over.
LENGTHS = {2: 4, 3: 3, 5: 2}
#: S and p on both sides of every threshold.
CHAINS = ((2, 0.65), (2, 0.35), (3, 0.8), (3, 0.5), (5, 0.95), (5, 0.65))
NOISE, DIMENSION = (0.0, 0.02, 0.1), 8
KEPT = ("predicted", "outcome", "end_reason", "open_share", "steps")
NAMES = list(BASINS)


def compute(side: int = 20, steps: int = 5000) -> xr.Dataset:
    """Every comparison, over case and point."""
    parts = {}
    points = grid_points(side, side // 2, window={"e": (0.0, 2.0)})
    for (states, p), noise in timed(product(CHAINS, NOISE)):
        settings = Comparison(
            p, None, "states", d=DIMENSION, length=LENGTHS[states], noise=noise, steps=steps,
            states=states,
        )  # fmt: skip
        found = compare(settings, points)[list(KEPT)].reset_coords(drop=True)
        found = found.assign(states=states, p=p, noise=noise)
        parts[f"S = {states}, p = {p:g}, noise {noise:g}"] = found
    whole = stacked(parts)
    whole["e"], whole["w"] = ("point", points[:, 0].numpy()), ("point", points[:, 1].numpy())
    return whole


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Counts for every case: decided, agreeing, the ends of the others, open runs and why."""
    return {str(name): summarize_case(record.sel(case=name)) for name in record.case.values}


def summarize_case(case: xr.Dataset) -> dict[str, Any]:
    """The counts of one case."""
    predicted, outcome = case.predicted.values, case.outcome.values
    decided = outcome != Label.UNRESOLVED
    agree = int((predicted == outcome)[decided].sum())
    drawn = float(case.noise) > 0
    table = Counter(zip(predicted.tolist(), outcome.tolist(), strict=True))
    reasons = Counter(case.end_reason.values[~decided].tolist())
    share = case.open_share.values[~decided]
    return {
        "states": int(case.states), "p": float(case.p), "noise": float(case.noise),
        "length": LENGTHS[int(case.states)], "starts": len(outcome),
        "decided": int(decided.sum()), "agree": agree,
        **({"interval": wilson(agree, int(decided.sum()))} if drawn else {}),
        "found": {NAMES[p]: {NAMES[o]: n for (q, o), n in sorted(table.items()) if q == p}
                  for p in sorted(set(predicted.tolist()))},
        "open": {EndReason(code).name.lower(): n for code, n in sorted(reasons.items())},
        "open_between": int(((share > 0.05) & (share < 0.95)).sum()),
        "open_share": sorted(share.tolist()),
        "steps": [int(x) for x in np.quantile(case.steps.values, [0.5, 1.0])],
    }  # fmt: skip


main = experiment(__name__, compute, numbers, None)
