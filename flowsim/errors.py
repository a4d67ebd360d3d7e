"""Exceptions that end a command early, and how texts and integers are checked."""

import math
from typing import Any


class InputError(ValueError):
    """Bad input: one sentence that names the input and what it may be.

    The command line prints the sentence on stderr and exits with code 2; library callers catch
    it as a ``ValueError``.

    >>> import flowsim
    >>> try:
    ...     flowsim.BinaryChain(0.5, 1.5)
    ... except flowsim.InputError as error:
    ...     print(error)
    q must be a number strictly between 0 and 1, not 1.5
    """


class Interrupted(Exception):
    """The user stopped a long run; the sentence says what is kept and how to go on.

    The command line prints the sentence and exits with code 130.

    >>> import flowsim
    >>> try:
    ...     raise flowsim.errors.Interrupted("stopped after 3 of 8 chunks; --resume goes on")
    ... except flowsim.errors.Interrupted as stop:
    ...     print(stop)
    stopped after 3 of 8 chunks; --resume goes on
    """


def require_integer(argument: str, value: Any, least: int) -> None:
    """Raise InputError unless a value is an integer of at least ``least`` and below 2^63."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{argument} must be an integer of at least {least}, not {value!r}")
    if value >= 2**63:
        raise InputError(f"{argument} must be below 2^63, not {value!r}")


def number(text: str) -> float:
    """Return the float that a text spells in ASCII and without underscores, NaN if none."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def integer(text: str) -> int:
    """Return the integer of at least 0 that a text spells in plain digits, −1 if none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
