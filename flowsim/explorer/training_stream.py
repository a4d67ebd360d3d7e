"""The full transformer, trained from the lift of a start, and what it does while it trains.

A run is bounded in steps and in seconds, and ends early when it is stopped or decided. Gradient
descent and the flow move the exact loss, and what became of them is read off their weights as in
a comparison (``full_model.comparison.outcome``); SGD and AdamW draw batches, and have no limit to
classify: they have learned, or not within their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch

from flowsim.chain import BinaryChain
from flowsim.explorer.full_settings import FullSettings
from flowsim.explorer.full_start import (
    canonical_point,
    check_training,
    first_weights,
    full_architecture,
    full_comparison,
    logit_gap,
    place,
    probe_tokens,
)
from flowsim.explorer.view import Start, View
from flowsim.labels import Label
from flowsim.markov import GapChain
from full_model.comparison.full_side import FullSide
from full_model.comparison.outcome import LEARNED_SAMPLED, open_gap
from full_model.comparison.sampled import HELD_OUT
from full_model.training.recipe import Recipe
from full_model.training.session import RunSession
from full_model.training.settings import RunSettings

#: Seconds after which a run ends whatever it is doing, and points of its curves.
LONGEST, _POINTS = 120.0, 150
#: Time at which the flow is looked at first, and by how much the next look is later.
_FIRST, _LATER = 0.02, 1.12

#: More steps than any run takes.
_FAR = 2**62

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Progress:
    """One look at a run.

    Attributes:
        step, time: steps taken, and their learning rates' sum (of the flow, its time).
        loss: the exact population loss, or of held-out sequences where N is large.
        e, w: the weights projected onto (e, w).
        gap: mean logit after a one minus after a zero.
    """

    step: int
    time: float
    loss: float
    e: float
    w: float
    gap: float


@dataclass
class Run:
    """A run as far as it has come; ``curve`` grows while it trains.

    Attributes:
        start: where it was lifted from.
        settings: how it trains.
        predicted: where the view's flow goes from the same start.
        outcome: where training went; unresolved while it is not known.
        ended: why it trains no more, in words, "" while it does.
    """

    start: Start
    settings: FullSettings
    predicted: Label
    curve: list[Progress] = field(default_factory=list)
    outcome: Label = Label.UNRESOLVED
    ended: str = ""


def training(view: View, run: Run, stop: Stop) -> Iterator[Run]:
    """Train; yields the run again and again, its curve longer every time.

    Raises:
        InputError: see ``check_training``.
    """
    check_training(view, run.settings)
    began = monotonic()

    def halted() -> bool:
        return stop() or monotonic() - began > LONGEST

    moves = _descent if run.settings.trainer in ("gd", "flow") else _sampled
    for point, outcome in moves(view, run, halted):
        run.curve.append(point)
        run.outcome = outcome
        yield run
    if run.outcome != Label.UNRESOLVED:
        run.ended = "decided"
    elif stop():
        run.ended = "stopped"
    else:
        run.ended = "out of time" if halted() else "out of steps"
    yield run


def _descent(view: View, run: Run, stop: Stop) -> Iterator[tuple[Progress, Label]]:
    """Gradient descent with a fixed learning rate, or the flow, until it is decided."""
    settings = run.settings
    point, weights = canonical_point(view, run.start), first_weights(view, settings, run.start)
    side = FullSide(full_comparison(view, settings), point, weights=weights)
    tokens = probe_tokens(view, settings)
    rate, until, step = settings.rate, _FIRST, 0
    stride = max(1, settings.steps // _POINTS)

    def look() -> tuple[Progress, Label]:
        now = float(side.time[0])
        side.most_steps = _FAR  # what has used up its steps is measured too
        line = side.measure(now)
        side.most_steps = settings.steps
        e, w = line["trained"][0, :2].tolist()
        gap = logit_gap(side.arch, side.field.whole(side.state), tokens)
        point = Progress(int(side.steps[0]), now, float(line["loss"][0]), e, w, gap)
        return point, Label(int(side.outcome[0]))

    yield look()
    with torch.no_grad():
        while bool(side.undecided()[0]) and not stop():
            if rate is None:
                before = float(side.time[0])
                try:
                    side.move(until, pause=lambda: _raise_if(stop()))
                except _Halted:
                    return
                until *= _LATER
                if float(side.time[0]) == before or before > side.settings.last_time:
                    return
            else:
                wanted = min(step + max(1, min(stride, step // 4 + 1)), settings.steps)
                while step < wanted and not stop():
                    gradient, _ = side.field(side.state)
                    side.state = side.state - rate * gradient / side.field.metric
                    step += 1
                side.steps[:], side.time[:] = step, step * rate
            yield look()


class _Halted(Exception):
    """Somebody stopped a run of the flow between two looks."""


def _raise_if(halted: bool) -> None:
    if halted:
        raise _Halted


def _sampled(view: View, run: Run, stop: Stop) -> Iterator[tuple[Progress, Label]]:
    """SGD or AdamW on fresh batches; it has learned where a tenth of the gap is left, for good."""
    settings, chain = sampled_settings(view, run.settings), view.model.chain
    assert isinstance(chain, GapChain)
    session = RunSession(settings, first_weights(view, run.settings, run.start))
    trainer, recipe, arch = session.trainer, settings.recipe, settings.arch
    stride, time = max(1, recipe.steps // _POINTS), 0.0

    def look() -> Progress:
        session.measure(torch.full((1,), torch.nan))
        latest = {name: values[-1] for name, values in session.history.items()}
        e, w = place(arch, trainer.weights)
        gap = logit_gap(arch, trainer.weights, session.tokens[0])
        return Progress(trainer.step, time, float(latest["loss"][0]), e, w, gap)

    yield look(), Label.UNRESOLVED
    while trainer.step < recipe.steps and not stop():
        count = min(max(1, min(stride, trainer.step // 4 + 1)), recipe.steps - trainer.step)
        time += sum(recipe.rate(trainer.step + i) for i in range(count))
        trainer.advance(count)
        if not bool(trainer.alive[0]):
            return
        point = look()
        last = trainer.step >= recipe.steps
        learned = last and _stays_learned(chain, [*run.curve, point])
        yield point, Label.GLOBAL_MINIMUM if learned else Label.UNRESOLVED


def sampled_settings(view: View, full: FullSettings) -> RunSettings:
    """The run of SGD or AdamW on batches of 16, of one model."""
    clip = 1.0 if full.trainer == "adamw" else None
    recipe = Recipe(full.trainer, steps=full.steps, learning_rate=full.rate, clip=clip)
    arch = full_architecture(view, full)
    chain = view.model.chain
    data: dict[str, Any] = (
        {"p": (view.p,), "q": (view.q,)} if isinstance(chain, BinaryChain) else {"data": chain}
    )
    held_out = min(64, max(4, HELD_OUT // arch.length))
    return RunSettings(
        arch, recipe, seeds=(full.seed,), init="given", data_seed=full.seed, test_batch=held_out,
        **data,
    )  # fmt: skip


def _stays_learned(chain: GapChain, curve: list[Progress]) -> bool:
    """Whether the last tenth of the looks all leave at most a tenth of the gap open."""
    last = curve[-max(1, len(curve) // 10) :]
    return all(float(open_gap(chain, point.loss)) <= LEARNED_SAMPLED for point in last)
