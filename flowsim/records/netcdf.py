"""Records as NetCDF files: written whole or not at all, checked when they are read."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.notices import say_without_digest
from flowsim.records.atomic import SafeFile, write_atomically
from flowsim.records.content import REQUIRED, check_attributes, check_values
from flowsim.records.describe import CONVENTIONS, described
from flowsim.records.provenance import SCHEMA
from flowsim.records.seal import seal, sealed
from flowsim.records.trial import open_netcdf
from flowsim.records.upgrade import upgraded


def flags(codes: type[IntEnum]) -> dict[str, object]:
    """CF attributes that name the values of an integer variable."""
    return {
        "flag_values": np.array([code.value for code in codes], dtype=np.int8),
        "flag_meanings": " ".join(code.name.lower() for code in codes),
    }


def write_record(record: xr.Dataset, path: Path | str) -> None:
    """Write a record as NetCDF, atomically; see ``store_record``.

    Raises:
        InputError: the disk is full or the folder went away.
    """
    write_atomically(Path(path), partial(store_record, record))


def store_record(record: xr.Dataset, path: Path) -> None:
    """Write a record as NetCDF, compressed and sealed; its variables are listed in it.

    Raises:
        OSError: the disk is full or the folder went away.
    """
    record = described(record)
    names = " ".join(map(str, record.variables))
    record = record.assign_attrs(Conventions=CONVENTIONS, variables=names)
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


def open_record(path: Path | str, *kinds: str, check: bool = True) -> xr.Dataset:
    """A stored record, whose values are read when they are used; to be closed.

    Args:
        path: a file that ``write_record`` or ``write_scan`` wrote.
        kinds: what the record may be ("portrait", "phase space", "induction", "scan",
            "gaussian", "comparison", "training"); by default any of them.
        check: whether its bytes must be those that flowsim wrote; False opens a record that
            another program changed on purpose.

    Raises:
        InputError: no such file, not NetCDF, damaged, changed by another program, not flowsim's,
            of another kind or of a later schema.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"no such file: {str(path)!r}")
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not a file; give a record (.nc) that flowsim wrote")
    try:
        whole = sealed(path)
        if whole is False and check:
            raise _changed(path)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    try:
        record = open_netcdf(path, whole is True, decode_times=False)
    except InputError as error:
        raise _refused(path, error) from None
    try:
        return _checked(record, path, kinds, check and whole is None)
    except BaseException:
        record.close()
        raise


def read_record(path: Path | str, *kinds: str, check: bool = True) -> xr.Dataset:
    """A stored record, whole and in memory.

    Args:
        path, kinds, check: as in ``open_record``. ``write_record`` makes a record that was changed
            on purpose, and read with ``check=False``, one that is read without.

    Returns:
        The record in the present schema, also if flowsim 0.1.0 wrote it.

    Raises:
        InputError: as ``open_record``, or values that no record has.
    """
    with open_record(path, *kinds, check=check) as record:
        try:
            record = record.load()
            check_values(record)
        except InputError as error:
            raise _refused(Path(path), error) from None
        except Exception as error:
            raise _damaged(Path(path)) from error
    return record


def _checked(record: xr.Dataset, path: Path, kinds: tuple[str, ...], unsealed: bool) -> xr.Dataset:
    """The record in the present schema, if it is one of ``kinds``; an unsealed one is of 0.1.0."""
    a = record.attrs
    kind, schema, wanted = a.get("kind"), a.get("schema"), kinds or tuple(REQUIRED)
    known = isinstance(schema, Integral) and 1 <= int(schema) <= SCHEMA
    if not isinstance(kind, str) or kind not in wanted or not known:
        what = f"{' or '.join(kinds)} record" if kinds else "record"
        raise InputError(
            f"{str(path)!r} is not a flowsim {what} of schema 1 to {SCHEMA} "
            f"(its kind is {_shown(kind)}, its schema {_shown(schema)})"
        )
    missing = set(str(a.get("variables", "")).split()) - set(map(str, record.variables))
    if missing:
        raise InputError(
            f"{str(path)!r} is incomplete: it lacks {', '.join(sorted(missing))[:200]}"
        )
    if unsealed and schema != 1:
        raise _changed(path)
    if unsealed:
        say_without_digest(path)
    try:
        record = upgraded(record)
        check_attributes(record)
    except InputError as error:
        raise _refused(path, error) from None
    except Exception as error:  # attributes of any type and shape
        raise _damaged(path) from error
    return record


def _shown(value: object) -> str:
    return "none" if value is None else " ".join(str(value)[:40].split())


def _refused(path: Path, error: InputError) -> InputError:
    return InputError(f"{str(path)!r} is no record of flowsim: {error}")


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} cannot be read as a flowsim record; it is damaged or not NetCDF"
    )


def _changed(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is damaged, or another program changed it after flowsim wrote it; if that "
        "was on purpose, flowsim.read_record(path, check=False) opens it"
    )
