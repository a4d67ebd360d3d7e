"""In how many coordinates do networks train? `flowsim.reduce` counts them, knowing the loss alone.

Nineteen networks and starts: how many coordinates all weights need, how large the gradient's part
outside them is at fresh points, and how far equal steps of all weights and of the coordinates are
apart at the end. Then what the coordinates are called; which polynomials of degree two the flow
conserves, for two sets of data alike; and the most by which a small displacement off the space
grows along the orbit of the start, and in which weights. Two more starts are refused.

    python experiments/reduce_networks.py      about five minutes on one core
"""

from typing import Any

from matplotlib.figure import Figure
from networks import NETWORKS
from papers import BLUE, GREEN, GREY, experiment, timed

import flowsim

#: The times to which growth is followed where the orbit comes to kinks that it crawls along then.
ENDS = {
    "untied layer, rank one": 20.0,
    "two-layer ReLU, equal units": 5.0,
    "two-layer ReLU, opposite units": 10.0,
}


def network(kind: str, steps: int, until: float) -> dict[str, Any]:
    """Results of ``reduce`` for a network, or its refusal."""
    losses, start = NETWORKS[kind]()
    weights = sum(w.numel() for w in start.values())
    try:
        models = [flowsim.reduce(loss, start, steps=steps) for loss in losses]
    except flowsim.InputError as error:
        return {"weights": weights, "refused": str(error)}
    model = models[0]
    kept = flowsim.reduction.conserved(*models, degree=2)
    until = min(until, ENDS.get(kind, until))
    growth = flowsim.reduction.transverse_growth(model, until=until)
    return {
        "weights": weights, "coordinates": len(model.coordinates),
        "named": [model.long_names.get(name, name) for name in model.coordinates],
        "off the span": model.exactness.off_span, "steps": steps,
        "equal steps differ": model.exactness.differ,
        "conserved": list(kept.polynomials), "independent": kept.independent,
        "allowed": kept.allowed, "losses": kept.fields,
        "flips": [list(names) for names in flowsim.reduction.symmetries(model).flips],
        "growth": growth.gain, "at time": growth.time, "until": until,
        "grown in": {n: share for n, share in growth.grown.items() if share > 0.05},
    }  # fmt: skip


def compute(steps: int = 100, until: float = 100.0) -> dict[str, Any]:
    """Results for all networks."""
    return {name: network(name, steps, until) for name in timed(NETWORKS)}


def draw(found: dict[str, Any]) -> Figure:
    """From weights to coordinates, and how exactly."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes, errors = figure.subplots(1, 2, sharey=True, width_ratios=(1.3, 1))
    for place, line in enumerate(found.values()):
        axes.plot(line["weights"], place, "o", color=GREY)
        if "refused" in line:
            axes.annotate("refused", (line["weights"], place), (8, 0), va="center", fontsize=9,
                          textcoords="offset points", color=GREY)  # fmt: skip
            continue
        k = line["coordinates"]
        axes.plot([k, line["weights"]], [place, place], "-", color=GREY, lw=0.8, zorder=0)
        axes.plot(k, place, "o", color=BLUE)
        axes.annotate(str(k), (k, place), (-8, 0), textcoords="offset points", ha="right",
                      va="center", fontsize=9, color=BLUE)  # fmt: skip
        for name, mark, colour in (
            ("off the span", "o", BLUE),
            ("equal steps differ", "s", GREEN),
        ):
            errors.plot(line[name], place, mark, color=colour, label=None if place else name)
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(0.5, 1000), xlabel="coordinates (blue) of the weights (grey)")
    axes.set_title("In how many coordinates all weights train", fontsize=11)
    errors.set(xscale="log", xlabel="relative error")
    steps = next(iter(found.values()))["steps"]
    errors.set_title(f"How exactly, after {steps} equal steps", fontsize=11)
    errors.grid(axis="x", color=GREY, alpha=0.2)
    errors.legend(fontsize=8)
    return figure


main = experiment(__name__, compute, dict, draw, record=False)
