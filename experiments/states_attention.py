"""Three states with uniform attention: slices of the space (e, w, v), and full training beside it.

    python experiments/states_attention.py

draws figures/states_attention.png, the slices v = 0 and 0.8 (a = v|v|) of S = 3 states at p = 0.8,
above the threshold 2/3, with N = 6 and m = 4, counts the cells of these and of v = -0.8 there and
at p = 0.5, and writes figures/states_attention.json: gradient descent of the whole transformer
(softmax attention, S logits, d = 3, m = 4, N = 3) on the exact population loss at rate 0.05, 4 000
steps, from 5 x 10 lifted starts with 0 < e < 1 and |w| < 1 in each of the slices v = -0.8 and
0.8, without noise and with normal noise of 0.02 on every weight (one seed), each beside what the
reduced flow at N = 3 predicts. A run ends as predicted when its loss is within 5 % of the gap
between unigram and bigram of the loss at the flow's end.
"""

from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import experiment, timed
from states import SEED, descended

from flowsim import (
    Label,
    MarkovChain,
    StatesAttentionModel,
    draw_models_side_by_side,
    find_limits,
    portrait_record,
)
from flowsim.labels import BASINS
from full_model import Architecture, MarkovSource, PopulationLoss, lift_states

STATES, HIDDEN, CHANCES, SLICES, NOISE = 3, 4, (0.8, 0.5), (-0.8, 0.0, 0.8), (0.0, 0.02)
LENGTH, TRAINED, SIDE, RATE = 6, 3, 10, 0.05


Found = tuple[list[xr.Dataset], list[dict[str, Any]]]


def compute(steps: int = 4000, resolution: int = 48) -> Found:
    """The slices, and the runs from two of them."""
    records = []
    for p in CHANCES:
        model = StatesAttentionModel(MarkovChain.symmetric(STATES, p), LENGTH, HIDDEN)
        records += [portrait_record(model, (-2.0, 2.0), (-2.0, 2.0), resolution, fixed={"v": v})
                    for v in SLICES]  # fmt: skip
    cases = timed(product(CHANCES, filter(None, SLICES), NOISE))
    return records, [trained(*case, steps) for case in cases]


def numbers(found: Found) -> dict[str, Any]:
    """The cells of every slice by their ends, and the runs."""
    slices = []
    for (p, v), record in zip(product(CHANCES, SLICES), found[0], strict=True):
        counts = {name: record.attrs[f"cells_{name}"] for name in BASINS}
        confirmed = {k: int(x) for k, x in record.attrs.items() if k.startswith("confirm_")}
        slices.append({"p": p, "v": v, **counts, **confirmed})
    how = {"length": TRAINED, "d": STATES, "learning_rate": RATE, "seed": SEED}
    return {"states": STATES, "hidden_per_state": HIDDEN, "slices": slices, "length": LENGTH,
            "trained": how, "runs": found[1]}  # fmt: skip


def drawn(found: Found) -> Figure:
    """Two slices above the threshold."""
    return draw_models_side_by_side(found[0][1 : len(SLICES)])


def trained(p: float, v: float, noise: float, steps: int) -> dict[str, Any]:
    """How often the whole transformer ends where the reduced flow predicts, by counts."""
    model = StatesAttentionModel(MarkovChain.symmetric(STATES, p), TRAINED, HIDDEN)
    arch = Architecture(STATES, TRAINED, hidden=HIDDEN * STATES, states=STATES, output="states")
    loss = PopulationLoss(arch, MarkovSource.of(model.chain))
    centres = (2 * np.arange(SIDE) + 1) / SIDE - 1
    e, w = np.meshgrid(centres[SIDE // 2 :], centres, indexing="ij")  # e and -e are the same run
    theta = torch.from_numpy(np.stack([e, w, np.full_like(e, v)], axis=-1).reshape(-1, 3))
    value = descended(loss, lift_states(theta, arch), noise, RATE, steps)
    limits = find_limits(model, theta)
    gap = model.chain.mutual_information
    alike = ((value - limits.loss).abs() < 0.05 * gap).numpy()
    learned = (value - model.chain.entropy_rate < 0.05 * gap).numpy()
    learns = (limits.label == Label.GLOBAL_MINIMUM).numpy()
    trapped = (limits.label == Label.LOCAL_MINIMUM).numpy()
    return {
        "p": p, "v": v, "noise": noise, "runs": len(theta),
        "predicted to learn": int(learns.sum()),
        "learned as predicted": int((learns & alike).sum()),
        "predicted to be trapped": int(trapped.sum()),
        "trapped as predicted": int((trapped & alike).sum()),
        "learned against prediction": int((trapped & learned).sum()),
        "between": int((trapped & ~alike & ~learned).sum()),
        "no prediction": int((~learns & ~trapped).sum()),
    }  # fmt: skip


main = experiment(__name__, compute, numbers, drawn, record=False)
