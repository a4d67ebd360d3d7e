"""The seal of a record: the SHA-256 of all its bytes, in a line behind them.

HDF5 reads a file up to the end that its first block names, so that programs that know nothing of
the seal read a sealed record like any other. A record in which a single bit has changed is
recognised before HDF5 sees it, whose reader may run for ever on damaged bytes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

_WORDS = b"\nflowsim record, sha256 "
#: Length of the line: the words, the digest and the line's end.
LENGTH = len(_WORDS) + 64 + 1
_BLOCK = 2**20


def seal(path: Path) -> None:
    """Append the seal to a file that has none.

    Raises:
        OSError: the disk is full.
    """
    with path.open("r+b") as file:
        line = _line(file, path.stat().st_size)
        file.seek(0, os.SEEK_END)
        file.write(line)


def unseal(path: Path) -> None:
    """Cut the seal off a sealed file, which can then be written to."""
    os.truncate(path, path.stat().st_size - LENGTH)


def sealed(path: Path) -> bool:
    """Whether the file ends in a seal, and the seal is right.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        size = max(path.stat().st_size - LENGTH, 0)
        return _line(file, size) == file.read()


def _line(file: IO[bytes], size: int) -> bytes:
    """The seal of the first ``size`` bytes, which are read."""
    found, left = hashlib.sha256(), size
    while left and (block := file.read(min(left, _BLOCK))):
        found.update(block)
        left -= len(block)
    return _WORDS + found.hexdigest().encode() + b"\n"
