"""Execution of public functions: number of torch's threads, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np
import torch

#: Arrays by name; and a function that calls one that computes arrays, and may store the result.
Arrays = Mapping[str, np.ndarray]
Keep = Callable[[Callable[[], Arrays]], Arrays]
#: Seconds after which a bar is shown.
DELAY = 0.5

_Function = TypeVar("_Function", bound=Callable[..., Any])


def keep_nothing(compute: Callable[[], Arrays]) -> Arrays:
    """Compute arrays, and keep none of them: the ``Keep`` of a run that stores nothing."""
    return compute()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


class Bar:
    """A progress bar on stderr; calling it moves it on by a count."""

    def __init__(self, title: str) -> None:
        from tqdm import tqdm

        self.bar = tqdm(desc=title, file=sys.stderr, delay=DELAY)

    def __call__(self, count: int) -> None:
        self.bar.update(count)

    def next_stage(self, what: str, count: int) -> Bar:
        """Begin again, to count ``count`` units called ``what``; return the bar."""
        self.bar.unit = f" {what}"
        self.bar.reset(count)
        return self


def expect(progress: Callable[[int], object] | None, count: int) -> None:
    """Tell a progress bar without a total how many will be counted."""
    if isinstance(progress, Bar) and progress.bar.total is None:
        progress.bar.total = count


def quickly(function: _Function) -> _Function:
    """Let a public function run on one thread of torch, and show a bar for ``progress=True``.

    A second thread only slows tensors of a few thousand numbers down. It runs on as many threads as
    torch has where its first argument says that it is ``large``.
    """
    known = signature(function).parameters
    names = tuple(known)
    counts = "progress" in known and str(known["progress"].annotation).startswith("Callable[[int]")

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        large = getattr(given[0] if given else named.get(names[0]), "large", False)
        with nullcontext() if large is True else threads(1):
            if not counts or named.get("progress") is not True:
                return function(*given, **named)
            bar = Bar(function.__name__)
            with bar.bar:
                if "next_stage" in names:
                    named.setdefault("next_stage", bar.next_stage)
                return function(*given, **{**named, "progress": bar})

    return called  # type: ignore[return-value]
