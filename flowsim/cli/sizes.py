"""Sizes that no memory holds, refused with an estimate before anything is allocated.

Every estimate is from below. ``batch`` is 0 where the loss is not sampled.
"""

from __future__ import annotations

import math

from flowsim.errors import InputError
from flowsim.memory import require_memory


def check_enumeration(length: int, instead: str = "", states: int = 2) -> None:
    """Check the exact loss with attention: S^N sequences; ``instead`` ends the message."""
    most = int(16 / math.log2(states) + 1e-9)
    if length > (60 if states == 2 else most):
        raise InputError(
            f"the exact loss with attention runs through all {states}^N sequences, and there are "
            f"10^{length * math.log10(states):.0f} of --length {length}: choose at most {most}"
            f"{instead}"
        )


def check_training(
    d: int, length: int, layers: int, hidden: int, models: int, batch: int, steps: int,
    states: int = 2, contexts: int = 0,
) -> None:  # fmt: skip
    """Check training: weights, gradient, two moments, and activations of a batch."""
    held_out = 64
    weights = d * (states + length) + layers * (4 * d * d + 2 * d * hidden)
    traces = batch * length * layers * (8 * d + 2 * hidden + length)
    traces += max(batch, held_out) * states * (length + 2 * contexts)
    models_words = f"{models} transformers" if models > 1 else "a transformer"
    require_memory(
        f"training {models_words} of {weights:.3g} weights on {batch} sequences of {length}",
        8.0 * models * (4 * weights + traces),
        "--batch, --seeds, --layers, --d or --length",
    )
    require_memory(f"the losses of {steps} steps", 8.0 * models * steps / 100, "--steps")


def check_comparison(d: int, length: int, points: int, hidden: int, batch: int = 0) -> None:
    """Check a comparison: positions and their rates at every start, in a few copies."""
    at_rest = 4.0 * points * d * (length + 4 * d + 2 * hidden)
    smaller = "--length, --d, --states, --hidden-per-state or number of starts"
    require_memory(
        f"a comparison of {points} starts at N = {length}, d = {d}",
        8 * (at_rest + float(batch) * (length + 1) * points),
        f"--batch, {smaller}" if batch else smaller,
    )


def check_optimizer(batch: int, length: int, attention: bool, starts: int) -> None:
    """Check an optimizer in reduced coordinates: a batch's symbols, starts at every position."""
    seen = (batch if attention else 2) * length if batch else 0
    columns = length if batch or attention else 1
    require_memory(
        f"training {starts} starts on {batch or 'all'} sequences of {length}",
        8.0 * (batch * (length + 1) + 5 * seen + 3 * starts * columns),
        f"{'--batch, ' * bool(batch)}--length or number of starts",
    )
