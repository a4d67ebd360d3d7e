"""Prediction against outcome: confusion table, agreement, and Wilson's intervals."""

from __future__ import annotations

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.labels import BASINS, Label
from flowsim.scan.record import wilson_interval

LABELS = BASINS


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share, (0, 1) where there was no trial."""
    if trials == 0:
        return 0.0, 1.0
    low, high = wilson_interval(np.asarray(successes), np.asarray(trials))
    return float(low), float(high)


def add_agreement(
    record: xr.Dataset, intervals: bool = True, after_steps: bool = False
) -> xr.Dataset:
    """The record with its confusion table and agreement.

    Adds ``confusion`` (predicted, found), counts of points; ``share`` the share of each outcome
    among the points of one prediction; attributes ``decided`` (points where neither label is
    unresolved), ``agreeing`` among them, ``agreement`` = agreeing/decided (NaN if none), and counts
    of unresolved points.

    Args:
        record: with "predicted" and "outcome".
        intervals: something was drawn at random, so that the shares estimate others: they have 95 %
            intervals, ``share_low`` and ``share_high``, ``agreement_low`` and ``agreement_high``.
        after_steps: both labels say whether the bigram is learned after the same number of steps;
            unresolved means that it is not, and counts. Undecided are points where training or its
            map is not finite, those with "not_finite". Adds ``learned`` and
            ``learned_predictions``, how many are.
    """
    predicted, outcome = (record[name].to_numpy() for name in ("predicted", "outcome"))
    if predicted.shape != outcome.shape or predicted.size == 0:
        raise InputError("a comparison needs one prediction and one outcome for each of its points")
    count = len(LABELS)
    table = np.zeros((count, count), dtype=np.int64)
    np.add.at(table, (predicted.astype(int), outcome.astype(int)), 1)
    totals = table.sum(axis=1)
    share = np.divide(
        table, totals[:, None], where=totals[:, None] > 0, out=np.full(table.shape, np.nan)
    )
    axes = ("predicted_label", "outcome_label")
    record = record.assign_coords({axis: list(LABELS) for axis in axes})
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
        bounds = np.array(
            [
                [wilson(int(n), int(total)) for n in row]
                for row, total in zip(table, totals, strict=True)
            ]
        )
        record["share_low"], record["share_high"] = (axes, bounds[..., 0]), (axes, bounds[..., 1])
        low, high = wilson(agreeing, decided)
        record.attrs |= {"agreement_low": low, "agreement_high": high}
    return record
