"""Files whose bytes nothing vouches for, read in a process of their own before they are read here.

HDF5's reader may run for ever on damaged bytes, beyond Ctrl-C, or end its process. A sealed record
is recognised by its seal; a record of flowsim 0.1.0 and a file of another program have none. They
are read from end to end by ``python -m flowsim.records.trial FILE``, which is stopped when it takes
longer than such a file can take.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py

from flowsim.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

#: Seconds that reading may take, and bytes that it reads in each of the seconds beyond.
SECONDS, _SPEED = 30.0, 5e6
#: How many times smaller than its values the compression of HDF5 can store a variable.
_COMPRESSION = 1100
#: How netCDF marks a dimension without values, for which nothing is stored or read.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_DAMAGED = "it is damaged or not NetCDF"
#: Groups and variables that a file may have; flowsim writes no groups and tens of variables.
_MOST = 500
#: Exit code of the process where the file is refused with a sentence.
_REFUSED = 3


def open_netcdf(path: Path, whole: bool, **options: Any) -> xr.Dataset:
    """A NetCDF file of any program, whose values are read when they are used; to be closed.

    Args:
        path: the file, which can be read.
        whole: whether a seal vouches for its bytes; if not, another process reads it first.
        options: of ``xarray.open_dataset``.

    Raises:
        InputError: what is wrong with it: damaged, names other files, declared larger than it is,
            not NetCDF; the caller names the file.
    """
    import xarray as xr

    try:
        if not whole:
            try_to_read(path.resolve(), _digest(path), SECONDS)
        check_stored(path)
        return xr.open_dataset(path, engine="h5netcdf", phony_dims="access", **options)
    except InputError:
        raise
    except Exception as error:  # h5py raises many kinds for damaged files
        raise InputError(_DAMAGED) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1000)
def try_to_read(path: Path, digest: str, seconds: float) -> None:
    """Refuse what cannot be read from end to end in its time; once for a file of this digest."""
    limit = seconds + path.stat().st_size / _SPEED
    folders = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    words = [sys.executable, "-P", "-W", "ignore", "-m", __spec__.name, str(path), str(int(limit))]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, "PYTHONPATH": folders, "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"reading it did not end within {limit:.0f} s; it is damaged") from None
    if done.returncode == _REFUSED:
        raise InputError(done.stdout.decode(errors="replace"))
    if done.returncode:
        raise InputError(_DAMAGED)


def check_stored(path: Path) -> None:
    """Refuse a file whose values are not all in it, each in its place, whoever vouches for it.

    No name in a file is followed, neither a link nor a variable that is stored elsewhere or put
    together from others: it may lead to any file, or back to where it is. Nor are variables taken
    that are declared larger than the file's bytes can hold.

    Raises:
        InputError: what is wrong; the caller names the file.
        Exception: h5py's, for what is no HDF5.
    """
    size, links = path.stat().st_size, 0

    def refused_link(name: bytes, link: Any) -> str | None:
        nonlocal links
        links += 1
        if links > _MOST:
            return f"it has more than {_MOST} groups and variables"
        elsewhere = link.type != h5py.h5l.TYPE_HARD
        return f"its {_shown(name)} is a link to another place" if elsewhere else None

    def check_variable(name: str, found: Any) -> None:
        if not isinstance(found, h5py.Dataset):
            return
        # before its shape is asked for, for which HDF5 already opens other files
        if found.is_virtual or found.external:
            raise InputError(f"its {_shown(name.encode())} is stored in another place")
        if found.shape is None:
            return
        stored = min(found.id.get_storage_size(), size)
        if found.nbytes <= _COMPRESSION * stored + 4096 or _NO_VARIABLE in _text(found, "NAME"):
            return
        shown = _shown(name.encode())
        raise InputError(f"it declares {found.nbytes} bytes of {shown} and holds {stored}")

    with h5py.File(path, "r") as file:
        # this visit ends with what is returned, and loses what is raised
        if sentence := file.id.links.visit(refused_link, info=True):
            raise InputError(sentence)
        file.visititems(check_variable)


def _shown(name: bytes) -> str:
    return " ".join(name.decode(errors="replace").split())[:60]


def _text(found: Any, name: str) -> str:
    value = found.attrs.get(name, b"")
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _read_all(path: Path) -> None:
    """Read every attribute and every value, by h5netcdf as xarray does."""
    import h5netcdf

    check_stored(path)
    with h5netcdf.File(path, "r") as file:
        dict(file.attrs)
        for variable in file.variables.values():
            dict(variable.attrs)
            stored = variable._h5ds
            for block in _blocks(stored):
                stored[block]


def _blocks(stored: h5py.Dataset) -> Iterator[Any]:
    """Slices that cover a variable; those in which it is compressed, where it is."""
    return stored.iter_chunks() if stored.chunks else iter([()])


def _limit(seconds: int) -> None:
    """Let the system end this process, without a core file, should nobody else do so."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows; or limits already lower
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))


if __name__ == "__main__":
    _limit(int(sys.argv[2]))
    try:
        _read_all(Path(sys.argv[1]))
    except InputError as error:
        print(error, end="")
        sys.exit(_REFUSED)
