"""Records: NetCDF files with provenance, written whole or not at all."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.records.atomic import write_atomically
from flowsim.records.provenance import SCHEMA


def flags(codes: type[IntEnum]) -> dict[str, object]:
    """CF attributes that name the values of an integer variable."""
    return {
        "flag_values": np.array([code.value for code in codes], dtype=np.int8),
        "flag_meanings": " ".join(code.name.lower() for code in codes),
    }


def write_record(record: xr.Dataset, path: Path | str) -> None:
    """Write a record as NetCDF, compressed, atomically; its variables are listed in it."""
    path, record = Path(path), record.assign_attrs(variables=" ".join(map(str, record.variables)))
    encoding = {name: {"zlib": True, "complevel": 4} for name, v in record.items() if v.ndim}
    write_atomically(
        path, lambda name: record.to_netcdf(name, engine="h5netcdf", encoding=encoding)
    )


def open_record(path: Path | str, *kinds: str) -> xr.Dataset:
    """A stored record, whose values are read when they are used; to be closed.

    Args:
        path: a file that ``write_record`` wrote.
        kinds: what the record may be, as its attribute ``kind`` says ("portrait", …).

    Raises:
        InputError: no such file, not NetCDF, truncated, not flowsim's, of another kind or schema.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not a file; give a record (.nc) that flowsim wrote")
    try:
        record = xr.open_dataset(path, engine="h5netcdf")
    except Exception as error:  # h5py raises many kinds for damaged files
        raise _damaged(path) from error
    kind, schema = record.attrs.get("kind"), record.attrs.get("schema")
    missing = set(str(record.attrs.get("variables", "")).split()) - set(map(str, record.variables))
    if kind not in kinds or schema != SCHEMA:
        fault = (
            f"{str(path)!r} is not a flowsim {' or '.join(kinds)} record of schema {SCHEMA} "
            f"(its kind is {kind}, its schema {schema})"
        )
    elif missing:
        fault = f"{str(path)!r} is incomplete: it lacks {', '.join(sorted(missing))}"
    else:
        return record
    record.close()
    raise InputError(fault)


def read_record(path: Path | str, *kinds: str) -> xr.Dataset:
    """A stored record, whole and in memory; arguments and errors as of ``open_record``."""
    with open_record(path, *kinds) as record:
        try:
            record = record.load()
        except Exception as error:
            raise _damaged(Path(path)) from error
    former = record.attrs.get("model")
    if former in _FORMER_NAMES:
        record.attrs["model"] = _FORMER_NAMES[former]
    return record


#: What records of flowsim 0.1.0 call the models.
_FORMER_NAMES = {
    "CanonicalModel": "canonical",
    "AttentionModel": "uniform",
    "LinearAttentionModel": "linear",
    "UntiedModel": "untied",
    "RankOneModel": "rank-one",
    "attention": "uniform",
}


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} cannot be read as a flowsim record; it is damaged or not NetCDF"
    )
