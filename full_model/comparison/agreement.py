"""Prediction against outcome: confusion table, agreement, and Wilson's intervals."""

from __future__ import annotations

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.landscape.labels import Label
from flowsim.scan.statistics import wilson_interval

LABELS = tuple(label.name.lower() for label in Label)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share, (0, 1) where there was no trial."""
    if trials == 0:
        return 0.0, 1.0
    low, high = wilson_interval(np.asarray(successes), np.asarray(trials))
    return float(low), float(high)


def add_agreement(record: xr.Dataset, intervals: bool = True) -> xr.Dataset:
    """The record with its confusion table and agreement.

    Adds ``confusion`` (predicted, found), counts of points; ``share`` the share of each outcome
    among the points of one prediction; attributes ``decided`` (points where neither label is
    unresolved), ``agreeing`` among them, ``agreement`` = agreeing/decided (NaN if none), and counts
    of unresolved points.

    Args:
        record: with "predicted" and "outcome".
        intervals: something was drawn at random, so that the shares estimate others: they have 95 %
            intervals, ``share_low`` and ``share_high``, ``agreement_low`` and ``agreement_high``.
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
    decided = int(table[1:, 1:].sum())
    agreeing = int(np.trace(table[1:, 1:]))
    record.attrs |= {
        "points": int(predicted.size),
        "decided": decided,
        "agreeing": agreeing,
        "agreement": agreeing / decided if decided else float("nan"),
        "unresolved_outcomes": int((outcome == Label.UNRESOLVED).sum()),
        "unresolved_predictions": int((predicted == Label.UNRESOLVED).sum()),
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
