"""Shares of the basins among the starts of a scan, and their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowsim.labels import BASINS

#: Standard normal quantile of a two-sided interval at 95 %.
_Z95 = 1.959963984540054


def count_labels(labels: np.ndarray, kinds: int = len(BASINS)) -> np.ndarray:
    """How many of the labels along the last axis there are of each kind, shape (..., kinds)."""
    return np.stack([(labels == code).sum(axis=-1) for code in range(kinds)], axis=-1)


def share_variables(
    counts: np.ndarray, dims: Sequence[str], drawn: bool
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The variables count and share and, of starts drawn at random, the share's 95 % interval.

    Args:
        counts: of starts by label, over (some leading ``dims``, basin).
        dims: of the scan.
        drawn: whether the starts were drawn; a share of chosen starts has no sampling error.

    Returns:
        count, share and, if drawn, share_low and share_high: name ↦ (dimensions, values).
    """
    over, total = (*dims[: counts.ndim - 1], "basin"), counts.sum(axis=-1, keepdims=True)
    named = {"count": counts, "share": counts / total}
    if drawn:
        named["share_low"], named["share_high"] = wilson_interval(counts, total)
    return {name: (over, values) for name, values in named.items()}


def result_attributes(
    counts: np.ndarray, drifts: dict[str, float], names: Sequence[str] = BASINS
) -> dict[str, Any]:
    """Points by label, from counts over (..., basin), and the largest drifts, by name."""
    totals = counts.reshape(-1, len(names)).sum(axis=0).tolist()
    return {
        **{f"points_{name}": total for name, total in zip(names, totals, strict=True)},
        **{f"largest_{name}": value for name, value in drifts.items()},
    }


def largest_drifts(columns: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest drift of every conserved quantity among what ``follow`` found, by column."""
    drifts = {name: column for name, column in columns.items() if name.startswith("drift_")}
    return {name: float(np.nanmax(column, initial=0.0)) for name, column in drifts.items()}


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
