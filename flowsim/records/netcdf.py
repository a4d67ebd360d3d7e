"""Records: NetCDF files with provenance, written whole or not at all."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import xarray as xr

from flowsim.errors import InputError

SCHEMA = 1


def flags(codes: type[IntEnum]) -> dict[str, object]:
    """CF attributes that name the values of an integer variable."""
    return {
        "flag_values": np.array([code.value for code in codes], dtype=np.int8),
        "flag_meanings": " ".join(code.name.lower() for code in codes),
    }


def provenance(settings: dict[str, object]) -> dict[str, object]:
    """What a record says of its making: every setting, versions, command, source commit.

    Neither date nor duration, so that the same run writes the same bytes.
    """
    import torch

    return {
        "schema": SCHEMA,
        **settings,
        "versions": package_versions("flowsim", "torch", "torchdiffeq", "numpy", "xarray"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def package_versions(*packages: str) -> str:
    """The versions of Python and of the named packages."""
    named = [f"{package} {version(package)}" for package in packages]
    return ", ".join([f"python {platform.python_version()}", *named])


@lru_cache
def source_versions() -> str:
    """The versions of what computes, with the commit where flowsim runs from its sources."""
    return f"{package_versions('flowsim', 'torch', 'torchdiffeq', 'numpy')}, commit {_commit()}"


@lru_cache
def _commit() -> str:
    """The commit of the source tree that runs, "unknown" for an installed package."""
    here = Path(__file__).parent
    if not (here.parent / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def check_output(path: Path, option: str, suffixes: Iterable[str], overwrite: bool) -> None:
    """Refuse an output that could not be written, before anything is computed.

    Raises:
        InputError: unknown suffix, missing or read-only folder, or an existing file without
            ``overwrite``.
    """
    known = ", ".join(suffixes)
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{option} must end in one of {known}, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"{option}: the folder {str(path.parent)!r} does not exist")
    try:  # ask the file system itself: permission bits do not tell of read-only mounts
        with TemporaryFile(dir=path.parent):  # nameless: a kill leaves nothing behind
            pass
    except OSError as error:
        reason = error.strerror or "not writable"
        raise InputError(
            f"{option}: cannot write in the folder {str(path.parent)!r} ({reason})"
        ) from None
    if path.is_dir():
        raise InputError(f"{option}: {str(path)!r} is a folder")
    if path.exists() and not overwrite:
        raise InputError(f"{option}: {str(path)!r} exists; give --overwrite to replace it")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary name beside ``path``, flush it to disk and rename.

    Raises:
        InputError: the disk is full or the folder went away.
    """
    temporary = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


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
