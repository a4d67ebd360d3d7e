"""The canonical flow with attention, in slices of (e, w, a) and near the origin (LG Fig. 2).

The paper shows: orbits in (e, w, a) for p + q > 1 and p + q < 1. Near the origin, where small
initializations start, they fall onto the plane of bad minima e = 0 in the one case and leave it
for the global minima in the other.

We differ: for uniform attention the global minima lie at a = 0, and every orbit that reaches
them has lost its attention (|a| < 1e-10 at the end), as trained models do (am_appendix_d.py); for
linear attention they are a surface, and a ends where its conserved quantity e² − 2(1 + a)² puts
it: for p + q < 1 it grew in 40 of 40 small starts. In the plane of bad minima a may be anything.

    python experiments/lg_fig2_attention.py [--papers]     some minutes on one core
"""

from typing import Any

import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, caption, experiment
from torch import Tensor

from flowsim import BinaryChain, Label, draw, find_limits
from flowsim import portrait as portrait_record
from flowsim.interface import Model
from flowsim.models import LinearAttentionModel, UniformAttentionModel

#: Deviations of the Gaussian clouds of starts in (e, w, a).
SCALES = (0.02, 0.1, 0.5)
#: Slices that are drawn: a title, a, and the largest |e| and |w|.
SLICES = (("$a$ = −0.5", -0.5, 2.0), ("$a$ = 0", 0.0, 2.0), ("$a$ = 0.5", 0.5, 2.0),
          ("$a$ = 0, near the origin", 0.0, 0.5))  # fmt: skip

Findings = dict[BinaryChain, tuple[list[xr.Dataset], dict[str, Any]]]


def compute(length: int = 64, cloud: int = 40, cells: int = 64) -> Findings:
    """Per chain: slices for uniform attention, and what becomes of clouds around the origin."""
    found = {}
    for chain in (ABOVE, BELOW):
        uniform, linear = UniformAttentionModel(chain, length), LinearAttentionModel(chain)
        models = {f"uniform attention, N = {length}": uniform, "linear attention": linear}
        clouds = {
            f"{name}; σ = {scale}": fate(model, scale * standard_normal(cloud))
            for name, model in models.items()
            for scale in SCALES
        }
        slices = [
            portrait_record(uniform, resolution=cells, fixed={"a": a}, confirm=16,
                            window={"e": (-most, most), "w": (-most, most)})
            for _, a, most in SLICES
        ]  # fmt: skip
        found[chain] = slices, clouds
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
    at_minima = end[limits.label == Label.GLOBAL_MINIMUM]
    return counts | {
        "largest_attention_at_start": float(a.max()),
        "largest_attention_at_global_minima": float(at_minima.max()) if len(at_minima) else None,
        "attention_grew": int((end > a).sum()),
    }


def numbers(found: Findings) -> dict[str, Any]:
    """Per chain: the share of every slice that reaches the global minima, and the clouds."""
    lines: dict[str, Any] = {}
    for chain, (slices, clouds) in found.items():
        learns = {
            name.replace("$", ""): float((record.label == Label.GLOBAL_MINIMUM).mean())
            for (name, *_), record in zip(SLICES, slices, strict=True)
        }
        lines[f"p = {chain.p}, q = {chain.q}"] = {"learns": learns, "clouds": clouds}
    return lines


def figure_of(found: Findings) -> Figure:
    """Rows: chains; columns: slices, the last one near the origin."""
    figure = Figure(figsize=(12.5, 7.2), layout="constrained")
    rows: Any = figure.subfigures(2, 1)
    handles: list[Any] = []
    for row, (chain, (slices, _)) in zip(rows, found.items(), strict=True):
        grid = row.subplots(1, len(SLICES), subplot_kw={"box_aspect": 1})
        for axes, (name, *_), record in zip(grid, SLICES, slices, strict=True):
            entries = draw(record, ax=axes, orbits=False, legend=False)
            handles = max(entries, handles, key=len)
            axes.set_title(name, fontsize=10)
            axes.set_ylabel("embedding $e$" if axes is grid[0] else "")
        small = "are trapped" if chain is ABOVE else "learn"
        row.suptitle(f"Small starts {small} with attention too: uniform attention over $N$ = "
                     f"{slices[0].attrs['length']}, {caption(chain)}", fontsize=11)  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


main = experiment(
    __name__, compute, numbers, figure_of, record=False, papers={"length": 1024, "cloud": 400}
)
