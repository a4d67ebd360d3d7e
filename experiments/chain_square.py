"""Which part of a standard cloud the flow traps, over the whole square of chains (p, q).

The cloud is the same for every chain: 128 points of a scrambled Sobol sequence turned into draws
from N(0, I) in (e, w), one half of them (e → −e is the same run). Every start is followed by the
rank-one model, which full training without noise follows, for N = 1, 8 and 1 024, and by the
canonical one, at 41 × 41 chains.

What it shows: docs/results/agreement.md. Along the diagonal p + q = 1 there is nothing to learn.

    python experiments/chain_square.py        about ten minutes on one core
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import experiment, timed
from scipy.stats import norm, qmc

from flowsim import BinaryChain, find_limits, gaussian_probability, model
from flowsim.labels import BASINS

#: The rank-one model's context lengths.
LENGTHS = (1, 8, 1024)
LOW, HIGH = 0.02, 0.98


def cloud(count: int) -> torch.Tensor:
    """Evenly spread draws (e, w) from N(0, I) with e > 0, shape (count, 2)."""
    points = qmc.Sobol(2, seed=1).random_base2(int(np.ceil(np.log2(count))))[:count]
    points[:, 0] = 0.5 + points[:, 0] / 2
    return torch.from_numpy(norm.ppf(points))


def compute(chains: int = 41, starts: int = 128) -> xr.Dataset:
    """Counts of labels by case and chain."""
    axis, points = np.linspace(LOW, HIGH, chains), cloud(starts)
    cases = ["canonical", *(f"rank-one, N = {n}" for n in LENGTHS)]
    count = np.zeros((len(cases), len(BASINS), chains, chains), np.int16)
    for i, p in enumerate(timed(axis)):
        for j, q in enumerate(axis):
            for k, case in enumerate(cases):
                options = {"length": LENGTHS[k - 1]} if k else {}
                of: Any = model(case.split(",")[0], p, q, **options)
                theta = of.from_canonical(points) if k else points
                label = find_limits(of, theta).label.numpy()
                count[k, :, i, j] = np.bincount(label, minlength=len(BASINS))
    coords = {"case": cases, "label": list(BASINS), "p": axis, "q": axis}
    return xr.Dataset({"count": (tuple(coords), count)}, coords)


def _trapped(record: xr.Dataset) -> xr.DataArray:
    """Shares over (case, p, q); NaN where p + q = 1."""
    share = record["count"].sel(label="local_minimum") / record["count"].sum("label")
    return share.where(abs(record.p + record.q - 1) > 1e-9)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Least, mean and largest share on either side, by case, and what was not decided."""
    share, above = _trapped(record), record.p + record.q > 1
    found: dict[str, Any] = {}
    for case in map(str, record.case.values):
        found[case] = {}
        for name, where in (("p + q < 1", ~above), ("p + q > 1", above)):
            values = share.sel(case=case).where(where)
            found[case][name] = {f: float(getattr(values, f)()) for f in ("min", "mean", "max")}
        found[case]["unresolved"] = int(record["count"].sel(case=case, label="unresolved").sum())
    exact = {name: 1 - gaussian_probability(BinaryChain(p, q), 1.0)
             for name, p, q in (("p + q < 1", 0.2, 0.3), ("p + q > 1", 0.5, 0.8))}  # fmt: skip
    return {"starts": int(record["count"].isel(case=0, p=0, q=0).sum()),
            "canonical, by the integral": exact, "cases": found}  # fmt: skip


def draw(record: xr.Dataset) -> Figure:
    """One square for every case, all in one scale."""
    figure = Figure(figsize=(14.5, 4.6), layout="constrained")
    share = 100 * _trapped(record)
    panels = figure.subplots(1, record.sizes["case"], sharex=True, sharey=True)
    for axes, case in zip(panels, map(str, record.case.values), strict=True):
        values = share.sel(case=case).values.T
        mesh = axes.pcolormesh(record.p, record.q, values, cmap="cividis", vmin=0, vmax=75,
                               rasterized=True)  # fmt: skip
        axes.plot([0, 1], [1, 0], color="white", linewidth=2.6)
        axes.plot([0, 1], [1, 0], color="black", linewidth=1.2, linestyle="--")
        for x, y, side in ((0.22, 0.25, -1), (0.75, 0.78, 1)):
            where = (side * (record.p + record.q - 1) > 1e-9).values.T
            low, high = np.nanmin(values[where]), np.nanmax(values[where])
            text = f"{low:.1f} %" if high - low < 0.05 else f"{low:.1f} to {high:.1f} %"
            axes.text(x, y, text, ha="center", color="white" if side < 0 else "black", fontsize=10)
        axes.set(title=case, xlabel="$p$ = P(0→1)", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    panels[0].set_ylabel("$q$ = P(1→0)")
    figure.colorbar(mesh, ax=panels, label="share trapped, %")
    starts = int(record["count"].isel(case=0, p=0, q=0).sum())
    figure.suptitle(
        "At $p + q > 1$ most starts are trapped; below, none of the rank-one model\n"
        f"dashed: $p + q = 1$; {starts} starts $(e, w)$ spread as $N(0, I)$ at each of "
        f"{record.sizes['p']} × {record.sizes['q']} chains"
    )
    return figure


main = experiment(__name__, compute, numbers, draw)
