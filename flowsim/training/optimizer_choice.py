"""An optimizer by its name, with every number that decides what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError, require_integer
from flowsim.interface import Model
from flowsim.training.recipe import Recipe
from flowsim.training.rule import rule_of

OPTIMIZERS = ("gd", "momentum", "adam", "adamw", "adamw-papers", "own")
#: The largest relative displacement of a start.
LARGEST_NUDGE = 0.1


def has_own_steps(model: Model) -> bool:
    """Return whether the model has ``step(theta, memory)``, the next θ (n, k) and memory (n, m).

    ``model.memory`` names the columns of the memory, which is 0 at the start.
    """
    return callable(getattr(model, "step", None))


@dataclass(frozen=True)
class OptimizerChoice:
    """Settings of a model's training: the recipe, the embedding dimension, the seed of the batches.

    Args:
        recipe: trainer "gd", "sgd" or "adamw" with its numbers; gradient flow is no optimizer.
        d: embedding dimension of the transformer whose lifted weights are trained, at least 1; its
            hidden width is 4d. Gradient descent is the same for every d; Adam's steps are not.
            None of a model that is trained in its own coordinates.
        seed: of the sampled batches and the nudge, an integer of at least 0.
        nudge: every coordinate of a start is multiplied by 1 + nudge·z with a normal number z of
            its own, the same for all starts. Starts lifted from the (w, e) plane lie on the set
            w1 = ±w2, which an exact map never leaves; on it Adam differs from Adam next to it, and
            the rounding of full training does not keep it (docs/derivations/10.md). None: 1e-12
            of a transformer, else 0.
        own: whether the model's own ``step`` is taken; of the recipe only the steps count.

    Raises:
        InputError: a flow, or a number out of range.

    >>> import flowsim
    >>> choice = flowsim.OptimizerChoice.named("adamw", learning_rate=3e-3, steps=2000)
    >>> choice.recipe.trainer, choice.recipe.steps
    ('adamw', 2000)
    """

    recipe: Recipe
    d: int | None = 8
    seed: int = 0
    nudge: float | None = 0.0
    own: bool = False

    def __post_init__(self) -> None:
        if self.recipe.trainer == "flow":
            raise InputError("gradient flow is no optimizer with steps: flowsim.find_limits has it")
        if self.d is not None:
            require_integer("d", self.d, 1)
        require_integer("seed", self.seed, 0)
        if self.nudge is not None and not 0 <= self.nudge <= LARGEST_NUDGE:
            raise InputError(f"nudge must be from 0 to {LARGEST_NUDGE:g}, not {self.nudge!r}")

    @classmethod
    def named(
        cls,
        name: str,
        d: int | None = 8,
        seed: int = 0,
        nudge: float | None = None,
        **numbers: Any,
    ) -> OptimizerChoice:
        """The optimizer of that name, with the same usual numbers as on the command line.

        Args:
            name: "gd", "momentum" (gradient descent with momentum 0.9 unless given), "adam" or
                "adamw" with torch's defaults, "adamw-papers" with those of AM Table 2, or "own",
                the model's ``step``, which has steps alone. The first two descend the population
                loss unless ``loss`` is "sampled".
            d, seed: as above.
            nudge: as above; by default None.
            numbers: those of ``Recipe`` that the optimizer has: steps, learning_rate, loss, batch,
                clip, schedule, warmup; momentum; beta1, beta2, epsilon; weight_decay of AdamW.
                None stands for the default.

        Raises:
            InputError: an unknown name, a number that the optimizer has not, or what ``Recipe``
                refuses.
        """
        if name not in OPTIMIZERS:
            raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, not {name!r}")
        own = {"momentum": ("momentum",), "gd": (), "adam": ("beta1", "beta2", "epsilon")}
        own["adamw"] = own["adamw-papers"] = (*own["adam"], "weight_decay")
        own["own"] = ()
        known = {"steps", "learning_rate", "loss", "batch", "clip", "schedule", "warmup"}
        if name == "own":
            known = {"steps"}
            numbers = {key: value for key, value in numbers.items() if value != "population"}
        foreign = sorted(numbers.keys() - {*known, *own[name]})
        if foreign:
            raise InputError(f"the optimizer {name} has no {', '.join(foreign)}")
        recipe = Recipe.named("gd" if name == "own" else name, **numbers)
        return cls(recipe, d, seed, nudge, own=name == "own")

    @property
    def name(self) -> str:
        """gd, momentum, adam, adamw or own: what the recipe amounts to."""
        if self.own:
            return "own"
        if self.recipe.trainer == "adamw":
            return "adamw" if self.recipe.weight_decay else "adam"
        return "momentum" if self.has_momentum else "gd"

    @property
    def has_momentum(self) -> bool:
        """Return whether a velocity is kept; gradient descent of the full trainer has none."""
        return self.recipe.trainer == "sgd" and self.recipe.momentum > 0

    def on(self, model: Model) -> OptimizerChoice:
        """The choice as it trains that model: d, batches and what is usual are of a transformer.

        Raises:
            InputError: sampled batches of a model that has none; own steps of one without.
        """
        if self.own and not has_own_steps(model):
            raise InputError(f"the model {model.name} has no step(theta, memory) of its own")
        if (rule := rule_of(model)) is not None:
            completed: OptimizerChoice = rule.completed(self)
            return completed
        if self.recipe.loss == "sampled":
            raise InputError(
                f'the {model.name} model has no batches: choose loss="population", its own loss'
            )
        return OptimizerChoice(self.recipe, None, self.seed, self.nudge or 0.0, self.own)

    def nudges(self, columns: int) -> np.ndarray:
        """Factors of the coordinates of every start, shape (columns,)."""
        if not self.nudge:
            return np.ones(columns)
        source = np.random.SeedSequence(self.seed, spawn_key=(1,))
        normal: np.ndarray = np.random.default_rng(source).standard_normal(columns)
        return 1 + self.nudge * normal

    def attributes(self) -> dict[str, Any]:
        """Every number that decides a result, for a record; those that do nothing are left out."""
        recipe = self.recipe
        names = ["steps"] if self.own else ["learning_rate", "steps", "loss", "schedule"]
        names += ["batch"] if recipe.loss == "sampled" else []
        names += ["warmup"] if recipe.schedule == "cosine" else []
        names += ["momentum"] if self.has_momentum else []
        names += ["beta1", "beta2", "epsilon"] if recipe.trainer == "adamw" else []
        names += ["weight_decay"] if recipe.weight_decay else []
        found: dict[str, Any] = {"optimizer": self.name}
        found |= {name: getattr(recipe, name) for name in names}
        found |= {} if self.own else {"clip": "none" if recipe.clip is None else recipe.clip}
        found |= ({} if self.d is None else {"d": self.d}) | {"nudge": self.nudge}
        drawn = recipe.loss == "sampled" or self.nudge
        return found | ({"training_seed": self.seed} if drawn else {})

    def settings(self) -> dict[str, str]:
        """Texts that identify the optimizer."""
        return {name: str(value) for name, value in self.attributes().items()}


def chosen(optimizer: OptimizerChoice | str, numbers: dict[str, Any]) -> OptimizerChoice:
    """The choice itself, or the optimizer of that name with its numbers, as ``named`` takes them.

    Raises:
        InputError: numbers beside a choice, or what ``named`` refuses.
    """
    if isinstance(optimizer, str):
        return OptimizerChoice.named(optimizer, **numbers)
    if numbers:
        raise InputError("numbers go with the name of an optimizer, not with a choice")
    return optimizer


def starts_of(model: Model, theta0: Numbers) -> Tensor:
    """Starts as a float64 tensor (n, k); InputError for another number of coordinates."""
    starts, k = to_tensor(theta0, "starts"), len(model.coordinates)
    if starts.ndim != 2 or starts.shape[1] != k:
        names = ", ".join(model.coordinates)
        raise InputError(f"starts need shape (n, {k}) = ({names}), not {tuple(starts.shape)}")
    return starts
