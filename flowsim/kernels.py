"""Properties of a transition matrix: validity, closed classes, stationary distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError

if TYPE_CHECKING:  # numpy is imported when a number is asked for, not when a chain is named
    import numpy as np

#: Tolerances: a row's sum from one, the law from π P = π, and equal eigenvalues from another.
_ROUNDING = 1e-12


def probability(name: str, value: Any) -> float:
    """``value`` as a number strictly between 0 and 1; else InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} must be a number strictly between 0 and 1, not {value!r}")
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
    for i in map(int, np.flatnonzero(~(np.abs(sums - 1) <= _ROUNDING))):
        raise InputError(f"a kernel's rows must sum to one, but row {i} sums to {sums[i]:.12g}")
    return found


def closed_classes(kernel: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The sets of states that are never left and whose states reach one another, in order."""
    import numpy as np
    from scipy.sparse.csgraph import connected_components

    moves = kernel > 0
    count, name = connected_components(moves, connection="strong")
    groups = [np.flatnonzero(name == i) for i in range(count)]
    closed = [g for g in groups if not np.delete(moves[g], g, axis=1).any()]
    return tuple(sorted(tuple(map(int, g)) for g in closed))


def period_of(kernel: np.ndarray, classes: tuple[tuple[int, ...], ...]) -> int:
    """The greatest common divisor of the lengths of all round trips in the classes."""
    import numpy as np

    found = 0
    for group in classes:
        moves = kernel[np.ix_(group, group)] > 0
        level, queue = {0: 0}, [0]
        for i in queue:  # grows while it is read
            for j in map(int, np.flatnonzero(moves[i])):
                if j not in level:
                    level[j] = level[i] + 1
                    queue.append(j)
                found = math.gcd(found, level[i] + 1 - level[j])
    return found


def stationary_law(kernel: np.ndarray, group: tuple[int, ...]) -> tuple[float, ...]:
    """π with π P = π and sum one on a closed class, zero elsewhere.

    By elimination of state after state without a subtraction, so that every entry is right to
    rounding however small it is (Grassmann, Taksar and Heyman, 1985).

    Raises:
        InputError: π P − π is not below 1e-12.
    """
    import numpy as np

    left, count = kernel[np.ix_(group, group)].copy(), len(group)
    for n in range(count - 1, 0, -1):
        left[:n, n] /= left[n, :n].sum()
        left[:n, :n] += np.outer(left[:n, n], left[n, :n])
    part = np.ones(count)
    for n in range(1, count):
        part[n] = part[:n] @ left[:n, n]
    law = np.zeros(len(kernel))
    law[list(group)] = part / part.sum()
    residual = float(np.abs(law @ kernel - law).max())
    if not residual <= _ROUNDING:
        raise InputError(f"the stationary law solves its equations to {residual:.0e} only")
    return tuple(map(float, law))


def second_eigenvalue(kernel: np.ndarray) -> complex | float:
    """The eigenvalue largest in size beside 1; real if it is so to rounding.

    Several give the one with the largest real part, and a pair that with the imaginary part ≥ 0.
    """
    import numpy as np

    values = np.linalg.eigvals(kernel)
    rest = np.delete(values, np.abs(values - 1).argmin())
    size = np.abs(rest)
    largest = rest[size >= size.max() - _ROUNDING]
    best = max(largest, key=lambda x: (round(x.real, 12), x.imag))
    return float(best.real) if abs(best.imag) <= _ROUNDING else complex(best)


def sets_text(groups: Iterable[Iterable[int]]) -> str:
    """Sets of states, as a sentence says them."""
    return " and ".join("{" + ", ".join(map(str, group)) + "}" for group in groups)
