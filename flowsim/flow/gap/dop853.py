"""The method of Dormand and Prince of order 8(5,3), as sums over the slopes of its stages.

Each function is one row of the tableau without its zeros: what is added to the start of a step of
length 1, or what the error estimates of order 5 and 3 are. Source: Hairer, Nørsett & Wanner,
*Solving Ordinary Differential Equations I*, II.5 (step, error), II.6 (interpolant); the numbers are
scipy's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scipy.integrate import DOP853

from flowsim.compiled import compiled

#: The slopes of stages 5 to 11, all that the end of a step and its errors need beside the first.
Slopes = tuple[float, float, float, float, float, float, float]
#: Order of the step, and evaluations of the field that a step needs.
ORDER, STAGES = 8, 12

_END = (0, *range(5, 12))


def _sum(row: Iterable[float], given: tuple[int, ...] = ()) -> Any:
    """Σ aᵢ kᵢ, compiled: a function of the slopes of the stages ``given``, or of those with aᵢ ≠ 0.

    Written out, since a loop over so few numbers would cost more than their sum.
    """
    weights = {i: float(a) for i, a in enumerate(row) if a != 0}
    arguments = ", ".join(f"k{i}" for i in given or weights)
    space: dict[str, Any] = {}
    terms = " + ".join(f"{a!r} * k{i}" for i, a in weights.items())
    exec(f"def total({arguments}):\n    return {terms}\n", space)
    return compiled(space["total"], internal=True)


(
    stage1, stage2, stage3, stage4, stage5, stage6, stage7, stage8, stage9, stage10, stage11,
) = map(_sum, DOP853.A[1:])  # fmt: skip
#: The end of the step, whose slope is the first of the next step; and the errors.
stage12, error5, error3 = (_sum(row, _END) for row in (DOP853.B, DOP853.E5, DOP853.E3))
#: The last three stages serve the interpolant alone.
stage13, stage14, stage15 = (
    _sum(row, (*_END, *range(12, 13 + i))) for i, row in enumerate(DOP853.A_EXTRA)
)
