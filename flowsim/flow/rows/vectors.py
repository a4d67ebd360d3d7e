"""What rows do with vectors; ``x[:] = y`` would compile a message about shapes at every place."""

from __future__ import annotations

from flowsim.compiled import compiled


@compiled(internal=True)
def copy(source, target):
    """Write the numbers of ``source`` into ``target``, of the same length."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled(internal=True)
def largest_of(values):
    """The largest |value|, or NaN where there is one."""
    largest = 0.0
    for value in values:
        if not abs(value) <= largest:
            largest = abs(value)
        if largest != largest:
            return largest  # NaN, which the next value would hide
    return largest
