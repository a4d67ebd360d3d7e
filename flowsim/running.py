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

#: Arrays by name; and what is given a function that computes some, and may keep them.
Arrays = Mapping[str, np.ndarray]
Keep = Callable[[Callable[[], Arrays]], Arrays]
#: Seconds after which a bar is shown.
DELAY = 0.5

_Function = TypeVar("_Function", bound=Callable[..., Any])


def keep_nothing(compute: Callable[[], Arrays]) -> Arrays:
    """Compute arrays, and keep none of them."""
    return compute()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """``count`` threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


class Bar:
    """A bar on stderr, which a call moves on."""

    def __init__(self, title: str) -> None:
        from tqdm import tqdm

        self.bar = tqdm(desc=title, file=sys.stderr, delay=DELAY)

    def __call__(self, count: int) -> None:
        self.bar.update(count)

    def next_stage(self, what: str, count: int) -> Bar:
        """Begin again for so many of something else."""
        self.bar.unit = f" {what}"
        self.bar.reset(count)
        return self


def expect(progress: Callable[[int], object] | None, count: int) -> None:
    """Say how many will be counted, to a bar that does not know yet."""
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
