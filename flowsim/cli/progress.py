"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(total: int, unit: str, quiet: bool = False) -> Iterator[Callable[[int], object]]:
    """A function that advances the bar on stderr; it does nothing off a terminal or if quiet."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit=f" {unit}", leave=False, delay=0.5) as bar:
        yield bar.update


@contextmanager
def label_bar(total: int, names: dict[int, str], quiet: bool = False) -> Iterator[Any]:
    """A bar that is advanced by arrays of labels: points done, rate, time left, counts by label.

    Args:
        total: points.
        names: what to call each label, in the order of display.
        quiet: no bar, as off a terminal.
    """
    with progress_bar(total, "points", quiet) as advance:
        counts = dict.fromkeys(names.values(), 0)
        bar = getattr(advance, "__self__", None)

        def count(labels: Any) -> None:
            if bar is not None:
                for code, name in names.items():
                    counts[name] += int((labels == code).sum())
                bar.set_postfix({n: v for n, v in counts.items() if v}, refresh=False)
            advance(len(labels))

        yield count
