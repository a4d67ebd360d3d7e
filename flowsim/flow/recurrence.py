"""Orbits of fields that come back: closed orbits, limit cycles, spirals into a sink, bounded ones.

A row is one orbit. Its returns to a surface, a plane across it, are noted between steps. What they
suggest is tried by following the flow for a turn with small errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import torch
from scipy.integrate import RK45
from torch import Tensor

from flowsim.flow.batch import padded_indices
from flowsim.flow.chart import Chart
from flowsim.flow.labelling import EndStates
from flowsim.flow.options import Steps
from flowsim.flow.replay import Replay
from flowsim.flow.return_codes import GOING, INFINITY, OUT_OF_STEPS, REPEATS, SPIRALS, STAYS
from flowsim.landscape.stability import without_dust

#: Rows take a new surface, through where they are, after this many steps and twice as many each.
FIRST = 60
#: A surface that was not met again is kept until so many times the steps before it.
_LATE = 8
#: Returns that are kept, and how many turns a cycle may have.
_KEPT, _TURNS = 9, 4
#: Two returns this near, in parts of the orbit's extent, are tried; so is what remains of a
#: geometric approach to a cycle, and of the turn's own extent that much at most remains.
_NEAR, _REMAINS = 1e-3, 1e-2
#: An orbit is closed when it misses itself by this part of its extent at most.
_CLOSED = 1e-7
#: Two returns this near, in parts of the orbit's extent, differ by errors alone.
_ROUNDED = 1e-6
#: It drifts when it misses itself, from turn to turn, by the same within this part.
_SAME_WAY = 0.1
#: Turns take as long within this part.
_ABOUT = 0.1
#: An orbit that misses itself by more when it is followed with larger errors is not closed.
_MISSES = 1e-4
#: A spiral into a sink is tried at so many distances, its own times 1, 1/2, …, and one outwards at
#: 1, 2, …; each must come nearer, or further, by more than the last in a turn, of at most so many
#: steps.
_COPIES, _OUT, _NEARER, _MOST = 10, 41, 1e-6, 2000
#: A copy this many times as far from a sink as it was spirals into none, and a row that goes this
#: many times as far in a piece of its steps as in the first does not stay.
_LOST = 1e3
#: Two coordinates that turn at a place without a rate fall to it where so many copies come nearer
#: by a power of their distance, within the last part.
_NO_RATE, _STILL_COPIES, _POWER = 1e-12, 6, 1.2
#: A turn that is followed with larger errors is known to come nearer by this much, in logarithms.
_CLEARLY = 1e-2
#: If turns of two neighbouring copies shrink unequally by more than the first part, a copy halfway
#: between them in logarithms is tried, and so on, so many times, until its turn is the mean of its
#: neighbours' within the second part.
_HALVINGS, _SAME, _EVEN = 3, 1e-3, 0.25
#: A coordinate turns with an outward spiral that has this part of the largest in it.
_TAKES_PART = 1e-3
#: Saddles of a cycle at most, and passages that are looked at. Saddles lie this far apart, in parts
#: of the way, and are passed at less than this part of the speeds between them, each time within a
#: part of the way, and for so many times as long, which falls by no more than the last part.
_MOST_SADDLES, _PASSAGES = 4, 8
_APART, _SLOWLY, _BESIDE, _LONGER, _ON_AND_ON = 0.1, 0.1, 5e-2, 1.1, 0.95
#: A row creeps where it moves in each turn as in the turn before within this part, and by little,
#: in parts of its extent. Its cycle is sought by so many steps of Newton's method, with slopes from
#: places this far apart in parts of the extent; it attracts so many copies by more than a part.
_CREEPS, _LITTLE, _NEWTON, _AWAY, _NEAR_COPIES, _LEAST = 0.5, 0.1, 3, 1e-3, 6, 1e-7
#: Growth in a turn by less than these parts may come from errors, small or large ones.
_GROWN, _LEAVES = 1e-5, 0.05
#: A step is cut into so many parts to find where it crosses a surface, the part again, and its
#: part again; in that the crossing is as on a line.
_SECTIONS = 64
#: Pieces of a row's steps, of which the first is left out; a row is looked at first when so many
#: of as many parts of each are over.
_PIECES, _LOOKS = 8, 3
#: A row goes on for twice so many explicit steps, at most so many times, with errors of this part
#: of its way; it may approach a cycle where its last returns are this near, in parts of its extent.
_ON, _LONG, _LOOSE, _CYCLE = 600, 2, 1e-5, 0.01
#: After so many steps each, rows that seem to come back are tried, all together.
_TRIED = 20
#: Rows are tried for spirals after so many times ``FIRST`` steps, those with a rate with small
#: errors, too, after the second number of steps; outwards after the third, and twice as many each.
_SPIRALS = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96}
_SURELY, _OUTWARD = 4 * FIRST, 8 * FIRST
#: After these steps rows go on more roughly to see whether they wander in a bounded set, unless
#: they have slowed down to this part.
_WANDERS, _SETTLES = (420, 1680), 1e-3
#: A turn is followed with the first errors to see whether a cycle attracts, and with the second
#: whether an orbit is closed, or a spiral comes nearer.
_ROUGH, _FINE = Steps(1e-7, 1e-12, 0), Steps(1e-9, 1e-14, 0)
#: Fields of rows that these steps change and read.
_MOVED = ("y", "theta", "field", "jacobian", "time", "way")
#: A coordinate has settled when its extent in the second half is this part of the first's.
_ALIKE = 0.8
#: A line through the extents of all pieces explains this part of how they vary, or it is no trend.
_TREND = 0.5

#: (places (m, k) in θ) ↦ rows that are followed with small errors.
Fine = Callable[[Tensor], Any]


class Returns:
    """Places and times at which each row returned to its surface, a plane across its orbit.

    Attributes:
        since: after how many steps the row took its surface, (n,).
        anchor, normal: the surface, (n, k), in units of ``scale``.
        low, high: the extent of the orbit since then, (n, k).
        places, times, count: the last returns, (n, r, k) and (n, r), and how many there were.
        pieces: the least and the largest θ in each part of the steps, (2, n, p, k).
        again: after how many steps rows may be tried again that creep, (n,).
        drifts: which rows, when last seen, nearly came back and moved alike in each turn, (n,).
    """

    def __init__(self, y: Tensor, field: Tensor, curve: Tensor, time: Tensor, most: int) -> None:
        """Begin n orbits at y (n, k), with dy/dt ``field`` and d²y/dt² ``curve`` at ``time`` (n,).

        No surface is set yet. ``most`` is the number of steps that is divided into pieces. ``kept``
        has all that changes in every step; y, field, …, time are views of its ``_columns``.
        """
        self.most, self.since, self.piece = most, torch.zeros_like(time), 0
        none, edge = torch.zeros_like(y), torch.full_like(y, torch.inf)
        columns = (y, field, curve, y, none, none + 1, y, y, edge, -edge, time.unsqueeze(1))
        self.kept = torch.cat(columns, 1)
        self.y, self.field, _, self.anchor, self.normal, self.scale, *more = _columns(self.kept)
        self.low, self.high, self.least, self.largest, self.time = more
        self.places = torch.full_like(y[:, None], torch.nan).repeat(1, _KEPT, 1)
        self.times = torch.full_like(y[:, :1], torch.nan).repeat(1, _KEPT)
        self.count, self.drifts = torch.zeros_like(time), torch.zeros_like(time).bool()
        self.again = self.count.clone()
        edge = torch.full_like(y[:, None], torch.inf).repeat(1, _LOOKS * _PIECES, 1)
        self.pieces = torch.stack([edge, -edge])

    def record(self, attempt: int, index: Tensor, rows: Any) -> Tensor:
        """Note where ``rows``, of numbers ``index`` (m,), are now; return which returned, a mask.

        A row returns when it crosses its surface in the sense of its normal.
        """
        pieces = _LOOKS * _PIECES
        if (piece := min(attempt * pieces // self.most, pieces - 1)) != self.piece:
            self._end_piece()
            self.piece = piece
        before = self.kept[index]
        motion = rows.y, rows.field, rows.jacobian, rows.theta, rows.time
        after, returned = _RECORD(*motion, before)
        self.kept[index] = after
        if bool(returned.any()):
            own, last = _columns(after[returned]), _columns(before[returned])
            rows, h, normal = index[returned], (own[-1] - last[-1])[:, 0], own[4] / own[5]
            part, place = _crossing((*last[:3], *own[:3]), h, own[3], normal)
            for kept, now in ((self.places, place), (self.times, last[-1][:, 0] + part * h)):
                kept[rows, :-1] = kept[rows, 1:].clone()
                kept[rows, -1] = now
            self.count[rows] += 1
        if attempt >= FIRST and attempt % FIRST == 0 and (attempt // FIRST).bit_count() == 1:
            # a turn may take more steps than there were before its surface
            late = (self.count[index] > 0) | (attempt >= _LATE * self.since[index])
            self._take(attempt, index[late])
            self.low[index] = self.high[index] = self.y[index]
        return returned

    def _end_piece(self) -> None:
        """Add the extents of θ noted since the last call to the present piece, and forget them."""
        low, high = self.pieces[:, :, self.piece]
        low[:], high[:] = torch.minimum(low, self.least), torch.maximum(high, self.largest)
        self.least[:], self.largest[:] = torch.inf, -torch.inf

    def _take(self, attempt: int, index: Tensor) -> None:
        """Give rows a new surface, where they are, across their velocity; forget their returns."""
        extent = (self.high - self.low)[index]
        least = 1e-9 * extent.amax(1, keepdim=True)
        self.scale[index] = torch.maximum(extent, least).clamp_min(1e-300)
        self.anchor[index], self.since[index] = self.y[index], attempt
        normal = self.field[index] / self.scale[index]
        # a coordinate that drifts would take the surface with it; two others have to turn
        y, low, high = self.y[index], self.low[index], self.high[index]
        turns = (y > low) & (y < high)
        normal = torch.where(turns | (turns.sum(1, keepdim=True) < 2), normal, 0.0)
        self.normal[index] = normal / normal.norm(dim=1, keepdim=True)
        self.count[index] = 0
        self.places[index] = self.times[index] = torch.nan
        self.places[index, -1], self.times[index, -1] = self.y[index], self.time[index, 0]

    def centre(self, index: Tensor) -> Tensor:
        """Return the middle of the rows' extents in y, (m, k)."""
        return (self.low[index] + self.high[index]) / 2

    def closing_turns(self, index: Tensor, returned: Tensor) -> Tensor:
        """Return after how many returns rows seem to be back where they were, (m,); else 0.

        ``returned`` (m,) is the mask of those that have just returned; of others it is 0.
        """
        places = self.places[index] / self.scale[index].unsqueeze(1)
        turns = torch.zeros_like(index)
        count = self.count[index].long()
        tried = returned & ((count & (count - 1) == 0) | (count == 3))
        for m in range(_TURNS, 0, -1):
            last = (places[:, -1] - places[:, -1 - m]).abs().amax(1)
            before = (places[:, -1 - m] - places[:, -1 - 2 * m]).abs().amax(1)
            seems = (last <= _NEAR) | (last / (before - last) * last <= _REMAINS) & (last < before)
            turns = torch.where(tried & seems, m, turns)
        self.drifts[index[tried & (turns == 0)]] = False
        return turns

    def periods(self, index: Tensor, turns: Tensor, chart: Chart, fines: Sequence[Fine]) -> Tensor:
        """Return the periods of rows whose orbits are closed, or approach a cycle, (m,); else NaN.

        The rows have just returned, and seem to be where they were after so many ``turns``. They
        are followed with smaller and smaller errors, of which the last alone show closed orbits.
        """
        period = torch.full_like(self.times[index, -1], torch.nan)
        near = torch.ones_like(period, dtype=torch.bool)
        for fine in fines:
            left = padded_indices(period.isnan() & near)
            if len(left):
                exact = fine is fines[-1]
                period[left], near[left] = self._periods_by_turn(
                    index[left], turns[left], chart.rows(left), fine, exact
                )
        return period

    def _periods_by_turn(self, index: Tensor, turns: Tensor, chart: Chart, fine: Fine, exact: bool,
              ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Find periods by following the last place, and the one ``turns`` before, for a turn.

        Returns the periods (m,), NaN if none is seen, and a mask of the rows (m,) of which smaller
        errors may see one. The last place returns at
        some distance from itself; a part of the distance of both is left. If both are one place,
        the second is moved towards the middle of the orbit.
        """
        own, pick = torch.arange(len(index), device=index.device), _KEPT - 1 - turns
        last, before = self.places[index, -1], self.places[index][own, pick]
        same = ((last - before).abs() <= _ROUNDED * self.scale[index]).all(1, keepdim=True)
        before = torch.where(same, last + _AWAY * (self.centre(index) - last), before)
        period = self.times[index, -1] - self.times[index][own, pick]
        state = fine(torch.cat([chart.to_theta(last), chart.to_theta(before)]))
        both = index.repeat(2)
        normal, anchor = (self.normal / self.scale)[both], self.anchor[both]
        place, whole, extent = _return(state, anchor, normal, period.repeat(2))
        seen = whole.isfinite().view(2, -1).all(0)
        extent = extent[: len(index)]
        extent = torch.maximum(extent, 1e-9 * extent.amax(1, keepdim=True)).clamp_min(1e-300)
        there, other = place.view(2, *last.shape)
        missed = ((there - last) / extent).abs().amax(1)
        apart, remains = (last - before) / extent, (there - other) / extent
        rate = remains.norm(dim=1) / apart.norm(dim=1)
        closed = (missed <= _CLOSED) & exact
        cycle = (rate < (0.99 if exact else 0.9)) & (missed / (1 - rate) <= _REMAINS)
        first, second = whole.view(2, -1)
        signed = (remains * apart).sum(1) / apart.square().sum(1)
        limit = first + signed / (1 - signed) * (first - second)
        whole = torch.where(closed, first, limit)
        found = seen & (closed | cycle) & (period > 0)
        onwards = ((there - last) - (other - before)).abs() / extent
        if exact:
            goes_on = (missed <= _NEAR) & (onwards.amax(1) <= _SAME_WAY * missed)
            self.drifts[index] = seen & ~found & goes_on
        # smaller errors close an orbit that misses itself by errors alone, or see a slow cycle
        hopeful = (missed <= _MISSES) | (rate < 1) & (missed <= _REMAINS)
        return torch.where(found, whole, torch.nan), seen & hopeful

    def creeps(self, attempt: int, index: Tensor, returned: Tensor, chart: Chart,
               ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Mask of rows that returned and moved little, and alike, from each turn to the next.

        And of those which at this pace do not come far with all their steps.
        """
        count = self.count[index].long()
        tried = returned & ((count == 2) | (count == 3) | (count >= 8) & (count & (count - 1) == 0))
        if not bool(tried.any()):
            return tried, tried
        last, extent = self.places[index, -4:].unbind(1), self._extent(index, chart)
        moved = torch.stack([chart.to_theta(x) for x in last], 1).diff(dim=1)
        own = moved / extent.unsqueeze(1)
        steps = own.norm(dim=2)
        alike = own.diff(dim=1).norm(dim=2) <= _CREEPS * steps[:, :-1]
        size = moved[:, -1].norm(dim=1) / extent.norm(dim=1)
        tried &= alike[:, 1] & (alike[:, 0] | (count == 2)) & (size <= _LITTLE)
        left = self._turns_left(attempt, index)
        tried &= attempt >= self.again[index]
        self.again[index[tried]] = 4 * attempt
        return tried, tried & (size * left <= _LITTLE) & (steps[:, 2] <= 1.02 * steps[:, 1])

    def _turns_left(self, attempt: int, index: Tensor) -> Tensor:
        """Return for how many more returns the steps left suffice, (m,)."""
        return (self.most - attempt) / (attempt - self.since[index]) * self.count[index]

    def stays_put(self, attempt: int, index: Tensor) -> Tensor:
        """Mask of rows that drift from turn to turn, but not far with the steps left, (m,)."""
        last = self.places[index, -2:].diff(dim=1)[:, 0] / self.scale[index]
        far = last.abs().amax(1) * self._turns_left(attempt, index)
        return self.drifts[index] & (far <= _LITTLE)

    def _extent(self, index: Tensor, chart: Chart) -> Tensor:
        """Return the extent of θ since rows took their surface, (m, k).

        No coordinate's is less than 1e-9 of the largest.
        """
        extent = (chart.to_theta(self.high[index]) - chart.to_theta(self.low[index])).abs()
        return torch.maximum(extent, 1e-9 * extent.amax(1, keepdim=True)).clamp_min(1e-300)

    def _turn_map(
        self, model: Any, index: Tensor, period: Tensor, chart: Chart
    ) -> tuple[Callable[..., tuple[Tensor, ...]], Tensor, Tensor]:
        """Return the map of a turn for rows of about this period, (m,), and where it begins.

        The map is ``_turn_of`` without its last two arguments. With it are the last places of the
        rows in θ, through which their surfaces go, and their extents, (m, k).
        """
        begun, scale = chart.to_theta(self.places[index, -1]), self._extent(index, chart)
        normal = torch.where(self.normal[index] == 0, 0.0, model.field(begun) / scale.square())
        return partial(_turn_of, model, begun, normal, period), begun, scale

    def leaves(self, model: Any, index: Tensor, period: Tensor, chart: Chart, fine: Fine) -> Tensor:
        """Mask of rows beside a cycle from which a direction grows in a turn, (m,)."""
        turn, begun, scale = self._turn_map(model, index, period, chart)
        slopes, _, good = _slopes(partial(turn, fine), begun, _AWAY * scale)
        grows = torch.linalg.eigvals(slopes.nan_to_num()).abs() > 1 + _LEAVES
        return good & grows.any(1)

    def creeping_periods(
        self, model: Any, index: Tensor, chart: Chart, fines: Sequence[Fine]
    ) -> Tensor:
        """Return the periods of the cycles to which rows creep, (m,), however slowly; else NaN.

        Newton's method finds where a turn ends where it began. Copies of the row, at its distance
        from there times 1, 1/2, 1/4, …, must all come nearer by the same part, and no direction
        may grow.
        """
        period = self.times[index, -1] - self.times[index, -2]
        turn, begun, scale = self._turn_map(model, index, period, chart)
        parts = 0.5 ** torch.arange(_NEAR_COPIES).to(begun)[:, None]
        parts[-1] = 0.0
        place, eye, found = begun, torch.eye(begun.shape[1]).to(begun), period * torch.nan
        for fine in fines:
            for _ in range(_NEWTON):
                unit = torch.maximum(scale, (begun - place).abs())
                away = torch.maximum(_AWAY * scale, 0.1 * (begun - place).abs())
                slopes, there, good = _slopes(partial(turn, fine), place, away)
                missed = there - place
                step = (torch.linalg.inv_ex(eye - slopes)[0] @ missed.unsqueeze(2)).squeeze(2)
                place = place + torch.where(good.unsqueeze(1), step, 0.0)
                near = good & ((step / unit).abs().amax(1) <= _REMAINS)
                if bool((near | ~good).all()):
                    break
            if not bool(near.any()):
                break
            stable = (torch.linalg.eigvals(slopes.nan_to_num()).abs() < 1 + _GROWN).all(1)
            copies = place.unsqueeze(1) + parts * (begun - place).unsqueeze(1)
            there, time, good = turn(fine, copies)
            left, before = (
                ((x[:, :-1] - x[:, -1:]) / unit.unsqueeze(1)).norm(dim=2) for x in (there, copies)
            )
            nearer = 1 - left / before
            good &= (
                near & stable & (nearer > _LEAST).all(1) & (nearer.amin(1) >= nearer.amax(1) / 2)
            )
            missed = ((there[:, -1] - place) / unit).norm(dim=1)
            good &= missed <= _REMAINS * nearer.amin(1) * before[:, 0]
            found = torch.where(good & found.isnan(), time[:, -1], found)
            if bool(found.isfinite().all()):
                break
        return found

    def stays_near(self, index: Tensor, part: int = 0) -> Tensor:
        """Mask of rows that spent their steps and neither settle nor leave, (m,).

        Judged by the ``part`` of their steps, from 1, where they show no trend, or by all of them.
        """
        self._end_piece()
        low, high = self.pieces[:, index]
        if part:
            low, high = (x[:, (part - 1) * _PIECES : part * _PIECES] for x in (low, high))
        else:
            low = low.unflatten(1, (_PIECES, _LOOKS)).amin(2)
            high = high.unflatten(1, (_PIECES, _LOOKS)).amax(2)
        low, high = low[:, 1:], high[:, 1:]
        return _alike(low, high, part > 0) & ~self.drifts[index]

    def may_cycle(self, index: Tensor) -> Tensor:
        """Mask of rows whose last returns are near others, or too few to say, (m,)."""
        places = self.places[index] / self.scale[index].unsqueeze(1)
        apart = [(places[:, m:] - places[:, :-m])[:, -2:] for m in range(1, _TURNS + 1)]
        return torch.stack([~(x.abs().amax((1, 2)) > _CYCLE) for x in apart]).any(0)


class Passages:
    """The last saddles that each row has passed: the places where it was slowest, and when.

    For rows with coordinates in logarithms, which keep out of invariant planes.

    An orbit that comes nearer and nearer to a cycle of saddles stays longer and longer at each.
    """

    def __init__(self, start: Tensor) -> None:
        """Begin with rows at ``start`` (n, k), which have passed no saddle."""
        # the highest speed since the last passage, the least since then, and where that was
        self.highest = torch.zeros_like(start[:, 0])
        self.least, self.place = self.highest + torch.inf, start.clone()
        self.theta = torch.full_like(start[:, None], torch.nan).repeat(1, 2 * _MOST_SADDLES + 2, 1)
        self.time = self.theta[:, :, 0].clone()

    def record(self, index: Tensor, rows: Any) -> Tensor:
        """Note where rows (m,) are now; return a mask of those that near a cycle of saddles."""
        speed, least, highest = rows.velocity().amax(1), self.least[index], self.highest[index]
        passed = torch.minimum(speed, highest) * _SLOWLY >= least
        anew = passed | (speed > highest)
        lower = anew | (speed < least)
        place = torch.where(lower.unsqueeze(1), rows.theta, self.place[index])
        if bool(passed.any()):
            new = index[passed]
            for kept, value in ((self.theta, self.place[index]), (self.time, rows.time)):
                kept[new, :-1] = kept[new, 1:].clone()
                kept[new, -1] = value[passed]
        self.highest[index] = torch.where(anew, speed, highest)
        self.least[index], self.place[index] = torch.where(lower, speed, least), place
        passed[passed.clone()] = self._nears(index[passed], rows.way[passed])
        return passed

    def _nears(self, index: Tensor, way: Tensor) -> Tensor:
        """Mask of rows (m,) that pass the same saddles again and again, staying longer each time.

        ``way`` (m,) is how far they have come.
        """
        found = torch.zeros_like(way, dtype=torch.bool)
        for p in range(2, 1 + _MOST_SADDLES):
            last = -max(_PASSAGES, 2 * p + 2)
            theta, stay = self.theta[index, last:], self.time[index, last:].diff(dim=1)
            theta = theta / way[:, None, None]
            same = (theta[:, p:] - theta[:, :-p]).abs().amax(2) <= _BESIDE
            apart = theta.diff(dim=1).abs().amax(2) >= _APART
            longer = stay[:, p:] / stay[:, :-p]
            goes_on = longer[:, p:] >= _ON_AND_ON * longer[:, :-p]
            alike = same.all(1) & apart.all(1)
            found |= alike & (longer >= _LONGER).all(1) & goes_on.all(1)
        return found

    def begun(self, index: Tensor) -> Tensor:
        """Mask of rows that have passed at least four saddles, (m,)."""
        return self.time[index, -4].isfinite()


class Circles:
    """Rows of a field that come back to where they were, or circle a sink.

    Attributes:
        period: of rows whose orbit is closed, or near a cycle, (n,), else NaN.
        sink: where rows end that spiral there, (n, k), else NaN.
        leaves: which rows spiral outwards without end, (n,); ``sink`` is NaN where these turn.
        stays: which rows neither settle nor leave after a part of their steps, (n,).
        over: which rows creep from turn to turn, and cannot come far, (n,).
        news: whether something of this was found.
        turns: after how many returns rows seem to come back, which is not tried yet, (n,), else 0.
    """

    def __init__(self, model: Any, state: Any, start: Tensor, most: int) -> None:
        """Begin at ``start`` (n, k), whose finite rows are in ``state``; ``most`` steps follow."""
        self.model, self.period = model, torch.full_like(start[:, 0], torch.nan)
        self.sink = torch.full_like(start, torch.nan)
        self.leaves = torch.zeros_like(self.period, dtype=torch.bool)
        self.stays, self.over = torch.zeros_like(self.leaves), torch.zeros_like(self.leaves)
        self.news = False
        self.turns = torch.zeros_like(self.period, dtype=torch.long)
        y, field, curve = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
        y[state.index], field[state.index] = state.y, state.field
        curve[state.index] = curve_of(state.jacobian, state.field)
        fine = partial(state.at, model, replays=state.replays)
        self._fines = partial(fine, steps=_ROUGH), partial(fine, steps=_FINE)
        self.returns = Returns(y, field, curve, torch.zeros_like(self.period), most)
        self.passages = None if state.chart.seen is None else Passages(start)

    def reason(self, index: Tensor, reason: Tensor) -> Tensor:
        """Return why rows (m,) stop: ``reason``, but for what was found of rows that are GOING."""
        going = reason == GOING
        reason = torch.where(going & self.period[index].isfinite(), REPEATS, reason)
        reason = torch.where(going & self.leaves[index], INFINITY, reason)
        reason = torch.where(going & self.sink[index].isfinite().all(1), SPIRALS, reason)
        return torch.where(going & self.stays[index], STAYS, reason)

    def record(self, attempt: int, state: Any) -> None:
        """Note where the rows are after ``attempt`` steps, and try those that seem to come back."""
        index, returns = state.index, self.returns
        if self.passages is not None:
            nears = self.passages.record(index, state)
            self.stays[index] |= nears
            self.news |= bool(nears.any())
        if attempt % FIRST == 0 and (attempt // FIRST) in _SPIRALS:
            self._try_spirals(attempt, state)
        if attempt % _TRIED == 0:
            self._try_returns(attempt, state)
        part, over = divmod(attempt, max(1, returns.most // _LOOKS))
        if over == 0 and 0 < part < _LOOKS:
            self.stays[index], self.news = returns.stays_near(index, part), True
        if attempt in _WANDERS:
            self._try_wanderers(state)
        returned = returns.record(attempt, index, state)
        if bool(returned.any()):
            seem = returns.closing_turns(index, returned)
            self.turns[index] = torch.where(seem > 0, seem, self.turns[index])
            untried = returned & (seem == 0)
            creeps, stays = returns.creeps(attempt, index, untried, state.chart)
            if bool(creeps.any()):
                creeps[1:] &= index.diff() != 0
                rows, chart = index[creeps], state.chart.rows(creeps)
                self.period[rows] = returns.creeping_periods(self.model, rows, chart, self._fines)
                self.over[index[stays]] = True
                self.news = True

    def _try_spirals(self, attempt: int, state: Any) -> None:
        """Find which rows spiral into a sink, and now and then which spiral outwards."""
        index, centre = state.index, state.chart.to_theta(self.returns.centre(state.index))
        due = attempt >= _OUTWARD and (attempt // FIRST).bit_count() == 1
        for outward in (False, True)[: 1 + due]:
            at = index, centre, state.theta, self._fines
            found, sink = spirals(self.model, *at, outward, attempt >= _SURELY)
            self.sink[index[found]] = sink[found]
            self.leaves[index[found]] = outward
            self.news |= bool(found.any())

    def _try_returns(self, attempt: int, state: Any) -> None:
        """Follow rows that seem to come back for a turn, and note the periods of those that do."""
        index, returns = state.index, self.returns
        # a row most of whose steps are very short creeps along a jump, and is not closed
        tried = padded_indices((self.turns[index] > 0) & (2 * state.short < attempt))
        if len(tried):
            rows, chart = index[tried], state.chart.rows(tried)
            self.period[rows] = returns.periods(rows, self.turns[rows], chart, self._fines)
            self.turns[rows], self.news = 0, True
            self.over[rows] |= returns.stays_put(attempt, rows) & self.period[rows].isnan()
            self._leave(index, tried[self.period[rows].isfinite()], state.chart)

    def _try_wanderers(self, state: Any) -> None:
        """Mark, in ``stays``, rows that wander in a bounded set and have not slowed down."""
        moves = state.field.abs().amax(1) > _SETTLES * state.fastest
        if self.passages is not None:
            moves &= ~self.passages.begun(state.index)
        moves = padded_indices(moves)
        if len(moves):
            rows = state.index[moves]
            wander = wanders(state.select(moves)) & ~self.returns.drifts[rows]
            self.stays[rows], self.news = wander, True

    def _leave(self, index: Tensor, found: Tensor, chart: Chart) -> None:
        """Forget the periods of rows that only pass a cycle, from which a direction leads away.

        ``found`` are places in ``index``, where the periods are new.
        """
        found = found[torch.cat([found[:1] >= 0, index[found].diff() != 0])]
        if len(found) and self.sink.shape[1] > 2:
            rows, fine = index[found], self._fines[0]
            at = self.period[rows], chart.rows(found), fine
            rows = rows[self.returns.leaves(self.model, rows, *at)]
            self.period[rows], self.returns.drifts[rows] = torch.nan, True

    def note_ends(self, ends: EndStates, spent: Tensor) -> None:
        """Write periods into ``ends``, and STAYS for rows that ``spent`` (n,) their steps near."""
        ends.period = torch.where(ends.why == REPEATS, self.period, torch.nan)
        rows = (spent & (ends.why == OUT_OF_STEPS)).nonzero()[:, 0]
        ends.why[rows[self.returns.stays_near(rows)]] = STAYS


def _alike(low: Tensor, high: Tensor, line: bool) -> Tensor:
    """Mask of rows (m,) whose extents in p pieces of their steps are alike, with no trend.

    In each piece they lie from ``low`` to ``high`` (m, p, k). With ``line`` a line through all the
    extents counts as a trend, too.
    """
    extent = (high - low).nan_to_num(posinf=0.0, neginf=0.0)
    whole = high.amax(1) - low.amin(1)
    share = extent / whole.clamp_min(1e-300).unsqueeze(1)
    first, late = share[:, :3].amax(1), share[:, 3:].amax(1)
    alike = torch.minimum(first, late) >= _ALIKE * torch.maximum(first, late)
    alike &= share.amin(1) >= 0.25
    falls, rises = (share.diff(dim=1) < 0).all(1), (share.diff(dim=1) > 0).all(1)
    trend = (falls | rises) & ((share[:, -1] / share[:, 0]).log().abs() > 0.02)
    if line:
        place = torch.linspace(-1, 1, _PIECES - 1).to(share)[:, None]
        spread = share - share.mean(1, keepdim=True)
        along = (spread * place).sum(1).square()
        trend |= along > _TREND * spread.square().sum(1) * place.square().sum()
    quiet = late <= 1e-3 * first.clamp_min(1e-300)
    return (alike & ~trend | quiet).all(1) & (alike & ~trend).any(1)


def wanders(rows: Any) -> Tensor:
    """Mask of rows (m,) that neither settle nor leave when they go on, nor approach a cycle.

    They are followed by an explicit method of Runge and Kutta with larger errors, which shows no
    less of a chaotic orbit, and more of it in the same time; for longer, where some do not yet.
    """
    rows, index, h, pieces = copy(rows), torch.arange(len(rows.y)), rows.h, list[Tensor]()
    returns = Returns(rows.y, rows.field, curve_of(rows.jacobian, rows.field), rows.time, _ON)
    low = high = rows.theta
    found = gone = torch.zeros_like(h, dtype=torch.bool)
    for attempt in range(1, _LONG * _ON + 1):
        *moved, h, low, high = rows.replayed("wander", explicit_steps, _MOVED, h, low, high)
        vars(rows).update(zip(_MOVED, moved, strict=True))
        if attempt > _ON // 2:
            returns.record(attempt, index, rows)
        if attempt % (_ON // _PIECES) == 0:
            pieces.append(torch.stack([low, high]))
            gone = gone | (high - low > _LOST * pieces[0].diff(dim=0)[0]).any(1)
            low = high = rows.theta
        if attempt % _ON == 0:
            least, most = torch.stack(pieces, 2).unflatten(2, (_PIECES, -1))
            least, most = least.amin(2)[:, 1:], most.amax(2)[:, 1:]
            found = found | _alike(least, most, True) & ~returns.may_cycle(index)
        if bool((found | gone).all()):
            break
    return found


def explicit_steps(rows: Any, h: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, ...]:
    """Attempt two explicit steps of RK45, of length h (m,) and the next one, with every row.

    Returns the fields ``_MOVED`` of the rows, the next h, and the least and the largest θ so far.
    """
    m, k = rows.y.shape
    units = torch.where(rows.chart.logarithmic, 1.0, rows.way.unsqueeze(1))
    for _ in range(2):
        slopes = rows.y.new_empty(m, len(RK45.E), k)
        point = rows.y
        for s, weights in enumerate((*RK45.A[1:], RK45.B, RK45.E), 1):
            slopes[:, s - 1] = rows.chart.velocity(rows.model, point)
            row = rows.y.new_tensor(weights[:s]).expand(m, 1, -1)
            ahead = h.unsqueeze(1) * torch.bmm(row, slopes[:, :s]).squeeze(1)
            if s < len(RK45.E):
                point = rows.y + ahead
        ratio = (ahead.abs() / (_LOOSE * units)).amax(1)
        ratio = torch.where(ratio.isfinite(), ratio, torch.inf)
        moved = ratio <= 1
        rows.y = torch.where(moved.unsqueeze(1), point, rows.y)
        rows.time = torch.where(moved, rows.time + h, rows.time)
        h = h * (0.9 * ratio.clamp_min(1e-10) ** -0.2).clamp(0.1, 5.0)
    rows._linearise()
    extents = torch.minimum(low, rows.theta), torch.maximum(high, rows.theta)
    return *(getattr(rows, name) for name in _MOVED), h, *extents


def _columns(kept: Tensor) -> tuple[Tensor, ...]:
    """Split ``Returns.kept`` into its ten parts (m, k) and the time (m, 1)."""
    k = kept.shape[1] // 10
    return kept.split_with_sizes([k] * 10 + [1], 1)


def _record(
    y: Tensor, field: Tensor, jacobian: Tensor, theta: Tensor, time: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``Returns.kept`` of rows now, and a mask (m,) of those that crossed their surface."""
    last, _, _, anchor, normal, scale, low, high, least, largest, _ = _columns(kept)
    unit = normal / scale
    before, now = (((x - anchor) * unit).sum(1) for x in (last, y))
    curve = curve_of(jacobian, field)
    extents = torch.minimum(low, y), torch.maximum(high, y)
    pieces = torch.minimum(least, theta), torch.maximum(largest, theta)
    columns = (y, field, curve, anchor, normal, scale, *extents, *pieces, time.unsqueeze(1))
    return torch.cat(columns, 1), (before < 0) & (now >= 0)


_RECORD = Replay(_record)


def _slopes(
    turn: Callable[[Tensor], tuple[Tensor, ...]], place: Tensor, away: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate the map of a turn at places (m, k), by displacements ``away`` (m, k).

    Returns its Jacobians (m, k, k), its values (m, k), and a mask of rows that could be followed.
    """
    beside = place.unsqueeze(1) + torch.diag_embed(away)
    there, _, good = turn(torch.cat([place.unsqueeze(1), beside], 1))
    return ((there[:, 1:] - there[:, :1]) / away.unsqueeze(2)).mT, there[:, 0], good


def _turn_of(
    model: Any, anchor: Tensor, normal: Tensor, period: Tensor, fine: Fine, places: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Follow ``places`` θ (m, r, k), r of each row, to its surface, for about its period.

    Returns where they cross it, (m, r, k), when, (m, r), and a mask (m,) of rows all of whose
    places do; the surface goes through ``anchor`` across ``normal``, both (m, k).
    """
    shape, own = places.shape, torch.arange(len(period)).repeat_interleave(places.shape[1])
    known = places.isfinite().all(2, keepdim=True)
    theta = torch.where(known, places, anchor.unsqueeze(1)).flatten(0, 1)
    padded = padded_indices(torch.ones_like(own, dtype=torch.bool))
    rows = own[padded]
    surfaces = anchor[rows], normal[rows], period[rows]
    there, time, _ = _return(fine(theta[padded]), *surfaces, model)
    there, time = there[: len(own)].view(shape), time[: len(own)].view(shape[:2])
    return there, time, (time.isfinite() & known[:, :, 0]).all(1)


def curve_of(jacobian: Tensor, field: Tensor) -> Tensor:
    """Return d²y/dt² of rows, (m, k), from the Jacobian of dy/dt, and dy/dt."""
    return (jacobian @ field.unsqueeze(2)).squeeze(2)


def _return(
    state: Any, anchor: Tensor, normal: Tensor, period: Tensor, model: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Follow rows until they cross their surfaces after about a period.

    Returns the places (m, k) and times (m,) of the crossings, or NaN, and the extents in y on the
    way, (m, k). Of several crossings the one nearest to the period counts.
    With a model surfaces are in θ, else in y.
    """
    low = high = state.y
    place, time, off = anchor * torch.nan, period * torch.nan, _ABOUT * period

    def height(rows: Any) -> Tensor:
        """Return how far rows are beyond their surfaces, (m,)."""
        return (((rows.y if model is None else rows.theta) - anchor) * normal).sum(1)

    for _ in range(_MOST):
        going = (state.time - period < off) & ~state.stuck
        if not bool(going.any()):
            break
        before = copy(state)
        _advance(state, state.h, going)
        low, high = torch.minimum(low, state.y), torch.maximum(high, state.y)
        late = state.time >= period - off
        if not bool(late.any()):
            continue
        crosses = going & late & (height(before) < 0) & (height(state) >= 0)
        if bool(crosses.any()):
            h = state.time - before.time
            part, at = _crossing(step_ends(before, state, model), h, anchor, normal)
            when = before.time + part * h
            crosses &= (when - period).abs() <= off
            place = torch.where(crosses.unsqueeze(1), at, place)
            time = torch.where(crosses, when, time)
            off = torch.where(crosses, (when - period).abs(), off)
    return place, time, high - low


def step_ends(before: Any, after: Any, model: Any = None) -> list[Tensor]:
    """Return what ``hermite`` needs at both ends of a step: of y, or with a model of θ.

    Place, first and second derivative by time at one end, then at the other, (m, k) each.
    """
    found = []
    for rows in (before, after):
        place, slope, jacobian = rows.y, rows.field, rows.jacobian
        if model is not None:
            place = rows.theta
            slope, jacobian = model.field(place), model.jacobian(place)
        found += [place, slope, curve_of(jacobian, slope)]
    return found


def _advance(state: Any, h: Tensor, going: Tensor) -> None:
    """Attempt a step with the rows that are ``going``; the others take one that changes nothing."""
    state.advance(torch.where(going, h, 1e-300))


def _crossing(ends: Sequence[Tensor], h: Tensor, anchor: Tensor, normal: Tensor,
              ) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Find where steps of length h (m,) cross surfaces, by quintics through their ``step_ends``.

    Returns the part of h, (m,), and the place, (m, k).
    """
    h, width = h.unsqueeze(1), 1.0
    still = torch.zeros_like(anchor)
    shifts = (anchor, still, still, anchor, still, still)
    heights = [((x - y) * normal).sum(1, True) for x, y in zip(ends, shifts, strict=True)]
    low, parts = torch.zeros_like(h), torch.arange(1, 1 + _SECTIONS).to(h) / _SECTIONS
    for _ in range(3):
        over = hermite(heights, h, low + width * parts) >= 0
        over[:, -1] = True
        low = low + width * (over.int().argmax(1, keepdim=True) / _SECTIONS)
        width /= _SECTIONS
    below, above = (hermite(heights, h, x) for x in (low, low + width))
    part = low + width * (below / (below - above)).nan_to_num(1.0).clamp(0.0, 1.0)
    return part[:, 0], hermite(ends, h, part)


def hermite(ends: Sequence[Tensor], h: Tensor, part: Tensor) -> Tensor:
    """Evaluate, at a part of h, the quintic with the values and derivatives at a step's ``ends``.

    ``ends`` is what ``step_ends`` returns.
    """
    one, slope, curve, other, slope_there, curve_there = ends
    t, u = part, 1 - part
    first = one * (1 + 3 * t + 6 * t**2) + h * slope * t * (1 + 3 * t) + h**2 / 2 * curve * t**2
    last = other * (1 + 3 * u + 6 * u**2) - h * slope_there * u * (1 + 3 * u)
    last = last + h**2 / 2 * curve_there * u**2
    return u**3 * first + t**3 * last


def spirals(
    model: Any,
    index: Tensor,
    centre: Tensor,
    theta: Tensor,
    fines: Sequence[Fine],
    outward: bool,
    surely: bool,
) -> tuple[Tensor, Tensor]:
    """Find which rows at θ (m, k) spiral into a sink near ``centre`` (m, k), or ``outward``.

    Returns their mask (m,), and the sinks (m, k). The first row stands for all rows with the same
    number, ``index`` (m,).

    Newton's method finds the sink. Copies of the row, at its displacement from there times 1, 1/2,
    1/4, …, must all be nearer after a turn, and those between; where the sink has no rate, by a
    power of their distance. Of rows that spiral ``outward`` without end copies at the displacement
    times 1, 2, 4, … must be further away; the coordinates that turn are NaN in the sinks. ``fines``
    follow them with larger errors first, which decide what is clear, and those with a rate with
    small ones only if ``surely``.
    """
    sink = centre
    for _ in range(12):
        step = torch.linalg.pinv(model.jacobian(sink).nan_to_num()) @ model.field(sink).unsqueeze(2)
        sink = torch.where(step.isfinite().all(1), sink - step.squeeze(2), sink)
    left = torch.linalg.pinv(model.jacobian(sink).nan_to_num()) @ model.field(sink).unsqueeze(2)
    away = theta - sink
    size = away.abs().amax(1)
    rates, vectors = torch.linalg.eig(without_dust(model.jacobian(sink).nan_to_num()))
    slowest = rates.real.argmax(1, keepdim=True)
    turning = rates.gather(1, slowest)[:, 0]
    found = (left.abs().amax((1, 2)) <= 1e-9 * size) & (size > 0)
    found[1:] &= index.diff() != 0
    still = turning.real.abs() <= _NO_RATE * turning.imag.abs()
    still &= theta.shape[1] == 2 and not outward
    found &= (turning.real > 0) if outward else (rates.real < 0).all(1) | still
    found &= turning.imag.abs() > turning.real.abs()
    count, base, sign = (_OUT, 2.0, -1) if outward else (_COPIES, 0.5, 1)
    part = base ** torch.arange(count).to(theta)
    if outward and bool(found.any()):
        # none is followed where the furthest does not turn and grow by its slopes
        far = model.jacobian((sink + part[-1] * away)[found]).nan_to_num()
        far = torch.linalg.eigvals(without_dust(far))
        found[found.clone()] = ((far.real > 0) & (far.imag != 0)).any(1)
    rows = found.nonzero()[:, 0]
    if not len(rows):
        return found, sink
    dual = torch.linalg.pinv(vectors)
    longest = 4 * 2 * math.pi / turning.imag.abs()

    def growth(fine: Fine, own: Tensor, part: Tensor) -> Tensor:
        """Return ``_growth`` of copies of rows ``own`` (m,), at ``part`` (m,) of their distance."""
        n, padded = len(own), padded_indices(torch.ones_like(own, dtype=torch.bool))
        own, scale = own[padded], part[padded].unsqueeze(1)
        copies = sink[own] + scale * away[own]
        return _growth(model, fine, copies, sink[own], dual[own], longest[own], own, sign)[:n]

    levels = tuple(zip(fines, (_CLEARLY, _NEARER), strict=True))
    groups = (found & ~still).nonzero()[:, 0], (found & still).nonzero()[:, 0]
    found[rows] = False
    for rows, many, flat in zip(groups, (count, _STILL_COPIES), (False, True), strict=True):
        for fine, sure in levels[: 1 + (flat or surely)]:
            if not len(rows):
                break
            by, own = partial(growth, fine), part[:many]
            whole = by(rows.repeat_interleave(many), own.repeat(len(rows))).view(-1, many)
            nearer = (sign * whole < -sure).all(1)
            if flat:
                law = whole[:, 3:] / whole[:, 2:-1]
                nearer &= (law.amax(1) <= _POWER * law.amin(1)) & (law.amax(1) < 0.9)
            found[rows[nearer]] = True
            found[_uneven(by, rows[nearer], own, whole[nearer], sign)] = False
            rows = rows[(whole.abs() <= sure).any(1) & ~(sign * whole > sure).any(1)]
    if outward:
        which = slowest.unsqueeze(1).expand(-1, vectors.shape[1], 1)
        lead = vectors.gather(2, which)[:, :, 0].abs()
        turns = lead >= _TAKES_PART * lead.amax(1, keepdim=True)
        sink = torch.where(turns, torch.nan, sink)
    return found, sink


def _growth(
    model: Any, fine: Fine, copies: Tensor, about: Tensor, dual: Tensor, longest: Tensor,
    group: Tensor, sign: int,
) -> Tensor:  # fmt: skip
    """Return log(distance after a turn / distance before) of copies (m, k), (m,); NaN: no turn.

    Distances are from ``about`` (m, k), in the coordinates of the eigenvectors, by ``dual``.

    A group of copies is followed no longer when one of it has not turned after ``longest``, (m,),
    has gone far away, or has come nearer, times ``sign``, by too little.
    """

    def distance(place: Tensor) -> Tensor:
        """Return the distances (m,) of places (m, k)."""
        return (dual @ (place - about).to(dual.dtype).unsqueeze(2)).abs().squeeze(2).norm(dim=1)

    state = fine(copies)
    radial = copies - about
    normal = model.field(copies)
    normal = normal - radial * (normal * radial).sum(1, True) / radial.square().sum(1, True)
    near = distance(copies)
    found = torch.full_like(near, torch.nan)
    over = left = torch.zeros_like(found, dtype=torch.bool)  # left the surface it starts on
    for _ in range(_MOST):
        gone = state.stuck | (state.time > longest)
        gone |= (sign > 0) & (distance(state.theta) > _LOST * near)
        failed = torch.where(found.isnan(), gone, ~(sign * found < -_NEARER))
        over = over | torch.isin(group, group[failed])
        going = found.isnan() & ~over
        if not bool(going.any()):
            break
        before = copy(state)
        _advance(state, state.h, going)
        there = ((state.theta - about) * normal).sum(1)
        crosses = (((before.theta - about) * normal).sum(1) < 0) & (there >= 0) & found.isnan()
        crosses, left = crosses & left, left | (there > 0)
        if bool(crosses.any()):
            ends = step_ends(before, state, model)
            place = _crossing(ends, state.time - before.time, about, normal)[1]
            found = torch.where(crosses, (distance(place) / near).log(), found)
    return found


def _uneven(
    growth: Callable[[Tensor, Tensor], Tensor], rows: Tensor, part: Tensor, whole: Tensor, sign: int
) -> Tensor:
    """Return those of ``rows`` of which a copy between others may not come nearer in a turn.

    Between two copies what a turn multiplies the distance by, ``whole`` (m, c) in logarithms, is
    looked at until it varies evenly, as it does not about a cycle.
    """
    alike = whole.diff(dim=1).abs() <= _SAME * whole[:, 1:].abs()
    alike = alike[:, :-1] & alike[:, 1:]
    constant = torch.cat([alike[:, :1], alike[:, :-1] & alike[:, 1:], alike[:, -1:]], 1)
    row, left = (~constant).nonzero().unbind(1)
    own, start, end = rows[row], part[left], part[left + 1]
    first, last = whole[row, left], whole[row, left + 1]
    bad = rows[:0]
    for _ in range(_HALVINGS):
        if not len(own):
            return bad
        middle = (start * end).sqrt()
        half = growth(own, middle)
        fails = ~(sign * half < -_NEARER)
        bad = torch.cat([bad, own[fails]])
        even = (half - (first + last) / 2).abs() <= _EVEN * torch.minimum(first.abs(), last.abs())
        split = ~even & ~torch.isin(own, bad)
        own, start, end, middle, first, half, last = (
            x[split] for x in (own, start, end, middle, first, half, last)
        )
        own, first, last = own.repeat(2), torch.cat([first, half]), torch.cat([half, last])
        start, end = torch.cat([start, middle]), torch.cat([middle, end])
    return torch.cat([bad, own])
