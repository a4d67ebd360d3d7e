"""Everything but the points that decides a comparison, and the model that predicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flowsim.arrays import resolve_device
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.markov import GapChain, SymmetricChain
from flowsim.spec import ModelSpec
from flowsim.training.optimizer_choice import TRAINERS
from full_model.comparison.comparable import COMPARABLE, LIFTS
from full_model.model.architecture import Architecture

#: Parts of the full model that noise can be added to.
NOISE_ON = ("all", "attention", "others")
#: Names of the weights of the attention layer.
ATTENTION = ("0.query", "0.key", "0.value", "0.out")

#: Called with runs done, runs in all, and a line about where they are.
Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Comparison:
    """Everything but the points that decides a comparison's numbers, validated.

    Args:
        p, q: the chain; of "states" p alone.
        model: "canonical" (e, w), "uniform" (e, w, a), "rank-one" (from points of either), or
            "states" (e, w), beside a transformer with S logits.
        trainer: "flow" or "gd"; or "sgd", "momentum", "adam", "adamw" or "adamw-papers", on sampled
            batches and for the rank-one model, in whose coordinates they have maps of their own
            that predict them.
        d, length: of the full transformer.
        noise: deviation of Gaussian noise on every weight, or on those that ``noise_on`` names.
        noise_on: "all"; "attention", its queries, keys, values and output; or "others", all else.
            A weight's noise is the same number whichever of these it is among.
        seed: of the noise (point i has seed + i) and of the sampled batches.
        horizon: the time after which undecided runs of flow and descent are unresolved; by default
            4000 (N + 10)/(π₀π₁|λ|), of S states 4000 (N + 10) S/|λ|, a hundred times the slowest
            scale of the rank-one flow, whose positions move N times slower than the embedding.
        steps: of sgd and AdamW (8 000 by default); for flow and descent the most that a run may
            take before it is unresolved, 20 000 by default. In ever steeper valleys descent, whose
            steps get ever shorter, would take 10¹⁰.
        batch, learning_rate: of sgd and AdamW, see ``Recipe``.
        device: "cpu", "cuda" or "auto".
        dtype: the arithmetic of sgd and adamw, "float64" or "float32", in less than half the time;
            flow and descent are float64.
        states, hidden_per_state: S and m of "states"; m is 4 unless given.

    Raises:
        InputError: a value out of range.

    >>> import full_model
    >>> settings = full_model.Comparison(0.5, 0.8, model="rank-one", d=4, length=4)
    >>> settings.trainer, settings.steps
    ('gd', 20000)
    """

    p: float
    q: float | None = None
    model: str = "canonical"
    trainer: str = "gd"
    d: int = 8
    length: int = 8
    noise: float = 0.0
    noise_on: str = "all"
    seed: int = 0
    horizon: float | None = None
    steps: int | None = None
    batch: int = 16
    learning_rate: float | None = None
    device: str = "cpu"
    dtype: str = "float64"
    states: int | None = None
    hidden_per_state: int | None = None

    def __post_init__(self) -> None:
        for name, value, names in (
            ("model", self.model, COMPARABLE),
            ("trainer", self.trainer, (*TRAINERS, "momentum", "adam", "adamw-papers")),
            ("noise_on", self.noise_on, NOISE_ON),
        ):
            if value not in names:
                raise InputError(f"{name} must be one of {', '.join(names)}, not {value!r}")
        spec = ModelSpec(self.model, {name: getattr(self, name) for name in
                                      ("p", "q", "states", "hidden_per_state")})  # fmt: skip
        chain = spec.chain()
        if self.states is not None:
            object.__setattr__(self, "hidden_per_state", spec.get("hidden_per_state"))
            if self.stochastic:
                raise InputError(
                    f"{self.trainer} is predicted by a map in rank-one coordinates, which the "
                    "states model has not: choose flow or gd"
                )
            if self.d < chain.states - 1:
                raise InputError(f"{chain.states} states need d of at least {chain.states - 1}")
            if resolve_device(self.device) != "cpu":
                raise InputError("the states model is compared on the CPU")
        if self.dtype != "float64" and not (self.dtype == "float32" and self.stochastic):
            raise InputError(
                f"dtype must be float64, or float32 for sgd and adamw, not {self.dtype!r}"
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"noise must be a number of at least 0, not {self.noise!r}")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps!r}")
        if self.steps is None:
            object.__setattr__(self, "steps", 8000 if self.stochastic else 20_000)
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.horizon is None:
            scale = 1 / chain.states if self.states else math.prod(chain.stationary)
            rate = scale * max(abs(chain.second_eigenvalue), 0.05)
            object.__setattr__(self, "horizon", 4000 * (self.length + 10) / rate)
        elif not (math.isfinite(self.horizon) and self.horizon > 0):
            raise InputError(f"horizon must be a positive number, not {self.horizon!r}")

    @property
    def chain(self) -> GapChain:
        """The chain of the data: of p and q, or of S states and p."""
        if self.states is not None:
            return SymmetricChain(self.states, self.p)
        assert self.q is not None
        return BinaryChain(self.p, self.q)

    @property
    def binary_chain(self) -> BinaryChain:
        """The chain of every model but "states"."""
        chain = self.chain
        assert isinstance(chain, BinaryChain)
        return chain

    @property
    def architecture(self) -> Architecture:
        """The transformer, with all its weights; of S states with S logits."""
        if self.states is None or self.hidden_per_state is None:
            return Architecture(self.d, self.length)
        return Architecture(
            self.d, self.length, hidden=self.hidden_per_state * self.states, states=self.states,
            output="states",
        )  # fmt: skip

    @property
    def last_time(self) -> float:
        """The horizon, given or by default."""
        assert self.horizon is not None
        return self.horizon

    @property
    def noisy_weights(self) -> tuple[str, ...]:
        """The weights that noise is added to, by name."""
        if not self.noise:
            return ()
        names = self.architecture.shapes
        wanted = {"all": (True, False), "attention": (True,), "others": (False,)}[self.noise_on]
        return tuple(name for name in names if (name in ATTENTION) in wanted)

    @property
    def stochastic(self) -> bool:
        """Return whether the trainer draws batches."""
        return self.trainer not in ("flow", "gd")


def predicting_model(settings: Comparison, dimensions: int) -> Model:
    """Build the reduced model that predicts, for points of 2 or 3 coordinates.

    InputError if the settings' model takes no such points.
    """
    if ("e", "w", "a")[:dimensions] not in LIFTS[settings.model]:
        wanted = " or ".join(f"({', '.join(names)})" for names in LIFTS[settings.model])
        raise InputError(f"the {settings.model} model takes points {wanted}")
    known = {name: getattr(settings, name) for name in ("p", "q", "length", "states",
                                                        "hidden_per_state")}  # fmt: skip
    return ModelSpec.fitting(settings.model, attention=dimensions == 3, **known).build()
