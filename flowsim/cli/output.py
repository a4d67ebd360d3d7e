"""How commands end: files that appear together, the summary in words or as JSON, the exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import typer

from flowsim.cli.texts import Summary, text_of
from flowsim.cli.values import join_ranges
from flowsim.errors import InputError
from flowsim.records.provenance import command_line

if TYPE_CHECKING:
    import xarray as xr

#: Exit codes beside 0 (done) and 1 (a fault in flowsim itself).
BAD_INPUT, UNRESOLVED, DISAGREES, INTERRUPTED = 2, 3, 4, 130


#: Options that change no result; a record's command leaves them out.
_NEUTRAL_FLAGS = {"--resume", "--overwrite", "--json", "--quiet"}
_NEUTRAL_VALUES = {"--jobs", "--scheduler", "--out"}


class Printing(Protocol):
    """The options that say what is printed."""

    @property
    def as_json(self) -> bool: ...

    @property
    def quiet(self) -> bool: ...


def say(text: str) -> None:
    """Print on stdout, where letters that its encoding lacks are escaped.

    Raises:
        InputError: stdout is on a full device. A reader that has gone away is no error.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        raise InputError(f"cannot print the result: {error.strerror or error}") from None


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Say something beside the result; where nothing can be written it stays unsaid.

    Args:
        sentence: without the program's name, which is put before it.
        stream: where; stderr if None.
    """
    stream = stream or sys.stderr
    try:
        print(f"flowsim: {sentence}", file=stream, flush=True)
    except OSError:
        _drop(stream)


def require_file(path: Path) -> None:
    """InputError unless there is something of that name."""
    try:
        found = path.exists()
    except OSError as error:  # a name that no file can have
        raise InputError(f"{str(path)!r}: {error.strerror}") from None
    if not found:
        raise InputError(f"no such file: {str(path)!r}")


def _drop(stream: TextIO) -> None:
    """Let what is still in the stream's buffer vanish, instead of failing again at the exit."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def report(
    kind: str,
    summary: Summary,
    files: dict[str, Path],
    began: float,
    printing: Printing,
    require: float | None = None,
) -> None:
    """Print a record's summary, its files and the seconds since ``began``, unless quiet.

    The command ends with an exit code of its own where labels contradict a check or are unknown, or
    where the summary's agreement is below ``require``.

    Raises:
        InputError: it cannot be printed; the files are there, whole.
    """
    whole = {
        **summary,
        "seconds": round(time.perf_counter() - began, 3),
        **{name: str(path) for name, path in files.items()},
    }
    try:
        if printing.as_json:
            say(json.dumps(whole, indent=2))
        elif not printing.quiet:
            say(text_of(kind, whole))
    except InputError as error:
        names = " and ".join(map(str, files.values()))
        raise InputError(
            f"{error}; {names} {'is' if len(files) == 1 else 'are'} complete"
        ) from None
    if require is not None and (summary["agreement"] is None or summary["agreement"] < require):
        raise typer.Exit(DISAGREES)
    wrong = ("oracle_wrong", "wrong", "refine_disagree", "confirm_disagree")
    if any(summary.get(name) for name in wrong):
        tell("some labels disagree with an independent check")
        raise typer.Exit(DISAGREES)
    unknown = (
        "unresolved", "refine_unresolved", "unresolved_outcomes", "unresolved_predictions",
        "not_finite",
    )  # fmt: skip
    if any(summary.get(name) for name in unknown):
        raise typer.Exit(UNRESOLVED)


def write_figure(
    record: xr.Dataset,
    figure: Path,
    stored: Path | None = None,
    energy: bool = False,
    show: str = "label",
) -> Summary:
    """Draw a record, write the figure, and the record if it has a name: both or neither.

    Args:
        record: of any kind.
        figure, stored: the names of the figure and of the record.
        energy, show: as of ``flowsim.draw``.

    Returns:
        The record's summary.

    Raises:
        InputError: a record that no figure shows, or files that cannot be written.
    """
    from flowsim.drawing.front import draw
    from flowsim.drawing.style import save_figure
    from flowsim.portraits.summaries import summarize
    from flowsim.records.atomic import write_together
    from flowsim.records.netcdf import store_record

    drawn, summary = draw(record, energy=energy, show=show), summarize(record)
    record_file = [] if stored is None else [(stored, partial(store_record, record))]
    write_together([*record_file, (figure, lambda path: save_figure(drawn, path))])
    return summary


def neutral_command() -> str:
    """The command line without what changes no result."""
    kept: list[str] = []
    skip = False
    for word in join_ranges(sys.argv[1:]):
        if skip:
            skip = False
        elif word in _NEUTRAL_VALUES:
            skip = True
        elif word not in _NEUTRAL_FLAGS and word.partition("=")[0] not in _NEUTRAL_VALUES:
            kept.append(word)
    return command_line(["flowsim", *kept])
