"""Records as NetCDF files: written whole or not at all, checked when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.records.atomic import SafeFile, write_atomically
from flowsim.records.describe import CONVENTIONS, described
from flowsim.records.provenance import SCHEMA
from flowsim.records.seal import seal, sealed


def flags(codes: Iterable[IntEnum] | Sequence[str]) -> dict[str, object]:
    """CF attributes that name the values of an integer variable: codes, or the names of 0, 1, …"""
    found = [
        (code.value, code.name.lower()) if isinstance(code, IntEnum) else (i, code)
        for i, code in enumerate(codes)
    ]
    return {
        "flag_values": np.array([value for value, _ in found], dtype=np.int8),
        "flag_meanings": " ".join(str(name) for _, name in found),
    }


def write_record(record: xr.Dataset, path: Path | str) -> None:
    """Write a record as NetCDF, atomically; see ``store_record``.

    Raises:
        InputError: the disk is full or the folder went away.
    """
    write_atomically(Path(path), partial(store_record, record))


def store_record(record: xr.Dataset, path: Path) -> None:
    """Write a record as NetCDF, compressed and sealed.

    Raises:
        OSError: the disk is full or the folder went away.
    """
    record = described(record).assign_attrs(Conventions=CONVENTIONS)
    encoding = {n: {"zlib": True, "complevel": 4} for n, v in record.items() if v.ndim and v.size}

    def fill(file: SafeFile) -> None:
        record.to_netcdf(file, engine="h5netcdf", encoding=encoding)

    write_sealed(path, fill)


def write_sealed(path: Path, fill: Callable[[SafeFile], object], mode: Any = "w+b") -> None:
    """Let ``fill`` write HDF5 to a file, and seal it.

    Raises:
        OSError: the disk is full.
    """
    with SafeFile(path, mode) as file:
        try:
            fill(file)
        finally:
            file.check()
    seal(path)


def open_record(path: Path | str, *kinds: str) -> xr.Dataset:
    """A stored record, whose values are read when they are used; to be closed.

    Args:
        path: a file that ``write_record`` or ``write_scan`` wrote.
        kinds: what the record may be ("portrait", "phase space", "scan", "gaussian",
            "comparison", "training"); by default any kind.

    Raises:
        InputError: no such file, one without a valid digest, or no record of these kinds and of
            the present schema.
    """
    record = open_sealed(Path(path))
    kind, schema = record.attrs.get("kind"), record.attrs.get("schema")
    if kind is None or schema != SCHEMA or (kinds and kind not in kinds):
        record.close()
        wanted = " or ".join(kinds)
        raise InputError(
            f"{str(path)!r} is not a flowsim {wanted + ' ' if kinds else ''}record of schema "
            f"{SCHEMA} (its kind is {kind}, its schema {schema})"
        )
    return record


def read_record(path: Path | str, *kinds: str) -> xr.Dataset:
    """A stored record, whole and in memory.

    Args:
        path, kinds: as in ``open_record``.

    Raises:
        InputError: as ``open_record``.
    """
    with open_record(path, *kinds) as record:
        return record.load()


def open_sealed(path: Path) -> xr.Dataset:
    """A NetCDF file that flowsim wrote, be it a record or not; to be closed.

    HDF5, which may run for ever on damaged bytes, opens no file whose digest is not right.

    Raises:
        InputError: no such file, or one that cannot be read or has no valid digest.
    """
    try:
        if not path.exists():
            raise InputError(f"no such file: {str(path)!r}")
        if not path.is_file():
            raise InputError(f"{str(path)!r} is not a file; give a record (.nc) that flowsim wrote")
        if sealed(path):
            return xr.open_dataset(path, engine="h5netcdf", decode_times=False)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    raise InputError(
        f"{str(path)!r} has no valid digest: it is damaged, or flowsim did not write it as it is; "
        "xarray.open_dataset opens a file that you trust"
    )
