"""The trainers: gradient flow, gradient descent, SGD and AdamW on ensembles of transformers.

A trainer holds M models whose weights carry one ensemble axis and moves them together; nothing it
computes for one model depends on another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torchdiffeq import odeint

from flowsim.errors import InputError
from full_model import native
from full_model.data import MarkovSource
from full_model.population import PopulationLoss
from full_model.sampled import batch_gradient
from full_model.transformer import Architecture, Weights, check_weights

TRAINERS = ("flow", "gd", "sgd", "adamw")
LOSSES = ("population", "sampled")
SCHEDULES = ("constant", "cosine")
METHODS = ("dopri5", "rk4")

#: Symbols to be trained on from which a second of compiling pays.
_WORTH_COMPILING = 2**22


@dataclass(frozen=True)
class Recipe:
    """How the weights are moved; every number validated.

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
        weight_decay: decoupled, at least 0, on the attention and feed-forward matrices and the
            untied reader; not on embedding, positions, norms and bias.
        clip: largest gradient norm per model, positive; None for no clipping.
        schedule: "constant", or "cosine" with ``warmup``.
        warmup: share of the steps that warm up, in [0, 1).
        method: of the flow, torchdiffeq's "dopri5" (adaptive; one model after the other, for a
            shared step would let every model's numbers depend on its neighbours) or "rk4" (fixed
            ``step_size``, all models at once; the one for hundreds).
        rtol, atol: of dopri5, positive. Where a token crosses a ReLU's kink the field jumps and the
            steps shrink; tight tolerances cost dearly there.
        step_size: of rk4, positive.

    Raises:
        InputError: a value out of range; the flow or gradient descent on sampled batches.

    Source: AM Table 2 for AdamW: β = (0.9, 0.95), weight decay 1e-3, learning rate 1e-3, cosine
    with 2 % warm-up, clipping at 1, batch 16, context 1024, at most 8 000 steps. Which weights
    decay, and that the cosine starts at 1/100 and ends at 1/5 of the learning rate, is from the
    authors' public code (whose own defaults are learning rate 2e-3 and no clipping).
    """

    trainer: str = "adamw"
    steps: int = 8000
    loss: str | None = None
    learning_rate: float | None = None
    batch: int = 16
    horizon: float = 100.0
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
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
            "weight_decay": 1e-3 if adamw else 0.0,
            "schedule": "cosine" if adamw else "constant",
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.loss not in LOSSES or self.schedule not in SCHEDULES:
            raise InputError(
                f"loss must be one of {', '.join(LOSSES)} and schedule one of "
                f"{', '.join(SCHEDULES)}, not {self.loss!r} and {self.schedule!r}"
            )
        for name in ("steps", "batch"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise InputError(f"{name} must be an integer of at least 1, not {number!r}")
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
    """AdamW as in AM Table 2; see ``Recipe``."""
    return Recipe("adamw", steps=steps, batch=batch, clip=1.0)


class Trainer:
    """M models in training.

    Args:
        arch: the architecture.
        weights: (M, *shape) each; copied.
        source: one chain for all or one per model.
        recipe: how to train.
        generator: source of the batches, on the weights' device; needed where the loss is sampled.

    Attributes:
        step: steps done.
        weights, moments: the state; ``moments`` holds AdamW's or SGD's running means by name.
        alive: (M,) bool; a flow that cannot be continued, or weights that are no longer finite, end
            a model: its weights stay NaN.
        evaluations: field evaluations of the flow so far.
        fast: does the compiled kernel do the sampled batches; it depends on the settings and on
            there being a compiler.

    Raises:
        InputError: weights, source, device and recipe that do not fit together.
    """

    def __init__(
        self,
        arch: Architecture,
        weights: Weights,
        source: MarkovSource,
        recipe: Recipe,
        generator: torch.Generator | None = None,
    ) -> None:
        ensemble = check_weights(arch, weights)
        if len(ensemble) != 1:
            raise InputError(f"a trainer takes one ensemble axis, not {len(ensemble)}")
        like = weights["bias"]
        if like.dtype not in (torch.float32, torch.float64):
            raise InputError(f"weights must be float32 or float64, not {like.dtype}")
        self.arch, self.recipe, self.generator = arch, recipe, generator
        self.source = source.repeat(ensemble[0]) if source.members > 1 else source
        self.members = ensemble[0]
        self.weights = {
            name: w.detach().clone(memory_format=torch.contiguous_format)
            for name, w in weights.items()
        }
        self.step, self.evaluations = 0, 0
        self.alive = torch.ones(self.members, dtype=torch.bool, device=like.device)
        self.moments: dict[str, Weights] = {}
        if recipe.loss == "population":
            self.population = PopulationLoss(arch, source, like.dtype, like.device)
        else:
            if generator is None or generator.device.type != like.device.type:
                raise InputError("sampled batches need a generator on the weights' device")
            self.per_member = source.repeat(self.members)
        work = recipe.steps * recipe.batch * arch.length * self.members
        self.fast = work >= _WORTH_COMPILING and native.fits(arch, like.dtype, like.device)
        slots = {"adamw": ("first", "second"), "sgd": ("velocity",) if recipe.momentum else ()}
        for slot in slots.get(recipe.trainer, ()):
            self.moments[slot] = {name: torch.zeros_like(w) for name, w in self.weights.items()}

    def _gradient(self, threads: int) -> tuple[Tensor, Weights]:
        """The loss (M,) that this step descends, and its gradient; draws the batch if sampled."""
        if self.recipe.loss == "population":
            return self.population.value_and_gradient(self.weights)
        assert self.generator is not None
        inputs, targets = self.per_member.sample(
            self.recipe.batch, self.arch.length, self.generator
        )
        fast = threads if self.fast else 0
        return batch_gradient(self.arch, self.weights, inputs, targets, fast)

    def advance(self, steps: int = 1) -> Tensor:
        """Take some steps; the loss (M,) seen by the last one, before its move (after the flow)."""
        if self.recipe.trainer == "flow":
            return self._flow(steps)
        loss = torch.zeros(0)
        threads = torch.get_num_threads()
        if self.fast:  # torch's idle workers spin, in the way of the kernel's own threads
            torch.set_num_threads(1)
        try:
            for _ in range(steps):
                loss, gradient = self._gradient(threads)
                self._move(gradient)
                self.step += 1
        finally:
            torch.set_num_threads(threads)
        self.alive &= loss.isfinite()
        return loss

    @torch.no_grad()
    def _move(self, gradient: Weights) -> None:
        recipe, names = self.recipe, list(self.weights)
        grads = [gradient[name].contiguous() for name in names]
        weights = [self.weights[name] for name in names]
        rate = recipe.rate(self.step)
        if recipe.clip is not None:
            norm = sum(g.reshape(self.members, -1).square().sum(1) for g in grads) ** 0.5
            scale = (recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            grads = [g * scale.reshape(-1, *[1] * (g.ndim - 1)) for g in grads]
        if recipe.trainer == "adamw":
            self._adamw(dict(zip(names, grads, strict=True)), rate)
            return
        if recipe.weight_decay:
            for name, weight in zip(names, weights, strict=True):
                if name.split(".")[-1] in _DECAYING:
                    weight.mul_(1 - rate * recipe.weight_decay)
        if recipe.trainer == "sgd" and recipe.momentum:
            velocity = [self.moments["velocity"][name] for name in names]
            torch._foreach_mul_(velocity, recipe.momentum)
            torch._foreach_add_(velocity, grads)
            grads = velocity
        torch._foreach_add_(weights, grads, alpha=-rate)

    def _adamw(self, grads: Weights, rate: float) -> None:
        """One step of AdamW in a single pass over the weights, those that decay and those not.

        The fused operator walks through memory and looks at no strides: all is contiguous here.
        """
        recipe = self.recipe
        done = torch.tensor(float(self.step + 1), device=self.alive.device)
        for decay in (True, False):
            some = [name for name in grads if (name.split(".")[-1] in _DECAYING) == decay]
            if not some:
                continue
            torch._fused_adamw_(
                [self.weights[name] for name in some],
                [grads[name] for name in some],
                [self.moments["first"][name] for name in some],
                [self.moments["second"][name] for name in some],
                [],
                [done] * len(some),
                lr=rate,
                beta1=recipe.beta1,
                beta2=recipe.beta2,
                weight_decay=recipe.weight_decay if decay else 0.0,
                eps=recipe.epsilon,
                amsgrad=False,
                maximize=False,
            )

    def _flow(self, steps: int) -> Tensor:
        """Gradient flow over ``steps`` intervals; models that fail are ended, not the batch."""
        span = self.recipe.horizon * steps / self.recipe.steps
        state = self._flatten(self.weights)
        moving = self.alive.nonzero()[:, 0]
        together = self.recipe.method == "rk4"
        for rows in [moving] if together else moving.split(1):
            try:
                state[rows] = self._integrate(state[rows], rows, span)
            except AssertionError:  # torchdiffeq's way to say that a step underflows
                state[rows] = torch.nan
        self.weights = {name: w.clone() for name, w in self._unflatten(state).items()}
        self.step += steps
        with torch.no_grad():
            loss = self.population(self.weights)
        self.alive &= loss.isfinite()
        return loss

    def _integrate(self, state: Tensor, rows: Tensor, span: float) -> Tensor:
        """The states of some members after ``span``; AssertionError where the solver gives up."""
        if not len(rows):
            return state
        population = self.population.select(rows)

        def field(t: Tensor, flat: Tensor) -> Tensor:
            self.evaluations += 1
            _, gradient = population.value_and_gradient(self._unflatten(flat))
            return -self._flatten(gradient)

        times = torch.tensor([0.0, span], dtype=state.dtype, device=state.device)
        if self.recipe.method == "rk4":
            options: dict[str, object] = {"step_size": self.recipe.step_size}
        else:
            options = {"max_num_steps": 100_000}
        return odeint(
            field,
            state,
            times,
            rtol=self.recipe.rtol,
            atol=self.recipe.atol,
            method=self.recipe.method,
            options=options,
        )[-1]

    def _flatten(self, weights: Weights) -> Tensor:
        return torch.cat([weights[k].reshape(len(weights[k]), -1) for k in self.arch.shapes], 1)

    def _unflatten(self, flat: Tensor) -> Weights:
        weights, start = {}, 0
        for name, shape in self.arch.shapes.items():
            size = math.prod(shape)
            weights[name] = flat[:, start : start + size].reshape(-1, *shape)
            start += size
        return weights


_DECAYING = ("query", "key", "value", "out", "up", "down", "unembedding")


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _require(name: str, value: object, what: str, holds: Callable[[float], bool]) -> None:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and holds(number)):
        raise InputError(f"{name} must be a number {what}, not {value!r}")
