"""The basins of AdamW on the rank-one manifold, over rate and dimension, beside the flow's.

From lifted weights AdamW on sampled batches is a map in the rank-one coordinates
(docs/derivations/10.md), so its basins can be drawn like the flow's: every cell of the (w, e) plane
is lifted, trained for 4 000 steps at a constant learning rate with clipping at 1, and looked at.
All starts see the same batches.

Canonical starts lie on the set w1 = w2, on which the exact map stays ("nudge 0"). The smallest
displacement off it changes what is learned from w > 0: a relative one of 1e-12 is enough, and the
rounding of full training is such a displacement ("full training"). What it shows:
docs/results/escape.md.

    python experiments/optimizer_basins.py        about four minutes on one core
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, caption, experiment

from flowsim import (
    Label,
    OptimizerChoice,
    ReducedTraining,
    cell_centres,
    model,
    portrait_record,
    scan_basins,
)
from flowsim.drawing.plane import draw_layers, outcomes
from flowsim.drawing.style import add_legend
from full_model import Architecture, MarkovSource, PopulationLoss, Trainer, lift_rank_one

RATES, DIMENSIONS, NUDGE = (3e-4, 1e-3, 3e-3), (4, 8), 1e-12
WINDOW = (-2.0, 2.0)
#: Cells a side where shares of several seeds are compared.
COARSE = 24
UNNUDGED = "sampled, d = 4, nudge 0"
KEPT = ("label", "status", "on_plateau_at_end")


def choice(d: int, rate: float, steps: int, **more: Any) -> OptimizerChoice:
    """AdamW at a constant rate, clipped at 1."""
    numbers = {"learning_rate": rate, "steps": steps, "schedule": "constant", "clip": 1.0}
    return OptimizerChoice.named("adamw-papers", d=d, **{"nudge": NUDGE, **numbers, **more})


def compute(
    length: int = 16, resolution: int = 64, steps: int = 4000, seeds: int = 5, full_cells: int = 12
) -> xr.Dataset:
    """The cells of every panel, and the shares that they are compared with."""
    reduced = model("rank-one", ABOVE.p, ABOVE.q, length=length)
    cells = {"e": cell_centres(*WINDOW, resolution), "w": cell_centres(*WINDOW, resolution)}
    first = choice(DIMENSIONS[0], RATES[0], steps)
    flow = portrait_record(reduced, WINDOW, WINDOW, resolution, optimizer=first)
    rows = []
    for d in DIMENSIONS:
        row = [scan_basins(reduced, cells, optimizer=choice(d, rate, steps)) for rate in RATES]
        rows.append(xr.concat([panel[[*KEPT, "open_share"]] for panel in row], "rate"))
    record = xr.concat(rows, "d").assign_coords(d=list(DIMENSIONS), rate=list(RATES))
    record["open_share"] = record["open_share"].astype("float32")
    for name in flow:
        if str(name).startswith(("flow_label", "boundary_", "curve_")):
            record[name] = flow[name]
    cases: dict[str, dict[str, Any]] = {
        "sampled, d = 4": {},
        "sampled, d = 8": {"d": 8},
        UNNUDGED: {"nudge": 0.0},
        "population, d = 4": {"loss": "population"},
        "cosine schedule, d = 4": {"schedule": "cosine"},
    }
    shares = [
        [_shares(reduced, choice(**{"d": 4, "rate": 1e-3, "steps": steps, "seed": seed, **case}))
         for seed in range(seeds)]
        for case in cases.values()
    ]  # fmt: skip
    record["share"] = (("case", "seed", "part"), np.array(shares))
    record["full_share"] = ("part", np.array(_full_shares(reduced, steps, full_cells)))
    record = record.assign_coords(case=list(cases), part=["window", "w < -0.45", "w > 0"])
    record.attrs = {"p": ABOVE.p, "q": ABOVE.q, "steps": steps, "length": length}
    return record


def _plane(cells: int) -> tuple[torch.Tensor, np.ndarray]:
    """(e, w) of the cells of the window, and their w alone."""
    e, w = np.meshgrid(*[cell_centres(*WINDOW, cells)] * 2, indexing="ij")
    return torch.from_numpy(np.stack([e.ravel(), w.ravel()], -1)), w.ravel()


def _parts(learned: np.ndarray, w: np.ndarray) -> list[float]:
    """Shares that learn: of the window, of w < −0.45, of w > 0."""
    return [float(learned[where].mean()) for where in (w < np.inf, w < -0.45, w > 0)]


def _shares(reduced: Any, optimizer: OptimizerChoice) -> list[float]:
    plane, w = _plane(COARSE)
    found = ReducedTraining(reduced, optimizer).run(reduced.from_canonical(plane))
    return _parts((found.label == Label.GLOBAL_MINIMUM).numpy(), w)


def _full_shares(reduced: Any, steps: int, cells: int) -> list[float]:
    """The same of full transformers, d = 4, without attention, each with batches of its own."""
    plane, w = _plane(cells)
    arch, source = Architecture(4, reduced.length, attention="none"), MarkovSource.of(ABOVE)
    weights = lift_rank_one(reduced.point(reduced.from_canonical(plane)), arch)
    recipe = choice(4, 1e-3, steps).recipe
    trainer = Trainer(arch, weights, source, recipe, torch.Generator().manual_seed(0))
    trainer.advance(steps)
    loss = PopulationLoss(arch, source)(trainer.weights).detach().numpy()
    return _parts((loss - ABOVE.entropy_rate) / ABOVE.mutual_information <= 0.1, w)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Shares of the window by panel, of seeds and cases, and of full training."""
    flow = record["flow_label"].values == Label.GLOBAL_MINIMUM
    panels = {}
    for d in DIMENSIONS:
        for rate in RATES:
            found = outcomes(record.sel(d=d, rate=rate))
            learned = found == "global_minimum"
            panels[f"d = {d}, rate {rate:g}"] = {
                "learned": float(learned.mean()),
                **{n: float((found == n).mean()) for n in ("plateau", "between", "above")},
                "learned_by_the_flow_alone": float((flow & ~learned).mean()),
            }
    cases: dict[str, Any] = {}
    for case in map(str, record.case.values):
        several = record.share.sel(case=case)
        cases[case] = {
            str(part): {
                f: float(getattr(several.sel(part=part), f)()) for f in ("mean", "min", "max")
            }
            for part in record.part.values
        }
    full = dict(zip(map(str, record.part.values), record.full_share.values.tolist(), strict=True))
    return {"flow_learned": float(flow.mean()), "panels": panels,
            "rate 0.001, over seeds": cases, "full training, d = 4": full}  # fmt: skip


def draw(record: xr.Dataset) -> Figure:
    """Six panels with the flow's boundary over each."""
    figure = Figure(figsize=(11.5, 8.6), layout="constrained")
    grid = figure.subplots(len(DIMENSIONS), len(RATES), sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for i, d in enumerate(DIMENSIONS):
        for j, rate in enumerate(RATES):
            panel, axes = record.sel(d=d, rate=rate), grid[i, j]
            for handle in draw_layers(panel, axes):
                handles.setdefault(str(handle.get_label()), handle)
            learned = 100 * (outcomes(panel) == "global_minimum").mean()
            axes.set_title(f"$d$ = {d}, learning rate {rate:g}: {learned:.1f} % learn", fontsize=10)
            axes.label_outer()
    flow = 100 * (record["flow_label"].values == Label.GLOBAL_MINIMUM).mean()
    exact = record["share"].sel(case=UNNUDGED).mean("seed").values
    figure.suptitle(
        "AdamW learns from other starts than gradient flow, and from more of the window\n"
        f"lifted starts, {record.attrs['steps']} steps on batches of 16, "
        f"$N$ = {record.attrs['length']}; {caption(ABOVE)}\n"
        f"Gradient flow learns left of the dashed line, {flow:.1f} % of the window. Starts are "
        "displaced by a relative $10^{-12}$;\nundisplaced, on $w_1 = \\pm w_2$, "
        f"{100 * exact[0]:.1f} % learn and {100 * exact[2]:.0f} % of those with $w$ > 0 "
        "($d$ = 4, learning rate 0.001)",
        fontsize=11,
    )
    add_legend(grid[0, 0], list(handles.values()), given=False, columns=3)
    return figure


main = experiment(__name__, compute, numbers, draw)
