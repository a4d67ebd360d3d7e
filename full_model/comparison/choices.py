"""Everything but the points that decides a comparison, and the model that predicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.catalogue import reduced_model
from full_model.training.recipe import TRAINERS
from full_model.training.settings import resolve_device

MODELS = ("canonical", "uniform", "rank-one")

#: Called with runs decided, runs in all, and a line about where they are.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Comparison:
    """Everything but the points that decides a comparison's numbers, validated.

    Args:
        p, q: the chain.
        model: "canonical" (e, w), "uniform" (e, w, a) or "rank-one" (from points of either).
        trainer: "flow", "gd", "sgd" or "adamw".
        d, length: of the full transformer.
        noise: deviation of Gaussian noise on every weight.
        seed: of the noise (point i has seed + i) and of the sampled batches.
        horizon: the time after which undecided runs of flow and descent are unresolved; by default
            40 (N + 10)/(π₀π₁|λ|), the slowest scale of the rank-one flow, whose positions move N
            times slower than the embedding.
        steps: of sgd and adamw (8 000 by default); for flow and descent the most that a run may
            take before it is unresolved, by default as many as it needs without attention and
            20 000 with it, where some starts creep along ever steeper valleys.
        batch, learning_rate: of sgd and adamw, see ``Recipe``.
        device: "cpu", "cuda" or "auto".
        dtype: the arithmetic of sgd and adamw, "float64" or "float32", in less than half the time;
            flow and descent are float64.

    Raises:
        InputError: a value out of range.
    """

    p: float
    q: float
    model: str = "canonical"
    trainer: str = "gd"
    d: int = 8
    length: int = 8
    noise: float = 0.0
    seed: int = 0
    horizon: float | None = None
    steps: int | None = None
    batch: int = 16
    learning_rate: float | None = None
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        chain = self.chain
        for name, value, names in (
            ("model", self.model, MODELS),
            ("trainer", self.trainer, TRAINERS),
        ):
            if value not in names:
                raise InputError(f"{name} must be one of {', '.join(names)}, not {value!r}")
        if self.dtype != "float64" and not (self.dtype == "float32" and self.stochastic):
            raise InputError(
                f"dtype must be float64, or float32 for sgd and adamw, not {self.dtype!r}"
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"noise must be a number of at least 0, not {self.noise!r}")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps!r}")
        if self.steps is None and self.stochastic:
            object.__setattr__(self, "steps", 8000)
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.horizon is None:
            pi0, pi1 = chain.stationary
            rate = pi0 * pi1 * max(abs(chain.second_eigenvalue), 0.05)
            object.__setattr__(self, "horizon", 40 * (self.length + 10) / rate)
        elif not (math.isfinite(self.horizon) and self.horizon > 0):
            raise InputError(f"horizon must be a positive number, not {self.horizon!r}")

    @property
    def chain(self) -> BinaryChain:
        return BinaryChain(self.p, self.q)

    @property
    def last_time(self) -> float:
        """The horizon, given or by default."""
        assert self.horizon is not None
        return self.horizon

    @property
    def stochastic(self) -> bool:
        """Does the trainer draw batches."""
        return self.trainer in ("sgd", "adamw")


def predicting_model(settings: Comparison, dimensions: int) -> ReducedModel:
    """The model that predicts, for points of that many coordinates.

    Raises:
        InputError: points (e, w) for the uniform model, or (e, w, a) for the canonical one.
    """
    attention = dimensions == 3
    if settings.model == "rank-one":
        return reduced_model("rank-one", settings.chain, settings.length, attention=attention)
    if attention != (settings.model == "uniform"):
        wanted = "(e, w, a)" if settings.model == "uniform" else "(e, w)"
        raise InputError(f"the {settings.model} model takes points {wanted}")
    length = settings.length if attention else None
    return reduced_model(settings.model, settings.chain, length)
