"""The trainers: gradient flow, gradient descent, SGD and AdamW on ensembles of transformers.

A trainer holds M models whose weights carry one ensemble axis and moves them together; nothing it
computes for one model depends on another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torchdiffeq import odeint

from flowsim.errors import InputError
from flowsim.running import threads
from flowsim.training.optimizer_choice import CLIP_GUARD, DECAYING, Recipe
from full_model.model import native
from full_model.model.architecture import Architecture, Weights, check_weights, flatten, unflatten
from full_model.model.batches import batch_gradient, threads_for, widest
from full_model.model.prefix_tree import PrefixTreeLoss, exact_loss
from full_model.model.sources import SequenceSource

#: Symbols to be trained on from which a second of compiling pays.
_WORTH_COMPILING = 2**22
#: Loss (M,) and gradient by name, from weights and what else there is.
Descent = Callable[..., tuple[Tensor, Weights]]
#: Calls of a function before it is captured, in which libraries set themselves up.
_WARM = 2


class Trainer:
    """M models in training.

    Args:
        arch: the architecture.
        weights: (M, *shape) each; copied.
        source: one chain for all or one per model; or a prior.
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
        workers, threads: the threads of that kernel and of torch, see ``threads_for``; they are as
            many as torch had when the trainer was made, or fewer.

    Raises:
        InputError: weights, source, device and recipe that do not fit together.

    >>> import flowsim, full_model
    >>> source = full_model.MarkovSource.of(flowsim.BinaryChain(0.5, 0.8))
    >>> arch, recipe = full_model.Architecture(d=4, length=4), full_model.Recipe("gd", steps=20)
    >>> weights = full_model.initial_weights(arch, "balanced", seeds=[0])
    >>> trainer = full_model.Trainer(arch, weights, source, recipe)
    >>> loss = trainer.advance()
    >>> trainer.step
    1
    """

    def __init__(
        self,
        arch: Architecture,
        weights: Weights,
        source: SequenceSource,
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
            self.population = exact_loss(arch, source, like.dtype, like.device)
            self._descent = CudaGraphCallable.on(like.device, self.population.value_and_gradient)
            rows = 1 if isinstance(self.population, PrefixTreeLoss) else len(self.population.tokens)
        else:
            if generator is None or generator.device.type != like.device.type:
                raise InputError("sampled batches need a generator on the weights' device")
            self.per_member = source.repeat(self.members)
            self._descent = CudaGraphCallable.on(like.device, partial(batch_gradient, arch))
            rows = recipe.batch
        work = recipe.steps * recipe.batch * arch.length * self.members
        self.fast = work >= _WORTH_COMPILING and native.fits(arch, like.dtype, like.device)
        self.workers = torch.get_num_threads()
        self.threads = threads_for(self.members * rows * arch.length * widest(arch, arch.length))
        slots = {"adamw": ("first", "second"), "sgd": ("velocity",) if recipe.momentum else ()}
        for slot in slots.get(recipe.trainer, ()):
            self.moments[slot] = {name: torch.zeros_like(w) for name, w in self.weights.items()}

    def _gradient(self) -> tuple[Tensor, Weights]:
        """Compute the loss (M,) that this step descends, and its gradient by name, (M, *shape).

        If the loss is sampled, a new batch is drawn for it.
        """
        if self.recipe.loss == "population":
            return self._descent(self.weights)
        assert self.generator is not None
        inputs, targets = self.per_member.sample(
            self.recipe.batch, self.arch.length, self.generator
        )
        if self.fast:
            return batch_gradient(self.arch, self.weights, inputs, targets, self.workers)
        return self._descent(self.weights, inputs, targets)

    def advance(self, steps: int = 1) -> Tensor:
        """Take some steps and return the loss (M,) that the last one saw before its move.

        The flow gives the loss afterwards.
        """
        if self.recipe.trainer == "flow":
            return self._flow(steps)
        loss = torch.zeros(0)
        # torch's idle workers spin, in the way of the kernel's own threads
        with threads(1 if self.fast else self.threads):
            for _ in range(steps):
                loss, gradient = self._gradient()
                self._move(gradient)
                self.step += 1
        self.alive &= loss.isfinite() & finite_members(self.weights)
        return loss.clone()  # the next step of a captured one overwrites it

    @torch.no_grad()
    def _move(self, gradient: Weights) -> None:
        """Move the weights by one step of the recipe, its gradient clipped for each model."""
        recipe, rate = self.recipe, self.recipe.rate(self.step)
        grads = {name: gradient[name].contiguous() for name in self.weights}
        if recipe.clip is not None:
            grads = _clipped(grads, recipe.clip)
        decaying = [name for name in grads if name.split(".")[-1] in DECAYING]
        if recipe.trainer == "adamw":
            rest = [name for name in grads if name not in decaying]
            self._adamw(decaying, grads, rate, recipe.weight_decay or 0.0)
            self._adamw(rest, grads, rate, 0.0)
            return
        if recipe.weight_decay:
            for name in decaying:
                self.weights[name].mul_(1 - rate * recipe.weight_decay)
        for name, velocity in self.moments.get("velocity", {}).items():
            grads[name] = velocity.mul_(recipe.momentum).add_(grads[name])
        for name, slope in grads.items():
            self.weights[name].add_(slope, alpha=-rate)

    def _adamw(self, names: list[str], grads: Weights, rate: float, decay: float) -> None:
        """Move the named weights by one step of AdamW, in a single pass; all is contiguous here."""
        if not names:
            return
        recipe, like = self.recipe, self.weights[names[0]]
        done = torch.full((len(names),), float(self.step), device=like.device)
        adamw(
            [self.weights[name] for name in names],
            [grads[name] for name in names],
            [self.moments["first"][name] for name in names],
            [self.moments["second"][name] for name in names],
            [],
            list(done.unbind()),
            fused=True,
            amsgrad=False,
            beta1=recipe.beta1,
            beta2=recipe.beta2,
            lr=rate,
            weight_decay=decay,
            eps=recipe.epsilon,
            maximize=False,
        )

    def _flow(self, steps: int) -> Tensor:
        """Follow gradient flow over ``steps`` intervals; return the exact loss (M,) afterwards.

        A model that fails becomes NaN and is no longer trained; the others go on.
        """
        recipe, shapes = self.recipe, self.arch.shapes
        state, moving = flatten(shapes, self.weights), self.alive.nonzero()[:, 0]
        span = [0.0, recipe.horizon * steps / recipe.steps]
        times = torch.tensor(span, dtype=state.dtype, device=state.device)
        together = recipe.method == "rk4"
        options: dict[str, object] = {"max_num_steps": 100_000}
        if together:
            options = {"step_size": recipe.step_size}
        parts = [moving] if together else list(moving.split(1))
        for rows in parts if len(moving) else []:
            population = self.population.select(rows)

            def field(t: Tensor, weights: Tensor, population: Any = population) -> Tensor:
                """−∇L at rows of weights (m, K)."""
                self.evaluations += 1
                _, gradient = population.value_and_gradient(unflatten(shapes, weights))
                return -flatten(shapes, gradient)

            try:
                state[rows] = odeint(
                    field, state[rows], times, rtol=recipe.rtol, atol=recipe.atol,
                    method=recipe.method, options=options,
                )[-1]  # fmt: skip
            except AssertionError:  # torchdiffeq's way to say that a step underflows
                state[rows] = torch.nan
        self.weights = {name: w.clone() for name, w in unflatten(shapes, state).items()}
        self.step += steps
        with torch.no_grad():
            loss = self.population(self.weights)
        self.alive &= loss.isfinite()
        return loss


def finite_members(weights: Weights) -> Tensor:
    """Return a mask (M,) of the models whose weights (M, *shape) are all finite."""
    return torch.stack([w.reshape(len(w), -1).isfinite().all(1) for w in weights.values()]).all(0)


def _clipped(grads: Weights, most: float) -> Weights:
    """Scale gradients (M, *shape) down to norm ``most`` for each model where that is exceeded.

    A model's norm is that over all its weights together.
    """
    norm = sum(g.reshape(len(g), -1).square().sum(1) for g in grads.values()) ** 0.5
    scale = (most / (norm + CLIP_GUARD)).clamp(max=1.0)
    return {name: g * scale.reshape(-1, *[1] * (g.ndim - 1)) for name, g in grads.items()}


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """Capture ``work`` as a CUDA graph; return what repeats it on the same memory."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class CudaGraphCallable:
    """A function of loss and gradient that a GPU repeats as one CUDA graph from the third call on.

    All calls have tensors of the same shapes. On a small ensemble Python takes longer to launch the
    operators than a GPU to run them. So there they are captured after two calls, and each later
    call launches all of them at once, with the same numbers: its arguments are copied to where they
    were then, and what it returns is overwritten by the next call. On a CPU every call is the
    function's own.

    Args:
        function: of weights and tensors; looks at no number.
        capture: makes what repeats a piece of work; without it nothing is captured.
    """

    def __init__(
        self,
        function: Descent,
        capture: Callable[[Callable[[], None]], Callable[[], None]] | None = None,
    ) -> None:
        self.function, self.capture, self.calls = function, capture, 0
        self._replay: Callable[[], None] | None = None
        self._weights: Weights = {}
        self._others: tuple[Tensor, ...] = ()
        self._found: tuple[Tensor, Weights]

    @classmethod
    def on(cls, device: torch.device, function: Descent) -> CudaGraphCallable:
        """The function, captured on a GPU and plain on a CPU."""
        return cls(function, cuda_graph if device.type == "cuda" else None)

    def __call__(self, weights: Weights, *others: Tensor) -> tuple[Tensor, Weights]:
        self.calls += 1
        if self.capture is None or self.calls <= _WARM:
            return self.function(weights, *others)
        if self._replay is None:
            self._weights, self._others = dict(weights), tuple(x.clone() for x in others)
            self._replay = self.capture(self._work)
        else:
            pairs = [(self._weights[name], w) for name, w in weights.items()]
            for mine, given in [*pairs, *zip(self._others, others, strict=True)]:
                if mine.data_ptr() != given.data_ptr():
                    mine.copy_(given)
        self._replay()
        return self._found

    def _work(self) -> None:
        """Call the function with the kept arguments and keep what it returns: what is captured."""
        self._found = self.function(self._weights, *self._others)
