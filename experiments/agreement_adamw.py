"""Does AdamW of the whole transformer learn where its own reduced map says?

agreement.py has gradient flow and descent. AdamW is neither: from lifted weights it is a map of its
own in the rank-one coordinates (docs/derivations/10.md). Here the starts e > 0 of a grid over
|e|, |w| ≤ 2 are lifted into transformers with softmax attention (d = 4, N = 16) and trained by
AdamW with the papers' numbers (batches of 16, clipped at 1, cosine schedule), without noise and
with N(0, 0.02²) on all weights. The map goes as many steps from the lift without noise, on the same
batches. A run has learned when its loss has come, for good, to a tenth of the gap between the
losses of unigram and bigram. Beside it stands what gradient flow would predict.

    python experiments/agreement_adamw.py [--overwrite] [--cells 8] [--steps 1000]
"""

from typing import Any

import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, caption, experiment, median, right

from flowsim.drawing.comparison import draw_disagreements, draw_labels
from flowsim.labels import Label
from full_model import Comparison, compare, grid_points

D, LENGTH, NOISES = 4, 16, (0.0, 0.02)
CASES = [(chain, noise) for chain in (ABOVE, BELOW) for noise in NOISES]
KEPT = ("predicted", "flow_predicted", "outcome", "escape", "predicted_escape", "not_finite")


def compute(cells: int = 8, steps: int = 1000) -> xr.Dataset:
    """Predictions and outcomes of every case, over (case, point)."""
    points = grid_points(cells, cells // 2, e_range=(0.0, 2.0))
    parts = {}
    for chain, noise in CASES:
        settings = Comparison(
            chain.p, chain.q, "rank-one", "adamw-papers", D, LENGTH, noise, steps=steps
        )
        record = compare(settings, points)
        part = record[[*KEPT]]
        part["largest_loss_difference"] = abs(record["loss"] - record["reduced_loss"]).max("step")
        noisy = f" noise {noise:g} on all weights" if noise else ""
        parts[f"p={chain.p:g} q={chain.q:g} d={D} N={LENGTH}{noisy}"] = part
    whole = alike(parts, "case")
    whole.attrs = {"steps": steps, "predicted_by": "reduced map", "columns": cells, "rows": cells}
    return whole


def alike(parts: dict[Any, xr.Dataset], dim: str) -> xr.Dataset:
    """Records of the same starts (e, w), in one."""
    whole = xr.concat([*parts.values()], dim, combine_attrs="override").drop_vars(["e", "w"])
    first = next(iter(parts.values()))
    places = {name: first[name].variable for name in ("e", "w")}
    return whole.assign(places).assign_coords({dim: list(parts)})


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """How often the map is right, and what became of the starts that the flow calls trapped."""
    found: dict[str, Any] = {}
    for name, (_, noise) in zip(record["case"].values, CASES, strict=True):
        own = record.sel(case=name)
        learned, predicted = (own[k].to_numpy() == Label.GLOBAL_MINIMUM
                              for k in ("outcome", "predicted"))  # fmt: skip
        steps = own["escape"].to_numpy()[learned]
        found[str(name)] = {
            "steps": int(record.attrs["steps"]),
            "runs": len(learned),
            "not_finite": int(own["not_finite"].sum()),
            "learned": int(learned.sum()),
            "map": right(learned == predicted),
            "map_learned_found_not": int((predicted & ~learned).sum()),
            "map_not_found_learned": int((~predicted & learned).sum()),
            **by_flow(own),
            "escape_step_median": median(steps),
            "escape_step_max": float(steps.max()) if len(steps) else None,
            "largest_loss_difference_median": float(own["largest_loss_difference"].median()),
            "noise": noise,
        }  # fmt: skip
    return found


def by_flow(own: xr.Dataset) -> dict[str, dict[str, int]]:
    """Of the runs that the flow takes to the global minima, and of the others: how many learned."""
    learned, flow = (own[name].to_numpy() == Label.GLOBAL_MINIMUM
                     for name in ("outcome", "flow_predicted"))  # fmt: skip
    return {name: {"runs": int(where.sum()), "learned": int(learned[where].sum())}
            for name, where in (("flow_global", flow), ("flow_trapped", ~flow))}  # fmt: skip


def draw(record: xr.Dataset) -> Figure:
    """Outcomes over the starts, rings where the map is wrong."""
    figure = Figure(figsize=(10.5, 6.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for i, (ax, (chain, noise)) in enumerate(zip(axes.flat, CASES, strict=True)):
        own = record.isel(case=i)
        own.attrs = record.attrs | {"axes": ("w", "e")}
        draw_labels(own, ax, "outcome")
        draw_disagreements(own, ax)
        ax.set(xlim=(-2, 2), ylim=(0, 2))
        wrong = int((own["predicted"] != own["outcome"]).sum())
        noisy = f"noise {noise:g} on all weights" if noise else "no noise"
        count = f"map wrong for {wrong} of {own.sizes['point']}"
        ax.set_title(f"{caption(chain)}\n{noisy}: {count}", fontsize=9)
    figure.suptitle(
        f"AdamW of the whole transformer, $d$ = {D}, $N$ = {LENGTH}, one run a start: learned "
        f"(circle) or not (cross)\nwithin {record.attrs['steps']} steps; a ring where its reduced "
        "map says otherwise",
        fontsize=11,
    )
    return figure


main = experiment(__name__, compute, numbers, draw)
