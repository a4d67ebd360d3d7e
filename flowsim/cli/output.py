"""Write what commands give: figure and record together, summary, progress, and exit code.

Progress goes to stderr: a bar on a terminal, a line every ten seconds elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import typer

from flowsim.cli.groups import FIGURES, FigureFiles, Printed, refuse
from flowsim.cli.options import with_windows
from flowsim.cli.printer import Summary, as_text
from flowsim.errors import InputError
from flowsim.records.attributes import command_line

if TYPE_CHECKING:
    import xarray as xr

#: Exit codes beside 0 (done), 1 (a fault in flowsim itself) and 130 (interrupted).
BAD_INPUT, UNRESOLVED, DISAGREES = 2, 3, 4


#: Options that change no result; a record's command leaves them out.
_NEUTRAL_FLAGS = {"--resume", "--overwrite", "--json", "--quiet"}
_NEUTRAL_VALUES = {"--jobs", "--scheduler", "--out"}


def echo(text: str) -> None:
    """Print on stdout; InputError if it is full, and no error if its reader has gone away."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        raise InputError(f"cannot print the result: {error.strerror or error}") from None


def warn(sentence: str, stream: TextIO | None = None) -> None:
    """Say something beside the result, on stderr; where nothing can be written it stays unsaid."""
    stream = stream or sys.stderr
    try:
        print(f"flowsim: {sentence}", file=stream, flush=True)
    except OSError:
        _drop(stream)


def _drop(stream: TextIO) -> None:
    """Discard what is still in the stream's buffer, which would fail again at the exit."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def report(
    summary: Summary, files: dict[str, Path], given: Printed, require: float | None = None
) -> None:
    """Print a summary, files and seconds; exit with a code where labels are in doubt.

    ``require`` is the least ``agreement`` that a comparison's summary must have.
    """
    whole = {
        **summary,
        "seconds": round(time.perf_counter() - given.began, 3),
        **{name: str(path) for name, path in files.items()},
    }
    try:
        if given.as_json:
            echo(json.dumps(whole, indent=2))
        elif not given.quiet:
            echo(as_text(whole))
    except InputError as error:
        names, are = " and ".join(map(str, files.values())), "is" if len(files) == 1 else "are"
        raise InputError(f"{error}; {names} {are} complete") from None
    if require is not None and (summary["agreement"] is None or summary["agreement"] < require):
        raise typer.Exit(DISAGREES)
    wrong = ("oracle_wrong", "wrong", "refine_disagree", "confirm_disagree")
    if any(summary.get(name) for name in wrong):
        warn("some labels disagree with an independent check")
        raise typer.Exit(DISAGREES)
    unknown = ("unresolved", "refine_unresolved", "unresolved_outcomes", "unresolved_predictions",
               "not_finite")  # fmt: skip
    if any(summary.get(name) for name in unknown):
        if not given.quiet:
            tried = (text for name, text in _REMEDIES.items() if name in summary)
            warn(
                next(tried, "some starts are unresolved: try more --max-steps, or a smaller --rtol")
            )
        raise typer.Exit(UNRESOLVED)


#: Advice on what is unresolved, by a name that the summary has.
_REMEDIES = {
    "not_finite": "some models are no longer finite: try a smaller --learning-rate",
    "unresolved_outcomes": "some runs are undecided: try more --steps, or a longer --horizon of "
    "flow and gd",
    "optimizer": "some starts are unresolved: try more --steps, or a smaller --learning-rate",
}


def write_figure(
    record: xr.Dataset, figure: Path, stored: Path | None = None, **look: Any
) -> Summary:
    """Draw a record, write figure and record together, and return its summary.

    Without ``stored``, the record's path, the figure alone is written; ``look`` goes to ``draw``.
    """
    from flowsim.drawing.any_record import draw
    from flowsim.drawing.style import save_figure
    from flowsim.portraits.summaries import summarize
    from flowsim.records.netcdf import store_record, write_together

    if stored is None:
        drawn = draw(record, **look)
        write_together([(figure, lambda path: save_figure(drawn, path))])
        return summarize(record)
    keep = (stored, partial(store_record, record))
    with TemporaryDirectory() as folder:  # some faults of a figure show when it is set
        made = Path(folder) / figure.name
        try:
            save_figure(draw(record, **look), made)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            write_together([keep])
            why = str(error) if isinstance(error, InputError) else _in_a_line(error)
            raise InputError(
                f"the figure cannot be drawn: {why}; the record is kept in {str(stored)!r}"
            ) from error
        write_together([keep, (figure, lambda path: copyfile(made, path))])
    return summarize(record)


def write_and_report(
    record: xr.Dataset, figure: Path, stored: Path, given: FigureFiles, require: float | None = None
) -> None:
    """Write a record and its figure, and print the summary; see ``write_figure``, ``report``."""
    summary = write_figure(record, figure, stored, **given.look())
    report(summary, {"figure": figure, "record": stored}, given, require)


def _in_a_line(error: Exception) -> str:
    """Return the type and the message of an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def neutral_command() -> str:
    """Return the command line, for a record, without options that change no result."""
    kept, words = ["flowsim"], iter(with_windows(sys.argv[1:]))
    for word in words:
        if word in _NEUTRAL_VALUES:
            next(words, None)  # its value
        elif word not in _NEUTRAL_FLAGS and word.partition("=")[0] not in _NEUTRAL_VALUES:
            kept.append(word)
    return command_line(kept)


#: Options that go with --from.
_OF_FIGURES = {
    "source", "out", "energy", "show", "overlay", "width", "no_title", "no_legend", "no_orbits",
    "as_json", "overwrite", "quiet", "began",
}  # fmt: skip


def redraw(given: FigureFiles) -> None:
    """Draw the record of --from under --out, by default next to it, and print its summary."""
    from flowsim.records.netcdf import check_output, read_record

    source = given.source
    assert source is not None
    others = [name for name in vars(given) if name not in _OF_FIGURES]
    refuse(given, others, "--from redraws a record as it was computed")
    if not source.name:
        raise InputError(f"--from needs the name of a record, not {str(source)!r}")
    record = read_record(source)
    figure = given.out or source.with_suffix(".png")
    check_output(figure, "--out", FIGURES, given.overwrite)
    kind = record.attrs["kind"]
    if given.kind and kind != given.kind:
        raise InputError(
            f"{str(source)!r} is a record of the kind {kind!r}: flowsim portrait --from draws it; "
            "here --from redraws only what this command computes, and starts are --points"
        )
    look = given.look()
    if look.get("energy") and "energy" not in record:
        raise InputError("--energy draws the conserved energy of the canonical model; omit it here")
    if (show := look.get("show", "label")) != "label" and show not in record:
        raise InputError(f"--show {show} needs the record of a scan made with --fraction")
    try:
        summary = write_figure(record, figure, **look)
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # anything may be missing of what another program wrote
        raise InputError(
            f"{str(source)!r} cannot be drawn: it does not hold what such a record does "
            f"({_in_a_line(error)})"
        ) from error
    report(summary, {"figure": figure, "record": source}, given)


#: Seconds between two plain lines.
EVERY = 10.0


class Meter:
    """Counts how many of ``total`` units are done; ``unit`` is their name, in the plural.

    ``show`` is called after every change and prints the meter.
    """

    def __init__(self, total: int, unit: str) -> None:
        self.total, self.unit = total, unit
        self.done, self.message = 0, ""
        self._began, self._before = time.monotonic(), 0.0
        self.show: Callable[[], object] = lambda: None
        self._counts: dict[str, int] = {}

    def advance(self, more: int) -> None:
        """Count ``more`` units as done."""
        self.update(self.done + more)

    def update(self, done: int, message: str | None = None) -> None:
        """Set the amount done, and its description; None keeps the former one."""
        self.done, self.message = done, self.message if message is None else message
        self.show()

    def labels(self, labels: Any, names: dict[int, str]) -> None:
        """Count labels by name, and show the counts; ``names`` are those of the codes."""
        for code, name in names.items():
            self._counts[name] = self._counts.get(name, 0) + int((labels == code).sum())
        self.message = ", ".join(f"{name}={count}" for name, count in self._counts.items() if count)
        self.advance(len(labels))

    def then(self, unit: str, total: int) -> Callable[[int], object]:
        """Begin to count ``total`` other units; return what to call with the number done."""
        self.total, self.unit, self.done, self.message = total, unit, 0, ""
        self._before = time.monotonic() - self._began
        self.show()
        return self.advance

    def line(self, elapsed: float) -> str:
        """Progress after so many seconds, in one plain sentence."""
        text = f"{self.done} of {self.total} {self.unit}, {duration(elapsed)}"
        if 0 < self.done < self.total:
            spent = elapsed - self._before
            text += f", about {duration(spent * (self.total - self.done) / self.done)} left"
        return f"{text}; {self.message}" if self.message else text


def duration(seconds: float) -> str:
    """Return seconds as text, in the largest unit of which they are at least two."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def progress(total: int, unit: str, quiet: bool = False) -> Iterator[Meter]:
    """Yield a meter that is shown while the body runs; nothing is shown if ``quiet``."""
    meter = Meter(total, unit)
    shown = nullcontext() if quiet else _bar(meter) if _has_width() else _lines(meter)
    with shown:
        yield meter


def _has_width() -> bool:
    """Return whether stderr is a terminal with space for a bar; one of unknown width counts."""
    try:
        return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):  # a terminal in name alone
        return True


@contextmanager
def _bar(meter: Meter) -> Iterator[None]:
    """Show a meter as a bar, on a terminal."""
    from tqdm import tqdm

    with tqdm(total=meter.total, unit=f" {meter.unit}", leave=False, delay=0.5) as bar:

        def show() -> None:
            if bar.unit != f" {meter.unit}":
                bar.unit = f" {meter.unit}"
                bar.reset(meter.total)
            bar.total = meter.total
            bar.set_postfix_str(meter.message, refresh=False)
            bar.update(meter.done - bar.n)

        meter.show = show
        yield


@contextmanager
def _lines(meter: Meter) -> Iterator[None]:
    """Print a meter as a line every ten seconds.

    A thread prints, since a single call of the body may take minutes.
    """
    ended, began, stream = threading.Event(), time.monotonic(), sys.stderr

    def go_on() -> None:
        """Print a line every ten seconds, until the body has ended."""
        while not ended.wait(EVERY):
            warn(meter.line(time.monotonic() - began), stream)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
