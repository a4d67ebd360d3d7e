"""Ctrl-C and SIGTERM end a command with one sentence; also while its modules are loaded."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 130
SENTENCE = "interrupted; nothing is left half written"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the block with one sentence and exit code 130 at Ctrl-C or SIGTERM.

    Modules that are being loaded, and compiled code, turn a KeyboardInterrupt into other errors, so
    the signal itself is noted. Where something else answers it already, or in another thread than
    the first, it stays so.
    """
    came = []

    def interrupt(number: int, _: FrameType | None) -> None:
        """Note the signal, and interrupt the body."""
        came.append(number)
        raise KeyboardInterrupt

    default: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    ours = {number for number in default if signal.getsignal(number) is default[number]}
    try:
        for number in ours:
            signal.signal(number, interrupt)
    except ValueError:  # of threads
        ours = set()
    try:
        yield
    except (Exception, KeyboardInterrupt):
        if not came:
            raise
        print(f"flowsim: {SENTENCE}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        for number in ours:
            signal.signal(number, default[number])
