"""Validity of a transition matrix, and functions of probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError

if TYPE_CHECKING:  # numpy is imported when a number is asked for, not when a chain is named
    import numpy as np

#: Tolerances: a row's sum from one, the law from π P = π, and equal eigenvalues from another.
ROUNDING = 1e-12


def probability(argument: str, value: Any) -> float:
    """``value`` as a number strictly between 0 and 1; else InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number < 1.0:
        raise InputError(f"{argument} must be a number strictly between 0 and 1, not {value!r}")
    return number


def binary_entropy(x: float) -> float:
    """h(x) = −x log x − (1−x) log(1−x) in nats, for x in (0, 1)."""
    return -x * math.log(x) - (1 - x) * math.log1p(-x)


def relative_entropy_term(delta: float) -> float:
    """φ(δ) = (1+δ) log(1+δ) − δ, by its Taylor series where the difference would cancel."""
    if delta <= -1:
        return 1.0
    if abs(delta) > 0.1:
        return (1 + delta) * math.log1p(delta) - delta
    return math.fsum((-delta) ** k / (k * (k - 1)) for k in range(2, 20))


def checked_kernel(kernel: Any) -> np.ndarray:
    """A square kernel as an array; InputError for what is none."""
    found = _numbers(kernel)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2:
        shape = " x ".join(map(str, found.shape)) if found.size > 1 else "empty or a number"
        raise InputError(f"a kernel must be a square matrix on at least two states, not {shape}")
    return _checked_rows(found)


def checked_order_kernel(kernel: Any) -> tuple[np.ndarray, int]:
    """A kernel of order k as an array of shape (S^k, S), and k; InputError for what is none.

    A row is what follows one context, the k last symbols with the oldest varying slowest; arrays
    of shape (S, …, S), with k + 1 axes, are accepted too.
    """
    found = _numbers(kernel)
    states = found.shape[-1] if found.ndim else 0
    rows = found.reshape(-1, states) if states > 1 and found.ndim > 1 else found
    order = round(math.log(len(rows), states)) if states > 1 and found.size else 0
    if rows.ndim != 2 or order < 1 or states**order != len(rows):
        shape = " x ".join(map(str, found.shape)) if found.size > 1 else "empty or a number"
        raise InputError(
            f"a kernel of order k has S^k rows of S probabilities, S at least 2, not {shape}"
        )
    return _checked_rows(rows), order


def _numbers(kernel: Any) -> np.ndarray:
    import numpy as np

    try:
        return np.array(kernel, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("a kernel must be a matrix of numbers, in rows of one length") from None


def _checked_rows(found: np.ndarray) -> np.ndarray:
    import numpy as np

    wrong = np.argwhere(~(found >= 0))
    if len(wrong):
        i, j = map(int, wrong[0])
        raise InputError(f"a kernel holds probabilities, but row {i}, column {j} is {found[i, j]}")
    sums = found.sum(axis=1)
    for i in map(int, np.flatnonzero(~(np.abs(sums - 1) <= ROUNDING))):
        raise InputError(f"a kernel's rows must sum to one, but row {i} sums to {sums[i]:.12g}")
    return found


def sets_text(groups: Iterable[Iterable[int]]) -> str:
    """Sets of states, as a sentence says them."""
    return " and ".join("{" + ", ".join(map(str, group)) + "}" for group in groups)
