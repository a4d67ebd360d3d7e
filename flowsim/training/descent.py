"""Gradient descent, momentum, Adam, AdamW and a model's own steps, and what becomes of rows.

All rows take their steps together in torch; no row's result depends on the others, and rows leave
when they are done. The coordinates of a step are yᵢ = √Gᵢ·θᵢ with the model's metric G, in which
its flow is −∇L: so small steps of gradient descent follow the flow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.errors import InputError
from flowsim.interface import Model, starts_of
from flowsim.labels import Label, Rule, Status
from flowsim.landscape.critical import classify_critical
from flowsim.own import first_line_of
from flowsim.running import expect, quickly
from flowsim.training.optimizer_choice import (
    CLIP_GUARD,
    OptimizerChoice,
    chosen,
    has_own_steps,
)
from flowsim.training.rule import rule_of
from flowsim.training.trained import Trained

#: Rows are looked at after so many steps, the places of which are held; the longest period that is
#: looked for, and through how many periods in a row a place has to come back.
_BLOCK, _LONGEST, _PERIODS = 256, 64, 4
#: Numbers in a part of the rows, of which a block is held at once.
_NUMBERS = 2**15
#: A row comes back within this part of its size, after having been away by that part.
_BACK, _AWAY = 1e-12, 1e-6
#: A row this many times further out than it started, or than 1, has diverged.
_FAR = 1e9
#: A row whose largest coordinate grew by this factor in the second half of the steps is growing.
_GROWS = 1.1
#: A row stays about a minimum if it keeps within this part of its largest |y| of the point to which
#: so many Newton steps lead.
_ABOUT, _POLISH = 1e-2, 8
#: A row rests where it is so near to a critical point, in parts of 1 + |y|, along directions that
#: are stiffer than the second of the stiffest; along the others at this slope, and at what this
#: part of its coordinates changes in it.
_NEAR, _FLAT, _STATIONARY, _ROUNDING = 1e-12, 1e-9, 1e-12, 1e-15


@quickly
def descend(
    model: Model,
    theta0: Numbers,
    optimizer: OptimizerChoice | str | None = None,
    progress: Callable[[int], object] | None = None,
    **numbers: Any,
) -> Trained:
    """Take an optimizer's steps from every start and say what became of it.

    For the rank-one model they are the steps of the full transformer, see ``ReducedTraining``. For
    every other one they descend the model's own loss, with gradient descent θ ← θ − η·G⁻¹∇L, and
    the label is what they do:

    - a run that rests gets the label of the critical point it rests at, as the flow does; so does
      one that at the end stays about a minimum, within 1 % of its ``largest``;
    - PERIODIC: at a constant rate it comes back to where it was, within 1e-12 of its size, after
      ``period`` steps, 2 to 64 of them, four times in a row;
    - DIVERGED: it is no longer finite, or 1e9 times further out than it started, or than 1;
    - BOUNDED: at the end it still goes back and forth, and was hardly further out in the second
      half of the steps than in the first;
    - else it is UNRESOLVED: still on its way.

    Args:
        model: any model.
        theta0: starts, shape (n, k).
        optimizer: an ``OptimizerChoice``, or a name (gd, momentum, adam, adamw, own) with
            ``numbers``; by default "own" of a model that writes ``step``, else "gd".
        progress: called with how many more steps were taken, summed over the starts;
            True shows a bar on stderr.
        numbers: as of ``OptimizerChoice.named``; the loss of a model without batches is exact.

    Returns:
        ``Trained``, of tensors if ``theta0`` is one, else of arrays.

    Raises:
        InputError: wrong number of coordinates, or what ``OptimizerChoice`` refuses.

    >>> import flowsim
    >>> model, starts = flowsim.model("canonical", 0.5, 0.8), [[1.0, -1.2], [1.0, 1.2]]
    >>> trained = flowsim.descend(model, starts, "gd", steps=1000)
    >>> trained.label, trained.loss.round(4)
    (array([1, 2], dtype=int8), array([0.619 , 0.6663]))
    """
    if optimizer is None:
        optimizer = "own" if has_own_steps(model) else "gd"
    if (rule := rule_of(model)) is not None:
        trained: Trained = rule(model, optimizer, **numbers).run(theta0, progress)
        return trained
    if isinstance(optimizer, str):
        numbers = {"loss": "population", **numbers}
    choice = chosen(optimizer, numbers).on(model)
    starts = starts_of(model, theta0).detach()
    starts = starts * torch.from_numpy(choice.nudges(starts.shape[1])).to(starts)
    size = max(1, _NUMBERS // max(1, starts.shape[1]))
    expect(progress, len(starts) * choice.steps)
    parts = [_follow(model, choice, part, progress) for part in starts.split(size)]
    found = Trained.joined(parts)
    return found if isinstance(theta0, Tensor) else found.numpy()


@dataclass
class _Runs:
    """Runs that go on, a row each, with the optimizer's and their own numbers."""

    index: Tensor  # their numbers among the starts, (m,)
    y: Tensor  # where they are, (m, k)
    first: Tensor  # the optimizer's means of gradients, (m, k)
    second: Tensor  # and of their squares
    memory: Tensor  # of the model's own steps
    going: Tensor  # which have not diverged, (m,)
    largest: Tensor  # the largest |y| so far, (m,)
    before: Tensor  # the same in the first half of the steps
    far: Tensor  # |y| beyond which they have diverged, (m,)
    turned: Tensor  # the last step that went beyond the least loss along its way, (m,)
    taken: Tensor  # how many steps they have taken, (m,)

    def select(self, which: Tensor) -> _Runs:
        """The runs of a mask (m,) alone."""
        return _Runs(**{name: values[which] for name, values in vars(self).items()})


def _follow(
    model: Model,
    choice: OptimizerChoice,
    start: Tensor,
    progress: Callable[[int], object] | None,
) -> Trained:
    """Take the optimizer's steps from starts (n, k), label the runs and return all of them."""
    found = Trained.unknown(start)
    root = torch.tensor(model.metric).to(start).sqrt()
    index = start.isfinite().all(1).nonzero()[:, 0]
    if len(index):
        known = model.gradient(start[index]).isfinite().all(1) & model.loss(start[index]).isfinite()
        index = index[known]
    y = root * start[index]
    none, size = torch.zeros_like(index), y.abs().amax(1)
    memory: tuple[str, ...] = getattr(model, "memory", ()) if choice.own else ()
    rows = _Runs(
        index, y, torch.zeros_like(y), torch.zeros_like(y),
        y.new_zeros(len(y), len(memory)), none == 0, size, size,
        _FAR * size.clamp_min(1.0), none - _BLOCK, none.int(),
    )  # fmt: skip
    for begin in range(0, choice.steps, _BLOCK):
        end = min(begin + _BLOCK, choice.steps)
        if progress is not None:
            progress((end - begin) * len(start))
        if len(rows.index):
            path = _advance(model, choice, rows, root, begin, end)
            done = _classify_block(model, choice, rows, root, path, found)
            if end == choice.steps:
                _classify_near_minimum(model, rows, root, path, found)
                done |= True
            if not bool(done.any()):
                continue
            index, last = rows.index[done], rows.y[done] / root
            found.theta[index], found.largest[index] = last, rows.largest[done]
            found.loss[index], found.steps_taken[index] = model.loss(last), rows.taken[done]
            rows = rows.select(~done)
    return found


def _advance(
    model: Model, choice: OptimizerChoice, rows: _Runs, root: Tensor, begin: int, end: int
) -> Tensor:
    """Take steps ``begin`` to ``end`` − 1, changing ``rows``; return the y on the way.

    They are (end − begin + 1, m, k). ``root`` (k,) is √G, here and below.
    """
    path = rows.y.new_empty(end - begin + 1, *rows.y.shape)
    path[0] = rows.y
    for step in range(begin, end):
        gradient = model.gradient(rows.y / root) / root
        if step > begin:
            back = (gradient * (rows.y - path[step - begin - 1])).sum(1) > 0
            rows.turned = torch.where(back, step, rows.turned)
        new = _own_step(model, rows, root) if choice.own else _step(choice, rows, gradient, step)
        finite, going = new.isfinite().all(1), rows.going
        rows.y = torch.where((going & finite).unsqueeze(1), new, rows.y)
        rows.taken = rows.taken + going
        rows.largest = torch.maximum(rows.largest, rows.y.abs().amax(1))
        rows.going = going & finite & (rows.largest <= rows.far)
        if 2 * step < choice.steps:
            rows.before = rows.largest
        path[step - begin + 1] = rows.y
    return path


def _own_step(model: Model, rows: _Runs, root: Tensor) -> Tensor:
    """Take the model's own step and return the new y (m, k); ``rows`` get its new memory."""
    theta = rows.y / root
    try:
        new, memory = cast(Any, model).step(theta, rows.memory)
        shapes = tuple(new.shape), tuple(memory.shape)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"the step of {model.name} failed: {first_line_of(error)}") from None
    if shapes != (tuple(theta.shape), tuple(rows.memory.shape)):
        raise InputError(
            f"the step of {model.name} must return θ and memory of the shapes "
            f"{tuple(theta.shape)} and {tuple(rows.memory.shape)}, not {shapes[0]} and {shapes[1]}"
        )
    rows.memory = memory.detach()
    return new.detach() * root


def _step(choice: OptimizerChoice, rows: _Runs, gradient: Tensor, step: int) -> Tensor:
    """Take the optimizer's step and return the new y (m, k); ``rows`` get new means of gradients.

    ``gradient`` (m, k) is by y.
    """
    y, rate = rows.y, choice.rate(step)
    if choice.clip is not None:
        norm = gradient.norm(dim=1, keepdim=True)
        gradient = gradient * (choice.clip / (norm + CLIP_GUARD)).clamp_max(1.0)
    kept = y * (1 - rate * choice.weight_decay) if choice.weight_decay else y
    if choice.trainer != "adamw":
        momentum = choice.momentum if choice.has_momentum else 0.0
        rows.first = momentum * rows.first + gradient
        return kept - rate * rows.first
    one, two = choice.beta1, choice.beta2
    rows.first = rows.first + (1 - one) * (gradient - rows.first)
    rows.second = two * rows.second + (1 - two) * gradient.square()
    size = rows.second.sqrt() / (1 - two ** (step + 1)) ** 0.5 + choice.epsilon
    return kept - rate / (1 - one ** (step + 1)) * rows.first / size


def _classify_block(
    model: Model, choice: OptimizerChoice, rows: _Runs, root: Tensor, path: Tensor, found: Trained
) -> Tensor:
    """Label the rows, in ``found``, by a block of steps; return a mask (m,) of those that are done.

    ``path`` (steps + 1, m, k) is where they were. Rows that go on are bounded or unresolved yet.
    """
    label = torch.full_like(rows.index, Label.UNRESOLVED, dtype=torch.int8)
    status = torch.full_like(label, Status.TIMED_OUT)
    rule, period = torch.full_like(label, Rule.NONE), torch.zeros_like(label, dtype=torch.int32)
    size, rows.going = path.abs().amax((0, 2)), rows.going & model.loss(path[-1] / root).isfinite()
    turns = rows.taken - rows.turned < _BLOCK  # back and forth in the last block, without growing
    label[turns & (rows.largest <= _GROWS * rows.before)] = Label.BOUNDED
    if choice.schedule == "constant":
        period = _period(path, size)
        label[period > 0], status[period > 0] = Label.PERIODIC, Status.PERIODIC
    label[~rows.going], status[~rows.going] = Label.DIVERGED, Status.DIVERGED
    period[~rows.going] = 0
    rule[label != Label.UNRESOLVED] = Rule.STEPS
    still = rows.going & ((path[-1] - path[-2]).abs().amax(1) <= _BACK * rows.largest)
    rests = still.nonzero()[:, 0]
    rests = rests[_rests(model, rows.y[rests], root)] if len(rests) else rests
    if len(rests):
        unmoved = (path[:, rests] == path[0, rests]).all(2).all(0)
        unmoved &= rows.taken[rests] < len(path)
        at = rows.y[rests] / root
        kind = classify_critical(model, at, decisive=True)
        kind = torch.where(unmoved, classify_critical(model, at), kind)
        why = torch.where(kind == Label.GLOBAL_MINIMUM, Rule.REACHED_MINIMA, Rule.CAME_TO_REST)
        why = torch.where(unmoved, Rule.CRITICAL_START, why)
        label[rests], status[rests], period[rests] = kind, Status.CONVERGED, 0
        rule[rests] = torch.where(kind == Label.UNRESOLVED, Rule.NONE, why).to(torch.int8)
    for name, values in (("label", label), ("status", status), ("rule", rule), ("period", period)):
        getattr(found, name)[rows.index] = values
    return status != Status.TIMED_OUT


def _classify_near_minimum(
    model: Model, rows: _Runs, root: Tensor, path: Tensor, found: Trained
) -> None:
    """Label the rows that stay about a minimum at the end, as Adam's do, which never rest.

    Their last steps count, half of the block: in the first half of a short one they may arrive.
    """
    index = (found.status[rows.index] == Status.TIMED_OUT).nonzero()[:, 0]
    if not len(index):
        return
    path = path[len(path) // 2 :]
    y = path[:, index].mean(0)
    for _ in range(_POLISH):
        gradient, curved, directions = _curvatures(model, y, root)
        stiff = curved.abs() > _FLAT * curved.abs().amax(1, keepdim=True)
        along = (directions.mT @ gradient.unsqueeze(2)).squeeze(2) / curved
        y = y - (directions @ torch.where(stiff, along, 0.0).unsqueeze(2)).squeeze(2)
    about = (path[:, index] - y).abs().amax((0, 2)) <= _ABOUT * rows.largest[index]
    about[about.clone()] = _rests(model, y[about], root)
    if bool(about.any()):
        kind = classify_critical(model, y[about] / root, decisive=True)
        least = (kind == Label.GLOBAL_MINIMUM) | (kind == Label.LOCAL_MINIMUM)
        index = rows.index[index[about][least]]
        found.label[index], found.rule[index] = kind[least], int(Rule.STEPS)


def _period(path: Tensor, size: Tensor) -> Tensor:
    """Find after how many steps, of at least two, rows come back, int32 (m,); 0 if they do not.

    ``path`` (steps + 1, m, k) is where they were, ``size`` (m,) their largest |y|.
    """
    longest = min(_LONGEST, (len(path) - 1) // _PERIODS)
    period = torch.zeros_like(size, dtype=torch.int32)
    if longest < 2:
        return period
    off = (path[-1 - longest : -1].flip(0) - path[-1]).abs().amax(2)  # after 1, 2, … steps
    back = off <= _BACK * size
    after = torch.where(back.any(0), back.int().argmax(0) + 1, 0)
    for k in after.unique().tolist():
        index = (after == k).nonzero()[:, 0]
        if k >= 2:
            last = path[-1 - _PERIODS * k :, index]
            again = (last[k:] - last[:-k]).abs().amax((0, 2)) <= _BACK * size[index]
            away = off[: k - 1, index].amax(0) >= _AWAY * size[index]
            period[index[again & away]] = k
    return period


def _rests(model: Model, y: Tensor, root: Tensor) -> Tensor:
    """Return a mask (m,) of the rows y (m, k), which stand still, that are at a critical point."""
    gradient, curved, directions = _curvatures(model, y, root)
    along = (directions.mT @ gradient.unsqueeze(2)).squeeze(2).abs()
    size, steepest = y.abs().amax(1, keepdim=True), curved.abs().amax(1, keepdim=True)
    stiff = curved.abs() > _FLAT * steepest
    allowed = torch.where(stiff, _NEAR * (1.0 + size) * curved.abs(), _STATIONARY)
    return (along <= allowed + _ROUNDING * steepest * size.clamp_min(1.0)).all(1)


def _curvatures(model: Model, y: Tensor, root: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ∇L by y (m, k), and the Hessian's eigenvalues (m, k) and eigenvectors (m, k, k).

    A Hessian that is not finite counts as 0.
    """
    theta = y / root
    hessian = model.hessian(theta) / root / root.unsqueeze(1)
    hessian = torch.where(hessian.isfinite().all(2, True).all(1, True), hessian, 0.0)
    return model.gradient(theta) / root, *torch.linalg.eigh(hessian)
