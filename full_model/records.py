"""NetCDF files of training records, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from flowsim.errors import InputError


def write_record(dataset: xr.Dataset, path: Path, overwrite: bool = False) -> None:
    """Write a record to ``path``: a temporary file in the same folder, then a rename.

    Raises:
        InputError: ``path`` exists and ``overwrite`` is false, or the folder cannot be written.
    """
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists: overwrite it or choose another name")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    compressed = {name: {"zlib": True} for name, v in dataset.items() if v.ndim > 1}
    try:
        dataset.to_netcdf(temporary, engine="h5netcdf", encoding=compressed)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
