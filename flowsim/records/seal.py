"""The seal of a record: the SHA-256 of all its bytes, in a line behind them.

HDF5 reads a file up to the end that its first block names, so that programs that know nothing of
the seal read a sealed record like any other. A sealed record in which a single bit has changed is
recognised before HDF5 sees it, whose reader may run for ever on damaged bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import IO

_WORDS = b"\nflowsim record, sha256 "
#: Length of the line: the words, the digest and the line's end.
LENGTH = len(_WORDS) + 64 + 1
_LINE = re.compile(re.escape(_WORDS) + rb"[0-9a-f]{64}\n")
_BLOCK = 2**20
#: Bytes at the end among which a seal is looked for that is no longer the last of them.
_NEAR = 2**16


def seal(path: Path) -> None:
    """Append the seal to a file that has none.

    Raises:
        OSError: the disk is full.
    """
    with path.open("r+b") as file:
        digest = _digest(file, os.fstat(file.fileno()).st_size)
        file.seek(0, os.SEEK_END)
        file.write(_WORDS + digest + b"\n")


def unseal(path: Path) -> None:
    """Cut the seal off, if there is one; the file can then be written to."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if _read(file, size) is not None:
            file.truncate(size - LENGTH)


def sealed(path: Path) -> bool | None:
    """Whether the seal is right and at the end; None if there is none, as in flowsim 0.1.0.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found = _read(file, size)
        if found is not None:
            return found == _digest(file, size - LENGTH)
        file.seek(max(size - _NEAR, 0))
        return False if _WORDS in file.read() else None


def _read(file: IO[bytes], size: int) -> bytes | None:
    """The digest that the seal names."""
    if size < LENGTH:
        return None
    file.seek(size - LENGTH)
    line = file.read(LENGTH)
    return line[len(_WORDS) : -1] if _LINE.fullmatch(line) else None


def _digest(file: IO[bytes], size: int) -> bytes:
    """SHA-256 of the first ``size`` bytes, as hexadecimal digits."""
    found, left = hashlib.sha256(), size
    file.seek(0)
    while left and (block := file.read(min(left, _BLOCK))):
        found.update(block)
        left -= len(block)
    return found.hexdigest().encode()
