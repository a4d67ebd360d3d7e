"""Scans to disk: chunk after chunk beside the output, then one record, whatever happens.

While a scan runs, ``scan.nc.parts`` holds its settings, a lock and one file per finished chunk.
When all are there the record is put together in that folder, renamed to ``scan.nc``, and the folder
is removed. Every file appears whole or not at all, and parts carry a checksum, so that a run that
was killed at any moment can be resumed, and ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from flowsim.errors import InputError, Interrupted
from flowsim.flow.confirm import Stage
from flowsim.records.atomic import check_output, write_atomically
from flowsim.records.netcdf import open_record
from flowsim.scan.parts import Parts, read_file, replace_file, write_file
from flowsim.scan.plan import Scan, run_task
from flowsim.scan.record import write_scan_record
from flowsim.scan.workers import run_chunks

_SETTINGS, _LOCK, _RECORD = "settings.json", "lock", "record.nc"
#: Seconds within which a lock can be had unless another run holds it.
_LOCK_SECONDS = 0.2


def write_scan(
    scan: Scan,
    out: Path | str,
    resume: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Callable[[np.ndarray], object] | None = None,
    command: str = "flowsim.write_scan",
    stage: Stage | None = None,
) -> Path:
    """Follow every start of a scan and write one record; what is finished is never lost.

    Args:
        scan: what to compute.
        out: the record, .nc.
        resume: continue an unfinished scan of the same settings (or begin, if there is none).
        overwrite: replace an existing record, and an unfinished scan unless it is resumed.
        jobs: processes; with several, a script does this below
            ``if __name__ == "__main__":``.
        scheduler: address of a running dask scheduler, which then does the work.
        progress: called with the labels of every chunk, also of those that a resumed scan finds.
        command: stored in the record as what made it; it should leave out what changes no result.
        stage: called before the sample is decided again, with "points checked by torchdiffeq" and
            how many; returns what to call with the number done.

    Returns:
        The path of the record. Its bytes depend on the scan and the command only.

    Raises:
        InputError: an output that cannot be written or exists, an unfinished scan or a record of
            other settings, another run on the same output, a full disk, or what ``run_chunks``
            refuses.
        Interrupted: Ctrl-C; finished chunks are kept for ``resume``.
    """
    out = Path(out)
    check_output(out, "--out", (".nc",), overwrite or resume)
    settings = {**scan.settings(), "command": command}
    with _locked(out) as folder:
        if os.path.lexists(out) and not overwrite:
            _refuse_others(_record_settings(out), settings, out, "is a record")
            _discard(folder)
            return out
        _tidy(folder, keep_parts=_continues(out, folder, settings, resume, overwrite))
        _check_space(scan, folder)
        text = json.dumps(settings, indent=1)
        write_file(folder / _SETTINGS, text.encode())
        try:
            record = folder / _RECORD
            parts = _follow_missing(scan, Parts(scan, folder, text), jobs, scheduler, progress)
            write_atomically(
                record, lambda name: write_scan_record(scan, parts.demand, name, settings, stage)
            )
            replace_file(record, out)
        except KeyboardInterrupt:
            raise _interrupted(folder) from None
        _discard(folder)
    return out


def _continues(
    out: Path, folder: Path, settings: dict[str, str], resume: bool, overwrite: bool
) -> bool:
    """Whether an unfinished scan of the same settings lies in the folder, to be continued.

    Raises:
        InputError: it has other settings, or it is neither to be continued nor replaced.
    """
    stored = folder / _SETTINGS
    unfinished = os.path.lexists(stored)
    if unfinished and resume:
        _refuse_others(_read_settings(stored), settings, out, "has an unfinished scan")
    elif unfinished and not overwrite:
        raise InputError(
            f"an unfinished scan for {str(out)!r} lies in {str(folder)!r}: give --resume to "
            "continue it, or --overwrite to start afresh"
        )
    return unfinished and resume


def _interrupted(folder: Path) -> Interrupted:
    if not any(folder.glob("*.part")):
        return Interrupted("interrupted before anything was finished; nothing is left half written")
    return Interrupted(
        f"interrupted; what is finished is kept in {str(folder)!r}: "
        "give the same command with --resume to continue"
    )


def _follow_missing(
    scan: Scan,
    parts: Parts,
    jobs: int,
    scheduler: str | None,
    progress: Callable[[np.ndarray], object] | None,
) -> Parts:
    """All chunks, of which those that are not there yet are followed."""
    for chunk in range(scan.chunks):
        points = parts.read(chunk)
        if points is not None and progress is not None:
            progress(points["label"])
    missing = [chunk for chunk in range(scan.chunks) if not parts.has(chunk)]
    with closing(run_chunks(run_task, scan.task, missing, jobs, scheduler)) as results:
        for chunk, points in results:
            parts.write(chunk, points)
            if progress is not None:
                progress(points["label"])
    return parts


@contextmanager
def _locked(out: Path) -> Iterator[Path]:
    """The folder beside ``out``, which no other run holds; removed again if no part is there."""
    folder = out.with_name(f"{out.name}.parts")
    while True:
        lock = FileLock(folder / _LOCK, timeout=_LOCK_SECONDS)
        try:
            folder.mkdir(exist_ok=True)
            lock.acquire()
        except FileNotFoundError:
            continue  # a run that just finished removed the folder in between
        except Timeout:
            raise InputError(f"another run is writing {str(out)!r}") from None
        except (OSError, NotImplementedError) as error:
            raise _unusable(folder, error) from None
        if (folder / _LOCK).exists():
            break
        lock.release()  # of a folder that was removed before it was locked
    try:
        yield folder
    finally:
        if not (folder / _SETTINGS).exists() or not any(folder.glob("*.part")):
            _discard(folder)
        lock.release()


def _unusable(folder: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(f"cannot use the folder {str(folder)!r}: {reason}")


def _discard(folder: Path) -> None:
    """Remove the folder. The settings go first: without them the rest counts for nothing."""
    (folder / _SETTINGS).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _tidy(folder: Path, keep_parts: bool) -> None:
    """Remove what killed runs left half written and, unless they are kept, all parts."""
    for path in folder.iterdir():
        kept = path.name == _LOCK or (
            keep_parts and (path.suffix == ".part" or path.name == _SETTINGS)
        )
        if path.name.startswith(".") or not kept:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(
                    f"{str(path)!r} is none of a scan's files and cannot be removed "
                    f"({error.strerror}): remove it yourself"
                ) from None


def _check_space(scan: Scan, folder: Path) -> None:
    """Refuse a scan whose parts and record would not fit on the disk."""
    needed = scan.size * (2 * scan.dtype.itemsize + 8 * len(scan.starts.names))
    free = shutil.disk_usage(folder).free
    present = sum(path.lstat().st_size for path in folder.iterdir())
    if needed > free + present:
        raise InputError(
            f"the scan's {scan.size} points need about {_size(needed)} in {str(folder.parent)!r}, "
            f"where {_size(free)} are free"
        )


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024 or unit == "PiB":
            break
        count /= 1024
    return f"{count:.3g} {unit}" if count < 1e4 else f"{count:.0f} {unit}"


def _refuse_others(
    found: dict[str, str] | None, wanted: dict[str, str], out: Path, what: str
) -> None:
    """InputError with the differences, unless the settings are the same."""
    if found is None:
        raise InputError(f"{str(out)!r} {what} whose settings cannot be read; give --overwrite")
    names = [n for n in {**found, **wanted} if found.get(n) != wanted.get(n)]
    if names:
        shown = "; ".join(
            f"{n}: {found.get(n, 'none')}, now {wanted.get(n, 'none')}" for n in names
        )
        raise InputError(f"{str(out)!r} {what} of other settings ({shown})")


def _read_settings(path: Path) -> dict[str, str] | None:
    try:
        return _texts(json.loads(read_file(path)))
    except (OSError, ValueError, RecursionError):
        return None


def _record_settings(path: Path) -> dict[str, str] | None:
    """The settings of a record that is whole, to the last bit; None where it is not a scan's."""
    with open_record(path, "scan") as record:
        try:
            return _texts(json.loads(str(record.attrs.get("settings"))))
        except (ValueError, RecursionError):
            return None


def _texts(found: object) -> dict[str, str] | None:
    """A table of texts, or None for anything else."""
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        return None
    return found
