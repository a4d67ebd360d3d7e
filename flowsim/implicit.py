"""A linearly implicit step for rows too stiff for an explicit one.

With attention the global minima are a curve whose two attracting directions differ in rate by three
or four orders: the logit gap settles fast, the attention scalar slowly. There the explicit step is
bound by stability, not by accuracy.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from flowsim.stepping import Method, RowProblem

#: Columns of the extrapolation, which is also the order of the method.
_COLUMNS = 5


class StiffProblem(RowProblem, Protocol):
    """A row problem that knows the derivative of its field."""

    def jacobian(self, y: Tensor) -> Tensor:
        """∂(dy/dτ)/∂y, shape (n, k, k)."""
        ...


def _extrapolated_euler(
    problem: StiffProblem, y: Tensor, field: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Linearly implicit Euler with 1, 2, …, 5 substeps, extrapolated to order five.

    A substep solves (1 − hJ)(y′ − y) = h f(y); results with h = step/j have an expansion in powers
    of h, whose first terms the Aitken-Neville scheme removes. The last correction is the error
    estimate. Source: Deuflhard, SIAM Review 27 (1985); coefficients by own derivation.
    """
    jacobian = problem.jacobian(y)
    identity = torch.eye(y.shape[1], dtype=y.dtype, device=y.device)
    row: list[Tensor] = []
    for j in range(1, _COLUMNS + 1):
        h = (step / j)[:, None, None]
        matrix = identity - h * jacobian
        usable = torch.isfinite(matrix).all(dim=2).all(dim=1)
        inverse = torch.linalg.inv_ex(torch.where(usable[:, None, None], matrix, identity)).inverse
        inverse = torch.where(usable[:, None, None], h * inverse, torch.nan)
        z, slope = y, field
        for substep in range(j):
            slope = field if substep == 0 else problem.field(z)
            z = z + (inverse @ slope.unsqueeze(-1)).squeeze(-1)
        previous, row = row, [z]
        for m, older in enumerate(previous, start=1):
            row.append(row[-1] + (row[-1] - older) / (j / (j - m) - 1))
    return row[-1], problem.field(row[-1]), row[-1] - row[-2]


EXTRAPOLATED_EULER = Method(
    _extrapolated_euler, _COLUMNS, 1 + _COLUMNS * (_COLUMNS - 1) // 2 + 2 * _COLUMNS
)
