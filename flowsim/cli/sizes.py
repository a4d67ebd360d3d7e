"""Sizes that no memory holds, refused with an estimate before anything is allocated."""

from __future__ import annotations

import math

from flowsim.errors import InputError

_GIB = 2**30


def require_memory(what: str, needed: float, smaller: str) -> None:
    """InputError, with both sizes, if ``needed`` bytes are more than this machine has free.

    Args:
        what: what would need them, as the sentence's subject.
        needed: bytes, an estimate from below.
        smaller: which options make it smaller.
    """
    from flowsim.models.past_law import available_memory

    available = available_memory()
    if needed > available:
        raise InputError(
            f"{what} needs at least {needed / _GIB:.3g} GiB of memory, and "
            f"{available / _GIB:.3g} GiB are free: choose a smaller {smaller}"
        )


def check_enumeration(length: int, instead: str = "", states: int = 2) -> None:
    """Of the exact loss with attention: there are S^N sequences.

    Args:
        length: N.
        instead: what else can be done, to end the sentence.
        states: S.
    """
    most = int(16 / math.log2(states) + 1e-9)
    if length > (60 if states == 2 else most):
        raise InputError(
            f"the exact loss with attention runs through all {states}^N sequences, and there are "
            f"10^{length * math.log10(states):.0f} of --length {length}: choose at most {most}"
            f"{instead}"
        )


def check_verify(d: int, length: int) -> None:
    """Of the checks: all sequences, and weights and their gradient of width 4d."""
    check_enumeration(length)
    require_memory(f"a transformer of d = {d}", 8.0 * 4 * (8 * d * d + 4 * d * d), "--d")


def check_counting(order: int, states: int, length: int) -> None:
    """Of a constructed transformer: all pairs of positions, with a vector for each."""
    d = states * max(order + 2, 6)
    require_memory(
        f"a transformer of d = {d} on {length} symbols",
        8.0 * length * length * (d + 3),
        "--length, --order or --states",
    )


def check_training(
    d: int, length: int, layers: int, hidden: int, models: int, batch: int, steps: int
) -> None:
    """Of training: weights, gradient and two moments, and what a batch leaves in every layer.

    Args:
        d, length, layers, hidden: the transformer's sizes.
        models: how many are trained at once.
        batch: sequences per step and model; 0 where the loss is not sampled.
        steps: of training.
    """
    weights = d * (2 + length) + layers * (4 * d * d + 2 * d * hidden)
    traces = batch * length * layers * (8 * d + 2 * hidden + length)
    models_words = f"{models} transformers" if models > 1 else "a transformer"
    require_memory(
        f"training {models_words} of {weights:.3g} weights on {batch} sequences of {length}",
        8.0 * models * (4 * weights + traces),
        "--batch, --seeds, --layers, --d or --length",
    )
    require_memory(f"the losses of {steps} steps", 8.0 * models * steps / 100, "--steps")


def check_comparison(d: int, length: int, points: int, hidden: int) -> None:
    """Of a comparison: positions and their rates at every start, in a few copies."""
    require_memory(
        f"a comparison of {points} starts at N = {length}, d = {d}",
        8.0 * 4 * points * d * (length + 4 * d + 2 * hidden),
        "--length, --d, --states, --hidden-per-state or number of starts",
    )
