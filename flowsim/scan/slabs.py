"""Arrays of a file that are written in the order of their points, whatever their shape."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

#: Values of a compressed block of the file; one block of eight bytes fits in HDF5's cache.
BLOCK = 65_536


def create(
    file: Any, name: str, dims: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype
) -> Any:
    """A compressed variable of a file whose dimensions are there, to be filled by ``store``."""
    blocks, room = [], BLOCK
    for length in reversed(shape):
        blocks.append(min(length, room))
        room = max(1, room // length)
    return file.create_variable(
        name, dims, dtype=dtype, chunks=tuple(reversed(blocks)), compression="gzip",
        compression_opts=1, shuffle=True,
    )  # fmt: skip


def store(variable: Any, shape: tuple[int, ...], low: int, values: np.ndarray) -> None:
    """Write consecutive values in C order, from position ``low`` on."""
    at = 0
    for where, lengths in slabs(shape, low, low + len(values)):
        count = prod(lengths)
        variable[where] = values[at : at + count].reshape(lengths)
        at += count


def slabs(
    shape: tuple[int, ...], low: int, high: int
) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Boxes covering positions ``low`` to ``high`` − 1 of an array in C order: (slices, shape)."""
    inner = prod(shape[1:])
    while low < high:
        row, column = divmod(low, inner)
        if column == 0 and high - low >= inner:  # whole rows at once
            rows = (high - low) // inner
            lengths = (rows, *shape[1:])
            yield (slice(row, row + rows), *(slice(0, n) for n in shape[1:])), lengths
            low += rows * inner
            continue
        end = min(inner, column + high - low)
        for where, lengths in slabs(shape[1:], column, end):
            yield (slice(row, row + 1), *where), (1, *lengths)
        low += end - column
