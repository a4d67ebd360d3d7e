"""Initializations given as a list, also by a file: .csv, .npy or .nc."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from flowsim.errors import InputError
from flowsim.records.netcdf import open_sealed


class Points:
    """A list of starts; ``Points.read`` takes it from a file.

    Args:
        names: the coordinate of every column.
        rows: shape (n, k).
        source: what to call the list in messages.

    Raises:
        InputError: no rows, another number of columns than names, or a value that is not finite.
    """

    scattered = True
    drawn = False
    dims = ("point",)

    def __init__(self, names: Sequence[str], rows: np.ndarray, source: str = "the list") -> None:
        self.names = tuple(names)
        self._rows = np.ascontiguousarray(rows, dtype=float)
        columns = ", ".join(self.names)
        if self._rows.ndim != 2 or self._rows.shape[1] != len(self.names):
            raise InputError(
                f"{source} needs rows of {len(self.names)} columns ({columns}), "
                f"not an array of shape {self._rows.shape}"
            )
        if not len(self._rows):
            raise InputError(f"{source} holds no points")
        bad = ~np.isfinite(self._rows).all(axis=1)
        if bad.any():
            raise InputError(
                f"point {int(bad.argmax()) + 1} of {source} is not finite "
                f"({int(bad.sum())} of {len(bad)} points)"
            )
        self.shape = (len(self._rows),)

    @classmethod
    def read(cls, path: Path | str, coordinates: Sequence[str]) -> Points:
        """Points of a file.

        Args:
            path: .csv with a header that names the columns, of which others than the coordinates
                are left out; .npy with one row per point and the columns in the order of
                ``coordinates``; .nc that flowsim wrote, with one variable per coordinate.
            coordinates: the coordinates that must be there, each exactly once.

        Raises:
            InputError: no such file, another format, no valid digest, or a missing coordinate.
        """
        path, wanted = Path(path), ", ".join(coordinates)
        readers = {".csv": _read_csv, ".npy": _read_npy, ".nc": _read_netcdf}
        if not path.exists():
            raise InputError(f"no such file: {str(path)!r}")
        if not path.is_file():
            raise InputError(f"{str(path)!r} is not a file of points")
        if path.suffix.lower() not in readers:
            raise InputError(f"points come from .csv, .npy or .nc, not {path.name!r}")
        try:
            names, rows = readers[path.suffix.lower()](path, tuple(coordinates))
        except InputError:
            raise
        except Exception as error:  # numpy raises many kinds for damaged files
            words = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{str(path)!r} cannot be read as points: {words[:200]}") from None
        if sorted(names) != sorted(coordinates):
            raise InputError(f"{str(path)!r} has {_columns(names)}; wanted are {wanted}")
        return cls(names, rows, repr(str(path)))

    def block(self, low: int, high: int, chain: int = 0) -> np.ndarray:
        return self._rows[low:high]

    def coords(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        return {}

    def settings(self) -> dict[str, str]:
        digest = hashlib.sha256(self._rows.data).hexdigest()[:16]
        return {"starts": f"{len(self._rows)} points {', '.join(self.names)} (sha256 {digest})"}

    def attributes(self) -> dict[str, object]:
        return {"starts": "points"}


def _columns(names: Sequence[str]) -> str:
    return f"the columns {', '.join(names)}"[:200] if any(names) else "no columns"


def _read_csv(path: Path, wanted: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """The wanted columns of a table; all that there are, and no rows, if one of them is missing."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, skipinitialspace=True)
        header = tuple(word.strip() for word in next(lines, []))
        if any(header.count(name) != 1 for name in wanted):
            return header, np.empty((0, len(header)))
        columns, rows = [header.index(name) for name in wanted], []
        for line in lines:
            if not any(word.strip() for word in line):
                continue
            if len(line) != len(header):
                raise InputError(
                    f"line {lines.line_num} of {str(path)!r} has {len(line)} columns, "
                    f"not {len(header)}"
                )
            rows.append([_number(line[column]) for column in columns])
    return wanted, np.array(rows, dtype=float).reshape(-1, len(wanted))


def _number(text: str) -> float:
    """The float that plain characters spell; Python's own syntax takes 1_0 and foreign digits."""
    if not text.isascii() or "_" in text:
        raise ValueError(f"could not convert string to float: {text[:60]!r}")
    return float(text)


def _read_npy(path: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    with path.open("rb") as file:
        rows = np.lib.format.read_array(file, allow_pickle=False)
    _check_type(path, rows.dtype)
    return names, rows


def _check_type(path: Path, dtype: np.dtype) -> None:
    if dtype.kind not in "fiu":
        raise InputError(f"{str(path)!r} holds {dtype}, not numbers")


def _read_netcdf(path: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    with open_sealed(path) as data:
        if missing := [name for name in names if name not in data.variables]:
            raise InputError(f"{str(path)!r} has no variable {', '.join(missing)}")
        columns = [data[name] for name in names]
        if any(a.ndim != 1 or a.shape != b.shape for a, b in pairwise([*columns, columns[0]])):
            raise InputError(f"{str(path)!r}: the coordinates must be lists of one length")
        for column in columns:
            _check_type(path, column.dtype)
        return names, np.stack([column.to_numpy() for column in columns], axis=-1)
