"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, unit: str, quiet: bool = False) -> Iterator[Callable[[int], object]]:
    """A function that advances the bar on stderr; it does nothing off a terminal or if quiet."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit=f" {unit}", leave=False, delay=0.5) as bar:
        yield bar.update
