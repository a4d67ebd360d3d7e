"""Gradient flow of any smooth loss: all rows together in torch, every row with its own step.

A row is the orbit of one start; "rows (m, k)" are their places. A model gives only its field and
the field's derivative. Rows are followed in the chart of ``flow.chart`` by Rodas5P and leave when
they are done; no row's result depends on the others. At kinks of the loss steps become as short as
the error demands; a row that creeps along a kink spends its steps and is left unresolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.batch import padded_indices, times_to_fraction
from flowsim.flow.chart import Chart
from flowsim.flow.growth import AT_ONCE, Growth
from flowsim.flow.idle import WINDOW, Idle
from flowsim.flow.labelling import EndStates
from flowsim.flow.near_saddles import displace, resolve_near_saddles
from flowsim.flow.nonsmooth_minima import rest_on_kinks
from flowsim.flow.options import Limits, Steps
from flowsim.flow.recurrence import Circles, hermite, step_ends
from flowsim.flow.replay import Replay
from flowsim.flow.return_codes import (
    BELOW_PASS,
    CRITICAL,
    DIVERGED,
    FAR,
    GOING,
    INFINITY,
    MINIMA,
    NEAR,
    NOT_FINITE,
    OUT_OF_STEPS,
    REST,
    SPIRALS,
    TRAPPED,
)
from flowsim.flow.tableau import GAMMA, ORDER, STAGES
from flowsim.flow.tableau import A as _A
from flowsim.flow.tableau import C as _C
from flowsim.interface import EndLosses, Model, SolverDefaults
from flowsim.labels import Label
from flowsim.landscape.critical import classify_critical
from flowsim.landscape.stability import with_rounding, without_dust

#: Rows followed at once, times k²: on a CPU, whose caches they should not leave, and on a GPU.
_SQUARES, _SQUARES_ON_GPU = 2**18, 2**22
#: A row is at rest at this part of its highest speed (of a model with end losses at this speed),
#: and at what this part of its coordinates changes in its speed.
_STATIONARY, _ROUNDING = 1e-12, 1e-15
#: If the slowest rate beside a model's bad minima is below this, the speed at rest is smaller by
#: the square of their ratio.
_SLOWEST = 1e-2
#: The rest of its way is then at most this part of the way that each coordinate came (of a model
#: with end losses, and of logarithms, of 1 + |y|), along directions that are stiffer than the
#: second of the stiffest. The way of a coordinate that moved by less than the third of its size is
#: that of the row.
_SHORT, _FLAT, _UNMOVED = 1e-6, 1e-9, 1e-6
#: Others are slower than this times (its rate)² where a coordinate falls to zero, or move within
#: rounding by less than the second times its rate; log|θᵢ| where its plane has to attract; what
#: falls slower than this part of the fastest does not fall with it.
_TRAPPED, _QUIET, _NEAR_PLANE, _TOGETHER = 1e-13, 1e-3, math.log(1e-6), 1e-3
#: A speed this many times one met before means that a saddle was passed; a row that passed one so
#: near, in units of its chart, is in doubt.
_PASSED, _DOUBTFUL = 3.0, 1e-3
#: A row of a gradient flow that has become this many times faster, next to a saddle first, may
#: take this many times the steps.
_LEFT_SADDLE, _MORE = 1e20, 2
#: After so many very short steps a row creeps along a kink; on the way to times it may for longer.
_CREEPING, _CREEPING_LONG = 200, 2000
#: Coordinates this small beside the way of a row are tiny; they are looked at at this part of it.
_TINY, _SEEN_AT = 1e-9, 1e-3
#: No row takes longer, in units of the time in which it would move by its own size at first.
_FOR_EVER = 1e30
#: A row that moves like a higher power of time is on its way still.
_POWER = 1e3
#: A row that has had so many steps ends once it grows steadily like a small power of time.
_PATIENT = 200
#: A row that rests where the flow was this many times as stiff at its start goes on
#: as a start, so many times.
_EASED, _RENEWALS = 1e4, 2
#: A row that drifts so slowly that rounding shortens its steps ends after so many.
_DRIFTING = 400
#: A velocity counts above this times what rounding may change in it; a row has a rate of return
#: where a step of Newton's method leaves this part of its velocity at most.
_RESOLVED, _LINEAR = 30.0, 0.1
#: No rate of a sink is slower than this part of the stiffest where its way is short for certain.
_REGULAR = 1e-3
#: Pivots of a matrix of so many columns at most are found one by one.
_ONE_BY_ONE = 8
#: Fields of ``BatchState`` that a step changes; the first ``_SMOOTH`` are smooth in the start.
_ADVANCED = ("y", "theta", "field", "jacobian", "h", "time", "way", "fastest", "stuck", "short",
             "grows", "origin", "limits")  # fmt: skip
_SMOOTH = 4
#: Fields of ``BatchState`` that ``_glance`` reads.
_SEEN = ("y", "theta", "field", "jacobian", "time", "way", "fastest", "stuck", "short", "far",
         "max_time")  # fmt: skip
#: Evaluations of the field in a step.
_EVALUATIONS = 8
#: A step is at most this times rtol to the power 1/ORDER, and no more than 1, over the fastest rate
#: of growth: growth is then followed within rtol of what grows, however small that is.
_GROWTH = 11.0
#: Growth slower than this part of the fastest rate counts as still: rounding may do it.
_GROWING = 1e-14
#: A step of a field along which its loss may turn is cut into so many parts, and so often anew.
_PLACES, _CLOSER = 32, 4
#: Steps of Newton's method to a point of rest near a row; it is near a coordinate that differs by
#: this part of its size; a displacement is so many times what rounding changes of it.
_NEWTON, _BESIDE, _SURE = 12, 0.1, 8.0
#: Trials by false position to land on a loss.
_LANDINGS = 60
#: log|θᵢ| below which θᵢ is zero for everything else, and its error does not count.
_GONE = -600.0
#: A step is very short below this, in units of 1/|∂(dy/dt)/∂y|.
_VERY_SHORT = 1e-4
#: A step shorter than this, beside the time in which a row moves by its size or the field by its
#: own, leads nowhere.
_STILL = 1e-15
#: An error of this part of |y| is rounding.
_ROUNDED = 1e-13
#: A row this many times larger than it was, or than 1, has diverged.
_FAR = 1e12
#: A row that rests by its curvature, but drifts; and one whose limit is to be extrapolated.
_DRIFTING_ROW, _SETTLED = -1, -2
#: After so many steps each, rows that seem to blow up are tried, all together.
_TRIED = 20


@dataclass
class BatchState:
    """Orbits on their way, a row each: where they are, their next steps, and what they have met.

    A coordinate is a logarithm because the model names it (``keeps_sign``), or because its
    invariant plane was seen (``Chart.seen``).

    Attributes:
        model: whose flow it is.
        steps: the error allowed per step.
        replays: what ``replayed`` has recorded, by operation and kind of chart.
        chart: of these rows.
        index: their numbers among the starts, (m,).
        limits: rtol, atol, and the longest step times the fastest rate of growth, (m, 3).
        y, theta: where they are, in the chart and outside it, (m, k).
        field, jacobian: dy/dt and its derivative there.
        h, time: the next step's length, and the time so far, (m,).
        origin: where they started, (m, k), outside the chart.
        way: how far they have been from there, (m,), in coordinates that are no logarithms which
            the model names. Errors are measured by it, so that no unit of coordinates matters, nor
            where they are 0; small starts are followed as exactly as others.
        fastest: their highest speed so far, (m,).
        far, max_time: |y| and the time beyond which a row has diverged.
        stuck: which rows can be followed no further.
        short: how many steps were very short beside 1/|∂(dy/dt)/∂y|: on a kink many are.
        grows: where the next step may be too long for what grows.
    """

    model: Model
    steps: Steps
    replays: dict[Any, Replay]
    chart: Chart
    index: Tensor
    limits: Tensor
    y: Tensor
    theta: Tensor
    field: Tensor
    jacobian: Tensor
    h: Tensor
    time: Tensor
    origin: Tensor
    way: Tensor
    fastest: Tensor
    far: Tensor
    max_time: Tensor
    stuck: Tensor
    short: Tensor
    grows: Tensor

    @classmethod
    def at(
        cls,
        model: Model,
        theta: Tensor,
        steps: Steps,
        zero: Tensor | None = None,
        replays: dict[Any, Replay] | None = None,
    ) -> BatchState:
        """Begin at the finite rows of θ (n, k), as ``padded_indices`` numbers them.

        ``zero`` (n, k) is that of ``Chart``.
        """
        index = padded_indices(theta.isfinite().all(1))
        theta = theta[index].detach()
        chart = Chart.at(model, theta, None if zero is None else zero[index])
        y = chart.to_chart(theta)
        zero = torch.zeros_like(y[:, 0])
        none = zero, zero, theta, zero, zero, zero, zero, zero.bool(), zero, zero.bool()
        replays = {} if replays is None else replays
        longest = min(1.0, _GROWTH * steps.rtol ** (1 / ORDER))
        limits = y.new_tensor([steps.rtol, steps.atol, longest]).expand(len(y), -1)
        rows = cls(model, steps, replays, chart, index, limits, y, theta, y, y, *none)
        rows.far = _FAR * rows.size().amax(1).clamp_min(1.0)
        rows._linearise()
        rows.fastest = rows.velocity().amax(1)
        size = torch.where(chart.logarithmic, 1.0, y.abs()).amax(1)
        unit = torch.where(size > 0, size, 1.0) / rows.field.abs().amax(1)
        steep = rows.jacobian.abs().amax((1, 2))
        rows.h, rows.max_time = torch.minimum(0.1 * unit, 1 / steep), _FOR_EVER * unit
        rows.grows = rows._may_grow()
        rows._bound_by_growth()
        return rows

    def select(self, which: Tensor | slice) -> BatchState:
        """Return some of the rows, by a mask or by their places, as a state of their own."""
        parts = (getattr(self, f.name)[which] for f in fields(self)[4:])
        return BatchState(self.model, self.steps, self.replays, self.chart.rows(which), *parts)

    @classmethod
    def joined(cls, parts: list[BatchState]) -> BatchState:
        """Join the rows of all parts into one state, as ``padded_indices`` numbers them."""
        one, names = parts[0], [f.name for f in fields(cls)[4:]]
        chart = Chart.joined([part.chart for part in parts])
        columns = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        whole = cls(one.model, one.steps, one.replays, chart, *columns)
        return whole.select(padded_indices(torch.ones_like(whole.index, dtype=torch.bool)))

    def _way_to(self, y: Tensor) -> Tensor:
        """Return what ``way`` becomes, (m,), when the rows go on to y (m, k)."""
        away = (self.chart.to_theta(y) - self.origin).abs()
        if self.chart.any_logarithmic:
            away = torch.where(self.named(), 0.0, away)
        return torch.maximum(self.way, away.amax(1))

    def velocity(self) -> Tensor:
        """Return |dyᵢ/dt|, or |dθᵢ/dt| of logarithms that the model does not name, (m, k)."""
        return self.field.abs() * _unit(self)

    def still(self, end_losses: EndLosses | None) -> Tensor:
        """Return the speed below which rows may be at rest, (m,): fixed with end losses.

        For a model without them it is a part of each row's highest speed.
        """
        return _STATIONARY * (self.fastest if end_losses is None else torch.ones_like(self.fastest))

    def size(self) -> Tensor:
        """Return |yᵢ|, or |θᵢ| of logarithms that the model does not name, (m, k).

        A logarithm of a coordinate that has as good as fallen to zero counts as ``_GONE``.
        """
        size = torch.where(self.chart.logarithmic, self.y.clamp_min(_GONE), self.y).abs()
        seen = self.chart.seen
        return size if seen is None else torch.where(seen, self.theta.abs(), size)

    def revives(self) -> Tensor:
        """Mask of rows (m,) with a growing coordinate whose plane the model does not name.

        The coordinate's size does not matter: a row that seems at rest near the plane will leave.
        """
        if self.chart.seen is None:
            return torch.zeros_like(self.stuck)

        def found(rows: BatchState) -> tuple[Tensor]:
            """Return the mask, as a tuple of one."""
            growth = torch.where(rows.chart.seen, rows.field, 0.0).amax(1)  # type: ignore
            return (growth > _GROWING * rows.model.jacobian(rows.theta).abs().amax((1, 2)),)

        return self.replayed("revives", found, ("theta", "field"))[0]

    def named(self) -> Tensor:
        """Mask of the coordinates that are logarithms because the model names them, (m, k)."""
        chart = self.chart
        return chart.logarithmic if chart.seen is None else chart.logarithmic & ~chart.seen

    def scale(self) -> Tensor:
        """Return the way so far, (m,), or 1 where it is 0, as of rows of logarithms alone."""
        return torch.where(self.way > 0, self.way, 1.0)

    def advance(self, h: Tensor) -> Tensor:
        """Attempt a step of length h (m,) with every row; return the mask of rows that moved."""

        def attempt(rows: BatchState, h: Tensor) -> tuple[Tensor, ...]:
            """Return the fields ``_ADVANCED`` after the step, and the mask."""
            moved = rows._advance(h)
            return *(getattr(rows, name) for name in _ADVANCED), moved

        *columns, moved = self.replayed("advance", attempt, _ADVANCED, h, checked=_SMOOTH)
        vars(self).update(zip(_ADVANCED, columns, strict=True))
        self._bound_by_growth()
        return moved

    def replayed(
        self,
        operation: str,
        function: Callable[..., tuple[Tensor, ...]],
        columns: Sequence[str],
        *more: Tensor,
        checked: int = 0,
    ) -> tuple[Tensor, ...]:
        """Call ``function`` with these rows and ``more`` tensors, by a ``Replay``.

        It is recorded once for each ``operation``, its name, and kind of chart. Of the rows it may
        read no fields but ``columns``, beside their chart. ``checked`` as of ``Replay``.
        """
        chart = self.chart
        flags = {x: getattr(chart, x) for x in ("any_logarithmic", "all_logarithmic")}
        parts = [
            x for x in ("signs", "logarithmic", "seen", "zero") if getattr(chart, x) is not None
        ]
        key = operation, chart.at_zero, *flags.values(), *parts
        if key not in self.replays:
            own = copy(self)

            def called(*given: Tensor) -> tuple[Tensor, ...]:
                """Call the function with the chart's parts, the columns, and more, as tensors."""
                rows, others = copy(own), list(given)
                named = {part: others.pop(0) for part in parts}
                rows.chart = Chart(**named, at_zero=chart.at_zero)
                vars(rows.chart).update(flags)
                vars(rows).update({column: others.pop(0) for column in columns})
                return function(rows, *others)

            self.replays[key] = Replay(called, checked)
        given = [getattr(chart, part) for part in parts] + [getattr(self, x) for x in columns]
        return self.replays[key](*given, *more)

    def _advance(self, h: Tensor) -> Tensor:
        """Do as ``advance``, but only mark, in ``grows``, where growth may bound the next step."""
        new, error = self._step(h)
        way, size = self._way_to(new), torch.maximum(self.y.abs(), new.abs())
        logarithmic, (rtol, atol, _) = self.chart.logarithmic, self.limits.split(1, 1)
        length, rounded_by = way.unsqueeze(1), _ROUNDED * size
        if self.chart.zero is not None:
            near = torch.maximum((self.y - self.chart.zero).abs(), (new - self.chart.zero).abs())
            rounded_by, size = _ROUNDING * size + _ROUNDED * near, near
        allowed = rtol * torch.minimum(size, length) + atol * length + rounded_by
        if self.chart.any_logarithmic:
            allowed = torch.where(logarithmic, rtol + _ROUNDING * size, allowed)
        ratio = error.abs() / allowed
        if self.chart.any_logarithmic:
            ratio = ratio.where(~(self.named() & (new < _GONE)), 0.0)
        ratio = ratio.amax(1)
        ratio = torch.where(ratio.isfinite(), ratio, torch.inf)
        moved = ratio <= 1
        steep = self.jacobian.abs().amax((1, 2))
        self.short = self.short + (self.h * steep < _VERY_SHORT)
        factor = (0.9 * ratio.clamp_min(1e-10) ** (-1.0 / ORDER)).clamp(0.1, 6.0)
        cut = moved & (h < self.h)  # cut at a time that was asked for: a longer step may succeed
        self.h = torch.where(cut, torch.maximum(factor * h, self.h), factor * h)
        self.y = torch.where(moved.unsqueeze(1), new, self.y)
        self.time = torch.where(moved, self.time + h, self.time)
        self.way = torch.where(moved, way, self.way)
        self._linearise()
        self.fastest = torch.fmax(self.fastest, self.velocity().amax(1))
        steeper = self.jacobian.abs().amax((1, 2))
        # what has become faster needs shorter steps, or every second one fails
        self.h = torch.where(steeper > steep, self.h * (steep / steeper).clamp_min(0.5), self.h)
        self.grows = self._may_grow()
        moves = self.h * self.field.abs().amax(1) > _STILL * self.y.abs().amax(1)
        moves = moves | (self.h * steeper > _STILL)
        self.stuck = ~moves | ~self.field.isfinite().all(1)
        return moved

    def passes(self, after: BatchState, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Bracket where, on the step to ``after``, the loss first falls to ``wanted`` (m,).

        Returns two lengths of that step, (m,), the second being NaN where the loss stays above.

        The loss of a gradient flow falls all the time: the lengths are 0 and the whole step. Of
        another field the loss is looked at along the quintic through both ends, at some places,
        and at more and more beside the one where it is least.
        """
        h, loss = after.time - self.time, self.model.loss
        low, high = torch.zeros_like(h), torch.full_like(h, torch.nan)
        whole = torch.where(loss(after.theta) <= wanted, h, torch.nan)
        if type(self.model).field is Model.field:
            return low, whole
        ends = step_ends(self, after)
        begin, grid = torch.zeros_like(h), torch.linspace(0, 1, 1 + _PLACES).to(h)[:, None]
        for closer in range(_CLOSER):
            part = (begin + grid * (2 / _PLACES) ** closer).clamp_max(1.0)
            place = hermite(ends, h[:, None], part[:, :, None])
            found = loss(self.chart.to_theta(place))
            below = found <= wanted
            falls = below.any(0)
            first = torch.where(falls, below.int().argmax(0), found.argmin(0))
            begin, end = (part.gather(0, i[None])[0] for i in ((first - 1).clamp_min(0), first))
            new = falls & high.isnan()
            low, high = torch.where(new, begin * h, low), torch.where(new, end * h, high)
        # the step itself decides whether the loss falls so far
        sure = self._loss_after(torch.where(high.isnan(), h, high)) <= wanted
        sure &= high.isfinite()
        return torch.where(sure, low, 0.0), torch.where(sure, high, whole)

    def locate_event(self, low: Tensor, high: Tensor, wanted: Tensor) -> Tensor:
        """Return lengths of steps that end on the losses ``wanted``, between two others, all (m,).

        By false position, where an end of the bracket that stays counts half (Illinois).
        """
        h = high
        here = torch.where(low > 0, self._loss_after(low), self.model.loss(self.theta))
        above, below = here - wanted, self._loss_after(h) - wanted
        length, there = h, h < 0
        for _ in range(_LANDINGS):
            trial = low + (high - low) * (above / (above - below)).nan_to_num(0.5)
            length = torch.where(there, length, trial)
            excess = self._loss_after(length) - wanted
            up = excess > 0
            low, high = torch.where(up, length, low), torch.where(up, high, length)
            above, below = torch.where(up, excess, above / 2), torch.where(up, below / 2, excess)
            there = there | (high - low <= 1e-15 * h) | (excess == 0)
            if bool(there.all()):
                break
        return length

    def _loss_after(self, h: Tensor) -> Tensor:
        """Return the losses (m,) at the ends of steps of length h (m,)."""
        return self.model.loss(self.chart.to_theta(self._step(h.clamp_min(1e-300))[0]))

    def _linearise(self) -> None:
        """Set θ, dy/dt and its derivative to those at y."""
        self.theta = self.chart.to_theta(self.y)
        self.field = self.chart.velocity(self.model, self.y)
        jacobian = self.model.jacobian(self.theta)
        self.jacobian = self.chart.push_jacobian(self.theta, self.field, jacobian)

    def _may_grow(self) -> Tensor:
        """Mask of rows (m,) whose next step may be too long for the fastest rate of growth.

        With more than two coordinates that rate is bounded by the largest eigenvalue of the
        Jacobian's symmetric part, by whether a matrix is positive definite.
        """
        k, limit = self.y.shape[1], self.limits[:, 2:] / self.h.unsqueeze(1)
        if k <= 2:
            return _growth_of_two(self.jacobian) > limit[:, 0]
        left = torch.diag_embed(limit.expand(-1, k)) - (self.jacobian + self.jacobian.mT) / 2
        if k <= _ONE_BY_ONE:
            definite = left[:, 0, 0] > 0
            for _ in range(k - 1):
                left = left[:, 1:, 1:] - left[:, 1:, :1] * left[:, :1, 1:] / left[:, :1, :1]
                definite = definite & (left[:, 0, 0] > 0)
        else:
            definite = torch.linalg.cholesky_ex(left)[1] == 0
        return ~definite & self.jacobian.isfinite().all(2).all(1)

    def _bound_by_growth(self) -> None:
        """Shorten the next steps, where ``grows``, to a limit over the fastest rate of growth.

        Long steps of an L-stable method would damp what grows.
        """
        index = self.grows.nonzero()[:, 0]
        if len(index):
            jacobian = self.jacobian[index]
            if self.y.shape[1] <= 2:
                rate = _growth_of_two(jacobian)
            else:
                rate = torch.linalg.eigvals(without_dust(jacobian)).real.amax(1)
            h = self.h[index]
            self.h[index] = torch.where(rate > 0, torch.minimum(h, self.limits[index, 2] / rate), h)

    def _step(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Take a step of Rodas5P of length h (m,); return y at its end and its error, (m, k)."""
        m, k = self.y.shape
        rate = (1 / h).unsqueeze(1)
        matrix = torch.diag_embed((rate / GAMMA).expand(m, k)) - self.jacobian
        inverse, _ = torch.linalg.inv_ex(matrix)
        stages = self.y.new_empty(m, STAGES, k)
        point, right = self.y, self.field
        for s, coefficients in enumerate(_coefficients(h.dtype, h.device)):
            if s:  # products of each row alone: in one of all, rounding would depend on its place
                sums = torch.bmm(coefficients.expand(m, -1, -1), stages[:, :s])
                ahead, slopes = sums.unbind(1)
                point = self.y + ahead
                right = torch.addcmul(self.chart.velocity(self.model, point), slopes, rate)
            stages[:, s] = torch.bmm(inverse, right.unsqueeze(2)).squeeze(2)
        error = stages[:, -1]
        return point + error, error


@cache
def _coefficients(dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return for each stage s the coefficients of those before, (2, s): for place and slope."""
    both = torch.from_numpy(np.stack([_A, _C], 1)).to(dtype=dtype, device=device)
    return [both[s, :, :s].contiguous() for s in range(STAGES)]


def _neighbours(model: Model, centre: Tensor, size: float) -> Tensor:
    """Displace rows as ``displace``, by parts of their distances from a point of rest near them.

    A coordinate that is 0 there is displaced by parts of the row, and none by less than the
    rounding of that point.
    """
    rest, known = _rest_near(model, centre)
    away = (centre - rest).abs()
    unit = torch.where(away == 0, away.amax(1, keepdim=True), away)
    unit = torch.where(unit > 0, unit, 1.0)
    return displace(model, centre, size, torch.maximum(unit, _SURE * known / size))


def _rest_near(model: Model, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Find points of rest near rows, and what rounding changes of them, (n, k); else 0 and 0.

    A coordinate counts that differs from the row's by less than a part of its size.
    """
    n = len(theta)
    rest = theta = theta[padded_indices(torch.ones_like(theta[:, 0], dtype=torch.bool))]
    for _ in range(_NEWTON):
        inverse = torch.linalg.pinv(model.jacobian(rest).nan_to_num())
        step = (inverse @ model.field(rest).unsqueeze(2)).squeeze(2)
        rest = torch.where(step.isfinite().all(1, keepdim=True), rest - step, rest)
    _, known = with_rounding(lambda x: (inverse @ model.field(x).unsqueeze(2)).squeeze(2), rest)
    known += step.abs()
    near = (theta - rest).abs() + known < _BESIDE * theta.abs()
    return torch.where(near, rest, 0.0)[:n], torch.where(near, known, 0.0)[:n]


class RosenbrockSolver:
    """Follows any loss or field by linearly implicit steps in torch, all starts together.

    Args:
        model: whose flow it is.
        defaults: tolerances and numbers of steps.
        minima_below: (θ (n, k), its losses (n,)) ↦ the minima (n, k) in whose wells these places
            lie, where they lie below the lowest pass, else NaN; rows stop there.
    """

    batched = True
    variable: Literal["time"] = "time"

    def __init__(
        self,
        model: Model,
        defaults: SolverDefaults | None = None,
        minima_below: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.model, self.defaults = model, defaults or SolverDefaults()
        self.minima_below = minima_below

    def ends(self, start: Tensor, steps: Steps, once: bool = False) -> Iterator[EndStates]:
        """Follow starts (n, k) to their ends; yield their end states part by part."""
        squares = _SQUARES if start.device.type == "cpu" else _SQUARES_ON_GPU
        followed = partial(self._follow_with_tolerances, steps, {})
        for part in start.split(max(1, squares // start.shape[1] ** 2)):
            states = resolve_near_saddles(
                followed,
                self.model,
                part,
                steps,
                steps.finer(0.1),
                once,
                _neighbours,
            )
            rest_on_kinks(self.model, part, states)
            yield states

    def _follow_with_tolerances(
        self, first: Steps, replays: dict[Any, Replay], start: Tensor, steps: Steps
    ) -> EndStates:
        """Follow the starts (n, k) once with these steps.

        When they are finer than ``first``, the solver's own, the error allowed in a coordinate is
        relative to its distance from a critical point near the start, if there is one, and else to
        its size.
        """
        zero = _rest_near(self.model, start)[0] if steps.rtol < first.rtol else None
        return follow(self.model, start, steps, zero, replays, self.minima_below)

    def paths(self, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
        """Return θ (T, n, k) at the times (T, n), from ``start`` at times[0]; NaN if not known."""
        path = start.new_full((len(times), *start.shape), torch.nan)
        path[0] = start
        times = (times - times[0]).to(start)
        state = BatchState.at(self.model, start, steps)
        written = torch.ones_like(state.index)  # how many times of each row
        for _ in range(steps.most):
            if not len(state.index):
                break
            left = times[written, state.index] - state.time
            lands = state.h >= left
            moved = state.advance(torch.where(lands, left, state.h))
            arrived = moved & lands
            state.time = torch.where(arrived, times[written, state.index], state.time)
            path[written[arrived], state.index[arrived]] = state.theta[arrived]
            written = written + arrived.long()
            stays = (written < len(times)) & ~state.stuck & (state.short <= _CREEPING_LONG)
            if not bool(stays.all()):
                kept = padded_indices(stays)
                written, state = written[kept], state.select(kept)
        return path

    def until(self, start: Tensor, wanted_loss: Tensor, steps: Steps) -> Tensor:
        """Return the times (n,) when the losses of starts (n, k) are first as wanted; else NaN."""
        found, crossed, brackets = torch.full_like(wanted_loss, torch.nan), [], []
        state = BatchState.at(self.model, start, steps)
        for _ in range(steps.most):
            if not len(state.index):
                break
            before = state.select(slice(None))
            moved = state.advance(state.h)
            low, high = before.passes(state, wanted_loss[state.index])
            below = moved & high.isfinite()
            if bool(below.any()):
                crossed.append(before.select(below))
                brackets.append(torch.stack([low, high], 1)[below])
            rests = (state.field.abs() <= 10.0 * _noise(state)).all(1)
            rests &= (state.field.abs() <= before.field.abs()).all(1)  # or it leaves a saddle
            rests |= state.time > state.max_time
            stays = ~below & ~state.stuck & ~rests & (state.short <= _CREEPING_LONG)
            if not bool(stays.all()):
                state = state.select(padded_indices(stays))
        if crossed:
            last, (low, high) = BatchState.joined(crossed), torch.cat(brackets).unbind(1)
            kept = padded_indices(torch.ones_like(low, dtype=torch.bool))
            length = last.locate_event(low[kept], high[kept], wanted_loss[last.index])
            found[last.index] = last.time + length
        return found

    def times(self, start: Tensor, ends: Limits, fraction: float, steps: Steps) -> Tensor:
        """Return the times (n,) when ``fraction`` of the excess loss is left; NaN if never."""
        until = partial(self.until, steps=steps)
        return times_to_fraction(until, start, self.model.loss(start), ends.loss, fraction)


def follow(
    model: Model,
    start: Tensor,
    steps: Steps,
    zero: Tensor | None = None,
    replays: dict[Any, Replay] | None = None,
    minima_below: Callable[[Tensor, Tensor], Tensor] | None = None,
    renewals: int = _RENEWALS,
) -> EndStates:
    """Follow starts (n, k) once to their ends; ``zero`` (n, k) is that of ``Chart``.

    Rows that come to rest where the flow is much less stiff than at their start go on from there,
    as starts of their own, ``renewals`` times: sizes that count there are small beside their way.
    ``replays`` keeps what ``BatchState`` records; ``minima_below`` as of ``RosenbrockSolver``.
    """
    end_losses, state = model.end_losses(), BatchState.at(model, start, steps, zero, replays)
    theta, why = start.clone(), torch.full_like(start[:, 0], NOT_FINITE, dtype=torch.long)
    attempts, saddle_distance = torch.zeros_like(why), torch.full_like(start[:, 0], torch.inf)
    revives = torch.zeros_like(why, dtype=torch.bool)
    # the least speed met; how near the row was to a critical point then, at its nearest, and at the
    # nearest that it left again
    met = torch.full_like(state.limits[:, :1], torch.inf).repeat(1, 4)
    met[:, 0] = _speed(state)
    stops = torch.ones_like(state.stuck)
    glance = partial(_glance, end_losses=end_losses)
    growth = Growth(start) if end_losses is None else None
    drifts = torch.zeros_like(why)  # for how many steps rows were slow, and yet not at rest
    # the flow of a loss cannot come back
    circles = Circles(model, state, start, steps.most) if _is_field(model) else None
    idle = Idle(start, circles is not None) if end_losses is None else None
    begun = state.fastest.new_zeros(len(start))
    begun[state.index] = state.fastest
    notes = [x for x in (growth, circles, idle) if x is not None]
    for attempt in range(_MORE * steps.most + 1):
        if not len(state.index):  # no start is finite
            break
        # what was noted of rows, or may be seen of one, is looked at for all
        if attempt >= steps.most or any(x.news for x in notes) or bool(stops.any()):
            # a row that was found to drift is looked at again when its time has grown tenfold, or
            # where nothing moves any more
            looks = (drifts[state.index] == 0) | (state.field == 0).all(1)
            if growth is not None:
                looks |= growth.due[state.index]
            reason, falls = _termination(state, end_losses, attempt == 0, looks)
            drifting = (reason == _DRIFTING_ROW) | (~looks & (reason == GOING))
            speed, still = state.velocity().amax(1), state.still(end_losses)
            moves = speed > 10 * still
            drifts[state.index] = torch.where(moves, 0, drifts[state.index] + drifting.long())
            ends = drifting & (drifts[state.index] > _DRIFTING)
            reason = torch.where(reason == _DRIFTING_ROW, GOING, reason)
            reason = torch.where(ends & (reason == GOING), OUT_OF_STEPS, reason)
            if growth is not None:
                slows = (reason == GOING) & growth.due[state.index] & (speed <= still)
                if bool(slows.any()):
                    rows = (slows & ~state.revives()).nonzero()[:, 0]
                    rows = rows[growth.converged(model, state.index[rows])[0]]
                    reason[rows[~_leaves_here(model, state.theta[rows])]] = _SETTLED
            if circles is not None:
                reason = circles.reason(state.index, reason)
            given_up = (state.short > _CREEPING) | (attempt == _MORE * steps.most)
            if attempt >= steps.most:
                sped_up = state.fastest > _LEFT_SADDLE * begun[state.index]
                given_up |= ~sped_up if circles is None else True
            if growth is not None and attempt > _PATIENT:
                given_up |= growth.escapes[state.index]
            if circles is not None:
                given_up |= circles.over[state.index]
            if idle is not None:
                given_up |= idle.over[state.index]
                drifts[state.index[idle.slow[state.index]]] = _DRIFTING + 1
            given_up &= reason == GOING
            reason = torch.where(given_up, OUT_OF_STEPS, reason)
            if minima_below is not None:
                held = minima_below(state.theta, model.loss(state.theta)).isfinite().all(1)
                reason[held & (reason == GOING)] = BELOW_PASS
            done = reason != GOING
            if end_losses is not None:
                left = (reason == OUT_OF_STEPS) | (reason == DIVERGED)
                if bool(left.any()):
                    reason[left & end_losses.reached(end_losses.above(model, state.theta))] = MINIMA
            if bool(done.any()):
                index, trapped = state.index[done], reason[done] == TRAPPED
                if growth is not None:
                    last = state.select(done & (reason == NOT_FINITE))
                    growth.note_blow_ups(model, last.index, last.theta, last.time)
                why[index], attempts[index] = reason[done], attempt
                revives[index] = state.select(done).revives()
                theta[index] = torch.where(falls[done], 0.0, state.theta[done])
                saddle_distance[index] = torch.where(trapped, met[done, 2], met[done, 3])
                stays = padded_indices(~done)
                state = state.select(stays)
                met = met[stays]
            if not len(state.index):
                break
            for kept in notes:
                kept.news = False
        state.advance(state.h)
        if growth is not None:
            growth.record(model, state.index, state.theta, state.time)
            at_once = padded_indices(state.h <= AT_ONCE * state.time)
            if attempt % _TRIED == 0 and len(at_once):
                motion = (x[at_once] for x in (state.index, state.theta, state.time))
                state.stuck[at_once] |= growth.blows_up(model, *motion)
        if circles is not None:
            circles.record(attempt + 1, state)
        if idle is not None and attempt >= WINDOW:
            units = torch.where(state.chart.logarithmic, 1.0, state.way.unsqueeze(1))
            still = state.still(end_losses)
            idle.record(attempt + 1, state.index, state.y, units, _speed(state), still)
        stops, met = state.replayed("glance", glance, _SEEN, met)
        if drifts.any() or (end_losses is not None and end_losses.degenerate):
            stops[:] = True
        if minima_below is not None:
            held = minima_below(state.theta, model.loss(state.theta))
            stops = stops | held.isfinite().all(1)
    if minima_below is not None:
        rows = why == BELOW_PASS
        theta[rows] = minima_below(theta[rows], model.loss(theta[rows]))
    left = theta.clone()
    if growth is not None:
        rows = (((why == DIVERGED) | (why == _SETTLED)) & ~revives).nonzero()[:, 0]
        settles, limit = growth.converged(model, rows)
        theta[rows[settles]], why[rows[settles]] = limit[settles], REST
    if circles is not None:
        turns = (why == SPIRALS) | (why == INFINITY)
        theta = torch.where(turns.unsqueeze(1), circles.sink, theta)
    rests = (why == REST).nonzero()[:, 0]
    hidden = rests[_hides(model, start[rests], theta[rests])]
    if len(hidden):
        way = (theta[hidden] - start[hidden]).abs().amax(1)
        saddles = classify_critical(model, theta[hidden], True, way) == Label.SADDLE
        why[hidden[saddles]] = NOT_FINITE
    states = _states(model, end_losses, start, theta, why, attempts, saddle_distance)
    if growth is not None:
        growth.send_to_infinity(model, states, drifts > _DRIFTING)
    if circles is not None:
        circles.note_ends(states, attempts == steps.most)
    if end_losses is None and renewals:
        rows = (states.why == REST).nonzero()[:, 0]
        before, after = (model.jacobian(x[rows]).abs().amax((1, 2)) for x in (start, left))
        rows = rows[before > _EASED * after]
        if len(rows):
            again = follow(model, left[rows], steps, None, replays, minima_below, renewals - 1)
            again.near = torch.maximum(again.near, states.near[rows])
            again.evaluations += states.evaluations[rows]
            states.store(rows, again)
    return states


def _is_field(model: Model) -> bool:
    """Return whether a model without end losses is no gradient flow."""
    return model.end_losses() is None and type(model).field is not Model.field


def _size(theta: Tensor) -> Tensor:
    """Return the largest |θᵢ| of each row, or 1 where all are 0, (n,)."""
    size = theta.abs().amax(1)
    return torch.where(size > 0, size, 1.0)


def _growth_of_two(jacobian: Tensor) -> Tensor:
    """Return the largest real part of the eigenvalues of matrices (m, k, k), k ≤ 2, (m,)."""
    if jacobian.shape[1] == 1:
        return jacobian[:, 0, 0]
    (a, b), (c, d) = (row.unbind(1) for row in jacobian.unbind(1))
    return (a + d) / 2 + ((a - d).square() / 4 + b * c).clamp_min(0.0).sqrt()


def _speed(rows: BatchState) -> Tensor:
    """Return the largest |dyᵢ/dt| of each row, (m,)."""
    return rows.field.abs().amax(1)


def _termination(
    rows: BatchState, end_losses: EndLosses | None, first: bool, looks: Tensor
) -> tuple[Tensor, Tensor]:
    """Decide which rows stop, and why, by where they are and how they move.

    ``first`` says that no step was taken yet; only rows in the mask ``looks`` (m,) may be at rest.
    Returns why, (m,), a value of ``return_codes``, ``_DRIFTING_ROW``, or GOING for rows that do not
    stop; and a mask (m, k) of coordinates that end at zero.
    """
    size, why = rows.size(), torch.full_like(rows.index, GOING)
    speed, noise = rows.field.abs(), _noise(rows)
    falls = _falling(rows, noise)
    if end_losses is not None and end_losses.difference > 0 and bool(falls.any()):
        # what creeps towards the least loss is not trapped, whatever falls beside
        above = end_losses.above(rows.model, rows.theta)
        falls &= (above > 0.01 * end_losses.difference).unsqueeze(1)
    why[falls.any(1)] = TRAPPED
    quiet = _quiet(rows, noise, rows.still(end_losses))
    if end_losses is not None and end_losses.degenerate:
        why[end_losses.reached(end_losses.above(rows.model, rows.theta))] = MINIMA
    quiet, seen = quiet & (why == GOING) & looks, rows.chart.seen
    if seen is not None and bool(quiet.any()):
        quiet &= ~rows.revives()
    index = padded_indices(quiet) if seen is not None else quiet.nonzero()[:, 0]
    if len(index):
        why[index] = _rest_or_drift(rows, index, end_losses, noise)
    far = _is_far(rows, size)
    if bool(far.any()):
        waits = (_is_late(rows) & (size.amax(1) <= rows.far)).nonzero()[:, 0]
        far[waits[_leaves_here(rows.model, rows.theta[waits])]] = False
    goes = (why == GOING) | (why == _DRIFTING_ROW)
    why[goes & far] = DIVERGED
    why[goes & rows.stuck & ~far] = NOT_FINITE
    if first:
        why[(speed == 0).all(1)] = CRITICAL
    return why, falls & (why == TRAPPED).unsqueeze(1)


def _rest_or_drift(
    rows: BatchState, index: Tensor, end_losses: EndLosses | None, noise: Tensor
) -> Tensor:
    """Decide whether the quiet rows in ``index`` are at rest; ``noise`` is ``_noise`` of all rows.

    Returns for each of them REST; ``_DRIFTING_ROW`` if it is at rest by its curvature alone; or
    GOING.
    """
    theta, field, jacobian = (x[index] for x in (rows.theta, rows.field, rows.jacobian))
    seen, size = rows.chart.seen, rows.size()[index]
    if seen is not None:
        field, jacobian = rows.model.field(theta), rows.model.jacobian(theta)
    length, known = (1.0 + size.amax(1, keepdim=True)).expand_as(theta), 0.0 * theta
    if end_losses is None:
        own = ~rows.named()[index].any(1, keepdim=True)
        came = (theta - rows.origin[index]).abs()
        came = torch.where(came > _UNMOVED * size, came, rows.way[index, None])
        length = torch.where(own, came, length)
        known = torch.where(own, _ROUNDING * size, known)
    rest = _is_short(field, jacobian, length, known) & ~_leaves(field, jacobian, theta)
    if end_losses is not None:
        # next to the least loss rows move as slowly as the square of the slowest rate
        allowed = (
            rows.still(end_losses)[index] * min(1.0, (end_losses.speed or 1.0) / _SLOWEST) ** 2
        )
        fast = rows.velocity()[index] > allowed.unsqueeze(1) + (_unit(rows) * noise)[index]
        rest &= ~fast.any(1)
        rest |= end_losses.reached(end_losses.above(rows.model, theta))
        return torch.where(rest, REST, GOING)
    stays, tried = rest.clone(), rest.nonzero()[:, 0]
    if len(tried):
        place, moves = theta[tried], rows.model.field
        if seen is None:
            chart = rows.chart.rows(index[tried])
            place, moves = rows.y[index[tried]], partial(chart.velocity, rows.model)
        stays[tried] = _stays(moves, place, field[tried], jacobian[tried])
    return torch.where(stays, REST, torch.where(rest, _DRIFTING_ROW, GOING))


def _unit(rows: BatchState) -> Tensor:
    """Return |dθᵢ/dt| over |dyᵢ/dt| of logarithms that the model does not name, else 1, (m, k)."""
    seen = rows.chart.seen
    return torch.ones_like(rows.y) if seen is None else torch.where(seen, rows.theta.abs(), 1.0)


def _quiet(rows: BatchState, noise: Tensor, still: Tensor) -> Tensor:
    """Mask of rows (m,) that may be at rest: no faster than ``still`` (m,) + ``noise`` (m, k)."""
    return (rows.velocity() <= still.unsqueeze(1) + _unit(rows) * noise).all(1)


def _is_far(rows: BatchState, size: Tensor) -> Tensor:
    """Mask of rows that have diverged, by their size (m, k) or by their time, (m,)."""
    return (size.amax(1) > rows.far) | _is_late(rows)


def _is_late(rows: BatchState) -> Tensor:
    """Mask of rows that have taken longer than any may, and are not on their way somewhere, (m,).

    Times count in units of how far a row has come since, which may have been small at first.
    """
    late = (rows.time > rows.max_time) & (rows.time * rows.fastest > _FOR_EVER * rows.way)
    return late & ((rows.way == 0) | (_speed(rows) * rows.time <= _POWER * rows.way))


def _noise(rows: BatchState) -> Tensor:
    """Return by how much rounding may change dy/dt, (m, k)."""
    units = torch.where(rows.chart.logarithmic, 1.0, rows.way.unsqueeze(1))
    units = torch.maximum(units, torch.where(rows.chart.logarithmic, 0.0, rows.y.abs()))
    return _ROUNDING * (rows.jacobian.abs() @ units.unsqueeze(2)).squeeze(2)


def _falling(rows: BatchState, noise: Tensor) -> Tensor:
    """Mask of coordinates that fall to zero exponentially while no other moves any more, (m, k)."""
    falls, allowed = _may_fall(rows, noise)
    index = falls.any(1).nonzero()[:, 0]
    if len(index):  # whether they fall as fast further down, and nothing else moves there
        lower = torch.where(falls[index], rows.y[index].clamp_max(_NEAR_PLANE), rows.y[index])
        there = rows.chart.rows(index).velocity(rows.model, lower)
        rates = there / rows.field[index]
        alike = torch.where(
            falls[index], (rates > 0.5) & (rates < 2.0), there.abs() <= allowed[index]
        )
        falls[index] &= alike.all(1, keepdim=True)
    return falls


def _may_fall(rows: BatchState, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Mask of logarithms that fall here, θᵢ to zero exponentially, while all others are at rest.

    Also returns the speed up to which another coordinate counts as at rest; both (m, k).
    """
    fall = torch.where(rows.named(), -rows.field, 0.0)
    rate = fall.amax(1, keepdim=True)
    falls = (fall > 0) & (fall >= _TOGETHER * rate)
    least = torch.where(falls, fall, torch.inf).amin(1, keepdim=True)
    allowed = torch.maximum(_TRAPPED * least.square(), torch.minimum(noise, _QUIET * least))
    return falls & (falls | (rows.field.abs() <= allowed)).all(1, keepdim=True), allowed


def _glance(rows: BatchState, met: Tensor, end_losses: EndLosses | None) -> tuple[Tensor, Tensor]:
    """Look for rows that may stop, and update the speeds and distances that they ``met`` (m, 4).

    Returns a mask (m,) and the new ``met``, whose columns are explained in ``follow``.
    """
    noise, speed = _noise(rows), _speed(rows)
    stops = _quiet(rows, noise, rows.still(end_losses)) | _is_far(rows, rows.size()) | rows.stuck
    stops = stops | (rows.short > _CREEPING) | (rows.field == 0).all(1)
    if rows.chart.any_logarithmic:
        stops = stops | _may_fall(rows, noise)[0].any(1)
    slow, near, nearest, passed = met.unbind(1)
    distance = speed / rows.jacobian.abs().amax((1, 2)) / rows.scale()
    passed = torch.where(speed > _PASSED * slow, torch.minimum(passed, near), passed)
    near = torch.where(speed < slow, distance, near)
    met = torch.stack(
        [torch.minimum(slow, speed), near, torch.minimum(nearest, distance), passed], 1
    )
    return stops, met


def _is_short(field: Tensor, jacobian: Tensor, scale: Tensor, known: Tensor) -> Tensor:
    """Mask of rows (m,) whose way left to rest is short in parts of ``scale`` (m, k).

    By their field (m, k) and its Jacobian, as in a step of Newton's method.

    Coordinates are known within ``known`` (m, k), which speeds along stiff directions show.
    """
    unit = torch.where(scale > 0, scale, 1.0)
    jacobian, field = jacobian * unit.unsqueeze(1) / unit.unsqueeze(2), field / unit
    left, stiff, _ = torch.linalg.svd(jacobian)
    along = (left.mT @ field.unsqueeze(2)).squeeze(2).abs()
    counts = stiff > _FLAT * stiff[:, :1]
    rounding = (left.mT.abs() @ jacobian.abs() @ (known / unit).unsqueeze(2)).squeeze(2)
    allowed = _SHORT * stiff + rounding
    short = ((along <= allowed) | ~counts).all(1)
    return short & ((stiff[:, 0] > 0) | (field == 0).all(1))


def _stays(
    velocity: Callable[[Tensor], Tensor], y: Tensor, field: Tensor, jacobian: Tensor
) -> Tensor:
    """Mask of rows at rest, of rows y (m, k) with little way left by their curvature, (m,).

    ``velocity`` gives dy/dt at y.

    A row is not at rest where it still drifts along directions without a curvature, and where its
    way is longer than its curvature says.
    """
    left, stiff, right = torch.linalg.svd(jacobian)
    stays, counts = stiff[:, -1] > _REGULAR * stiff[:, 0], stiff > _FLAT * stiff[:, :1]
    if bool(stays.all()):
        return stays
    inverse = right.mT @ torch.where(counts, 1 / stiff, 0.0).unsqueeze(-1).mul(left.mT)
    there = y - (inverse @ field.unsqueeze(2)).squeeze(2)
    there = there - (inverse @ velocity(there).unsqueeze(2)).squeeze(2)
    along, noise = with_rounding(lambda x: (left.mT @ velocity(x).unsqueeze(2)).squeeze(2), there)
    moves = torch.where(along.abs() > _RESOLVED * noise, along.abs(), 0.0)
    before = (left.mT @ field.unsqueeze(2)).abs().squeeze(2)
    return stays | torch.where(counts, moves <= _LINEAR * before, moves == 0).all(1)


def _leaves_here(model: Model, theta: Tensor) -> Tensor:
    """Return ``_leaves`` of places θ (m, k), as a mask (m,)."""
    return _leaves(model.field(theta), model.jacobian(theta).nan_to_num(), theta)


def _leaves(field: Tensor, jacobian: Tensor, theta: Tensor) -> Tensor:
    """Mask of rows (m,) that move, however little, in a direction that grows: they do not end here.

    By more than rounding: with the eigenvectors of the transposed Jacobian.
    """
    values, vectors = torch.linalg.eig(without_dust(jacobian.mT))
    # rounding of J changes a rate by no more than the rows of J that its eigenvector has
    weights = vectors.abs()
    known = (weights.mT @ jacobian.abs()).amax(2)
    grows = values.real > _GROWING * torch.minimum(known, values.abs().amax(1, keepdim=True))
    along = (vectors.mT @ field.to(vectors).unsqueeze(2)).squeeze(2).abs()
    noise = _ROUNDING * (jacobian.abs() @ theta.abs().unsqueeze(2))
    return (grows & (along > (vectors.abs().mT @ noise).squeeze(2))).any(1)


def _hides(model: Model, start: Tensor, theta: Tensor) -> Tensor:
    """Mask of rows (m, k) at rest where rounding hides what coordinates do that have stayed tiny.

    They are tiny beside the way that the row came and have no linear effect, but move where they
    are a part ``_SEEN_AT`` of that way; one alone that falls to zero hides nothing.
    """
    way = (theta - start).abs().amax(1, keepdim=True)
    jacobian = model.jacobian(theta).nan_to_num().abs()
    free = jacobian.amax(1) <= _TINY * jacobian.amax((1, 2)).unsqueeze(1)
    free &= (theta != 0) & (theta.abs() < _TINY * way)
    free &= (theta - start).abs() <= theta.abs() / 2
    hides = free.any(1)
    rows = hides.nonzero()[:, 0]
    if len(rows):
        place, own = theta[rows], free[rows]
        size = torch.where(own, place.abs(), 0.0).amax(1, keepdim=True)
        place = torch.where(own, place / size * (_SEEN_AT * way[rows]), place)
        noise = (model.jacobian(place).abs() @ place.abs().unsqueeze(2)).squeeze(2)
        field = model.field(place)
        moves = own & (field.abs() > _RESOLVED * _ROUNDING * noise)
        falls = (moves.sum(1) == 1) & ((field * place < 0) | ~moves).all(1)
        hides[rows] = moves.any(1) & ~falls
    return hides


def _states(
    model: Model,
    end_losses: EndLosses | None,
    start: Tensor,
    theta: Tensor,
    why: Tensor,
    attempts: Tensor,
    saddle_distance: Tensor,
) -> EndStates:
    """Put together the end states of rows from ``start`` that stopped at ``theta``, both (n, k).

    ``saddle_distance`` (n,), how near they passed critical points, decides which are in doubt.
    """
    finite = padded_indices(theta.isfinite().all(1))
    loss, speed = (
        torch.full_like(saddle_distance, torch.nan),
        torch.full_like(saddle_distance, torch.nan),
    )
    loss[finite] = model.loss(theta[finite])
    metric = theta.new_tensor(model.metric)
    speed[finite] = (model.field(theta[finite]) * metric).norm(dim=1)
    speed[why == TRAPPED] = 0.0
    ended = (why == TRAPPED) | (why == REST) | (why == MINIMA) | (why == BELOW_PASS)
    near = torch.where(ended & (saddle_distance < _DOUBTFUL), NEAR, FAR)
    states = EndStates.of(theta, why, loss, speed, 1 + _EVALUATIONS * attempts, near)
    way = (theta - start).abs().amax(1)
    states.radius = torch.where(way > 0, way, _size(theta))
    return states
