"""What the command line says beside its results, on stderr; a program need not."""

from __future__ import annotations

from collections.abc import Callable

#: Called once, when numba begins to compile what the disk does not hold yet; None to say nothing.
compiling: Callable[[], object] | None = None


def say_compiling() -> None:
    """Call ``compiling``, the first time only."""
    global compiling
    call, compiling = compiling, None
    if call is not None:
        call()
