"""What rows do with vectors; ``x[:] = y`` would compile a message about shapes at every place."""

from __future__ import annotations

from flowsim.compiled import compiled


@compiled(internal=True)
def copy(source, target):
    """Write the numbers of ``source`` into ``target``, of the same length."""
    for i in range(len(source)):
        target[i] = source[i]
