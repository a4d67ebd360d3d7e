"""Files that options name, and those of transition matrices and emissions."""

from __future__ import annotations

import math
from pathlib import Path

from flowsim.cli.options import MAX_STATES, quoted
from flowsim.errors import InputError, number


def require_file(path: Path) -> None:
    """InputError unless there is something of that name."""
    try:
        found = path.exists()
    except OSError as error:  # a name that no file can have
        raise InputError(f"{str(path)!r}: {error.strerror}") from None
    if not found:
        raise InputError(f"no such file: {str(path)!r}")


def read_kernel(path: Path) -> list[list[float]]:
    """The numbers of a text file, line by line."""
    require_file(path)
    if not path.is_file():
        raise InputError(f"{str(path)!r} is no file")
    rows: list[list[float]] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for place, line in enumerate(map(str.strip, lines), 1):
                values = [number(word) for word in line.split(",")] if line else []
                if len(rows) >= MAX_STATES or len(values) > MAX_STATES:
                    raise InputError(f"{str(path)!r} has more than {MAX_STATES} states")
                if any(map(math.isnan, values)):
                    raise InputError(f"line {place} of {str(path)!r} is {quoted(line)}, "
                                     "not numbers with commas between them")  # fmt: skip
                rows += [values] if values else []
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is no text file") from None
    return rows
