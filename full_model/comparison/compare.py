"""From matching starts: what the reduced flow predicts, and what the full transformer does.

Every point is lifted into a full transformer. Gradient flow and gradient descent move all of them
on the exact population loss until their own loss and curvature decide where they went, beside the
reduced orbits from the same points; sampled.py does the same for SGD and AdamW, beside their own
maps in reduced coordinates.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.labels import BASINS, Label
from flowsim.records.netcdf import flags
from flowsim.scan.record import wilson_interval
from flowsim.scan.workers import run_chunks
from full_model.comparison.choices import Comparison, Progress, predicting_model
from full_model.comparison.chunks import Chunks, Part, Task, run_task, set_up
from full_model.comparison.outcome import EndReason
from full_model.comparison.points import check_points
from full_model.comparison.sampled import compare_sampled
from full_model.comparison.side_by_side import CURVES, ENDS, SideBySide, attention_stays_zero
from full_model.model.population import check_enumeration
from full_model.training.checkpoints import check_checkpoint


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share, (0, 1) where there was no trial.

    Args:
        successes, trials: counts, 0 ≤ successes ≤ trials.

    >>> import full_model
    >>> tuple(round(end, 3) for end in full_model.wilson(8, 10))
    (0.49, 0.943)
    """
    if trials == 0:
        return 0.0, 1.0
    low, high = wilson_interval(np.asarray(successes), np.asarray(trials))
    return float(low), float(high)


def add_agreement(
    record: xr.Dataset, intervals: bool = True, after_steps: bool = False
) -> xr.Dataset:
    """Add to a record its confusion table and agreement, from its "predicted" and "outcome".

    Adds ``confusion`` (predicted, found), counts of points; ``share`` of each outcome among the
    points of one prediction; attributes ``decided`` (points where neither label is unresolved),
    ``agreeing`` among them, ``agreement`` = agreeing/decided (NaN if none), and counts of
    unresolved points. With ``intervals`` the shares have 95 % intervals, since something was drawn
    at random. ``after_steps``, both labels say whether the bigram is learned after the same number
    of steps: unresolved means that it is not, and counts. Undecided are then the points with
    "not_finite".
    """
    predicted, outcome = (record[name].to_numpy() for name in ("predicted", "outcome"))
    if predicted.shape != outcome.shape or predicted.size == 0:
        raise InputError("a comparison needs one prediction and one outcome for each of its points")
    table = np.zeros((len(BASINS), len(BASINS)), dtype=np.int64)
    np.add.at(table, (predicted.astype(int), outcome.astype(int)), 1)
    totals = table.sum(axis=1)
    share = np.divide(
        table, totals[:, None], where=totals[:, None] > 0, out=np.full(table.shape, np.nan)
    )
    axes = ("predicted_label", "outcome_label")
    record = record.assign_coords({axis: list(BASINS) for axis in axes})
    record["confusion"] = (axes, table)
    record["share"] = (axes, share)
    unknown = (outcome == Label.UNRESOLVED), (predicted == Label.UNRESOLVED)
    if after_steps:
        lost = record["not_finite"].to_numpy() > 0
        unknown = lost, np.zeros_like(lost)
        record.attrs["learned"] = int((outcome == Label.GLOBAL_MINIMUM).sum())
        record.attrs["learned_predictions"] = int((predicted == Label.GLOBAL_MINIMUM).sum())
    known = ~(unknown[0] | unknown[1])
    decided, agreeing = int(known.sum()), int((predicted == outcome)[known].sum())
    record.attrs |= {
        "points": int(predicted.size),
        "decided": decided,
        "agreeing": agreeing,
        "agreement": agreeing / decided if decided else float("nan"),
        "unresolved_outcomes": int(unknown[0].sum()),
        "unresolved_predictions": int(unknown[1].sum()),
    }
    if intervals:
        least, most = np.vectorize(wilson)(table, totals[:, None])
        record["share_low"], record["share_high"] = (axes, least), (axes, most)
        low, high = wilson(agreeing, decided)
        record.attrs |= {"agreement_low": low, "agreement_high": high}
    return record


_CODES: dict[str, Any] = {"predicted": BASINS, "outcome": BASINS, "end_reason": EndReason}


def compare(
    settings: Comparison,
    points: Tensor,
    checkpoint: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    drawn_points: bool = False,
) -> xr.Dataset:
    """Predict, train and compare at every point.

    Args:
        settings: what to compare.
        points: (n, 2), (e, w), or (n, 3), (e, w, a).
        checkpoint: where to keep what is finished; None keeps nothing.
        resume: continue from ``checkpoint``, which must exist and hold the same settings.
        overwrite: start anew although ``checkpoint`` exists.
        progress: see ``Progress``.
        jobs: processes that share the starts; the numbers are those of one. For sgd and adamw
            threads, since all starts are trained together.
        scheduler: address of a running dask scheduler, which then does the work instead; not for
            sgd and adamw.
        drawn_points: the points are random draws, so that shares of them have intervals.

    Returns:
        Dataset over (point,) and (time, point[, coordinate]): predicted, outcome, the reason why a
        run ended, losses, the projected coordinates of training and of the reduced orbit, their
        distance at equal times, the relative distance from the rank-one manifold, confusion table
        and agreement; with Wilson intervals where points, noise or batches were drawn at random.
        Curves end (NaN) where the run was decided.

    Raises:
        InputError: settings and points that do not fit; too many sequences to sum over; a
            checkpoint that exists and is neither to be resumed nor overwritten, is unusable or was
            made with other settings; for sgd or adamw another model than the rank-one model, or a
            scheduler.

    >>> import full_model
    >>> settings = full_model.Comparison(0.5, 0.8, model="rank-one", d=2, length=2)
    >>> record = full_model.compare(settings, full_model.grid_points(2, 2))
    >>> bool((record.outcome == record.predicted).all())
    True
    """
    points = check_points(points)
    model = predicting_model(settings, points.shape[1])
    check_checkpoint(checkpoint, resume, overwrite)
    if settings.stochastic:
        record = compare_sampled(
            settings, points, model, checkpoint, resume, overwrite, progress, jobs, scheduler
        )
    else:
        if not attention_stays_zero(settings, points.shape[1]):
            check_enumeration(settings.architecture, settings.length)
        chunks = Chunks(settings, points)
        parts = chunks.restore(checkpoint) if resume and checkpoint is not None else {}
        found = chunks.joined(_completed(chunks, parts, checkpoint, progress, jobs, scheduler))
        axes = ("time", "point", "coordinate")
        data: dict[str, Any] = {name: (axes[: found[name].ndim], found[name]) for name in CURVES}
        for name in ENDS:
            data[name] = ("point", found[name], flags(_CODES[name]) if name in _CODES else {})
        names = ["e", "w", "a"][: points.shape[1]]
        record = xr.Dataset(data, {"time": found["time"], "coordinate": names})
        record.attrs["different_starts"] = chunks.different
    for i, name in enumerate(("e", "w", "a")[: points.shape[1]]):
        record = record.assign_coords({name: ("point", points[:, i].numpy())})
    drawn = {"points": drawn_points, "noise": settings.noise > 0, "batches": settings.stochastic}
    left_out = not settings.stochastic and attention_stays_zero(settings, points.shape[1])
    title, _, subtitle = model.title.partition("\n")
    logits = "" if settings.states is None else ", S logits"
    record.attrs = {
        "kind": "comparison",
        **{name: value for name, value in asdict(settings).items() if value is not None},
        "title": title,
        "subtitle": subtitle,
        "axes": (model.plane.x, model.plane.y),
        "regime": settings.chain.regime,
        "entropy_rate": settings.chain.entropy_rate,
        "stationary_entropy": settings.chain.stationary_entropy,
        "attention": int(points.shape[1] == 3),
        "architecture": f"one layer, softmax attention{logits}",
        "trained_weights": list(settings.architecture.shapes),
        "noisy_weights": list(settings.noisy_weights) or ["none"],
        "attention_arithmetic": "left out: its weights stay zero" if left_out else "computed",
        "drawn_at_random": [name for name, so in drawn.items() if so] or ["nothing"],
        **record.attrs,
    }
    if not any(drawn.values()) or (settings.stochastic and not settings.noise):
        record.attrs |= _meaning(settings)
    return add_agreement(record, any(drawn.values()), settings.stochastic)


def _completed(
    chunks: Chunks,
    parts: dict[int, Part],
    checkpoint: Path | None,
    progress: Progress | None,
    jobs: int,
    scheduler: str | None,
) -> dict[int, Part]:
    """Run the chunks that are missing in ``parts``, saving as they come; results at all chunks."""

    def report(more: int, text: str) -> None:
        """Report the runs of finished chunks and so many ``more`` as done."""
        done = sum(len(chunks.members(chunk)) for chunk in parts)
        if progress is not None:
            progress(done + more, chunks.different, text)

    def left_open() -> None:
        """Report how many finished runs are undecided."""
        count = sum(int((part["end_reason"] != 0).sum()) for part in parts.values())
        report(0, f"{count} left open")

    def report_within(work: SideBySide) -> None:
        """Report how far the runs of the chunk in work are."""
        full, moving = work.full, work.full.undecided()
        text = f"{int(moving.sum())} moving at time {work.times[-1]:.3g}"
        if moving.any():
            text += f", {int(full.steps.max())} of at most {full.most_steps} steps"
        report(int((~moving).sum()), text)

    def run_here(task: Task) -> Part:
        """Run a task in this process, reporting on the way."""
        work = set_up(task)
        work.run(partial(report_within, work))
        return work.found()

    left_open()
    work = run_here if jobs == 1 and scheduler is None else run_task
    missing = [chunk for chunk in range(chunks.count) if chunk not in parts]
    with closing(run_chunks(work, chunks.task, missing, jobs, scheduler)) as results:
        for chunk, found in results:
            parts[chunk] = found
            if checkpoint is not None:
                chunks.save(checkpoint, parts)
            left_open()
    return parts


def _meaning(settings: Comparison) -> dict[str, str]:
    """Return the attribute that says what agreement means if a theorem predicts it, or {}."""
    if settings.stochastic:
        but = ", until Adam magnifies rounding" if settings.trainer.startswith("adam") else ""
        return {"agreement_means": f"a check that map and training agree{but}"}
    if settings.states is not None and settings.chain.second_eigenvalue > 0:
        return {"agreement_means": "where the plane traps, the full model has a saddle"}
    if settings.states is None and settings.model != "rank-one":
        return {}
    steps = ", up to the steps of descent" if settings.trainer == "gd" else ""
    return {"agreement_means": f"a check that theory and code agree{steps}"}
