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

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.explorer.full_settings import FullSettings
from flowsim.explorer.view import Start, View, full_length
from flowsim.landscape.labels import Label
from flowsim.markov import GapChain
from full_model.comparison.choices import Comparison
from full_model.comparison.full_side import FullSide, lifted_weights
from full_model.comparison.outcome import LEARNED_SAMPLED, open_gap
from full_model.comparison.sampled import run_settings
from full_model.model.source import MarkovSource
from full_model.model.transformer import forward
from full_model.training.session import RunSession

#: Seconds after which a run ends whatever it is doing, and points of its curves.
LONGEST, _POINTS = 120.0, 150
#: Time at which the flow is looked at first, and by how much the next look is later.
_FIRST, _LATER = 0.02, 1.12
#: Positions at which the exact loss with attention, a sum over all 2^N sequences, is still quick.
_MOST_EXACT = 12

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


def check_training(view: View, settings: FullSettings) -> None:
    """InputError, in a sentence for the page, where the view's model has no full one to train."""
    choice = view.choice
    if choice.name == "states":
        raise InputError("training here is for chains on two states; choose another model")
    if choice.name == "untied" or not choice.tied:
        raise InputError("training here is of tied weights; choose a model with tied weights")
    attends = view.has_slice or settings.noise > 0
    n = _length(view, settings)
    if attends and settings.trainer in ("gd", "flow") and n > _MOST_EXACT:
        raise InputError(
            f"with attention, {settings.trainer} sums over all 2^N sequences: choose N of at most "
            f"{_MOST_EXACT}, or sgd or adamw"
        )


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


def comparison(view: View, settings: FullSettings) -> Comparison:
    """The settings of full training in the words of a comparison."""
    return Comparison(
        view.p,
        view.q,
        model="rank-one",
        trainer=settings.trainer,
        d=settings.d,
        length=_length(view, settings),
        noise=settings.noise,
        seed=settings.seed,
        steps=settings.steps,
        learning_rate=settings.rate,
    )


def lifted_point(view: View, start: Start) -> Tensor:
    """The start as a canonical point, (1, 2), or (1, 3) with the view's a where it has one."""
    held = [view.held.get("a", 0.0)] if view.has_slice else []
    return torch.tensor([[start.e, start.w, *held]], dtype=torch.float64)


def _length(view: View, settings: FullSettings) -> int:
    return settings.length or full_length(view)


def _descent(view: View, run: Run, stop: Stop) -> Iterator[tuple[Progress, Label]]:
    """Gradient descent with a fixed learning rate, or the flow, until it is decided."""
    settings = run.settings
    side = FullSide(comparison(view, settings), lifted_point(view, run.start))
    tokens = _tokens(view, settings)
    rate, until, step = settings.rate, _FIRST, 0
    stride = max(1, settings.steps // _POINTS)

    def look() -> tuple[Progress, Label]:
        now = float(side.time[0])
        line = side.measure(now)
        e, w = line["trained"][0, :2].tolist()
        gap = _gap(side.arch, side.field.whole(side.state), tokens)
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
    settings = comparison(view, run.settings)
    points, chain = lifted_point(view, run.start), settings.chain
    session = RunSession(run_settings(settings, 1), lifted_weights(settings, points))
    trainer, recipe = session.trainer, session.settings.recipe
    stride, time, side = max(1, recipe.steps // _POINTS), 0.0, -1.0 if run.start.e < 0 else 1.0

    def look() -> Progress:
        session.measure(torch.full((1,), torch.nan))
        latest = {name: values[-1] for name, values in session.history.items()}
        e, w = latest["canonical"][0, :2].tolist()
        gap = _gap(session.settings.arch, trainer.weights, session.tokens[0])
        return Progress(trainer.step, time, float(latest["loss"][0]), side * e, w, gap)

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


def _stays_learned(chain: GapChain, curve: list[Progress]) -> bool:
    """Whether the last tenth of the looks all leave at most a tenth of the gap open."""
    last = curve[-max(1, len(curve) // 10) :]
    return all(float(open_gap(chain, point.loss)) <= LEARNED_SAMPLED for point in last)


def _tokens(view: View, settings: FullSettings) -> Tensor:
    """Sequences whose logits are averaged, (32, N)."""
    source = MarkovSource.of(BinaryChain(view.p, view.q))
    generator = torch.Generator().manual_seed(1)
    return source.repeat(1).sample(32, _length(view, settings), generator)[0][0]


def _gap(arch: object, weights: dict[str, Tensor], tokens: Tensor) -> float:
    """Mean logit at the ones among the tokens minus that at the zeros; NaN without either."""
    with torch.no_grad():
        logit = forward(arch, weights, tokens)[0]  # type: ignore[arg-type]
    one = tokens == 1
    return float(logit[one].mean() - logit[~one].mean())


def verdict(view: View, run: Run) -> str:
    """What the run did and whether the flow had said so, in one or two plain sentences."""
    if not run.curve:
        return "Training begins …"
    latest = run.curve[-1]
    if not run.ended:
        return f"Training: {latest.step} steps done, loss {latest.loss:.4f}."
    if run.outcome == Label.UNRESOLVED:
        why = {
            "stopped": "Training was stopped",
            "out of time": "Training ran out of time",
            "out of steps": "Training ended",
        }[run.ended]
        share = float(open_gap(BinaryChain(view.p, view.q), latest.loss))
        return (
            f"{why} after {latest.step} steps with {100 * share:.0f} % of what can be learned "
            "still unlearned: neither learned nor surely trapped. The flow from here "
            f"{_FLOW[run.predicted]}."
        )
    words = {
        Label.GLOBAL_MINIMUM: "has learned the chain (global minima)",
        Label.LOCAL_MINIMUM: "is trapped (bad local minimum)",
        Label.SADDLE: "rests at a saddle",
    }
    agree = run.outcome == run.predicted
    ending = "just as the flow says" if agree else f"but the flow from here {_FLOW[run.predicted]}"
    when = f"After {latest.step} steps" if latest.step else "At its very start"
    return f"{when} the full transformer {words[run.outcome]}, {ending}."


_FLOW = {
    Label.GLOBAL_MINIMUM: "reaches the global minima",
    Label.LOCAL_MINIMUM: "is trapped",
    Label.SADDLE: "ends in a saddle",
    Label.UNRESOLVED: "is unresolved",
}
