"""Shares of the basins among the starts of a scan, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from flowsim.landscape.labels import Label
from flowsim.records.netcdf import flags

#: Standard normal quantile of a two-sided interval at 95 %.
_Z95 = 1.959963984540054

#: The coordinate of shares: label values with their names.
BASIN = xr.Variable("basin", np.array([label.value for label in Label], np.int8), flags(Label))


def count_labels(labels: np.ndarray) -> np.ndarray:
    """How many of the labels along the last axis there are of each kind, shape (..., kinds)."""
    return np.stack([(labels == code).sum(axis=-1) for code in BASIN.values], axis=-1)


def share_variables(
    counts: np.ndarray, dims: Sequence[str]
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """count, share, share_low and share_high from counts over (some leading ``dims``, basin)."""
    over = (*dims[: counts.ndim - 1], "basin")
    low, high = wilson_interval(counts, counts.sum(axis=-1, keepdims=True))
    share = counts / counts.sum(axis=-1, keepdims=True)
    named = {"count": counts, "share": share, "share_low": low, "share_high": high}
    return {name: (over, values) for name, values in named.items()}


def wilson_interval(
    successes: np.ndarray, trials: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % score interval of a probability (Wilson 1927): (low, high), shape of successes.

    Solves |k/n − P| = z √(P(1 − P)/n) for P; no continuity correction.
    """
    centre = successes + _Z95**2 / 2
    spread = _Z95 * np.sqrt(successes * (trials - successes) / trials + _Z95**2 / 4)
    low, high = (centre - spread) / (trials + _Z95**2), (centre + spread) / (trials + _Z95**2)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)
