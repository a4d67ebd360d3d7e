"""What the command line says beside its results, on stderr; a program need not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

#: Called once, when numba begins to compile what the disk does not hold yet; None to say nothing.
compiling: Callable[[], object] | None = None

#: Called with the path of a record without a digest, as flowsim 0.1.0 wrote them.
without_digest: Callable[[Path], object] | None = None


def say_compiling() -> None:
    """Call ``compiling``, the first time only."""
    global compiling
    call, compiling = compiling, None
    if call is not None:
        call()


def say_without_digest(path: Path) -> None:
    """Call ``without_digest``, if anything is to be said."""
    if without_digest is not None:
        without_digest(path)
