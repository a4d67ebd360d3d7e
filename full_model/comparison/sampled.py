"""The comparison for SGD and AdamW: sampled batches, steps instead of time, plateaus.

The prediction is still that of the flow. A sampled run has no limit to classify: noise or momentum
may take it out of any trap, so that the unigram is a plateau whose length is recorded. A run has
learned the bigram when its loss has come, for good, to a tenth of the gap; all others are
unresolved.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel
from flowsim.records.netcdf import flags
from full_model.comparison.side_by_side import Progress, Session, lifted_weights
from full_model.model.transformer import Architecture
from full_model.training.recipe import Recipe
from full_model.training.run import train
from full_model.training.session import Progress as RunProgress
from full_model.training.settings import RunSettings

if TYPE_CHECKING:
    from full_model.comparison.compare import Comparison

#: Share of the gap between unigram and bigram loss still open where a sampled run has learned.
LEARNED = 0.1
#: Held-out symbols per model, in 4 to 64 sequences: the longer they are, the fewer are needed.
HELD_OUT = 4096


def compare_sampled(
    settings: Comparison,
    points: Tensor,
    model: ReducedModel,
    checkpoint: Path | None,
    resume: bool,
    overwrite: bool,
    progress: Progress | None,
) -> xr.Dataset:
    """The record of a comparison with SGD or AdamW, see ``comparison.compare``.

    SGD's step k is at time k·learning rate of the reduced orbit; AdamW's steps have no time, and
    there is no distance for them. The full model has the papers' softmax attention.
    """
    adamw, steps = settings.trainer == "adamw", settings.steps
    assert steps is not None
    arch = Architecture(settings.d, settings.length)
    recipe = Recipe(
        settings.trainer, steps=steps, batch=settings.batch,
        learning_rate=settings.learning_rate, clip=1.0 if adamw else None,
    )  # fmt: skip
    run = RunSettings(
        arch, recipe, (settings.p,), (settings.q,),
        seeds=tuple(range(settings.seed, settings.seed + len(points))), init="given",
        data_seed=settings.seed, telemetry_every=max(1, steps // 100),
        checkpoint_every=max(1, steps // 20), dtype=settings.dtype,
        test_batch=min(64, max(4, HELD_OUT // settings.length)), device=settings.device,
    )  # fmt: skip
    weights = lifted_weights(settings, arch, points)
    count = len(points)
    tell: RunProgress | None = None
    if progress is not None:
        told = progress

        def tell(step: int, loss: Tensor) -> None:
            told(0, count, f"step {step} of {steps}, loss {float(loss.median()):.4f}")

    found, _ = train(run, checkpoint, resume, overwrite, weights, tell)

    session = Session(settings, points, model)
    rate = 0.0 if adamw else float(recipe.learning_rate or 0.0)
    session.follow([rate * float(step) for step in found.step] if rate else None)
    gap = settings.chain.mutual_information or 1e-6
    share = (found.loss.values[-1] - settings.chain.entropy_rate) / gap
    learned = np.isfinite(found.escape.values) & (share <= LEARNED)
    outcome = np.where(learned, Label.GLOBAL_MINIMUM, Label.UNRESOLVED).astype(np.int8)
    k = points.shape[1]
    trained = found.canonical.values[..., :k].copy()
    flipped = points[:, 0].numpy() < 0  # a projection has e ≥ 0, a start may have e < 0
    trained[:, flipped, 0] *= -1
    data: dict[str, Any] = {
        "loss": (("step", "point"), found.loss.values),
        "drift": (("step", "point"), found.relative_distance.values),
        "trained": (("step", "point", "coordinate"), trained),
        "predicted": ("point", session.predicted.numpy(), flags(Label)),
        "outcome": ("point", outcome, flags(Label)),
        "open_share": ("point", share),
    }
    for name in ("plateau_start", "plateau_length", "escape"):
        data[name] = ("point", found[name].values)
    if rate:
        orbit = torch.stack(session.history["orbit"]).numpy()
        data["orbit"] = (("step", "point", "coordinate"), orbit)
        data["reduced_loss"] = (("step", "point"), torch.stack(session.history["reduced_loss"]))
        data["distance"] = (("step", "point"), np.linalg.norm(trained - orbit, axis=-1))
    record = xr.Dataset(data, {"step": found.step.values, "coordinate": ["e", "w", "a"][:k]})
    record.attrs = {
        "loss_is": found.attrs["loss_is"],
        "learned_share": LEARNED,
        "on_plateau_at_end": int((np.abs(share - 1) <= 0.05).sum()),
    }
    return record
