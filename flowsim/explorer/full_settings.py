"""How the full transformer is trained beside an orbit: settings within bounds, from no browser."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowsim.errors import InputError

TRAINERS = ("gd", "flow", "sgd", "adamw")
#: Bounds of one run; its time is bounded too (``training_stream``).
MOST_D, MOST_N, MOST_STEPS, MOST_NOISE, MOST_RATE = 64, 64, 50_000, 1.0, 10.0
#: Learning rates where none is chosen.
USUAL_RATE = {"gd": 0.1, "sgd": 0.1, "adamw": 1e-3, "flow": None}


@dataclass(frozen=True)
class FullSettings:
    """Trainer and sizes of a run of the full transformer.

    Args:
        trainer: "gd" or "flow" on the exact loss, "sgd" or "adamw" on sampled batches of 16.
        d: embedding dimension.
        length: N; the model's own, or 8, if None.
        noise: deviation of normal noise added to every lifted weight.
        learning_rate: of gd, sgd and adamw; the trainer's usual one if None.
        steps: the most that are taken; a run of gd or flow ends when its fate is decided.
        seed: of the noise and of the batches.

    Raises:
        InputError: a value out of its bounds.
    """

    trainer: str = "gd"
    d: int = 8
    length: int | None = None
    noise: float = 0.0
    learning_rate: float | None = None
    steps: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.trainer not in TRAINERS:
            raise InputError(f"the trainer must be one of {', '.join(TRAINERS)}")
        for name, most in (("d", MOST_D), ("length", MOST_N), ("steps", MOST_STEPS)):
            value = getattr(self, name)
            if not (value is None and name == "length"):
                _whole(name, value, 1, most)
        _whole("seed", self.seed, 0, 10**9)
        _real("noise", self.noise, 0.0, MOST_NOISE)
        if self.learning_rate is not None:
            _real("the learning rate", self.learning_rate, 1e-6, MOST_RATE)

    @property
    def rate(self) -> float | None:
        """The learning rate that is used; None for the flow, which has none."""
        usual = USUAL_RATE[self.trainer]
        return usual if usual is None or self.learning_rate is None else self.learning_rate


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}")


def _real(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= value <= high):
        raise InputError(f"{name} must be a number from {low:g} to {high:g}")
