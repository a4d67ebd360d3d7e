"""Rows that are followed together, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Numbers that torch takes at once, with AVX-512; it rounds those that are left otherwise.
AT_ONCE = 16


def padded_indices(which: Tensor) -> Tensor:
    """Return the numbers of the rows that are True in ``which`` (m,), padded to fill vectors.

    The last is repeated until there are a multiple of ``AT_ONCE``. Then the rounding of no row
    depends on its place; a row that occurs twice goes the same way twice.
    """
    index = which.nonzero()[:, 0]
    return torch.cat([index, index[-1:].expand(-len(index) % AT_ONCE)]) if len(index) else index


def times_to_fraction(
    until: Callable[[Tensor, Tensor], Tensor],
    start: Tensor,
    start_loss: Tensor,
    end_loss: Tensor,
    fraction: float,
) -> Tensor:
    """Return the times (n,) when ``fraction`` of the excess loss over ``end_loss`` (n,) is left.

    ``until`` gives the times when starts (m, k) first have given losses (m,). NaN where the loss of
    a start (n, k) is not above that of its end.
    """
    wanted = end_loss + fraction * (start_loss - end_loss)
    times, falls = torch.full_like(wanted, torch.nan), start_loss > end_loss
    times[falls] = until(start[falls], wanted[falls])
    return times
