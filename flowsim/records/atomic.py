"""Files that appear whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from flowsim.errors import InputError


def check_output(path: Path, option: str, suffixes: Iterable[str], overwrite: bool) -> None:
    """Refuse an output that could not be written, before anything is computed.

    Raises:
        InputError: unknown suffix, missing or read-only folder, or an existing file without
            ``overwrite``, be it a link that leads nowhere.
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
    try:
        found = path.exists() or os.path.lexists(path)
    except OSError as error:  # a name that no file can have
        raise InputError(f"{option}: {str(path)!r} ({error.strerror})") from None
    if path.is_dir():
        raise InputError(f"{option}: {str(path)!r} is a folder")
    if found and not overwrite:
        raise InputError(f"{option}: {str(path)!r} exists; give --overwrite to replace it")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary name beside ``path``, flush it to disk and rename.

    Raises:
        InputError: the disk is full or the folder went away.
    """
    write_together([(path, write)])


def write_together(files: Sequence[tuple[Path, Callable[[Path], object]]]) -> None:
    """Files that appear together: all are finished before one of them takes its place.

    Args:
        files: the name of each, and what writes it under a temporary name beside that.

    Raises:
        InputError: the disk is full or a folder went away; none of the files is there then, and
            what they were to replace is as it was.
    """
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
