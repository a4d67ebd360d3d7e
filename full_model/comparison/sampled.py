"""The comparison for SGD and AdamW: sampled batches, steps instead of time, plateaus.

The prediction is that of the optimizer's own map in rank-one coordinates, from the same start,
after the same number of steps and on the same batches. A sampled run has no limit to classify:
noise or momentum may take it out of any trap, so that the unigram is a plateau whose length is
recorded. A run has learned the bigram when its loss has come, for good, to a tenth of the gap; all
others are unresolved, in training and in the map, which here means "not learned by then".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.inheritance import keeps_formulas_of
from flowsim.interface import Model
from flowsim.labels import BASINS, Label, Status
from flowsim.models.rank_one.model import RankOneModel
from flowsim.models.rank_one.training.reduced import USUAL_NUDGE, ReducedTraining
from flowsim.records.netcdf import flags
from flowsim.running import threads
from flowsim.training.optimizer_choice import Recipe
from full_model.comparison.choices import Comparison, Progress
from full_model.comparison.outcome import LEARNED_SAMPLED, open_gap
from full_model.comparison.side_by_side import lifted_weights
from full_model.training.probes import plateau
from full_model.training.run import train
from full_model.training.settings import RunSettings

#: Held-out symbols per model, in 4 to 64 sequences: the longer they are, the fewer are needed.
HELD_OUT = 4096


def compare_sampled(
    settings: Comparison,
    points: Tensor,
    model: Model,
    checkpoint: Path | None,
    resume: bool,
    overwrite: bool,
    progress: Progress | None,
    jobs: int = 1,
    scheduler: str | None = None,
) -> xr.Dataset:
    """The record of a comparison with SGD or AdamW, see ``comparison.compare``.

    From lifts without noise full training is the map itself: with SGD to rounding, with AdamW until
    it has magnified rounding, which it does wherever a gradient gets small. The map's start is
    displaced as rounding would (``USUAL_NUDGE``), since lifts lie on a set, w1 = ±w2, that the
    exact map never leaves. "flow_predicted" is what gradient flow would say.
    """
    if not (isinstance(model, RankOneModel) and keeps_formulas_of(type(model), RankOneModel)):
        raise InputError(
            f"what {settings.trainer} does is predicted by its map in the rank-one model's "
            f"coordinates, which the {model.name} model has not"
        )
    if scheduler is not None:
        raise InputError(f"{settings.trainer} trains all starts together: omit the scheduler")
    run = run_settings(settings, len(points))

    def report(step: int, loss: Tensor) -> None:
        """Report the step and the median loss as a line of progress."""
        if progress is not None:
            text = f"step {step} of {run.recipe.steps}, loss {float(loss.median()):.4f}"
            progress(0, len(points), text)

    with threads(max(jobs, torch.get_num_threads())):
        weights = lifted_weights(settings, points)
        trained, _ = train(run, checkpoint, resume, overwrite, weights, report)
    measured = {str(name): values.to_numpy() for name, values in trained.variables.items()}
    share, k = open_gap(settings.chain, measured["loss"][-1]), points.shape[1]
    outcome = _labels(settings, measured["escape"], measured["loss"][-1])
    projected = measured["canonical"][..., :k].copy()
    flipped = points[:, 0].numpy() < 0  # a projection has e ≥ 0, a start may have e < 0
    projected[:, flipped, 0] *= -1
    data: dict[str, Any] = {
        "loss": (("step", "point"), measured["loss"]),
        "drift": (("step", "point"), measured["relative_distance"]),
        "trained": (("step", "point", "coordinate"), projected),
        "outcome": ("point", outcome, flags(BASINS)),
        "open_share": ("point", share),
    }
    for name in ("plateau_start", "plateau_length", "escape"):
        data[name] = ("point", measured[name])
    record = xr.Dataset(data, {"step": measured["step"], "coordinate": ["e", "w", "a"][:k]})
    record.attrs = {
        "learned_share": LEARNED_SAMPLED,
        "on_plateau_at_end": int((np.abs(share - 1) <= 0.05).sum()),
        "loss_is": trained.attrs["loss_is"],
    }
    nudge = USUAL_NUDGE if run.recipe.trainer == "adamw" else 0.0
    choice = replace(run.recipe, d=settings.d, seed=settings.seed, nudge=nudge)
    start, kept = model.from_canonical(points), record.step.values.tolist()
    found = ReducedTraining(model, choice).run(start, own_batches=True, keep=kept)
    _, escape, _ = plateau(
        torch.tensor(kept), found.path_loss,
        torch.tensor([settings.chain.stationary_entropy], dtype=torch.float64),
        torch.tensor([settings.chain.entropy_rate], dtype=torch.float64),
    )  # fmt: skip
    loss = found.path_loss.numpy()
    record["predicted"] = ("point", _labels(settings, escape.numpy(), loss[-1]), flags(BASINS))
    record["flow_predicted"] = ("point", find_limits(model, start).label.numpy(), flags(BASINS))
    record["predicted_escape"] = ("point", escape.numpy())
    record["orbit"] = (("step", "point", "coordinate"), model.to_canonical(found.path).numpy())
    record["reduced_loss"] = (("step", "point"), loss)
    distance = np.linalg.norm(record.trained.values - record.orbit.values, axis=-1)
    record["distance"] = (("step", "point"), distance)
    lost = (trained["finite"].values == 0) | (found.status.numpy() == Status.DIVERGED)
    record["not_finite"] = ("point", lost.astype(np.int8))
    record.attrs |= {"predicted_by": "reduced map", "nudge": nudge}
    return record


def run_settings(settings: Comparison, starts: int) -> RunSettings:
    """Settings of the full training of so many given starts by the comparison's optimizer."""
    steps = settings.steps
    assert steps is not None
    recipe = Recipe.named(
        settings.trainer,
        steps=steps,
        batch=settings.batch,
        learning_rate=settings.learning_rate,
        loss="sampled",
    )
    return RunSettings(
        settings.architecture,
        recipe,
        (settings.p,),
        (settings.binary_chain.q,),
        seeds=tuple(range(settings.seed, settings.seed + starts)),
        init="given",
        data_seed=settings.seed,
        telemetry_every=max(1, steps // 100),
        checkpoint_every=max(1, steps // 20),
        dtype=settings.dtype,
        test_batch=min(64, max(4, HELD_OUT // settings.length)),
        device=settings.device,
    )


def _labels(settings: Comparison, escape: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Label runs, (n,) int8: global minimum if learned at the end, else unresolved.

    By the steps at which they escaped the plateau for good (NaN if never) and their last losses.
    """
    learned = np.isfinite(escape) & (open_gap(settings.chain, loss) <= LEARNED_SAMPLED)
    return np.where(learned, Label.GLOBAL_MINIMUM, Label.UNRESOLVED).astype(np.int8)
