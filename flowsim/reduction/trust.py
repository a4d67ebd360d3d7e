"""Validity of a found model: growth of displacements off its span, and runs of all weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.flow.reference import integrate
from flowsim.labels import Label
from flowsim.reduction.found import ReducedNetwork
from flowsim.running import quickly

#: The most weights whose curvature is written out.
_MOST_WEIGHTS = 2000
#: Losses of two ends are the same if they differ by less, in parts of the fall to them since the
#: curvature was last so many times as large: before, the loss was not that of the end.
_SAME_END, _FLATTER = 1e-3, 4.0
#: Rounding of a loss, in parts of its size; and what a run at rest would still fall by in the time
#: of a run, in parts of its fall so far.
_ROUNDING, _REST = 1e-14, 1e-17
#: Steps of training between two estimates of the curvature; iterations of the first one and of the
#: others; and the part of an earlier estimate that a later one is not below.
_LOOK, _FIRST, _LATER, _KEPT = 20, 20, 2, 0.9
#: A step is at most this part of the inverse curvature, and of the time of a run.
_STEP, _SHARE = 0.5, 0.02
#: A step has to lower the loss by this part of what the gradient promises; the next is longer by
#: the other factor.
_FALL, _LONGER = 0.25, 1.25
#: At a kink no short step keeps that promise: one that is this part of the longest may instead be
#: below the largest of so many latest losses by a part of the promise, or promise no more than a
#: part of the fall so far and rise by no more above the least.
_SHORT, _LATEST, _LOWER, _ABOVE = 0.125, 10, 1e-2, 1e-4
#: A run with such a step among so many latest is judged by its loss, over a tenth of its time.
_AT_KINK, _TENTH = 50, 1.1


@dataclass(frozen=True)
class Growth:
    """Growth of small displacements off the span along an orbit.

    Attributes:
        times, gains: the largest factor by which any displacement at time 0 has grown, over time.
        gain, time: its maximum, and when.
        where: the orbit's coordinates at that time, (k,).
        seed, grown: shares of the squared size, by the name of the weights, of the displacement
            that grows most, at time 0 and when it is largest.
        direction: that displacement at time 0, of unit length, (P,).
    """

    times: Tensor
    gains: Tensor
    gain: float
    time: float
    where: Tensor
    seed: dict[str, float]
    grown: dict[str, float]
    direction: Tensor


@quickly
def transverse_growth(
    model: ReducedNetwork, start: Numbers | None = None, until: float = 100.0, pieces: int = 64
) -> Growth:
    """Measure how small displacements off the span grow along an orbit, by δ′ = −∂²L δ.

    The curvature does not mix the span with what is orthogonal to it, where the equation is solved
    by exponentials, one for each piece of the orbit; each piece is some 11 % of the time before it.

    Args:
        model: what ``reduce`` found.
        start: coordinates (k,); by default the model's own start.
        until: the time up to which it is followed.
        pieces: of the orbit; the error falls with their square, on kinks with their number.

    Raises:
        InputError: more than 2 000 weights; an orbit that cannot be followed.

    Next to y = 0 a displacement y grows like exp(t), while x falls:

    >>> import torch, flowsim
    >>> saddle = lambda w: (w["x"] ** 2 - (w["y"] ** 2).sum()) / 2
    >>> model = flowsim.reduce(saddle, {"x": torch.ones(1)[0], "y": torch.zeros(2)})
    >>> growth = flowsim.reduction.transverse_growth(model, until=2.0)
    >>> round(growth.gain, 3), round(growth.grown["y"], 3)
    (7.389, 1.0)
    """
    network, basis = model.network, model.basis
    p, k = basis.shape
    if p > _MOST_WEIGHTS:
        raise InputError(f"growth off the span is followed up to {_MOST_WEIGHTS} weights, not {p}")
    at = model.start if start is None else to_tensor(start, "start")
    times = torch.cat([torch.zeros(1), torch.logspace(-3, 0, pieces) * until]).double()
    orbit = integrate(model, at, times, rtol=1e-5, atol=1e-8)
    if not bool(orbit.isfinite().all()):
        raise InputError("the orbit cannot be followed so far")
    across = torch.linalg.qr(torch.cat([basis, torch.eye(p).to(basis)], 1))[0][:, k:p]
    moved = torch.eye(p - k).to(basis)
    gains, best = [1.0], (1.0, 0, moved)
    for i in range(1, len(times)):
        middle = model.embed((orbit[i - 1] + orbit[i]) / 2)
        curved = across.T @ network.curvature(middle, across.T.contiguous()).T
        rates, axes = torch.linalg.eigh((curved + curved.T) / 2)
        decay = torch.exp(-rates * float(times[i] - times[i - 1]))
        moved = axes @ (decay[:, None] * (axes.T @ moved))
        gains.append(float(torch.linalg.matrix_norm(moved, 2)))
        if gains[-1] > best[0]:
            best = gains[-1], i, moved
    left, _, right = torch.linalg.svd(best[2])
    first, last = across @ right[0], across @ left[:, 0]
    return Growth(
        times, torch.tensor(gains, dtype=torch.float64), best[0], float(times[best[1]]),
        orbit[best[1]], _shares(model, first), _shares(model, last), first,
    )  # fmt: skip


def _shares(model: ReducedNetwork, vector: Tensor) -> dict[str, float]:
    """Shares of a vector's squared size, by the name of the weights, the largest first."""
    parts = {n: float(w.square().sum()) for n, w in model.network.named(vector).items()}
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _tolerance(last: Tensor, first: Tensor) -> Tensor:
    """The largest difference of two losses of one end, in the shape of both arguments.

    ``last`` is the loss to which a run came, ``first`` an earlier one from which it fell.
    """
    rounding = _ROUNDING * torch.maximum(first.abs(), last.abs())
    return _SAME_END * (first - last).abs() + rounding


@dataclass(frozen=True, repr=False)
class Agreement:
    """Share of runs of all weights that end as the reduced flow predicts.

    Attributes:
        predicted: the loss at which the reduced flow ends, (n,); where that is unresolved, as at
            some kinks, the loss to which descent of the coordinates comes in the same time.
        ended: the loss of all weights at the end of each run, (n, runs).
        right: whether a run is decided and both losses are the same, (n, runs).
        diverged: whether a run left the finite numbers, (n, runs).
        undecided: whether it is not known if a run ends as predicted, (n, runs): it diverged; or
            its loss is not below what is predicted, and its steps were used up before the time, or
            it would still fall by more than what tells two ends apart in as long again; or what is
            predicted is not known.

    Two losses are of one end if they differ by less than 1e-3 of the fall of the loss to them, from
    where the curvature was four times that at the end or from the start.
    """

    predicted: Tensor
    ended: Tensor
    right: Tensor
    diverged: Tensor
    undecided: Tensor

    @property
    def share(self) -> float:
        """Right ones of all decided ones; NaN if none is decided."""
        return float(self.right[~self.undecided].double().mean())

    def __repr__(self) -> str:
        decided = int((~self.undecided).sum())
        words = f"{int(self.right.sum())} of {decided} decided runs end as predicted"
        left = int(self.undecided.sum())
        if left:
            words += f"; {left} of {self.ended.numel()} undecided"
        if gone := int(self.diverged.sum()):
            words += f", of which {gone} diverged"
        return f"<Agreement: {words}>"


@quickly
def agreement(
    model: ReducedNetwork,
    starts: Numbers,
    noise: float = 0.0,
    runs: int = 1,
    until: float = 1000.0,
    most: int = 20_000,
    seed: int = 0,
) -> Agreement:
    """Train all weights from starts of the span, with noise, and compare with the reduced flow.

    Training is gradient descent. A step is at most half the inverse of the largest curvature that
    was met lately, so that it follows the gradient flow; one that raises the loss is halved and
    taken again. Runs that diverge, and those still under way, are undecided.

    Args:
        model: what ``reduce`` found.
        starts: (n, k).
        noise: deviation of what is added to every weight.
        runs: of each start, with noise of their own.
        until: the time after which a run ends.
        most: attempted steps after which it ends.
        seed: of the noise.

    >>> import torch, flowsim
    >>> wells = lambda w: ((w["x"] ** 2 - 1) ** 2).sum() + (w["y"] ** 2).sum()
    >>> model = flowsim.reduce(wells, {"x": torch.tensor([0.5]), "y": torch.zeros(2)})
    >>> flowsim.reduction.agreement(model, [[0.5], [-0.5]], noise=0.01, runs=3)
    <Agreement: 6 of 6 decided runs end as predicted>
    """
    points = to_tensor(starts, "starts")
    generator = torch.Generator().manual_seed(seed)
    theta = model.embed(points).repeat_interleave(runs, 0)
    drawn = torch.randn(theta.shape, generator=generator, dtype=torch.float64).to(theta)
    network = model.network
    first, ended, fall = _descend(
        network.losses_and_gradients, network.curvatures, theta + noise * drawn, until, most
    )
    limits = find_limits(model, points)
    predicted, unresolved = limits.loss.clone(), limits.label == int(Label.UNRESOLVED)
    if bool(unresolved.any()):
        begun, came, left = _descend(
            model.losses_and_gradients, model.curvatures, points[unresolved], until, most
        )
        predicted[unresolved] = torch.where(left <= _tolerance(came, begun), came, torch.nan)
    meant = predicted.repeat_interleave(runs)
    diverged = ~ended.isfinite()
    other = (ended - meant).abs() > _tolerance(torch.minimum(ended, meant), first)
    below = other & (ended < meant)  # a loss that falls does not come back
    under_way = ~(fall <= _tolerance(ended, first)) & ~below
    undecided = diverged | under_way | ~meant.isfinite()
    right = ~undecided & ~other
    return Agreement(predicted, *(x.reshape(-1, runs) for x in (ended, right, diverged, undecided)))


def _descend(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]], curve: Callable[[Tensor, Tensor], Tensor],
    theta: Tensor, until: float, most: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Descend a loss from rows (m, P) up to a time, by gradient steps that follow gradient flow.

    ``evaluate`` gives losses (m,) and gradients of rows; ``curve`` gives ∂²L · along, of which the
    largest curvature is estimated that bounds a step. A row ends at the time ``until``, at rest, or
    after ``most`` steps, counting those that were taken again. Returned are, (m,) each: an earlier
    loss, where the curvature was last found to be less than a quarter of before, or the first one;
    the last loss; and how far it would still fall in the time ``until`` at its last rate, ∞ of a
    row whose steps were used up.
    """
    loss, gradient = evaluate(theta)
    first, lowest, ended, fall = (loss.clone() for _ in range(4))
    bends = torch.zeros_like(loss)  # the curvature where ``first`` is
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(theta.shape[1], generator=generator, dtype=torch.float64)
    along = along.to(theta).expand_as(theta)
    row = torch.arange(len(theta), device=theta.device)
    clock, steep, length = (torch.zeros_like(loss) for _ in range(3))
    latest = loss[:, None].repeat(1, _LATEST)
    # times and losses of two earlier points, each a tenth of its time after the one before
    marks = torch.stack([clock, loss, clock, loss], 1)
    kink = torch.full_like(row, -_AT_KINK)  # the step at which the row last slid along one
    for step in range(most + 1):
        speed = gradient.square().sum(1)
        rests = speed * until <= _REST * (first[row] - loss).abs()
        # along a kink the loss falls slower than the gradient says
        measured = (marks[:, 1] - loss) / (clock - marks[:, 0]).clamp_min(1e-300)
        speed = torch.where(step - kink < _AT_KINK, torch.minimum(speed, measured.abs()), speed)
        going = loss.isfinite() & (clock < until) & ~rests & (step < most)
        if not bool(going.all()):
            known = (clock >= until) | rests
            ended[row], fall[row] = loss, torch.where(known, speed * until, torch.inf)
            (row, theta, loss, gradient, lowest, along, clock, steep, length, latest, marks,
             kink) = (x[going] for x in (row, theta, loss, gradient, lowest, along, clock, steep,
                                         length, latest, marks, kink))  # fmt: skip
        if not len(row):
            break
        if step % _LOOK == 0:
            now, along = _largest_curvature(curve, theta, along, _LATER if step else _FIRST)
            flatter = (now > 0) & (_FLATTER * now < bends[row])
            first[row] = torch.where(flatter, loss, first[row])
            bends[row] = torch.where(flatter | (bends[row] == 0), now, bends[row])
            steep = torch.maximum(now, _KEPT * steep)
        longest = (_STEP / steep).clamp(max=_SHARE * until)
        length = torch.where(length == 0, longest, torch.minimum(length, longest))
        taken = torch.minimum(length, until - clock)
        there = theta - taken[:, None] * gradient
        new, slope = evaluate(there)
        promised = taken * gradient.square().sum(1)
        falls = new <= loss - _FALL * promised + _ROUNDING * loss.abs()
        small = _ABOVE * (first[row] - lowest)
        lower = new <= latest.amax(1) - _LOWER * promised
        lower |= (promised <= small) & (new <= lowest + small)
        slides = ~falls & (taken <= _SHORT * longest) & lower
        moved = (falls | slides) & new.isfinite() & slope.isfinite().all(1)
        kink = torch.where(slides, step, kink)
        length = torch.where(falls, _LONGER * length, torch.where(moved, length, taken / 2))
        theta = torch.where(moved[:, None], there, theta)
        gradient = torch.where(moved[:, None], slope, gradient)
        loss, clock = torch.where(moved, new, loss), torch.where(moved, clock + taken, clock)
        lowest = torch.minimum(lowest, loss)
        latest = torch.cat([latest[:, 1:], loss[:, None]], 1)
        passed = (clock > _TENTH * marks[:, 2])[:, None]
        marks = torch.where(passed, torch.stack([marks[:, 2], marks[:, 3], clock, loss], 1), marks)
    return first, ended, fall


def _largest_curvature(
    curve: Callable[[Tensor, Tensor], Tensor], theta: Tensor, along: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Estimate the largest curvature at rows (m, P), (m,), and its directions (m, P).

    By power iterations with ``curve``, which gives ∂²L · along, from the directions ``along``.
    """
    for _ in range(iterations):
        turned = curve(theta, along)
        size = turned.norm(dim=1) / along.norm(dim=1)
        mixed = turned + 1e-2 * size[:, None] * along
        mixed = mixed / mixed.norm(dim=1, keepdim=True)
        along = torch.where(mixed.isfinite().all(1, keepdim=True), mixed, along)
    return size, along
