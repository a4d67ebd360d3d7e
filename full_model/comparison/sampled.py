"""The comparison for SGD and AdamW: sampled batches, steps instead of time, plateaus.

The prediction is that of the optimizer's own map in rank-one coordinates, from the same start,
after the same number of steps and on the same batches. A sampled run has no limit to classify:
noise or momentum may take it out of any trap, so that the unigram is a plateau whose length is
recorded. A run has learned the bigram when its loss has come, for good, to a tenth of the gap; all
others are unresolved, in training and in the map, which here means "not learned by then".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.interface import Model
from flowsim.labels import BASINS, Label, Status
from flowsim.models.rank_one.model import RankOneModel
from flowsim.records.attributes import source_versions
from flowsim.records.netcdf import flags
from flowsim.training.optimizer_choice import USUAL_NUDGE, OptimizerChoice
from flowsim.training.recipe import Recipe
from flowsim.training.reduced import ReducedTraining
from full_model.comparison.choices import Comparison, Progress
from full_model.comparison.chunks import Chunks, Part, require_versions
from full_model.comparison.outcome import LEARNED_SAMPLED, open_gap
from full_model.comparison.side_by_side import lifted_weights
from full_model.model.execution import threads
from full_model.training.losses import RunLosses
from full_model.training.probes import plateau
from full_model.training.run import StepProgress, loss_is, train
from full_model.training.settings import RunSettings

#: Held-out symbols per model, in 4 to 64 sequences: the longer they are, the fewer are needed.
HELD_OUT = 4096
#: Most starts trained together. AdamW's last bits depend on how many models share an array, so that
#: the chunks are the same whoever trains them.
CHUNK = 50


class SampledTask(NamedTuple):
    """One chunk, as plain data.

    Attributes:
        settings: what to compare.
        points: (n, 2 or 3), of the chunk.
        rows: which of all starts they are.
        starts: how many there are in all; a batch is drawn for each of them.
        versions: see ``chunks.Task``.
    """

    settings: Comparison
    points: np.ndarray
    rows: tuple[int, ...]
    starts: int
    versions: str


class SampledChunks(Chunks):
    """The starts of a comparison on sampled batches, none of which is another's mirror image."""

    clock = "step"
    curves = ("loss", "relative_distance", "canonical")
    ends = ("escape", "plateau_start", "plateau_length", "finite")

    def __init__(self, settings: Comparison, points: Tensor) -> None:
        self.settings, self.points = settings, points.numpy()
        self.first = self.stands_for = np.arange(len(self.points))
        self.different, self.size = len(self.points), CHUNK
        self.count = -(-self.different // self.size)

    def task(self, chunk: int) -> SampledTask:
        """The work of one chunk."""
        rows = self.members(chunk)
        return SampledTask(
            self.settings, self.points[rows], tuple(rows.tolist()), self.different,
            source_versions(),
        )  # fmt: skip

    def found(self, trained: xr.Dataset) -> dict[str, np.ndarray]:
        """What is kept of a training run's record."""
        names = (self.clock, *self.curves, *self.ends)
        return {name: np.array(trained[name]) for name in names}


def train_chunk(task: SampledTask) -> dict[str, np.ndarray]:
    """What training found at the task's starts: a pure function, on one thread.

    Raises:
        InputError: this process runs other versions than the one that made the task.
    """
    require_versions(task.versions)
    settings, points = task.settings, torch.from_numpy(task.points)
    with threads(1):
        run = run_settings(settings, task.rows, task.starts)
        weights = lifted_weights(settings, points, run.seeds)
        trained, _ = train(run, initial=weights)
    return SampledChunks(settings, points).found(trained)


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

    Raises:
        InputError: another model than the rank-one model.
    """
    if not isinstance(model, RankOneModel):
        raise InputError(
            f"what {settings.trainer} does is predicted by its map in the rank-one model's "
            f"coordinates, which the {model.name} model has not"
        )
    chunks = SampledChunks(settings, points)
    if chunks.count == 1 and scheduler is None:
        run = run_settings(settings, range(len(points)))
        shown = _step_progress(progress, len(points), run.recipe.steps)
        weights = lifted_weights(settings, points)
        trained = chunks.found(train(run, checkpoint, resume, overwrite, weights, shown)[0])
    else:
        parts = chunks.restore(checkpoint) if resume and checkpoint is not None else {}

        def finished(parts: dict[int, Part]) -> None:
            if progress is not None:
                done = sum(len(chunks.members(chunk)) for chunk in parts)
                progress(done, chunks.different, f"{settings.steps} steps each", None)

        chunks.run(train_chunk, parts, checkpoint, jobs, scheduler, finished)
        trained = chunks.joined(parts)
    return _with_map(settings, points, model, trained)


def _with_map(
    settings: Comparison, points: Tensor, model: RankOneModel, trained: dict[str, np.ndarray]
) -> xr.Dataset:
    """The record of what training did, beside the optimizer's map on the same batches."""
    run = run_settings(settings, range(len(points)))
    record = _record(settings, points, trained)
    record.attrs["loss_is"] = loss_is(run, RunLosses.of(run))
    nudge = USUAL_NUDGE if settings.trainer == "adamw" else 0.0
    choice = OptimizerChoice(run.recipe, settings.d, settings.seed, nudge)
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
    lost = (trained["finite"] == 0) | (found.status.numpy() == Status.DIVERGED)
    record["not_finite"] = ("point", lost.astype(np.int8))
    record.attrs |= {"predicted_by": "reduced map", "nudge": nudge}
    return record


def run_settings(
    settings: Comparison, rows: Sequence[int], starts: int | None = None
) -> RunSettings:
    """The training run of the models at some rows of the starts, of all that there are if given."""
    steps = settings.steps
    assert steps is not None
    recipe = Recipe(
        settings.trainer,
        steps=steps,
        batch=settings.batch,
        learning_rate=settings.learning_rate,
        clip=1.0 if settings.trainer == "adamw" else None,
    )
    return RunSettings(
        settings.architecture,
        recipe,
        (settings.p,),
        (settings.binary_chain.q,),
        seeds=tuple(settings.seed + row for row in rows),
        init="given",
        data_seed=settings.seed,
        telemetry_every=max(1, steps // 100),
        checkpoint_every=max(1, steps // 20),
        dtype=settings.dtype,
        test_batch=min(64, max(4, HELD_OUT // settings.length)),
        device=settings.device,
        rows=() if starts is None else tuple(rows),
        ensemble=starts,
    )


def _step_progress(progress: Progress | None, count: int, steps: int) -> StepProgress | None:
    """The training run's callback that reports to the comparison's."""
    if progress is None:
        return None

    def report(step: int, loss: Tensor) -> None:
        progress(0, count, f"step {step} of {steps}, loss {float(loss.median()):.4f}", None)

    return report


def _labels(settings: Comparison, escape: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Labels of runs, by the steps at which they escaped for good and their last losses."""
    learned = np.isfinite(escape) & (open_gap(settings.chain, loss) <= LEARNED_SAMPLED)
    return np.where(learned, Label.GLOBAL_MINIMUM, Label.UNRESOLVED).astype(np.int8)


def _record(settings: Comparison, points: Tensor, found: dict[str, np.ndarray]) -> xr.Dataset:
    """What training did, from what is kept of its runs."""
    share = open_gap(settings.chain, found["loss"][-1])
    outcome = _labels(settings, found["escape"], found["loss"][-1])
    k = points.shape[1]
    trained = found["canonical"][..., :k].copy()
    flipped = points[:, 0].numpy() < 0  # a projection has e ≥ 0, a start may have e < 0
    trained[:, flipped, 0] *= -1
    data: dict[str, Any] = {
        "loss": (("step", "point"), found["loss"]),
        "drift": (("step", "point"), found["relative_distance"]),
        "trained": (("step", "point", "coordinate"), trained),
        "outcome": ("point", outcome, flags(BASINS)),
        "open_share": ("point", share),
    }
    for name in ("plateau_start", "plateau_length", "escape"):
        data[name] = ("point", found[name])
    record = xr.Dataset(data, {"step": found["step"], "coordinate": ["e", "w", "a"][:k]})
    record.attrs = {
        "learned_share": LEARNED_SAMPLED,
        "on_plateau_at_end": int((np.abs(share - 1) <= 0.05).sum()),
    }
    return record
