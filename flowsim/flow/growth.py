"""Growth without end and convergence without a rate, seen at tenfold times and distances."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.flow.labelling import EndStates
from flowsim.flow.replay import Replay
from flowsim.flow.return_codes import DIVERGED, INFINITY, NOT_FINITE, OUT_OF_STEPS
from flowsim.interface import Model
from flowsim.labels import Status
from flowsim.landscape.stability import followed, with_rounding

#: Notes that are kept of every row.
_NOTES = 7
#: A ratio of two successive increments counts as steady within this.
_STEADY = 0.02
#: Increments a_n with n (1 − a_n / a_{n−1}) up to the first have no finite sum, from the second on
#: they have one (Raabe's test); it takes so many notes.
_GROWS, _CONVERGES, _MANY = 1.25, 1.6, 12
#: Fewer notes do where an increment is this part of the one before.
_FAST = 0.6
#: The ratios of increments that converge are alike within this part of what they lack to 1, and the
#: field at the limit is this part of the present one at most.
_ALIKE, _WEAKER = 0.2, 0.1
#: If the convergence is slow, limits extrapolated now and a tenfold time before differ by at most
#: this part of the remaining way.
_KNOWN = 0.1
#: Two ratios that are alike within this part of what they lack to 1 are those of a power of time.
_EVEN = 0.01
#: A stiff direction has a rate this many times the inverse of a row's time.
_STIFF = 1e3
#: An increment below this part of the way is none, nor one below the second of the coordinate.
_NOTHING, _LAST = 1e-9, 1e-14
#: A coordinate moves on at this part of its speed a tenfold time before; convergence is slower.
_UNSLOWED = 0.5
#: A coordinate that changes by less than this part of the distance does not take part in it.
_PART = 1e-3
#: A growth like this power of time, or less, is known before the steps are spent.
_SLOW, _LEAST = 0.5, 1e-3
#: A row has blown up when it would double in this part of its time, like (T − t)^(−1/(p−1)) with p
#: up to the second; or like an exponential, looked at when its speed is this many times e-fold.
AT_ONCE, _DEGREE, _FOLDS = 1e-9, 40.0, 3.0
#: A row moves on a straight line within this part of its speed. The field is looked at there at
#: these times its distance; it turns back above so many times what rounding may do.
_STRAIGHT, _LOOKS, _SEEN = 1e-6, 10 ** torch.arange(-2, 12, 0.004, dtype=torch.float64), 30.0
#: A row that blows up is looked at on all its way.
_ANYWHERE = torch.cat([_LOOKS, 10 ** torch.arange(12, 300, 0.1, dtype=torch.float64)])


class Growth:
    """Places of rows (orbits) after each tenfold growth of their time, and of their distance.

    Attributes:
        time, far: the notes of either kind.
        turned: when each coordinate last changed the sense in which it moves, (n, k).
        due: which rows were noted by their time at the last step, (n,).
        escapes: which had grown like one small power of time, or its logarithm, at their last
            notes, (n,).
        news: whether any had.
        blown: which coordinates stopped at the end of their time, at infinity, (n, k).
    """

    def __init__(self, start: Tensor) -> None:
        """Begin with rows at ``start`` (n, k), before any note."""
        none, never = torch.zeros_like(start), start.new_full((len(start), 2), torch.nan)
        # of each coordinate its start, last value and sense, and when that turned; the next notes
        self.kept = torch.cat([start, start, none, none, never], 1)
        self.start, _, self.sense, self.turned, _ = _columns(self.kept)
        self.time, self.far = _Notes(start), _Notes(start)
        self.due = torch.zeros_like(start[:, 0], dtype=torch.bool)
        self.escapes, self.blown = self.due.clone(), torch.zeros_like(start, dtype=torch.bool)
        self.news = False

    def record(self, model: Model, index: Tensor, theta: Tensor, time: Tensor) -> None:
        """Note where and when the rows ``index`` (m,) are now; set ``escapes`` of those due."""
        self.kept[index], away, due, far = _RECORD(theta, time, self.kept[index])
        self.due[index] = due
        for i, (notes, which, measure) in enumerate(
            ((self.time, due, time), (self.far, far, away))
        ):
            if bool(which.any()):
                rows = index[which]
                notes.record(rows, theta[which], time[which], measure[which])
                self.kept[rows, i - 2] = 10 * measure[which]
        if bool(due.any()):
            rows = index[due]
            grown = self.time.theta[rows, -4:].sub(self.start[rows, None]).abs().amax(2)
            power = grown.log().diff(dim=1) / self.time.time[rows, -4:].log().diff(dim=1)
            steady = ((power[:, 1:] / power[:, :-1] - 1).abs() <= _STEADY).all(1)
            steady &= ((power > _LEAST) & (power <= _SLOW)).all(1)
            grows = self._grows_on(self.time, rows)
            # like the logarithm of time for five decades, while all else stands still
            even = ((self.time.rates(rows)[1][:, -4:] - 1).abs() <= _STEADY).all(1)
            change = self.time.theta[rows, -2:].diff(dim=1)[:, 0].abs()
            settled = change <= _PART * (self.time.theta[rows, -1] - self.start[rows]).abs()
            steady = (steady | torch.where(grows, even, settled).all(1)) & grows.any(1)
            seen = steady.nonzero()[:, 0]
            steady[seen] = ~self._turns_back(model, rows[seen], theta[due][seen], grows[seen])
            self.escapes[rows] = steady
        self.news = bool(self.escapes.any())

    def note_blow_ups(self, model: Model, index: Tensor, theta: Tensor, time: Tensor) -> Tensor:
        """Find rows (m,), whose time stands still, that blow up; return their mask.

        Marks in ``blown`` which of their coordinates do.
        """
        leads = (theta - self.start[index]).abs().argmax(1, keepdim=True)
        field = model.field(theta)
        place, speed = theta.gather(1, leads)[:, 0], field.gather(1, leads)[:, 0]
        quicker = _speeding_up(model, theta, field, leads)
        degree = place * quicker
        soon = (place / speed > 0) & (place / speed <= AT_ONCE * time)
        # like an exponential: further on the logarithm of the speed grows as evenly, while before
        # a place where the speed has no bound it grows more and more
        further = theta + _FOLDS * (1 / (quicker * speed)).unsqueeze(1) * field
        there = _speeding_up(model, further, model.field(further), leads)
        rise = there / quicker
        evenly = (rise > 0) & (rise <= 1 + _STEADY)
        blows = soon & (degree > 1) & ((degree <= _DEGREE) | evenly)
        joins = field.abs() >= _PART * speed.abs().unsqueeze(1)
        self.blown[index] = blows.unsqueeze(1) & joins
        return blows

    def blows_up(self, model: Model, index: Tensor, theta: Tensor, time: Tensor) -> Tensor:
        """Mask of rows (m,) that blow up along straight lines on which nothing turns back."""
        field = model.field(theta)
        ahead = (model.jacobian(theta) @ field.unsqueeze(2)).squeeze(2)
        along = (ahead * field).sum(1, keepdim=True) / field.square().sum(1, keepdim=True) * field
        straight = (ahead - along).abs().amax(1) <= _STRAIGHT * along.abs().amax(1)
        blows = self.note_blow_ups(model, index, theta, time) & straight
        away = (theta - self.start[index]).abs()
        turns = self.turned[index] > self.far.time[index, -4:-3]
        turns &= away >= _PART * away.amax(1, keepdim=True)
        blows &= ~turns.any(1)  # or it may turn again
        known = dict[int, bool]()  # a row may be here more than once
        for i, row in enumerate(index.tolist()):
            if bool(blows[i]) and row not in known:
                way = field[i] / field[i].abs().max() * theta[i].abs().max()
                places = theta[i] + _ANYWHERE.to(theta)[:, None] * way
                known[row] = not _points_back(model, places, way)
            blows[i] &= known.get(row, False)
        self.blown[index[~blows]] = False
        return blows

    def _grows_on(self, notes: _Notes, rows: Tensor) -> Tensor:
        """Mask of coordinates of rows that grow without end, by notes of one kind, (m, k)."""
        rate, ratio = notes.rates(rows)
        same = (rate[:, -3:].sign() == rate[:, -1:].sign()).all(1) & (rate[:, -1] != 0)
        same &= self.turned[rows] <= notes.time[rows, -4].unsqueeze(1)
        place = notes.theta[rows, -1]
        away = (place - self.start[rows]).abs()
        same &= rate[:, -1].abs() > _NOTHING * away + _LAST * place.abs()
        steady = (ratio[:, -2:] >= 1 - _STEADY).all(1)
        count = notes.count(rows).unsqueeze(1)
        return same & (steady | ((count >= _MANY) & (count * (1 - ratio[:, -1]) <= _GROWS)))

    def converged(self, model: Model, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Find which rows (m,) converge, if only like a power of time or of its logarithm.

        Returns their mask, and the limits (m, k), extrapolated from the notes by time.

        The field must be much weaker at the limit than where the row is, and a limit that is
        approached slowly nearly the one that was to be expected before.
        """
        theta, count = self.time.theta[rows], self.time.count(rows).unsqueeze(1)
        rate, ratio = self.time.rates(rows)
        way = (theta[:, -1] - self.start[rows]).abs()
        change = theta[:, -2:].diff(dim=1)[:, 0].abs()
        slows = (change <= _NOTHING * way) & (rate[:, -1].abs() <= rate[:, -2].abs())
        still = slows | (change <= _LAST * theta[:, -1].abs())
        last, before = ratio[:, -1], ratio[:, -2]
        many = (count >= _MANY) | ((count >= _NOTES - 1) & (last <= _FAST))
        slower = (last > 0) & many & (count * (1 - last) >= _CONVERGES)
        slower &= (last - before).abs() <= _ALIKE * (1 - last)
        limit = torch.where(still, theta[:, -1], self._expected_limit(rows, 0))
        earlier = torch.where(still, theta[:, -1], self._expected_limit(rows, 1))
        # errors hide where a coordinate leads that is tiny beside the way of all
        tiny = theta[:, -1].abs() <= _NOTHING * way.amax(1, keepdim=True)
        # nor has it a limit where it moves nearly as fast as a tenfold time before
        field, noise = with_rounding(model.field, theta[:, -1])
        moves_on = field.abs() >= _UNSLOWED * model.field(theta[:, -2]).abs()
        still &= tiny | ~(moves_on & (field.abs() > _SEEN * noise))
        here = field.norm(dim=1)
        weaker = model.field(limit).norm(dim=1) <= _WEAKER * here
        if type(model).field is Model.field and not bool((weaker | still.all(1)).all()):
            # an extrapolation does not rest along what is stiff as well as the row does; that of a
            # field may lie on the other side of a line of rest, which the flow leaves there
            least = _STIFF / self.last_time(rows)
            stiff = torch.linalg.pinv(model.jacobian(limit).nan_to_num(), atol=least)
            kept = still | weaker.unsqueeze(1)
            beside = torch.where(kept, limit, followed(model, limit, stiff))
            rests = model.field(beside).norm(dim=1) <= _WEAKER * here
            weaker, limit = weaker | rests, torch.where(rests.unsqueeze(1), beside, limit)
        left = (theta[:, -1] - limit).abs().amax(1)
        agree = (earlier - limit).abs().amax(1) <= _KNOWN * left
        agree |= (still | (last <= _FAST)).all(1)
        return (still | slower).all(1) & (weaker & agree | still.all(1)), limit

    def _expected_limit(self, rows: Tensor, ago: int) -> Tensor:
        """Extrapolate limits from all notes by time but the last ``ago``, (m, k)."""
        last, notes = _NOTES - 1 - ago, self.time
        theta, ratio = notes.theta[rows], notes.rates(rows)[1][:, : last - 1]
        limit = _levin_limit(theta[:, : last + 1], notes.count(rows).unsqueeze(1) - ago)
        # notes are not evenly spaced, which a power of time does not mind
        steps = (notes.measure[rows, last] / notes.measure[rows, last - 1]).log10().unsqueeze(1)
        part = ratio[:, -1] ** steps
        power = theta[:, last] + (theta[:, last] - theta[:, last - 1]) * part / (1 - part)
        even = (ratio[:, -1] - ratio[:, -2]).abs() <= _EVEN * (1 - ratio[:, -1])
        return torch.where(even & power.isfinite(), power, limit)

    def send_to_infinity(self, model: Model, ends: EndStates, drifts: Tensor) -> None:
        """Find, in ``ends``, rows that go to infinity; write their limits, and those of losses.

        A coordinate that grows goes to ±∞; one that goes back and forth further and further has no
        limit, NaN, and then the loss has none. Rows that ``drifts`` (n,) so slowly that rounding
        shortens their steps go to infinity like a small power of time alone.
        """
        given_up, left = ends.why == OUT_OF_STEPS, ends.why == DIVERGED
        left = left | (self.blown.any(1) & (ends.why == NOT_FINITE))
        rows = (left | (given_up & (drifts | self.escapes | self.blown.any(1)))).nonzero()[:, 0]
        if not len(rows):
            return
        end = ends.theta[rows]
        away = (end - self.start[rows]).abs()
        grows, wide = self._grows_on(self.time, rows), self._grows_on(self.far, rows)
        # by distance where the last tenfold distances took less than two tenfold times, till now
        now = torch.fmax(self.far.time[rows, -1], self.last_time(rows))
        fast = self.far.time[rows, -4] > 1e-2 * now
        fast |= self.time.theta[rows, -4, 0].isnan()
        grows = torch.where(fast.unsqueeze(1), wide, grows)
        leads = away >= _PART * away.amax(1, keepdim=True)
        onwards = self.turned[rows] < self.last_time(rows)[:, None] * (1 - 1e-6)
        grows |= self.blown[rows] & leads & onwards
        before = self.far.theta[rows, -4:].sub(self.start[rows, None]).abs()
        takes_part = (before >= _PART * before.amax(2, keepdim=True)).any(1)
        swings = fast.unsqueeze(1) & takes_part & ~grows
        swings &= self.turned[rows] > self.far.time[rows, -4].unsqueeze(1)
        slowly = drifts[rows].unsqueeze(1)
        grows &= ~slowly | (self.time.rates(rows)[1][:, -1] <= 10**_SLOW)
        swings &= ~slowly
        found = grows.any(1) | swings.any(1)
        found[found.clone()] &= ~self._turns_back(model, rows[found], end[found], grows[found])
        rows, end, grows, swings, fast = (x[found] for x in (rows, end, grows, swings, fast))
        if not len(rows):
            return
        theta = torch.where(fast.view(-1, 1, 1), self.far.theta[rows], self.time.theta[rows])
        count = torch.where(fast, self.far.count(rows), self.time.count(rows))
        ends.loss[rows] = torch.where(swings.any(1), torch.nan, _loss_limit(model, theta, count))
        far = torch.where(grows, self.sense[rows] * torch.inf, end)
        ends.theta[rows] = torch.where(swings, torch.nan, far)
        ends.why[rows] = INFINITY
        ends.status[rows[ends.status[rows] == Status.FAILED]] = Status.DIVERGED

    def _turns_back(self, model: Model, rows: Tensor, end: Tensor, grows: Tensor) -> Tensor:
        """Mask of rows (m,) on a straight line along which the field points back somewhere.

        Such a row does not grow without end. The field is evaluated on the line from a hundredth of
        the row's distance, where a long step may have missed the place, to 10¹² times it.
        """
        away = torch.where(grows, end - self.start[rows], 0.0)
        moves = model.field(end)
        rate = torch.where(grows, moves / away, torch.nan)
        straight = (moves * ~grows).abs().amax(1) <= _STRAIGHT * moves.abs().amax(1)
        middle = rate.nanmean(1, keepdim=True)
        straight &= ((rate / middle - 1).abs().nan_to_num(0.0) <= _STRAIGHT).all(1)
        before = self.time.theta[rows, -2]
        straight &= (((before - end).abs() <= _NOTHING * away.abs().amax(1, True)) | grows).all(1)
        turns = torch.zeros_like(straight)
        parts = _LOOKS.to(end)[:, None] - 1
        for i in straight.nonzero()[:, 0].tolist():
            turns[i] = _points_back(model, end[i] + parts * away[i], away[i])
        return turns

    def last_time(self, rows: Tensor) -> Tensor:
        """Return the times of the rows' last notes by time, (m,)."""
        return self.time.time[rows, -1]


def _columns(kept: Tensor) -> tuple[Tensor, ...]:
    """Split ``Growth.kept`` into start, last place, its sense, when that turned, and next notes."""
    k = kept.shape[1] // 4
    return kept.split_with_sizes([k, k, k, k, 2], 1)


def _record(theta: Tensor, time: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
    """Return ``Growth.kept`` of rows now, their distances from the start (m,), and two masks (m,).

    These are of the rows to be noted by their time, and by their distance.
    """
    start, last, sense, turned, following = _columns(kept)
    now, away = (theta - last).sign(), (theta - start).abs().amax(1)
    turned = torch.where(now * sense < 0, time.unsqueeze(1), turned)
    sense = torch.where(now == 0, sense, now)
    due, far = (~(x < y) & (x > 0) for x, y in zip((time, away), following.unbind(1), strict=True))
    return torch.cat([start, theta, sense, turned, following], 1), away, due, far


_RECORD = Replay(_record)


class _Notes:
    """Times and places of rows when a measure of them had grown tenfold, the latest last."""

    def __init__(self, start: Tensor) -> None:
        """Make room for the notes of rows (n, k); a note that is not taken yet is NaN."""
        self.measure = torch.full_like(start[:, :1], torch.nan).repeat(1, _NOTES)
        self.time, self.first = self.measure.clone(), torch.zeros_like(start[:, 0])
        self.theta = torch.full_like(start[:, None], torch.nan).repeat(1, _NOTES, 1)

    def record(self, rows: Tensor, theta: Tensor, time: Tensor, measure: Tensor) -> None:
        """Note rows (m,) whose measure has grown tenfold."""
        for kept, value in ((self.time, time), (self.theta, theta), (self.measure, measure)):
            kept[rows, :-1] = kept[rows, 1:].clone()
            kept[rows, -1] = value
        self.first[rows] = torch.where(self.first[rows] > 0, self.first[rows], measure)

    def count(self, rows: Tensor) -> Tensor:
        """Return the number of notes: 1 + the decades by which the measure has grown, (m,)."""
        return 1 + (self.measure[rows, -1] / self.first[rows]).log10()

    def rates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return changes of θ per tenfold growth of the measure, (m, notes − 1, k), and ratios.

        Each ratio, (m, notes − 2, k), is to the change before, NaN where the sign differs.
        """
        logs = self.measure[rows].log10()
        rate = self.theta[rows].diff(dim=1) / logs.diff(dim=1).unsqueeze(2)
        middle = (logs[:, 1:] + logs[:, :-1]) / 2
        ratio = (rate[:, 1:] / rate[:, :-1]).log() / middle.diff(dim=1).unsqueeze(2)
        return rate, ratio.exp()


def _points_back(model: Model, places: Tensor, way: Tensor) -> bool:
    """Return whether the field is against a way (k,) at some places (p, k), not by rounding."""

    def ahead(places: Tensor) -> Tensor:
        """Return the field along the way at places (p, k), (p,)."""
        return (model.field(places) * way).sum(1)

    back = places[ahead(places) < 0]
    if not len(back):
        return False
    along, noise = with_rounding(ahead, back)
    return bool((-along > _SEEN * noise).any())


def _speeding_up(model: Model, theta: Tensor, field: Tensor, leads: Tensor) -> Tensor:
    """Return d log|dθᵢ/dt| / dθᵢ along the orbit, (m,), for the coordinates i ``leads`` (m, 1)."""
    speed = field.gather(1, leads)
    change = model.jacobian(theta) @ (field / speed).unsqueeze(2)
    return (change.squeeze(2).gather(1, leads) / speed)[:, 0]


def _levin_limit(sums: Tensor, count: Tensor) -> Tensor:
    """Extrapolate the limits of sequences (m, notes, ...), by Levin's u-transform of the last five.

    ``count`` (m, ...) is the number of the last term.
    """
    sums, terms = sums[:, -5:], sums.diff(dim=1)[:, -5:]
    upper, lower = torch.zeros_like(sums[:, 0]), torch.zeros_like(sums[:, 0])
    for j, binomial in enumerate((1.0, -4.0, 6.0, -4.0, 1.0)):
        n = count - 4 + j
        weight = binomial * (n / count).clamp_min(0.0) ** 3 / (n * terms[:, j])
        upper, lower = upper + weight * sums[:, j], lower + weight
    found = upper / lower
    return torch.where(found.isfinite(), found, sums[:, -1])


def _loss_limit(model: Model, theta: Tensor, count: Tensor) -> Tensor:
    """Extrapolate the loss over notes θ (m, notes, k), (m,): ±∞ if it falls or rises on and on."""
    loss = model.loss(theta)
    steps = loss.diff(dim=1)
    last, other = steps[:, -1], steps[:, -2]
    still = last.abs() <= 1e-14 * loss[:, -1].abs()
    ratio = last / other
    on = (ratio >= 1 - _STEADY) | ((count >= _MANY) & (count * (1 - ratio) <= 1.0))
    limit = torch.where(on & ~still, last.sign() * torch.inf, _levin_limit(loss, count))
    return torch.where(still, loss[:, -1], limit)
