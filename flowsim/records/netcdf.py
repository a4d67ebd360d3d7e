"""Records as NetCDF files: written whole or not at all, sealed by a digest, checked when read."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

import numpy as np
import xarray as xr
from xarray.conventions import cf_encoder, encode_dataset_coordinates

from flowsim.errors import InputError
from flowsim.records.attributes import CONVENTIONS, SCHEMA, described

#: Compression level of zlib: 4 takes longer and saves 3 %.
_LEVEL = 1
#: The scale of a dimension that has no values, as NetCDF begins its name.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."

#: Kinds by which older records' variables are drawn, which do not say it themselves.
_FORMER = {
    "differs": {
        "drawn_as": "wrong prediction",
        "legend": "the {of} predicts the other end",
        "remark": "ends elsewhere than in the {of}",
    },
    "sliding_time": {"drawn_as": "slide", "counted_as": "cells_sliding"},
    "certified": {"drawn_as": "proof"},
    "edge_distance": {"drawn_as": "distance", "legend": "distance to another end"},
}


def flags(meanings: Iterable[IntEnum] | Sequence[str], like: Any = np.int8) -> dict[str, object]:
    """CF attributes that name the values of an integer variable of type ``like``."""
    found = [
        (code.value, code.name.lower()) if isinstance(code, IntEnum) else (i, code)
        for i, code in enumerate(meanings)
    ]
    return {
        "flag_values": np.array([value for value, _ in found], dtype=like),
        "flag_meanings": " ".join(str(name) for _, name in found),
    }


def write_record(record: xr.Dataset, path: Path | str) -> None:
    """Write a record as NetCDF, atomically; see ``store_record``.

    Raises:
        InputError: the disk is full or the folder went away.

    >>> import flowsim, tempfile
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.scan(model, {"e": [0.5], "w": [-1.0]})
    >>> flowsim.write_record(record, path := tempfile.mkdtemp() + "/scan.nc")
    >>> flowsim.read_record(path).attrs["model"]
    'canonical'
    """
    write_atomically(Path(path), partial(store_record, record))


def store_record(record: xr.Dataset, path: Path, kinds: str = "iuf") -> None:
    """Write a record as NetCDF, sealed by a digest.

    Compressed are arrays whose dtype is of one of these ``kinds`` of numpy.
    """
    record = described(record).assign_attrs(Conventions=CONVENTIONS)
    with SafeFile(path) as file:
        try:
            _write(record, file, kinds)
        finally:
            file.check()
    append_checksum(path)


def _write(record: xr.Dataset, file: SafeFile, kinds: str) -> None:
    """Write a record as NetCDF-4, HDF5 with dimension scales, in half the time of xarray."""
    from h5py import File

    variables, attributes = cf_encoder(*encode_dataset_coordinates(record))
    with File(file, "w", libver=("v108", "v108"), track_order=True) as h5:
        _set_attributes(h5, attributes)
        scales = {}
        for i, (dim, size) in enumerate(record.sizes.items()):
            if dim in variables:
                scales[dim] = _array(h5, str(dim), variables[dim].to_numpy(), kinds)
                scales[dim].make_scale(str(dim))
            else:
                scales[dim] = _array(h5, str(dim), np.zeros(size, ">f4"), kinds)
                scales[dim].make_scale(f"{_NO_VARIABLE}{size:10}")
            scales[dim].attrs["_Netcdf4Dimid"] = np.int32(i)
        for name, variable in variables.items():
            array = scales.get(name) or _array(h5, str(name), variable.to_numpy(), kinds)
            _set_attributes(array, variable.attrs)
            if name not in scales:
                for axis, dim in enumerate(variable.dims):
                    array.dims[axis].attach_scale(scales[dim])


def _array(h5: Any, variable: str, values: np.ndarray, kinds: str) -> Any:
    """Create an array of an HDF5 file with these values; an empty one may grow, as NetCDF asks."""
    from h5py import string_dtype

    options: dict[str, Any] = {"dtype": values.dtype}
    if values.dtype.kind not in "iuf":
        options["dtype"], values = string_dtype(), values.astype(object)
    if not values.size:
        options["maxshape"] = (None,) * values.ndim
    elif values.ndim and values.dtype.kind in kinds:
        options |= {"compression": "gzip", "compression_opts": _LEVEL, "shuffle": True}
    return h5.create_dataset(variable, data=values, track_order=True, **options)


def _set_attributes(place: Any, attributes: Mapping[Hashable, Any]) -> None:
    """Set attributes of an HDF5 file or array, lists of texts as strings of any length."""
    for name, value in attributes.items():
        words = np.asarray(value).dtype.kind == "U" and np.ndim(value)
        place.attrs[str(name)] = np.asarray(value, dtype=object) if words else value


def open_record(path: Path | str, *kinds: str) -> xr.Dataset:
    """Open a stored record, whose values are read when they are used; to be closed.

    Args:
        path: a file that ``write_record`` or ``write_scan`` wrote.
        kinds: what the record may be ("portrait", "phase space", "scan", "gaussian",
            "comparison", "training"); by default any kind.

    Raises:
        InputError: no such file, one without a valid digest, or no record of these kinds and of
            the present schema.

    >>> import flowsim, tempfile
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.scan(model, {"e": [0.5], "w": [-1.0]})
    >>> flowsim.write_record(record, path := tempfile.mkdtemp() + "/scan.nc")
    >>> with flowsim.records.open_record(path, "scan") as stored:
    ...     print(stored.label.shape)
    (1, 1)
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
    for name, words in _FORMER.items():
        if name in record and "drawn_as" not in (known := record[name].attrs):
            known.update({key: text.format(of=known.get("of")) for key, text in words.items()})
    return record


def read_record(path: Path | str, *kinds: str) -> xr.Dataset:
    """Read a stored record, whole and into memory.

    Args:
        path, kinds: as in ``open_record``.

    Raises:
        InputError: as ``open_record``.

    >>> import flowsim, tempfile
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.scan(model, {"e": [0.5], "w": [-1.0]})
    >>> flowsim.write_record(record, path := tempfile.mkdtemp() + "/scan.nc")
    >>> flowsim.read_record(path).label.values
    array([[1]], dtype=int8)
    """
    with open_record(path, *kinds) as record:
        return record.load()


def open_sealed(path: Path) -> xr.Dataset:
    """Open a NetCDF file that ends in a valid digest; to be closed.

    HDF5 may run for ever on damaged bytes, so others are refused.
    """
    try:
        if not path.exists():
            raise InputError(f"no such file: {str(path)!r}")
        if not path.is_file():
            raise InputError(f"{str(path)!r} is not a file; give a record (.nc) that flowsim wrote")
        if has_checksum(path):
            return xr.open_dataset(path, engine="h5netcdf", decode_times=False)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    raise InputError(
        f"{str(path)!r} has no valid digest: it is damaged, or flowsim did not write it as it is; "
        "xarray.open_dataset opens a file that you trust"
    )


def check_output(path: Path, option: str, suffixes: Iterable[str], overwrite: bool) -> None:
    """Refuse an output that could not be written, before anything is computed."""
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
    try:
        found = path.exists() or os.path.lexists(path)
    except OSError as error:  # a name that no file can have
        raise InputError(f"{option}: {str(path)!r} ({error.strerror})") from None
    if path.is_dir():
        raise InputError(f"{option}: {str(path)!r} is a folder")
    if found and not overwrite:
        raise InputError(f"{option}: {str(path)!r} exists; give --overwrite to replace it")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary name beside ``path``, flush it to disk and rename."""
    write_together([(path, write)])


def write_together(files: Sequence[tuple[Path, Callable[[Path], object]]]) -> None:
    """Write files that appear together: if one cannot be written, none appears or is replaced."""
    drafts = [path.with_name(f".{os.getpid()}-{path.stem[:40]}{path.suffix}") for path, _ in files]
    current = Path()
    try:
        for (path, write), draft in zip(files, drafts, strict=True):
            current = path
            write(draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        for (path, _), draft in zip(files, drafts, strict=True):
            current = path
            os.replace(draft, path)
    except OSError as error:
        raise InputError(f"cannot write {str(current)!r}: {error.strerror or error}") from None
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


class SafeFile(io.RawIOBase):
    """A file for HDF5, to which every write seems to succeed; ``check`` raises the first failure.

    HDF5 itself can neither go on nor close its file once the disk is full: it ends the process.
    """

    def __init__(self, path: Path, mode: Literal["w+b", "r+b"] = "w+b") -> None:
        self._file = path.open(mode, buffering=0)
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        """Write bytes, or nothing after a failure; return their number in either case."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self._error is None:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._error = error
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the file; after a failure, with zeros where the file ends."""
        view = memoryview(buffer).cast("B")
        found = self._file.readinto(view) or 0
        if self._error is not None:  # what was lost reads as zeros
            view[found:] = bytes(len(view) - found)
            return len(view)
        return found

    def truncate(self, size: int | None = None) -> int:
        """Set the file's size; a failure is kept for ``check``."""
        try:
            return self._file.truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


_WORDS = b"\nflowsim record, sha256 "
#: Length of the line: the words, the digest and the line's end.
LENGTH = len(_WORDS) + 64 + 1
_BLOCK = 2**20


def append_checksum(path: Path) -> None:
    """Append the line with the SHA-256 of all bytes to a file that has none."""
    with path.open("r+b") as file:
        line = _line(file, path.stat().st_size)
        file.seek(0, os.SEEK_END)
        file.write(line)


def has_checksum(path: Path) -> bool:
    """Return whether the file ends in the line with the SHA-256 of all bytes before it."""
    with path.open("rb") as file:
        size = max(path.stat().st_size - LENGTH, 0)
        return _line(file, size) == file.read()


def _line(file: IO[bytes], size: int) -> bytes:
    """Read the first ``size`` bytes; return the line with their SHA-256 that ends a record."""
    found, left = hashlib.sha256(), size
    while left and (block := file.read(min(left, _BLOCK))):
        found.update(block)
        left -= len(block)
    return _WORDS + found.hexdigest().encode() + b"\n"
