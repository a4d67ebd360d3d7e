"""Settings of an optimizer: trainer, loss, rates and schedule, every number validated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowsim.errors import InputError, require_integer
from flowsim.records.attributes import PAPERS_ADAMW

#: The models whose training is that of a full transformer, with its d and its batches.
MAPPED = ("rank-one",)
TRAINERS = ("flow", "gd", "sgd", "adamw")
LOSSES = ("population", "sampled")
SCHEDULES = ("constant", "cosine")
METHODS = ("dopri5", "rk4")
#: Momentum of the optimizer of that name, unless given.
MOMENTUM = 0.9
#: The weights that decay, by the last part of their names.
DECAYING = ("query", "key", "value", "out", "up", "down", "unembedding")
#: Clipping divides by the gradient's norm and this.
CLIP_GUARD = 1e-6


@dataclass(frozen=True)
class Recipe:
    """Settings of an optimizer; every number validated.

    Args:
        trainer: "flow" (dθ/dt = −∇L, torchdiffeq), "gd", "sgd" or "adamw".
        steps: number of steps, at least 1; for the flow the number of equal intervals of time.
        loss: "population" (exact) or "sampled" (fresh sequences every step); by default population
            for the flow and gradient descent, sampled for the others.
        learning_rate: positive; by default 1e-3 for AdamW and 0.1 for gradient descent and SGD.
        batch: sequences per step and model, at least 1.
        horizon: the flow's final time, positive; learning rate × steps are the same unit.
        momentum: of SGD, in [0, 1).
        beta1, beta2, epsilon: of AdamW, β in [0, 1), ε positive.
        weight_decay: decoupled, at least 0, by default 1e-2 for AdamW, on the attention and
            feed-forward matrices and the untied reader; not on embedding, positions, norms and
            bias.
        clip: largest gradient norm per model, positive; None for no clipping.
        schedule: "constant" (the default), or "cosine" with ``warmup``.
        warmup: share of the steps that warm up, in [0, 1).
        method: of the flow, torchdiffeq's "dopri5" (adaptive; one model after the other, for a
            shared step would let every model's numbers depend on its neighbours) or "rk4" (fixed
            ``step_size``, all models at once; the one for hundreds).
        rtol, atol: of dopri5, positive. Where a token crosses a ReLU's kink the field jumps and the
            steps shrink; tight tolerances cost dearly there.
        step_size: of rk4, positive.

    Raises:
        InputError: a value out of range; the flow or gradient descent on sampled batches.

    The defaults of AdamW are torch's. Those of the papers are ``Recipe.named("adamw-papers")``.

    Source: AM Table 2 for the papers' AdamW: β = (0.9, 0.95), weight decay 1e-3, learning rate
    1e-3, cosine with 2 % warm-up, clipping at 1, batch 16, context 1024, at most 8 000 steps. Which
    weights decay, and that the cosine starts at 1/100 and ends at 1/5 of the learning rate, is from
    the authors' public code (whose own defaults are learning rate 2e-3 and no clipping).

    >>> import flowsim
    >>> recipe = flowsim.training.Recipe("sgd", steps=500, learning_rate=0.05)
    >>> recipe.loss, recipe.batch
    ('sampled', 16)
    """

    trainer: str = "adamw"
    steps: int = 8000
    loss: str | None = None
    learning_rate: float | None = None
    batch: int = 16
    horizon: float = 100.0
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float | None = None
    clip: float | None = None
    schedule: str | None = None
    warmup: float = 0.02
    method: str = "dopri5"
    rtol: float = 1e-7
    atol: float = 1e-9
    step_size: float = 0.05

    def __post_init__(self) -> None:
        if self.trainer not in TRAINERS:
            raise InputError(f"trainer must be one of {', '.join(TRAINERS)}, not {self.trainer!r}")
        adamw, full_batch = self.trainer == "adamw", self.trainer in ("flow", "gd")
        defaults = {
            "loss": "population" if full_batch else "sampled",
            "learning_rate": 1e-3 if adamw else 0.1,
            "weight_decay": 1e-2 if adamw else 0.0,
            "schedule": "constant",
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.loss not in LOSSES or self.schedule not in SCHEDULES:
            raise InputError(
                f"loss must be one of {', '.join(LOSSES)} and schedule one of "
                f"{', '.join(SCHEDULES)}, not {self.loss!r} and {self.schedule!r}"
            )
        require_integer("steps", self.steps, 1)
        require_integer("batch", self.batch, 1)
        if self.method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        for name in ("learning_rate", "horizon", "epsilon", "rtol", "atol", "step_size", "clip"):
            if name != "clip" or self.clip is not None:
                _require(name, getattr(self, name), "positive", lambda x: x > 0)
        for name in ("momentum", "beta1", "beta2", "warmup"):
            _require(name, getattr(self, name), "in [0, 1)", lambda x: 0 <= x < 1)
        _require("weight_decay", self.weight_decay, "at least 0", lambda x: x >= 0)
        if full_batch and self.loss == "sampled":
            raise InputError(f"{self.trainer} runs on the population loss, not on sampled batches")
        if full_batch and self.weight_decay:
            raise InputError(
                f"{self.trainer} has no weight decay, and {self.weight_decay} is given"
            )

    @classmethod
    def named(cls, name: str, **numbers: Any) -> Recipe:
        """The recipe of a trainer, or of an optimizer by the name that it has in portraits.

        Args:
            name: one of the trainers; "momentum", gradient descent with momentum 0.9 unless given,
                on the population loss unless ``loss`` is "sampled"; "adam", AdamW without weight
                decay; or "adamw-papers", AdamW as in AM Table 2. "gd" on sampled batches is "sgd".
            numbers: of the recipe; None stands for the default.

        Raises:
            InputError: as for the class.
        """
        numbers = {key: value for key, value in numbers.items() if value is not None}
        if name == "momentum":
            return cls("sgd", **{"loss": "population", "momentum": MOMENTUM, **numbers})
        if name == "adamw-papers":
            return cls("adamw", **{**PAPERS_ADAMW, **numbers})
        if name == "adam":
            return cls("adamw", **{"weight_decay": 0.0, **numbers})
        sampled = name == "gd" and numbers.get("loss") == "sampled"
        return cls("sgd" if sampled else name, **numbers)

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, …: cosine from 1/100 up to 1, then down to 1/5 of it."""
        top = self.learning_rate
        assert top is not None
        if self.schedule == "constant":
            return top
        peak = self.warmup * self.steps - 1
        if step <= peak:
            return _cosine(top / 100, top, step / peak if peak > 0 else 1.0)
        rest = (self.steps - 1) - peak
        return _cosine(top, top / 5, (step - peak) / rest if rest > 0 else 1.0)


def papers_recipe(steps: int = 8000, batch: int = 16) -> Recipe:
    """AdamW as in AM Table 2; see ``Recipe``.

    >>> import full_model
    >>> recipe = full_model.papers_recipe(steps=1000)
    >>> recipe.learning_rate, recipe.weight_decay, recipe.schedule
    (0.001, 0.001, 'cosine')
    """
    return Recipe.named("adamw-papers", steps=steps, batch=batch)


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _require(argument: str, value: object, what: str, accepts: Callable[[float], bool]) -> None:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and accepts(number)):
        raise InputError(f"{argument} must be a number {what}, not {value!r}")
