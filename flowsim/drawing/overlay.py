"""Paths laid over a portrait: runs of training, or of any loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.records.attributes import axes_of
from flowsim.records.netcdf import read_record
from flowsim.records.tables import read_columns

#: A path, or paths by name.
Paths = Any


def with_paths(record: xr.Dataset, paths: Paths) -> xr.Dataset:
    """Add paths, as ``draw`` takes them, to the record of a plane.

    New are ``path_name`` of every path, and along each axis its places (path_step, path).
    """
    across, up = axes_of(record)
    files = [paths] if isinstance(paths, (str, Path)) else paths
    if isinstance(files, (list, tuple)) and all(isinstance(f, (str, Path)) for f in files):
        stems = {Path(file).stem for file in files}
        paths = {Path(f).stem if len(stems) == len(files) else str(f): f for f in files}
    elif not isinstance(paths, Mapping) or {across, up} <= {*paths}:
        paths = {"path": paths}
    columns: list[tuple[str, np.ndarray, np.ndarray]] = []
    for name, source in paths.items():
        x, y = path_columns(source, across, up)
        columns += [(str(name), x[:, i], y[:, i]) for i in range(x.shape[1])]
    names, *places = zip(*columns, strict=True)
    found = {f"path_{axis}": (("path_step", "path"), side_by_side(values))
             for axis, values in zip((across, up), places, strict=True)}  # fmt: skip
    return record.assign({**found, "path_name": ("path", list(names))})


def path_columns(source: Any, across: str, up: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of one path, or of its runs, along both axes, each (times, runs).

    ``source`` is a file, a Dataset, columns by name, or an array.
    """
    if isinstance(source, (str, Path)):
        source = _read(Path(source), (across, up))
    what = f"a path over ({across}, {up})"
    if isinstance(source, xr.Dataset) and "canonical" in source:
        axes = source["canonical"].transpose(..., "model", "coordinate")
        names = [str(name) for name in axes["coordinate"].to_numpy()]
        source = dict(zip(names, np.moveaxis(axes.to_numpy(), -1, 0), strict=True))
    named = hasattr(source, "keys")
    if named and not {across, up} <= {*map(str, source.keys())}:
        there = ", ".join(map(str, source.keys()))
        raise InputError(f"{what} needs columns {across} and {up}; there are {there}")
    try:
        if named:
            x, y = (np.asarray(source[name], dtype=float) for name in (across, up))
        else:
            y, x = np.moveaxis(np.asarray(source, dtype=float), -1, 0)
    except (TypeError, ValueError) as error:
        if named:
            raise InputError(f"{what} needs numbers in its columns: {error}") from None
        raise InputError(f"{what} is an array (times, 2) or (times, runs, 2): {error}") from None
    if x.size == 0:
        raise InputError(f"{what} has no rows")
    if x.shape != y.shape or x.ndim not in (1, 2) or not np.isfinite(x + y).any():
        raise InputError(f"{what} needs numbers of shape (times,) or (times, runs) for each axis")
    known = np.isfinite(x + y).reshape(len(x), -1).any(axis=1)  # not every step is looked at
    x, y = x[known], y[known]
    if named and "run" in [*source.keys()] and x.ndim == 1:
        run = np.asarray(source["run"])[known].astype(str)
        rows = [run == one for one in dict.fromkeys(run.tolist())]
        return side_by_side([x[on] for on in rows]), side_by_side([y[on] for on in rows])
    return x.reshape(len(x), -1), y.reshape(len(y), -1)


def side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Join columns of any lengths in an array (longest, n), NaN after their ends."""
    found = np.full((max(map(len, columns)), len(columns)), np.nan)
    for i, column in enumerate(columns):
        found[: len(column), i] = column
    return found


def _read(path: Path, numeric: tuple[str, str]) -> Any:
    """Read a file of paths: a Dataset from .nc, else a table's columns by name.

    The ``numeric`` columns of a .csv are numbers, the others texts.
    """
    if path.suffix == ".nc":
        return read_record(path)
    if path.suffix in (".jsonl", ".parquet"):  # as Weights & Biases keeps histories
        import pandas

        try:
            table = (pandas.read_json(path, lines=True) if path.suffix == ".jsonl"
                     else pandas.read_parquet(path))  # fmt: skip
        except ImportError:
            raise InputError("parquet needs pyarrow: pip install 'flowsim-lab[parquet]'") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{str(path)!r} is no table of numbers: {error}") from None
        return {str(name): column.to_numpy() for name, column in table.items()}
    if path.suffix != ".csv":
        raise InputError(
            f"a path is a record (.nc) or a table (.csv, .jsonl or .parquet), not {str(path)!r}"
        )
    return read_columns(path, numeric)
