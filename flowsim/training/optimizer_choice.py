"""Settings of an optimizer, every number validated; no torch is imported here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError, require_integer
from flowsim.records.attributes import PAPERS_ADAMW

if TYPE_CHECKING:
    import numpy as np

    from flowsim.interface import Model

#: The models whose training is that of a full transformer, with its d and its batches.
MAPPED = ("rank-one",)
OPTIMIZERS = ("gd", "momentum", "adam", "adamw", "adamw-papers", "own")
TRAINERS = ("flow", "gd", "sgd", "adamw")
LOSSES = ("population", "sampled")
SCHEDULES = ("constant", "cosine")
METHODS = ("dopri5", "rk4")
#: Momentum of the optimizer of that name, unless given.
MOMENTUM = 0.9
#: The numbers that some optimizers have, by their names; and those of the flow.
_OF_ADAM = ("beta1", "beta2", "epsilon")
_OF_FLOW = ("horizon", "method", "rtol", "atol", "step_size")
_OWN = {"sgd": ("momentum", "weight_decay"), "momentum": ("momentum",), "adam": _OF_ADAM,
        "adamw": (*_OF_ADAM, "weight_decay"), "flow": _OF_FLOW,
        "adamw-papers": (*_OF_ADAM, "weight_decay")}  # fmt: skip
#: The trainers of optimizers that have other names, and what is usual for them.
_NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "momentum": ("sgd", {"loss": "population", "momentum": MOMENTUM}),
    "adam": ("adamw", {"weight_decay": 0.0}),
    "adamw-papers": ("adamw", PAPERS_ADAMW),
    "own": ("gd", {}),
}
#: The weights that decay, by the last part of their names.
DECAYING = ("query", "key", "value", "out", "up", "down", "unembedding")
#: Clipping divides by the gradient's norm and this.
CLIP_GUARD = 1e-6
#: The largest relative displacement of a start.
LARGEST_NUDGE = 0.1
#: Settings of training in reduced coordinates, which those of all weights have not.
REDUCED = ("d", "seed", "nudge", "own")


@dataclass(frozen=True)
class OptimizerChoice:
    """Settings of an optimizer, or of the flow, for reduced models and for whole transformers.

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
        d: of training in reduced coordinates, the embedding dimension of the transformer whose
            lifted weights are trained, at least 1; its hidden width is 4d. Gradient descent is the
            same for every d; Adam's steps are not. None of a model that is trained in its own
            coordinates.
        seed: of the sampled batches and the nudge there, an integer of at least 0.
        nudge: every coordinate of a start is multiplied there by 1 + nudge·z with a normal number z
            of its own, the same for all starts. Starts lifted from the (w, e) plane lie on the set
            w1 = ±w2, which an exact map never leaves; on it Adam differs from Adam next to it, and
            the rounding of full training does not keep it (docs/derivations/10.md). None: 1e-12
            of a transformer, else 0.
        own: whether the model's own ``step`` is taken; of the settings only the steps count.

    Raises:
        InputError: a value out of range; the flow or gradient descent on sampled batches.

    The defaults of AdamW are torch's. Those of the papers have the name "adamw-papers".

    Source: AM Table 2 for the papers' AdamW: β = (0.9, 0.95), weight decay 1e-3, learning rate
    1e-3, cosine with 2 % warm-up, clipping at 1, batch 16, context 1024, at most 8 000 steps. Which
    weights decay, and that the cosine starts at 1/100 and ends at 1/5 of the learning rate, is from
    the authors' public code (whose own defaults are learning rate 2e-3 and no clipping).

    >>> import flowsim
    >>> choice = flowsim.OptimizerChoice.named("adamw", learning_rate=3e-3, steps=2000)
    >>> choice.trainer, choice.steps, flowsim.training.Recipe("sgd", steps=500).batch
    ('adamw', 2000, 16)
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
    d: int | None = 8
    seed: int = 0
    nudge: float | None = None
    own: bool = False

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
        if self.d is not None:
            require_integer("d", self.d, 1)
        require_integer("seed", self.seed, 0)
        if self.nudge is not None and not 0 <= self.nudge <= LARGEST_NUDGE:
            raise InputError(f"nudge must be from 0 to {LARGEST_NUDGE:g}, not {self.nudge!r}")
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
    def named(
        cls,
        optimizer: str,
        d: int | None = 8,
        seed: int = 0,
        nudge: float | None = None,
        **numbers: Any,
    ) -> OptimizerChoice:
        """The optimizer of that name, with the same usual numbers as on the command line.

        Args:
            optimizer: "gd", "momentum" (gradient descent with momentum 0.9 unless given), "adam" or
                "adamw" with torch's defaults, "adamw-papers" with those of AM Table 2, or "own",
                the model's ``step``, which has steps alone. The first two descend the population
                loss unless ``loss`` is "sampled". Of whole transformers also "sgd" and "flow".
            d, seed, nudge: as above.
            numbers: those of the class that the optimizer has. None stands for the default.

        Raises:
            InputError: an unknown name, a number that the optimizer has not, or as for the class.
        """
        if optimizer not in (*OPTIMIZERS, *TRAINERS):
            raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, not {optimizer!r}")
        if optimizer == "own":
            numbers = {key: value for key, value in numbers.items() if value != "population"}
        special = {"trainer", "momentum", "weight_decay", *_OF_ADAM, *_OF_FLOW, *REDUCED}
        known = {field.name for field in fields(cls)} - special | {*_OWN.get(optimizer, ())}
        if foreign := sorted(numbers.keys() - ({"steps"} if optimizer == "own" else known)):
            raise InputError(f"the optimizer {optimizer} has no {', '.join(foreign)}")
        given = {key: value for key, value in numbers.items() if value is not None}
        trainer, usual = _NAMED.get(optimizer, (optimizer, {}))
        if optimizer == "gd" and given.get("loss") == "sampled":
            trainer = "sgd"
        return cls(trainer, **usual | given, d=d, seed=seed, nudge=nudge, own=optimizer == "own")

    @property
    def name(self) -> str:
        """gd, momentum, adam, adamw or own: what the settings amount to."""
        if self.own:
            return "own"
        if self.trainer == "adamw":
            return "adamw" if self.weight_decay else "adam"
        return "momentum" if self.has_momentum else "gd"

    @property
    def has_momentum(self) -> bool:
        """Return whether a velocity is kept; gradient descent of the full trainer has none."""
        return self.trainer == "sgd" and self.momentum > 0

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, …: constant, or by cosines up from 1/100, down to 1/5."""
        top = self.learning_rate
        assert top is not None
        if self.schedule == "constant":
            return top
        peak = self.warmup * self.steps - 1
        if step <= peak:
            return _cosine(top / 100, top, step / peak if peak > 0 else 1.0)
        rest = (self.steps - 1) - peak
        return _cosine(top, top / 5, (step - peak) / rest if rest > 0 else 1.0)

    def on(self, model: Model) -> OptimizerChoice:
        """Complete the choice for training that model: d and batches are of a transformer alone.

        Raises:
            InputError: a flow; sampled batches of a model that has none; own steps of one without.
        """
        from flowsim.training.rule import rule_of

        if self.trainer == "flow":
            raise InputError("gradient flow is no optimizer with steps: flowsim.find_limits has it")
        if self.own and not has_own_steps(model):
            raise InputError(f"the model {model.name} has no step(theta, memory) of its own")
        if (rule := rule_of(model)) is not None:
            completed: OptimizerChoice = rule.completed(self)
            return completed
        if self.loss == "sampled":
            raise InputError(
                f'the {model.name} model has no batches: choose loss="population", its own loss'
            )
        return replace(self, d=None, nudge=self.nudge or 0.0)

    def nudges(self, columns: int) -> np.ndarray:
        """Draw what every start's coordinates are multiplied by, 1 + nudge·z, shape (columns,)."""
        import numpy as np

        if not self.nudge:
            return np.ones(columns)
        source = np.random.SeedSequence(self.seed, spawn_key=(1,))
        normal: np.ndarray = np.random.default_rng(source).standard_normal(columns)
        return 1 + self.nudge * normal

    def attributes(self) -> dict[str, Any]:
        """Every number that decides a result, for a record; those that do nothing are left out."""
        names = ["steps"] if self.own else ["learning_rate", "steps", "loss", "schedule"]
        names += ["batch"] if self.loss == "sampled" else []
        names += ["warmup"] if self.schedule == "cosine" else []
        names += ["momentum"] if self.has_momentum else []
        names += ["beta1", "beta2", "epsilon"] if self.trainer == "adamw" else []
        names += ["weight_decay"] if self.weight_decay else []
        found: dict[str, Any] = {"optimizer": self.name}
        found |= {name: getattr(self, name) for name in names}
        found |= {} if self.own else {"clip": "none" if self.clip is None else self.clip}
        found |= ({} if self.d is None else {"d": self.d}) | {"nudge": self.nudge}
        drawn = self.loss == "sampled" or self.nudge
        return found | ({"training_seed": self.seed} if drawn else {})

    def settings(self) -> dict[str, str]:
        """The attributes as texts, which identify the optimizer."""
        return {name: str(value) for name, value in self.attributes().items()}


#: Its name beside a whole transformer.
Recipe = OptimizerChoice


def has_own_steps(model: Model) -> bool:
    """Return whether the model has ``step(theta, memory)``, the next θ (n, k) and memory (n, m).

    ``model.memory`` names the columns of the memory, which is 0 at the start.
    """
    return callable(getattr(model, "step", None))


def chosen(optimizer: OptimizerChoice | str, numbers: dict[str, Any]) -> OptimizerChoice:
    """Return the choice itself, or for an optimizer's name the one that ``named`` makes of it.

    Raises:
        InputError: numbers beside a choice, the name of no optimizer, or what ``named`` refuses.
    """
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, not {optimizer!r}")
        return OptimizerChoice.named(optimizer, **numbers)
    if numbers:
        raise InputError("numbers go with the name of an optimizer, not with a choice")
    return optimizer


def papers_recipe(steps: int = 8000, batch: int = 16) -> OptimizerChoice:
    """AdamW as in AM Table 2; see ``OptimizerChoice``.

    >>> import full_model
    >>> recipe = full_model.papers_recipe(steps=1000)
    >>> recipe.learning_rate, recipe.weight_decay, recipe.schedule
    (0.001, 0.001, 'cosine')
    """
    return OptimizerChoice.named("adamw-papers", steps=steps, batch=batch)


def _cosine(start: float, end: float, share: float) -> float:
    """The number at that share of the way from start to end, along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _require(argument: str, value: object, what: str, accepts: Callable[[float], bool]) -> None:
    """InputError, saying ``what`` is wanted, unless a value is a finite number that is accepted."""
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and accepts(number)):
        raise InputError(f"{argument} must be a number {what}, not {value!r}")
