"""The finished chunks of a scan in progress, one file each."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import numpy as np

from flowsim.errors import InputError
from flowsim.records.atomic import write_atomically
from flowsim.scan.plan import Scan


class Parts:
    """The finished chunks in a folder: one file each, a digest and then the points' bytes."""

    def __init__(self, scan: Scan, folder: Path, settings: str) -> None:
        self._scan, self._folder, self._settings = scan, folder, settings.encode()
        self._good: set[int] = set()

    def read(self, chunk: int) -> np.ndarray | None:
        """The points of a chunk, None where its file is missing, cut short or damaged."""
        try:
            content = read_file(self._path(chunk))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot read {str(self._path(chunk))!r}: {error.strerror}") from None
        digest, data = content[:32], content[32:]
        low, high = self._scan.bounds(chunk)
        whole = len(data) == (high - low) * self._scan.dtype.itemsize
        if not whole or digest != self._digest(chunk, data):
            return None
        self._good.add(chunk)
        return np.frombuffer(data, self._scan.dtype)

    def demand(self, chunk: int) -> np.ndarray:
        """The points of a chunk that must be there."""
        points = self.read(chunk)
        if points is None:
            raise InputError(
                f"{str(self._path(chunk))!r} went missing or was damaged while the scan ran: "
                "give the same command with --resume to compute it again"
            )
        return points

    def has(self, chunk: int) -> bool:
        """Whether the chunk was read or written whole."""
        return chunk in self._good

    def write(self, chunk: int, points: np.ndarray) -> None:
        data = points.tobytes()
        write_file(self._path(chunk), self._digest(chunk, data) + data)
        self._good.add(chunk)

    def _digest(self, chunk: int, data: bytes) -> bytes:
        return hashlib.sha256(b"%d " % chunk + self._settings + data).digest()

    def _path(self, chunk: int) -> Path:
        return self._folder / f"{chunk:08d}.part"


def read_file(path: Path) -> bytes:
    """The content of a file; FileNotFoundError for anything else, such as a folder or a link."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FileNotFoundError(path)
    return path.read_bytes()


def write_file(path: Path, content: bytes) -> None:
    write_atomically(path, lambda name: name.write_bytes(content))


def replace_file(source: Path, target: Path) -> None:
    try:
        os.replace(source, target)
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror}") from None
