"""Progress on stderr: a bar on a terminal, a plain line every ten seconds anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from flowsim.cli.output import tell

#: Seconds between two plain lines.
EVERY = 10.0


class Meter:
    """Counts what is done of ``total``, with the time left and a note.

    Args:
        total: how much there is to do.
        unit: what is counted, in the plural.
    """

    def __init__(self, total: int, unit: str) -> None:
        self.total, self.unit = total, unit
        self.done, self.note = 0, ""
        self.most: float | None = None
        self._began, self._before = time.monotonic(), 0.0
        self.show: Callable[[], object] = lambda: None
        self._counts: dict[str, int] = {}

    def advance(self, more: int) -> None:
        """So much more is done."""
        self.reach(self.done + more)

    def reach(self, done: int, note: str | None = None, most: float | None = None) -> None:
        """So much is done in all, and what may be said of it.

        Args:
            done: how much.
            note: words about it; the former ones if None.
            most: seconds that are left at most, where what is done does not tell how many.
        """
        self.done, self.note, self.most = done, self.note if note is None else note, most
        self.show()

    def labels(self, labels: Any, names: dict[int, str]) -> None:
        """Points were decided: an array of their labels, and what to call each."""
        for code, name in names.items():
            self._counts[name] = self._counts.get(name, 0) + int((labels == code).sum())
        self.note = ", ".join(f"{name}={count}" for name, count in self._counts.items() if count)
        self.advance(len(labels))

    def then(self, unit: str, total: int) -> Callable[[int], object]:
        """What was counted is done, and so much of another thing follows; what counts it."""
        self.total, self.unit, self.done, self.note, self.most = total, unit, 0, "", None
        self._before = time.monotonic() - self._began
        self.show()
        return self.advance

    def line(self, elapsed: float) -> str:
        """Where things are after so many seconds, in one plain sentence."""
        text = f"{self.done} of {self.total} {self.unit}, {duration(elapsed)}"
        if self.most is not None:
            text += f", at most {duration(self.most)} left"
        elif 0 < self.done < self.total:
            spent = elapsed - self._before
            text += f", about {duration(spent * (self.total - self.done) / self.done)} left"
        return f"{text}; {self.note}" if self.note else text


def duration(seconds: float) -> str:
    """So many seconds in the unit that a reader would choose."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def progress(total: int, unit: str, quiet: bool = False) -> Iterator[Meter]:
    """A meter that is shown while the body runs; nothing is shown if quiet."""
    meter = Meter(total, unit)
    if quiet:
        yield meter
    elif sys.stderr.isatty():
        with _bar(meter):
            yield meter
    else:
        with _lines(meter, sys.stderr):
            yield meter


@contextmanager
def _bar(meter: Meter) -> Iterator[None]:
    from tqdm import tqdm

    with tqdm(total=meter.total, unit=f" {meter.unit}", leave=False, delay=0.5) as bar:

        def show() -> None:
            if bar.unit != f" {meter.unit}":
                bar.unit = f" {meter.unit}"
                bar.reset(meter.total)
            bar.total = meter.total
            bar.set_postfix_str(meter.note, refresh=False)
            bar.update(meter.done - bar.n)

        meter.show = show
        yield


@contextmanager
def _lines(meter: Meter, stream: TextIO, every: float | None = None) -> Iterator[None]:
    """A thread prints, since a single call of the body may take minutes."""
    ended, began = threading.Event(), time.monotonic()

    def go_on() -> None:
        while not ended.wait(EVERY if every is None else every):
            tell(meter.line(time.monotonic() - began), stream)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
