"""The canonical flow with attention in (e, w, a), and the zoom at the origin (LG Fig. 2).

What the paper shows: orbits in (e, w, a) for p + q > 1 and p + q < 1. Near the origin, where small
initializations start, they fall onto the plane of bad minima e = 0 in the one case and leave it
for the global minima in the other.

What we find: the same, for uniform attention (N = 64) and for linear attention. Of Gaussian clouds
of 40 starts with deviation 0.02 or 0.1, all are trapped at (0.5, 0.8) and none at (0.2, 0.3). With
deviation 0.5 at (0.5, 0.8), 9 of 40 escape with uniform attention and 12 of 40 with linear.

Where we differ: for uniform attention the global minima lie at a = 0, and every orbit that reaches
them has lost its attention (|a| < 1e-10 at the end), as trained models do (am_appendix_d.py); for
linear attention they are a surface, and a ends where its conserved quantity e² − 2(1 + a)² puts
it: for p + q < 1 it grew in 40 of 40 small starts. In the plane of bad minima a may be anything.

    python experiments/lg_fig2_attention.py [--papers]     about a minute on one core

--papers takes N = 1 024 and clouds of 400. attention_portraits.py draws the slices of this space.
"""

from __future__ import annotations

from typing import Any

import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, caption, experiment
from torch import Tensor

from flowsim import (
    AttentionModel,
    BinaryChain,
    Label,
    LinearAttentionModel,
    find_limits,
    phase_space_record,
)
from flowsim.drawing.space import draw_space
from flowsim.interface import Model

#: Deviations of the Gaussian clouds of starts in (e, w, a).
SCALES = (0.02, 0.1, 0.5)

Findings = dict[BinaryChain, tuple[xr.Dataset, dict[str, Any]]]


def compute(length: int = 64, cloud: int = 40) -> Findings:
    """Per chain: orbits for uniform attention, and what becomes of clouds around the origin."""
    found = {}
    for chain in (ABOVE, BELOW):
        models = {
            f"uniform attention, N = {length}": AttentionModel(chain, length),
            "linear attention": LinearAttentionModel(chain),
        }
        clouds = {
            f"{name}; σ = {scale}": fate(model, scale * standard_normal(cloud))
            for name, model in models.items()
            for scale in SCALES
        }
        record = phase_space_record(next(iter(models.values())))
        found[chain] = record, clouds
    return found


def standard_normal(count: int) -> Tensor:
    """The same standard normal points (count, 3) for every model and chain."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, dtype=torch.float64, generator=generator)


def fate(model: Model, start: Tensor) -> dict[str, Any]:
    """Labels of the limits of ``start``, and the attention before and after."""
    limits = find_limits(model, start)
    counts = {code.name.lower(): int((limits.label == code).sum()) for code in tuple(Label)[:4]}
    a, end = start[:, 2].abs(), limits.theta[:, 2].abs()
    at_minima = limits.label == Label.GLOBAL_MINIMUM
    return counts | {
        "largest_attention_at_start": float(a.max()),
        "largest_attention_at_global_minima": float(end[at_minima].max())
        if at_minima.any()
        else None,
        "attention_grew": int((end > a).sum()),
    }


def numbers(found: Findings) -> dict[str, Any]:
    """Per chain: orbits of the picture by label, and the clouds."""
    lines: dict[str, Any] = {}
    for chain, (record, clouds) in found.items():
        counts = {k: v for k, v in record.attrs.items() if k.startswith("orbits_")}
        lines[f"p = {chain.p}, q = {chain.q}"] = counts | {"clouds": clouds}
    return lines


def draw(found: Findings) -> Figure:
    """Rows: chains; columns: the whole space and the zoom."""
    figure = Figure(figsize=(11.5, 9.8), layout="constrained")
    rows = figure.subfigures(2, 1)
    for row, (chain, (record, _)) in zip(rows, found.items(), strict=True):
        panels = [row.add_subplot(1, 2, i, projection="3d") for i in (1, 2)]
        handles = draw_space(record, panels[0])
        draw_space(record, panels[1], "near")
        row.suptitle(
            f"Uniform attention over $N$ = {record.attrs['length']}, {caption(chain)}", fontsize=11
        )
        row.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


main = experiment(
    __name__, compute, numbers, draw, record=False, papers={"length": 1024, "cloud": 400}
)
