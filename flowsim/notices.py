"""Notices of the command line on stderr; off in programs."""

from __future__ import annotations

from collections.abc import Callable

#: Called once, when numba begins to compile code that the disk does not hold yet; None for silence.
compiling: Callable[[], object] | None = None


def say_compiling() -> None:
    """Call ``compiling``, the first time only."""
    global compiling
    call, compiling = compiling, None
    if call is not None:
        call()
