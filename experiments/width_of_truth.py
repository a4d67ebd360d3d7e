"""Limits of the statements about traps, escapes and starts: one change at a time.

The tied single softmax layer with ReLU on the binary chain has a trap that gradient descent stays
in, that AdamW leaves, a ladder below LG's recommended start and a start without it. Here the same
four experiments with layer norm, GELU, two layers, untied weights, and three states. (p, q) =
(0.5, 0.8); three states: the symmetric chain that leaves its state with probability 0.9, above its
threshold 2/3. d = 8, sixteen seeds, N = 4 for descent and 6 for AdamW, 500 steps (1 000 from the
recommended start); an end counts as the unigram above 95 % of the gap, as the bigram
below 5 %, by the exact loss.

    python experiments/width_of_truth.py      minutes on one core
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from papers import ends, experiment, timed

from flowsim import BinaryChain, MarkovChain
from flowsim.chains import SymmetricChain
from flowsim.training import Recipe
from full_model import Architecture, MarkovSource, PopulationLoss, Trainer, initial_weights, wilson

D, SHORT, LONG = 8, 4, 6
BINARY, TERNARY = BinaryChain(0.5, 0.8), SymmetricChain(3, 0.9)
VARIANTS: dict[str, dict[str, Any]] = {
    "as stated": {},
    "layer norm": {"layer_norm": True},
    "GELU": {"activation": "gelu"},
    "two layers": {"layers": 2},
    "untied": {"tied": False},
    "three states": {"states": 3, "output": "states"},
}
#: Trainer, start, learning rate and steps as a multiple of the option.
STUDIES: dict[str, tuple[str, str, float, int]] = {
    "descent, Gaussian": ("gd", "gaussian", 0.1, 1),
    "AdamW, Gaussian": ("adamw", "gaussian", 3e-3, 1),
    "descent, recommended": ("gd", "recommended", 0.02, 2),
    "descent, balanced": ("gd", "balanced", 0.1, 1),
}


def compute(seeds: int = 16, steps: int = 500) -> xr.Dataset:
    """The open share at the end (variant, study, seed)."""
    share = np.full((len(VARIANTS), len(STUDIES), seeds), np.nan)
    for i, variant in enumerate(timed(VARIANTS)):
        chain = TERNARY if variant == "three states" else BINARY
        for j, (trainer, start, rate, factor) in enumerate(STUDIES.values()):
            length = LONG if trainer == "adamw" else SHORT
            arch = Architecture(D, length, **VARIANTS[variant])
            papers: dict[str, Any] = (
                {"beta2": 0.95, "weight_decay": 1e-3} if trainer == "adamw" else {}
            )
            recipe = Recipe(trainer, factor * steps, learning_rate=rate, **papers)
            share[i, j] = final_share(arch, chain, start, recipe, seeds)
    return xr.Dataset(
        {"open_share": (("variant", "study", "seed"), share)},
        {"variant": list(VARIANTS), "study": list(STUDIES)},
        {"d": D, "length_descent": SHORT, "length_adamw": LONG},
    )


def final_share(
    arch: Architecture, chain: MarkovChain, start: str, recipe: Recipe, seeds: int
) -> np.ndarray:
    """Open part of the gap after training, by the exact loss, (seeds,)."""
    source = MarkovSource.of(chain)
    weights = initial_weights(arch, start, range(seeds))
    trainer = Trainer(arch, weights, source, recipe, torch.Generator().manual_seed(0))
    trainer.advance(recipe.steps)
    with torch.no_grad():
        loss = PopulationLoss(arch, source)(trainer.weights).numpy()
    return (loss - chain.entropy_rate) / (chain.stationary_entropy - chain.entropy_rate)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per variant and study: how many end at the bigram, at the unigram, between."""
    found: dict[str, Any] = {}
    for variant in VARIANTS:
        found[variant] = {}
        for study in STUDIES:
            share = record.open_share.sel(variant=variant, study=study).values
            bigram, unigram, _ = ends(share).values()
            found[variant][study] = {
                "runs": len(share), "bigram": bigram, "interval": wilson(bigram, len(share)),
                "unigram": unigram, "median": float(np.median(share)),
            }  # fmt: skip
    return found


main = experiment(__name__, compute, numbers, None)
