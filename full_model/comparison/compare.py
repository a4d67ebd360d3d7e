"""From matching starts: what the reduced flow predicts, and what the full transformer does.

Every point is lifted into a full transformer. Gradient flow and gradient descent move all of them
on the exact population loss until their own loss and curvature decide where they went, beside the
reduced orbits from the same points; sampled.py does the same for SGD and AdamW.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import xarray as xr
from torch import Tensor

from full_model.comparison.agreement import add_agreement
from full_model.comparison.choices import Comparison, Progress, predicting_model
from full_model.comparison.points import check_points
from full_model.comparison.sampled import compare_sampled
from full_model.comparison.side_by_side import SideBySide
from full_model.training.checkpoints import check_checkpoint


def compare(
    settings: Comparison,
    points: Tensor,
    checkpoint: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Predict, train and compare at every point.

    Args:
        settings: what to compare.
        points: (n, 2), (e, w), or (n, 3), (e, w, a).
        checkpoint: where to keep the state; None keeps none.
        resume: continue from ``checkpoint``, which must exist and hold the same settings.
        overwrite: start anew although ``checkpoint`` exists.
        progress: called with runs decided, runs in all and a line about where they are.

    Returns:
        Dataset over (point,) and (time, point[, coordinate]): predicted, outcome, losses, the
        projected coordinates of training and of the reduced orbit, their distance, the relative
        distance from the rank-one manifold, confusion table and agreement with Wilson intervals.
        Curves end (NaN) where the run was decided.

    Raises:
        InputError: settings and points that do not fit; a checkpoint that exists and is neither to
            be resumed nor overwritten, is unusable or was made with other settings.
    """
    points = check_points(points)
    model = predicting_model(settings, points.shape[1])
    check_checkpoint(checkpoint, resume, overwrite)
    if settings.stochastic:
        record = compare_sampled(settings, points, model, checkpoint, resume, overwrite, progress)
    else:
        comparison = SideBySide(settings, points, model)
        if resume:
            assert checkpoint is not None
            comparison.restore(checkpoint)
        comparison.run(checkpoint, progress)
        record = comparison.record()
    for i, name in enumerate(("e", "w", "a")[: points.shape[1]]):
        record = record.assign_coords({name: ("point", points[:, i].numpy())})
    kept = {name: value for name, value in asdict(settings).items() if value is not None}
    record.attrs = {
        "kind": "comparison",
        **kept,
        "regime": settings.chain.regime,
        "entropy_rate": settings.chain.entropy_rate,
        "stationary_entropy": settings.chain.stationary_entropy,
        "attention": int(points.shape[1] == 3),
        **record.attrs,
    }
    return add_agreement(record)
