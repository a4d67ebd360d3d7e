"""Rows that are followed together, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Numbers that torch takes at once, with AVX-512; it rounds those that are left otherwise.
AT_ONCE = 16


def padded_indices(which: Tensor) -> Tensor:
    """The numbers of the rows (m,) that are True, the last again and again until they fill vectors.

    Then the rounding of no row depends on its place; a row that occurs twice goes the same way
    twice.
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
    """``until``(starts, losses) where the loss falls at all, of starts (n, k); NaN elsewhere."""
    wanted = end_loss + fraction * (start_loss - end_loss)
    times, falls = torch.full_like(wanted, torch.nan), start_loss > end_loss
    times[falls] = until(start[falls], wanted[falls])
    return times
