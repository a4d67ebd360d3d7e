"""Long runs to disk: part after part into one file beside the output, then the record.

While a scan runs, ``scan.nc.parts`` holds a line with its settings, a digest for every chunk, and
space for all points. A chunk is finished if the digest is that of the bytes in its place, so that
a run that was killed at any moment can be resumed. When all are finished the record is written to
``scan.nc.draft``, which becomes ``scan.nc``. ``scan.nc.lock`` keeps others out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from flowsim.errors import InputError, Interrupted
from flowsim.flow.options import Stage
from flowsim.interface import Model
from flowsim.records.netcdf import check_output, open_record, read_record, store_record
from flowsim.running import Arrays, Keep
from flowsim.scan.follow import shaped
from flowsim.scan.plan import Scan, run_task
from flowsim.scan.record import scan_basins, scan_record
from flowsim.scan.starts import Starts
from flowsim.scan.workers import run_chunks
from flowsim.spec import ModelSpec

#: Arguments of ``write_scan`` beside the scan and its path.
_WRITING = {"resume", "overwrite", "jobs", "scheduler", "progress", "command", "next_stage"}
#: Seconds within which a lock can be had unless another run holds it.
_LOCK_SECONDS = 0.2


def scan(
    model: Model | ModelSpec,
    starts: Starts | dict[str, np.ndarray],
    path: Path | str | None = None,
    **settings: Any,
) -> xr.Dataset:
    """Follow every start, and return the record of limits, labels and shares of the basins.

    Args:
        model: a model; with a path a ``ModelSpec`` too, of which ``over`` varies arguments.
        starts: a ``Grid``, ``Points`` or ``Cloud``, or values by axis.
        path: of a record to write, .nc, part by part and so that it can be resumed; by default the
            scan is in memory.
        settings: of ``scan_basins``; with a path, of ``Scan`` and of ``write_scan``.

    Raises:
        InputError: as ``scan_basins`` and ``write_scan``.

    >>> import flowsim, numpy as np
    >>> axis = np.linspace(-2, 2, 10)
    >>> record = flowsim.scan(flowsim.model("canonical", 0.5, 0.8), {"e": axis, "w": axis})
    >>> float(record.share.sel(basin="global_minimum"))
    0.46
    """
    if path is None:
        return scan_basins(model, starts, **settings)  # type: ignore[arg-type]
    written = {name: settings.pop(name) for name in _WRITING & settings.keys()}
    plan = Scan(model, starts, **settings)  # type: ignore[arg-type]
    return read_record(write_scan(plan, path, **written))


def write_scan(
    scan: Scan,
    out: Path | str,
    resume: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Callable[[np.ndarray], object] | None = None,
    command: str = "flowsim.scan.write_scan",
    next_stage: Stage | None = None,
) -> Path:
    """Follow every start of a scan and write one record; what is finished is never lost.

    Args:
        scan: what to compute.
        out: the record, .nc.
        resume: continue an unfinished scan of the same settings (or begin, if there is none).
        overwrite: replace an existing record, and an unfinished scan unless it is resumed.
        jobs: processes.
        scheduler: address of a running dask scheduler, which then does the work.
        progress: called with the labels of every chunk, also of those that a resumed scan finds.
        command: stored in the record as what made it; it should leave out what changes no result.
        next_stage: called before the sample is decided again, with "points checked by torchdiffeq"
            and how many, and before the record is written; returns what to call with the number
            done.

    Returns:
        The path of the record. Its values depend on the scan and the command only.

    Raises:
        InputError: an output that cannot be written or exists, an unfinished scan or a record of
            other settings, another run on the same output, a full disk, or what ``run_chunks``
            refuses.
        Interrupted: Ctrl-C; finished chunks are kept for ``resume``.

    >>> import flowsim, numpy as np, tempfile
    >>> axis = flowsim.scan.cell_centres(-2, 2, 8)
    >>> spec = flowsim.ModelSpec("canonical", {"p": 0.5, "q": 0.8})
    >>> scan = flowsim.scan.Scan(spec, flowsim.Grid({"e": axis, "w": axis}))
    >>> path = flowsim.scan.write_scan(scan, tempfile.mkdtemp() + "/scan.nc")
    >>> flowsim.read_record(path).label.shape
    (8, 8)
    """
    out = Path(out)
    check_output(out, "--out", (".nc",), overwrite or resume)
    settings = {**scan.settings(), "command": command}
    with locked(out):
        parts = Parts(scan, out.with_name(f"{out.name}.parts"), settings)
        if os.path.lexists(out) and not overwrite:
            with open_record(out, "scan") as record:
                _refuse_others(record.attrs.get("settings"), settings, out, "is a record")
            discard(parts.path)
            return out
        if not continues(out, parts.path, settings, resume, overwrite):
            needed = scan.size * (2 * scan.dtype.itemsize + 8 * len(scan.starts.names))
            free = shutil.disk_usage(out.parent).free
            if needed > free:
                raise InputError(
                    f"the scan's {scan.size} points need about {needed / 2**30:.3g} GiB in "
                    f"{str(out.parent)!r}, where {free / 2**30:.3g} GiB are free"
                )
            discard(parts.path)
        try:
            if not os.path.lexists(parts.path):
                write_whole(parts.path, lambda draft: draft.write_bytes(parts.head))
            done, missing = progress or (lambda labels: None), []
            for chunk in range(scan.chunks):
                points = parts.read(chunk)
                if points is None:
                    missing.append(chunk)
                else:
                    done(points["label"])
            with closing(run_chunks(run_task, scan.task, missing, jobs, scheduler)) as results:
                for chunk, points in results:
                    parts.write(chunk, points)
                    done(points["label"])
            record = scan_record(scan, parts.columns(), settings, next_stage)
            record.attrs |= {"command": command, "threads": 1}
            written = next_stage("points written", scan.size) if next_stage else None
            # compressing all numbers would take a third of the time in which fast orbits are found
            packed = "iu" if scan.cost < 1e-4 else "iuf"
            write_whole(out, lambda draft: store_record(record, draft, packed))
            if written is not None:
                written(scan.size)
        except KeyboardInterrupt:
            raise stopped(parts.path, parts.empty()) from None
        finally:
            if parts.empty():
                discard(parts.path)
        discard(parts.path)
    return out


def stopped(parts: Path, empty: bool) -> Interrupted:
    """The error after Ctrl-C, which says whether a file of finished parts is left."""
    if empty:
        return Interrupted("interrupted before anything was finished; nothing is left half written")
    return Interrupted(
        f"interrupted; what is finished is kept in {str(parts)!r}: give the same command with "
        "--resume to continue"
    )


def continues(
    out: Path, parts: Path, settings: dict[str, str], resume: bool, overwrite: bool,
    what: str = "scan",
) -> bool:  # fmt: skip
    """Return whether to resume an unfinished run of these settings from the file ``parts``.

    InputError for one of other settings, or one that is neither to be resumed nor replaced.
    """
    unfinished = os.path.lexists(parts)
    if unfinished and resume:
        with one_sentence("read", parts):
            found = b""
            if stat.S_ISREG(parts.lstat().st_mode):  # a fifo would never end
                with parts.open("rb") as file:
                    found = file.readline()
        _refuse_others(found, settings, out, f"has an unfinished {what}")
    elif unfinished and not overwrite:
        raise InputError(
            f"an unfinished {what} for {str(out)!r} lies in {str(parts)!r}: give --resume to "
            "continue it, or --overwrite to start afresh"
        )
    return unfinished and resume


def _refuse_others(
    stored: str | bytes | None, wanted: dict[str, str], out: Path, what: str
) -> None:
    """InputError with the differences, unless the settings, a JSON table, are the same."""
    try:
        found = dict(json.loads(stored or ""))
    except (TypeError, ValueError, RecursionError):
        raise InputError(
            f"{str(out)!r} {what} whose settings cannot be read; give --overwrite"
        ) from None
    if names := [n for n in {**found, **wanted} if found.get(n) != wanted.get(n)]:
        shown = (f"{n}: {found.get(n, 'none')}, now {wanted.get(n, 'none')}" for n in names)
        raise InputError(f"{str(out)!r} {what} of other settings ({'; '.join(shown)})")


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other runs on the same output away while the context lasts."""
    path = out.with_name(f"{out.name}.lock")
    lock = FileLock(path, timeout=_LOCK_SECONDS)
    with one_sentence("lock", path):
        try:
            lock.acquire()
        except Timeout:
            raise InputError(f"another run is writing {str(out)!r}") from None
    try:
        yield
    finally:
        discard(path)
        lock.release()


@contextmanager
def one_sentence(verb: str, path: Path) -> Iterator[None]:
    """Turn a failure to read, write or lock a file into an InputError of one sentence."""
    try:
        yield
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot {verb} {str(path)!r}: {reason}") from None


def discard(path: Path) -> None:
    """Remove a file; a folder in its place, or a file that cannot be removed, stays."""
    with suppress(OSError):
        path.unlink()


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that it appears whole: ``write`` is called with the path of a draft.

    A draft that a killed run left is removed first.
    """
    draft = path.with_name(f"{path.name.removesuffix('.parts')}.draft")
    with one_sentence("write", path):
        try:
            draft.unlink(missing_ok=True)
            write(draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            discard(draft)


class Parts:
    """The finished chunks in a file: a line of settings, digests of the chunks, then all points."""

    def __init__(self, scan: Scan, path: Path, settings: dict[str, str]) -> None:
        """Take the path of the file; nothing is read or written."""
        self.scan, self.path = scan, path
        self.head = json.dumps(settings).encode() + b"\n"
        self._points = len(self.head) + 32 * scan.chunks

    def read(self, chunk: int) -> np.ndarray | None:
        """The points of a chunk; None where it is not finished, or damaged."""
        low, high = (at * self.scan.dtype.itemsize for at in self.scan.bounds(chunk))
        with one_sentence("read", self.path), self.path.open("rb") as file:
            file.seek(len(self.head) + 32 * chunk)
            digest = file.read(32)
            if not any(digest):
                return None
            file.seek(self._points + low)
            data = file.read(high - low)
        return np.frombuffer(data, self.scan.dtype) if digest == self._digest(chunk, data) else None

    def write(self, chunk: int, points: np.ndarray) -> None:
        """Store the points of a chunk; on a full disk what is finished stays."""
        low, _ = self.scan.bounds(chunk)
        data = points.tobytes()
        with one_sentence("write", self.path), self.path.open("r+b") as file:
            file.seek(self._points + low * self.scan.dtype.itemsize)
            file.write(data)
            file.seek(len(self.head) + 32 * chunk)
            file.write(self._digest(chunk, data))
            file.flush()
            os.fsync(file.fileno())

    def empty(self) -> bool:
        """Return whether no chunk is finished."""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(len(self.head))
            return not any(file.read(32 * self.scan.chunks))
        return True

    def columns(self) -> dict[str, np.ndarray]:
        """All points by column, of the scan's shape; they are read when they are used."""
        with one_sentence("read", self.path):
            points = np.memmap(self.path, self.scan.dtype, "r", self._points, self.scan.size)
        return shaped(points, self.scan.shape)

    def _digest(self, chunk: int, data: bytes) -> bytes:
        """The SHA-256 of a chunk's number, the settings and the chunk's bytes."""
        return hashlib.sha256(b"%d " % chunk + self.head + data).digest()


@contextmanager
def kept(out: Path, settings: dict[str, str], resume: bool, overwrite: bool) -> Iterator[Keep]:
    """Keep the results of a run in ``out``.parts: a line of settings, then a digest for each.

    Inside, a function gives the results one after the other, and takes them from the file as far as
    it goes. Afterwards the file is gone; a run that was stopped leaves it, whole. One whose results
    cannot be computed leaves none.

    Raises:
        InputError: an unfinished run of other settings, or one that is neither to be resumed nor
            replaced; another run on the same output; a full disk.
        Interrupted: Ctrl-C.

    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> out = Path(tempfile.mkdtemp()) / "a.nc"
    >>> with kept(out, {"seed": "0"}, resume=False, overwrite=False) as keep:
    ...     print(keep(lambda: {"x": np.arange(3)})["x"], len(list(out.parent.glob("*.parts"))))
    [0 1 2] 1
    """
    path, head = out.with_name(f"{out.name}.parts"), json.dumps(settings).encode() + b"\n"
    with locked(out):
        resumes = continues(out, path, settings, resume, overwrite, "run")
        found: list[bytes] = []
        if resumes:
            with one_sentence("read", path):
                text = path.read_bytes()[len(head) :]
            while len(text) > 40:  # up to the first entry that is not whole
                data = text[40 : 40 + int.from_bytes(text[32:40], "little")]
                if text[: 40 + len(data)] != _sealed(head, data):
                    break
                found.append(data)
                text = text[40 + len(data) :]
        # without what a killed run left broken at the end
        write_whole(
            path, lambda draft: draft.write_bytes(head + b"".join(_sealed(head, x) for x in found))
        )
        left, empty = iter(found), not found

        def keep(compute: Callable[[], Arrays]) -> Arrays:
            """Take the next result from the file, or compute and append it."""
            nonlocal empty
            if (data := next(left, None)) is not None:
                with np.load(io.BytesIO(data)) as arrays:
                    return dict(arrays)
            try:
                arrays = compute()
            except InputError:  # which the same settings would meet again
                discard(path)
                raise
            np.savez(buffer := io.BytesIO(), **arrays)  # type: ignore[arg-type]
            with one_sentence("write", path), path.open("ab") as file:
                file.write(_sealed(head, buffer.getvalue()))
                file.flush()
                os.fsync(file.fileno())
            empty = False
            return arrays

        try:
            yield keep
        except KeyboardInterrupt:
            raise stopped(path, empty) from None
        finally:
            if empty:
                discard(path)
        discard(path)


def _sealed(head: bytes, data: bytes) -> bytes:
    """An entry of a file of results: a digest of ``head`` and ``data``, the size, and ``data``."""
    return hashlib.sha256(head + data).digest() + len(data).to_bytes(8, "little") + data
