"""Does noise × growth beside the span, against the basin's boundary, foretell whom noise frees?

`flowsim.predict_noise` says that noise frees a start if its deviation times the largest growth of a
small step off the span reaches the distance to the boundary of the start's basin in the span.

- Known: the noisy runs of noisy_misses.json (d = 8, N = 8, gradient flow, noise on all weights but
  attention's, four seeds each). The growth is that of the linear equation of transverse.py, in all
  its four weights, up to time 3 000, which was chosen with these runs known; the boundary is that
  of the rank-one model.
- New: starts of networks.py, by `predict_noise` itself up to time 100, beside `agreement` with
  eight runs of new seeds up to time 1 000. A run is freed if it does not end where the reduced flow
  does.

It does not, as a rule: docs/results/reduced.md.

    python experiments/reduce_noise.py [--quick]      about ten minutes on one core

--quick takes 2 runs, orbits of 200 pieces and 200 steps.
"""

import json
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from networks import NETWORKS
from papers import ABOVE, BLUE, FIGURES, experiment, timed
from torch import Tensor
from transverse import transverse_hessian

import flowsim
from flowsim.flow.orbits import trajectories
from flowsim.models.rank_one.model import RankOneModel
from flowsim.reduction.trust import distance_to_boundary

NEW = ("deep linear, aligned", "linear attention, first axis", "linear attention, second axis")
NOISES = (1e-3, 1e-2, 1e-1)
#: Distances at which the basin's boundary is looked for, each on 64 random rays.
RADII, RAYS = 0.01 * 2.0 ** torch.arange(10), 64


def growth(model: RankOneModel, theta: Tensor, pieces: int) -> float:
    """The most by which a step in (η, P, a, c) grows along the orbit of θ (5,), to time 3 000."""
    times = torch.cat([torch.zeros(1), torch.logspace(-2, np.log10(3000), pieces)]).double()
    orbit = trajectories(model, theta, times, rtol=1e-5, atol=1e-8)
    curved = transverse_hessian(model, (orbit[1:] + orbit[:-1]) / 2)
    moved, found = torch.eye(4, dtype=theta.dtype), 1.0
    for factor in torch.matrix_exp(-curved * times.diff()[:, None, None]):
        moved = factor @ moved
        found = max(found, float(torch.linalg.matrix_norm(moved, 2)))
    return found


def known(pieces: int) -> list[dict[str, Any]]:
    """The runs of noisy_misses.json beside what is foretold."""
    trials = json.loads((FIGURES / "noisy_misses.json").read_text())["trials at p=0.5 q=0.8 N=8"]
    model, found = RankOneModel(ABOVE, 8), {}
    lines = []
    for trial in trials:
        if (trial["part"], trial["noise on"]) != ("all", "others"):
            continue
        at = tuple(trial["start"])
        if at not in found:
            theta = model.from_canonical(torch.tensor([at], dtype=torch.float64))[0]
            far = distance_to_boundary(model, theta, RADII, RAYS)
            found[at] = growth(model, theta, pieces), far
        gain, far = found[at]
        lines.append(_line(str(at), trial["noise"], gain, far, trial["global_minimum"],
                           trial["runs"]))  # fmt: skip
    return lines


def _line(
    case: str, noise: float, gain: float, far: float, freed: int, runs: int
) -> dict[str, Any]:
    return {"case": case, "noise": noise, "gain": gain, "boundary": far if far < 1e300 else None,
            "reach": noise * gain, "foretold": noise * gain >= far, "freed": freed,
            "runs": runs}  # fmt: skip


def new(runs: int, steps: int) -> list[dict[str, Any]]:
    """Starts of other networks, with new seeds."""
    lines = []
    for name in timed(NEW):
        losses, start = NETWORKS[name]()
        model = flowsim.reduce(losses[0], start, steps=1)
        for noise in NOISES:
            said = flowsim.predict_noise(model, model.start, noise, until=100.0)
            found = flowsim.agreement(model, model.start[None], noise, runs, 1000.0, steps, seed=31)
            sure = ~found.undecided
            counts = int((~found.right & sure).sum()), int(sure.sum())
            lines.append(_line(name, noise, said.growth.gain, said.boundary, *counts))
    return lines


def compute(runs: int = 8, steps: int = 20_000, pieces: int = 400) -> dict[str, Any]:
    """Known and new runs beside what is foretold."""
    return {"known": known(pieces), "new": new(runs, steps)}


def draw(found: dict[str, Any]) -> Figure:
    """The share of freed runs: known ones against noise × growth, new ones against noise."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    for axes, (which, lines) in zip(figure.subplots(1, 2, sharey=True), found.items(), strict=True):
        cases = list(dict.fromkeys(line["case"] for line in lines))
        for case, mark in zip(cases, "os^Dv", strict=False):
            own = sorted((x for x in lines if x["case"] == case and x["runs"]),
                         key=lambda x: x["reach"])  # fmt: skip
            along = [x["reach" if which == "known" else "noise"] for x in own]
            share = [x["freed"] / x["runs"] for x in own]
            axes.plot(along, share, mark + "-", label=case, alpha=0.8)
        words = "noise × growth of a small step off the span" if which == "known" else "noise"
        axes.set(xscale="log", xlabel=words)
        axes.set_title({"known": "The transformer's known misses, d = 8, N = 8",
                        "new": "Other networks, new seeds"}[which], fontsize=11)  # fmt: skip
        axes.grid(color=BLUE, alpha=0.15)
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("share of the decided runs that noise frees")
    return figure


small = {"runs": 2, "steps": 200, "pieces": 200}
main = experiment(__name__, compute, dict, draw, record=False, quick=small)
