"""The NetCDF record of a scan, written slice by slice so that no scan has to fit in memory."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any, Literal

import h5netcdf
import numpy as np
import xarray as xr

from flowsim.records.atomic import write_atomically
from flowsim.records.provenance import provenance
from flowsim.scan.follow import point_attributes
from flowsim.scan.plan import Scan
from flowsim.scan.statistics import BASIN, count_labels, share_variables

#: Values of a compressed block of the file; one block of eight bytes fits in HDF5's cache.
_BLOCK = 65_536


def write_scan_record(
    scan: Scan, read: Callable[[int], np.ndarray], path: Path, settings: dict[str, str]
) -> None:
    """Write what ``flowsim.read_record`` reads: variables as ``scan_basins`` describes them.

    Args:
        scan: what was computed.
        read: the points of a chunk.
        path: the file.
        settings: stored as JSON, to compare with those of another run.
    """
    with _Sink(path) as sink:
        try:
            with h5netcdf.File(sink, "w") as file:
                _fill(file, scan, read, settings, sink)
        finally:
            sink.check()


def extend_record(path: Path, longer: xr.Dataset) -> None:
    """Put variables and attributes into a record that it does not have; nothing else is read.

    Args:
        path: the record, which is replaced at once or stays as it is.
        longer: the record as it shall be; the dimensions of the new variables are new too.

    Raises:
        InputError: the disk is full or the folder went away.
    """

    def write(name: Path) -> None:
        shutil.copyfile(path, name)
        with _Sink(name, "r+b") as sink:
            try:
                with h5netcdf.File(sink, "r+") as file:
                    _append(file, longer)
            finally:
                sink.check()

    write_atomically(path, write)


def _append(file: Any, longer: xr.Dataset) -> None:
    for name, variable in longer.variables.items():
        if name in file.variables:
            continue
        dims = tuple(map(str, variable.dims))
        for dim, size in zip(dims, variable.shape, strict=True):
            if dim not in file.dimensions:
                file.dimensions[dim] = size
        if variable.size:
            made = _create(file, str(name), dims, variable.shape, variable.dtype)
        else:  # HDF5 has no compressed blocks of nothing
            made = file.create_variable(str(name), dims, dtype=variable.dtype)
        made[...] = variable.to_numpy()
        _set(made, variable.attrs)
    new = {k: v for k, v in longer.attrs.items() if k not in file.attrs}
    _set(file, {**new, "variables": " ".join(file.variables)})


class _Sink(io.RawIOBase):
    """A file that lets HDF5 believe that every write succeeds, and tells us the first that did not.

    HDF5 itself can neither go on nor close its file once the disk is full: it ends the process.
    """

    def __init__(self, path: Path, mode: Literal["w+b", "r+b"] = "w+b") -> None:
        self._file = path.open(mode, buffering=0)
        self._error: OSError | None = None

    def check(self) -> None:
        """OSError if a write has failed."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self._error is None:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._error = error
        return size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        found = self._file.readinto(view) or 0
        if self._error is not None:  # what was lost reads as zeros
            view[found:] = bytes(len(view) - found)
            return len(view)
        return found

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def _fill(
    file: Any, scan: Scan, read: Callable[[int], np.ndarray], settings: dict[str, str], sink: _Sink
) -> None:
    """Everything that the record holds."""
    shape, families = scan.shape, scan.families
    counts = np.zeros((prod(shape[:families]), len(BASIN)), np.int64)
    per_family = prod(shape[families:])
    drift: dict[str, float] = {}
    file.dimensions = {**dict(zip(scan.dims, shape, strict=True)), "basin": len(BASIN)}
    coords = {
        **{n: ((n,), np.array(v)) for n, v in (("p", scan.p), ("q", scan.q)) if np.ndim(v)},
        **scan.starts.coords(),
    }
    for name, (dims, values) in coords.items():
        file.create_variable(name, dims, data=np.asarray(values, dtype=float))
    _set(file.create_variable("basin", ("basin",), data=BASIN.values), BASIN.attrs)
    attributes = point_attributes(scan.dtype, scan.fraction)
    scalar = " ".join(name for name, (dims, _) in coords.items() if not dims)
    for name in scan.dtype.names or ():
        variable = _create(file, name, scan.dims, shape, scan.dtype[name])
        _set(variable, {**attributes[name], **({"coordinates": scalar} if scalar else {})})
    for chunk in range(scan.chunks):
        low, high = scan.bounds(chunk)
        points = read(chunk)
        sink.check()
        for name in scan.dtype.names or ():
            _store(file.variables[name], shape, low, points[name])
        for family in range(low // per_family, (high - 1) // per_family + 1):
            first = max(family * per_family - low, 0)
            last = min((family + 1) * per_family, high) - low
            counts[family] += count_labels(points["label"][first:last])
        for name in scan.dtype.names or ():
            if name.startswith("drift_"):
                here = np.nanmax(points[name], initial=0.0)
                drift[name] = max(drift.get(name, 0.0), float(here))
    if scan.starts.scattered:
        _store_starts(file, scan)
    shares = share_variables(counts.reshape(*shape[:families], -1), scan.dims)
    for name, (dims, values) in shares.items():
        file.create_variable(name, dims, data=values)
    totals = dict(zip(str(BASIN.attrs["flag_meanings"]).split(), counts.sum(0), strict=True))
    _set(
        file,
        {
            **provenance(scan.attributes()),
            **{f"points_{name}": int(count) for name, count in totals.items()},
            **{f"largest_{name}": value for name, value in drift.items()},
            "command": settings["command"],
            "threads": 1,
            "settings": json.dumps(settings),
            "variables": " ".join(file.variables),
        },
    )


def _store_starts(file: Any, scan: Scan) -> None:
    starts = scan.starts
    for name in starts.names:
        _create(file, f"start_{name}", starts.dims, starts.shape, np.dtype("<f8"))
    size = prod(starts.shape)
    for low in range(0, size, _BLOCK):
        rows = starts.block(low, min(low + _BLOCK, size))
        for i, name in enumerate(starts.names):
            _store(file.variables[f"start_{name}"], starts.shape, low, rows[:, i])


def _create(
    file: Any, name: str, dims: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype
) -> Any:
    blocks, room = [], _BLOCK
    for length in reversed(shape):
        blocks.append(min(length, room))
        room = max(1, room // length)
    return file.create_variable(
        name, dims, dtype=dtype, chunks=tuple(reversed(blocks)), compression="gzip",
        compression_opts=1, shuffle=True,
    )  # fmt: skip


def _store(variable: Any, shape: tuple[int, ...], low: int, values: np.ndarray) -> None:
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


def _set(target: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        target.attrs[name] = value
