"""The rank-one formula of AM App. D, eq. (26), fitted to our own trained weights.

The paper shows: trained at (0.2, 0.3) with d = 4, r = 16, all weights are rank one with one
direction α ∈ {±1}^d; e = 0.3618, p = −0.1539, w = 0.3264, b = −0.1229 and β = 5 of the hidden
units open after a one; eq. (26) then gives P(1 | 1) = 0.6940 and P(1 | 0) = 0.1995, and attention
is about 0.01 of the sum.

    python experiments/am_appendix_d.py [--papers]     about half a minute on one core
"""

import math
from typing import Any

import numpy as np
import papers
import torch
import xarray as xr
from matplotlib.figure import Figure
from papers import ABOVE, BELOW, BLUE, GREY, PINK, experiment
from torch import Tensor

from flowsim.drawing.comparison import mark_level
from full_model import (
    Architecture,
    Projection,
    Weights,
    papers_recipe,
    project,
    train,
)


def compute(
    d: int = 4, seeds: int = 8, length: int = 64, steps: int = 8000, device: str = "cpu"
) -> xr.Dataset:
    """Tied single layers trained by AdamW on both chains, the formula fitted to each."""
    arch, recipe = Architecture(d, length), papers_recipe(steps=steps)
    settings = papers.ensemble(arch, recipe, (BELOW, ABOVE), seeds, 40, device=device)
    trained, weights = train(settings)
    weights = {name: w.cpu().double() for name, w in weights.items()}
    signs, fit = fit_formula(arch, weights)
    record = trained[["loss", "attention_share", "probability", "p", "q", "seed", "entropy_rate",
                      "stationary_entropy"]].isel(layer=0)  # fmt: skip
    root = math.sqrt(d)
    columns = {
        "e": fit.point.eps / root,
        "position": fit.point.rho.mean(-1) / root,
        "w1": (fit.point.w1 * fit.point.w2).abs().sqrt() / d,
        "opening": (signs > 0).sum(-1),
        "b": fit.point.b,
        "alpha_flatness": fit.alpha.abs().sum(-1) / root,  # 1 where all entries are ±1/√d
    }
    for name, values in columns.items():
        record[name] = ("model", values.numpy())
    record["formula"] = (("model", "symbol"), formula_26(arch, fit, signs).sigmoid().numpy())
    record["up"] = (("model", "unit", "entry"), weights["0.up"].numpy())
    record.attrs = {"settings": trained.attrs["settings"]}
    return record


def fit_formula(arch: Architecture, weights: Weights) -> tuple[Tensor, Projection]:
    """The nearest rank-one weights with a sign per hidden unit: η (M, r), and the projection.

    η is the side of α on which each row of W_1 lies, oriented so that +1 opens after a one.
    """
    signs = torch.ones(len(weights["bias"]), arch.width, dtype=torch.float64)
    fit = project(arch, weights)
    for _ in range(5):
        along = (weights["0.up"] @ fit.alpha.unsqueeze(-1)).squeeze(-1)
        signs = torch.where(along < 0, -1.0, 1.0).double()
        fit = project(arch, weights, hidden_signs=signs)
    return signs, fit


def formula_26(arch: Architecture, fit: Projection, signs: Tensor) -> Tensor:
    """Logits after a zero and a one, (M, 2), from the fitted numbers alone, without attention.

    In AM's scale, α ∈ {±1}^d and β of the r hidden units open after a one,

        logit = d e [y + d w₁w₂ (β ReLU(y) − (r − β) ReLU(−y))] + b,   y = e x + p,

    with p the mean over the positions.
    """
    d, point = arch.d, fit.point
    root = math.sqrt(d)
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    eps, up, down = point.eps[:, None] / root, point.w1[:, None] / d, point.w2[:, None] / d
    y = eps * x + point.rho.mean(-1, keepdim=True) / root
    beta = (signs > 0).sum(-1, keepdim=True)
    hidden = beta * (up * y).relu() - (arch.width - beta) * (-up * y).relu()
    return d * eps * (y + d * down * hidden) + point.b[:, None]


def numbers(record: xr.Dataset) -> dict[str, object]:
    """Per chain: how far formula, model and chain are apart, the fitted numbers, the shares."""
    found: dict[str, object] = {}
    names = ("e", "position", "w1", "opening", "b", "alpha_flatness")
    for chain in (BELOW, ABOVE):
        part = papers.chain_part(record, chain)
        model, formula = part.probability.isel(step=-1).values, part.formula.values
        target = np.array([chain.p, 1 - chain.q])
        found[f"p = {chain.p}, q = {chain.q}"] = {
            "models": int(part.sizes["model"]),
            "reached_the_bigram": papers.ends(papers.open_share(part.rename(step="line")))[
                "bigram"
            ],
            "formula_minus_model": papers.spread(np.abs(formula - model).max(-1)),
            "formula_minus_chain": papers.spread(np.abs(formula - target).max(-1)),
            "attention_share": papers.spread(part.attention_share.isel(step=-1).values),
            "fitted": {name: papers.spread(part[name].values) for name in names},
        }
    return found


def draw(record: xr.Dataset) -> Figure:
    """Predicted probabilities, one trained W_1, and the attention share over training."""
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 0.7, 1.2))
    lines: dict[str, Any] = {}
    ticks: list[str] = []
    for chain, colour in ((BELOW, BLUE), (ABOVE, PINK)):
        part = papers.chain_part(record, chain)
        for symbol, target in ((0, chain.p), (1, 1 - chain.q)):
            here = part.sel(symbol=symbol)
            seen = len(ticks)
            x = seen + np.linspace(-0.32, 0.26, part.sizes["model"])
            model = left.plot(x, here.probability.isel(step=-1), "o", color=colour, markersize=4)
            fitted = left.plot(x + 0.06, here.formula, "x", color="black", markersize=5)
            truth = left.plot([seen - 0.4, seen + 0.4], [target] * 2, color=GREY, linewidth=1)
            ticks.append(f"after {symbol}\n({chain.p:g}, {chain.q:g})")
        lines[f"trained, $p$ = {chain.p:g}, $q$ = {chain.q:g}"] = model[0]
        right.semilogy(part.step, part.attention_share, color=colour, linewidth=1, alpha=0.8)
    left.set_xticks(range(len(ticks)), ticks)
    left.set_title("prediction after a symbol at $(p, q)$; a pair of marks a seed", fontsize=9)
    left.set_ylabel("predicted P(next = 1)")
    lines |= {"formula (26)": fitted[0], "chain": truth[0]}
    left.legend(lines.values(), lines.keys(), fontsize=7.5)
    up = record.up.isel(model=0)
    bound = float(np.abs(up).max())
    image = middle.imshow(up, cmap="RdBu", vmin=-bound, vmax=bound, aspect="auto")
    figure.colorbar(image, ax=middle, label="entry of $W_1$")
    middle.set(title="$W_1$ of one model, (0.2, 0.3)", xlabel="entry", ylabel="hidden unit")
    middle.title.set_fontsize(9)
    mark_level(right, 0.01, "App. D: about 0.01", above=False)
    right.set(xlabel="step", ylabel="attention share ‖attention‖/‖y‖")
    figure.suptitle(
        "At (0.2, 0.3) training learns the chain and attention fades; at (0.5, 0.8) most runs stay "
        "at the unigram and attention does not fade", fontsize=11
    )  # fmt: skip
    figure.set_layout_engine("constrained", wspace=0.06)
    return figure


main = experiment(__name__, compute, numbers, draw, papers={"length": 1024})
