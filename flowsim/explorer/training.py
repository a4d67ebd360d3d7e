"""The full transformer, trained from the lift of a start, and what it does while it trains.

Gradient descent and the flow are classified by their weights, as in a comparison. SGD and AdamW
have no limit to classify: they have learned, or not within their steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, cast

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.explorer.view import Start, Stop, Stopped, View, full_length, within
from flowsim.labels import Label
from flowsim.markov import GapChain
from full_model.comparison.choices import Comparison
from full_model.comparison.comparable import exact_model
from full_model.comparison.outcome import LEARNED_SAMPLED, open_gap
from full_model.comparison.sampled import HELD_OUT
from full_model.comparison.side_by_side import FullSide
from full_model.lift.initial import with_noise
from full_model.lift.lifting import lift_held
from full_model.lift.projection import project
from full_model.lift.states import lift_states, project_states
from full_model.model.architecture import Architecture, Weights
from full_model.model.sources import MarkovSource
from full_model.model.transformer import forward
from full_model.training.run import RunSession
from full_model.training.settings import Recipe, RunSettings

#: The trainers, and their learning rates where none is chosen.
USUAL_RATE = {"gd": 0.1, "flow": None, "sgd": 0.1, "adamw": 1e-3, "adamw-papers": 1e-3}
#: Bounds of one run; its seconds are bounded too (``LONGEST``).
MOST_D, MOST_N, MOST_STEPS, MOST_NOISE, MOST_RATE = 64, 64, 50_000, 1.0, 10.0
#: 2^N sequences over which the exact loss with attention is still a quick sum.
_MOST_EXACT = 12
#: Seconds after which a run ends whatever it is doing, and points of its curves.
LONGEST, _POINTS = 120.0, 150
#: Time at which the flow is looked at first, and by how much the next look is later.
_FIRST, _LATER = 0.02, 1.12


@dataclass(frozen=True)
class FullSettings:
    """Trainer and sizes of a run of the full transformer.

    A ``length`` of None is the N of the view's model, a ``learning_rate`` of None the usual one of
    the trainer.
    """

    trainer: str = "gd"
    d: int = 8
    length: int | None = None
    noise: float = 0.0
    learning_rate: float | None = None
    steps: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.trainer not in USUAL_RATE:
            raise InputError(f"the trainer must be one of {', '.join(USUAL_RATE)}")
        for name, low, high in (("d", 1, MOST_D), ("length", 1, MOST_N), ("steps", 1, MOST_STEPS),
                                ("seed", 0, 10**9)):  # fmt: skip
            value = getattr(self, name)
            there = value is not None or name != "length"
            if there and not (type(value) is int and low <= value <= high):
                raise InputError(f"{name} must be a whole number from {low} to {high}")
        within("noise", self.noise, 0.0, MOST_NOISE)
        if self.learning_rate is not None:
            within("the learning rate", self.learning_rate, 1e-6, MOST_RATE)

    @property
    def rate(self) -> float | None:
        """The learning rate that is used; None for the flow, which has none."""
        usual = USUAL_RATE[self.trainer]
        return usual if usual is None or self.learning_rate is None else self.learning_rate


def check_training(view: View, settings: FullSettings) -> None:
    """Raise InputError, a sentence for the page, where this trainer cannot train these sizes."""
    p, q, states = (view.spec.get(name) for name in ("p", "q", "states"))
    if states is None and view.chain != BinaryChain(p, q):
        name = view.spec.name
        raise InputError(f"a transformer is trained on the chain (p, q), not on the {name} model's")
    states, n = states or 2, full_length(view, settings.length)
    if settings.d < states - 1:
        raise InputError(f"{states} states need a width d of at least {states - 1}")
    attends = view.has_slice or settings.noise > 0
    if attends and settings.trainer in ("gd", "flow") and states**n > 2**_MOST_EXACT:
        raise InputError(
            f"with attention, {settings.trainer} sums over all {states}^{n} sequences: choose a "
            "smaller N, or sgd or adamw"
        )


def full_architecture(view: View, settings: FullSettings) -> Architecture:
    """Return one layer with softmax attention; untied, or with S logits, as the view's model is."""
    states, sizes = view.spec.get("states"), (settings.d, full_length(view, settings.length))
    if states is None:
        return Architecture(*sizes, tied=not is_untied(view))
    hidden = view.spec.get("hidden_per_state") * states
    return Architecture(*sizes, hidden=hidden, states=states, output="states")


def is_untied(view: View) -> bool:
    """Return whether the view's model has an unembedding of its own."""
    tied: bool = cast(Any, view.model).tied
    return not tied


def first_weights(view: View, settings: FullSettings, start: Start) -> Weights:
    """Return the first weights of training: the lift of a start, with noise if it is set.

    Unembedding u and bias b are as the view holds them.
    """
    arch, point = full_architecture(view, settings), canonical_point(view, start)
    held = view.fixed_values
    if arch.output == "states":
        clean = lift_states(point, arch)
    else:
        clean = lift_held(point, arch, view.chain, held.get("u"), held.get("b"))
    if not settings.noise:
        return clean
    return with_noise(arch, clean, settings.noise, [torch.Generator().manual_seed(settings.seed)])


def canonical_point(view: View, start: Start) -> Tensor:
    """Return the start as a point (e, w), (1, 2), or (e, w, a), (1, 3), with the view's a."""
    held = [view.fixed_values.get("a", 0.0)] if view.has_slice else []
    return torch.tensor([[start.y, start.x, *held]], dtype=torch.float64)


def logit_gap(arch: Architecture, weights: Weights, tokens: Tensor) -> float:
    """Return the mean logit after a one minus after a zero, of sequences of tokens.

    With S logits it is the mean of the current symbol's minus the mean of the others.
    """
    with torch.no_grad():
        logit = forward(arch, weights, tokens)[0]
    if arch.output == "states":
        own = logit.gather(-1, tokens[..., None].long())[..., 0]
        others = (logit.sum(-1) - own) / (arch.states - 1)
        return float((own - others).mean())
    one = tokens == 1
    return float(logit[one].mean() - logit[~one].mean())


@dataclass(frozen=True)
class Progress:
    """One look at a run; ``time`` is the sum of learning rates, (e, w) the projected weights."""

    step: int
    time: float
    loss: float
    e: float
    w: float
    gap: float


@dataclass
class Run:
    """A run as far as it has come; ``curve`` grows while it trains.

    ``predicted`` is where the flow goes from the same start; ``ended`` says why it trains no more.
    A ``whole`` run goes on through all of its steps after it is decided.
    """

    start: Start
    settings: FullSettings
    predicted: Label
    curve: list[Progress] = field(default_factory=list)
    outcome: Label = Label.UNRESOLVED
    ended: str = ""
    whole: bool = False


def training(view: View, run: Run, stop: Stop) -> Iterator[Run]:
    """Train as ``run`` says, and yield it after each look, its curve one point longer.

    At the end it is yielded once more, and ``ended`` says why. ``stop`` is asked in between.
    """
    check_training(view, run.settings)
    began = monotonic()

    def halted() -> bool:
        """Return whether the run is to stop: it was asked to, or its time is over."""
        return stop() or monotonic() - began > LONGEST

    moves = _descent if run.settings.trainer in ("gd", "flow") else _sampled
    for point, outcome in moves(view, run, halted):
        run.curve.append(point)
        run.outcome = outcome if outcome != Label.UNRESOLVED else run.outcome
        yield run
    if run.outcome != Label.UNRESOLVED and not run.whole:
        run.ended = "decided"
    elif stop():
        run.ended = "stopped"
    else:
        run.ended = "out of time" if halted() else "out of steps"
    yield run


def _descent(view: View, run: Run, stop: Stop) -> Iterator[tuple[Progress, Label]]:
    """Train by gradient descent or the flow on the exact loss, until the outcome is decided.

    Yields what each look sees, and the outcome so far.
    """
    settings = run.settings
    point, weights = canonical_point(view, run.start), first_weights(view, settings, run.start)
    own = {name: view.spec.get(name) for name in ("p", "q", "states", "hidden_per_state")}
    own |= {name: getattr(settings, name) for name in ("trainer", "d", "noise", "seed", "steps")}
    length, model = full_length(view, settings.length), exact_model(view.spec)
    comparison = Comparison(**own, length=length, learning_rate=settings.rate, model=model)
    side = FullSide(comparison, point, weights=weights)
    source, generator = MarkovSource.of(view.chain), torch.Generator().manual_seed(1)
    tokens = source.repeat(1).sample(32, length, generator)[0][0]
    rate, until, step = settings.rate, _FIRST, 0

    def look() -> tuple[Progress, Label]:
        """Measure the run; return its progress and its outcome so far."""
        now = float(side.time[0])
        side.most_steps = 2**62  # what has used up its steps is measured too
        line = side.measure(now)
        side.most_steps = settings.steps
        e, w = line["trained"][0, :2].tolist()
        gap = logit_gap(side.arch, side.field.whole(side.state), tokens)
        point = Progress(int(side.steps[0]), now, float(line["loss"][0]), e, w, gap)
        label = Label(int(side.outcome[0]))
        if run.whole:
            side.outcome[:] = Label.UNRESOLVED  # what is decided would not move
        return point, label

    def pause() -> None:
        """Raise ``Stopped`` if the run is to stop."""
        if stop():
            raise Stopped

    yield look()
    with torch.no_grad():
        while bool(side.undecided()[0]) and not stop():
            if rate is None:
                before = float(side.time[0])
                try:
                    side.move(until, pause)
                except Stopped:
                    return
                until *= _LATER
                if float(side.time[0]) == before or before > side.settings.last_time:
                    return
            else:
                wanted = _next_look(step, settings.steps)
                while step < wanted and not stop():
                    gradient, _ = side.field(side.state)
                    side.state = side.state - rate * gradient / side.field.metric
                    step += 1
                side.steps[:], side.time[:] = step, step * rate
            yield look()


def _next_look(step: int, steps: int) -> int:
    """Return the step of the next look at a run: often at first, then at equal distances."""
    return min(step + max(1, min(steps // _POINTS, step // 4 + 1)), steps)


def _sampled(view: View, run: Run, stop: Stop) -> Iterator[tuple[Progress, Label]]:
    """Train by SGD or AdamW on fresh batches.

    Yields what each look sees, and the outcome so far. It has learned where at most a tenth of the
    gap is left in the last tenth of its looks.
    """
    full, chain, arch = run.settings, view.chain, full_architecture(view, run.settings)
    assert isinstance(chain, GapChain)
    recipe = Recipe.named(full.trainer, steps=full.steps, learning_rate=full.rate)
    data: dict[str, Any] = {"data": chain}
    if arch.output == "binary":
        data = {name: (view.spec.get(name),) for name in ("p", "q")}
    settings = RunSettings(
        arch, recipe, seeds=(full.seed,), init="given", data_seed=full.seed,
        test_batch=min(64, max(4, HELD_OUT // arch.length)), **data,
    )  # fmt: skip
    session = RunSession(settings, first_weights(view, full, run.start))
    trainer = session.trainer
    time = 0.0

    def look() -> Progress:
        """Measure the run and return its progress so far."""
        session.measure(torch.full((1,), torch.nan))
        latest = {name: values[-1] for name, values in session.history.items()}
        if arch.output == "states":
            e, w = project_states(arch, trainer.weights, turns=8).canonical[0].tolist()
        else:
            along = torch.full((arch.d,), arch.d**-0.5, dtype=trainer.weights["bias"].dtype)
            e, w = project(arch, trainer.weights, along).canonical[0, :2].tolist()
        gap = logit_gap(arch, trainer.weights, session.tokens[0])
        return Progress(trainer.step, time, float(latest["loss"][0]), e, w, gap)

    yield look(), Label.UNRESOLVED
    while trainer.step < recipe.steps and not stop():
        wanted = _next_look(trainer.step, recipe.steps)
        time += sum(map(recipe.rate, range(trainer.step, wanted)))
        trainer.advance(wanted - trainer.step)
        if not bool(trainer.alive[0]):
            return
        point = look()
        looks = [*run.curve, point]
        last = looks[-max(1, len(looks) // 10) :]  # the last tenth of them
        learned = wanted == recipe.steps and all(
            float(open_gap(chain, each.loss)) <= LEARNED_SAMPLED for each in last
        )
        yield point, Label.GLOBAL_MINIMUM if learned else Label.UNRESOLVED
