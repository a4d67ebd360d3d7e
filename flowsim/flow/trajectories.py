"""Many gradient-flow trajectories at many physical times."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.flow.gap.clock import (
    ATTEMPTS,
    IDLE,
    Rows,
    advance,
    from_clock_chart,
    legs,
    meets_plane,
    send_on,
    tolerances,
)
from flowsim.flow.gap.course import Course, Tail
from flowsim.flow.gap.orbits import GapOrbit
from flowsim.flow.gap.steps import Piece, attempt
from flowsim.flow.limits import check_starts
from flowsim.flow.reference import check_times, integrate
from flowsim.models.base import GapModel, ReducedModel, loss_of_gap

#: Rows advanced together, which bounds the memory beside the result.
CHUNK = 4096
#: Points evaluated at once: few enough to stay in the processor's cache.
_BLOCK = 16384
#: The largest rtol for rows that are left to ``integrate``.
_CAREFUL = 1e-11


def trajectories(
    model: ReducedModel, theta0: Tensor, t: Tensor, rtol: float = 1e-10, atol: float = 1e-12
) -> Tensor:
    """Trajectories of dθ/dt = −G⁻¹∇L at the times ``t``, in physical gradient-flow time.

    The same as ``integrate``, and much faster for many rows where L = ℓ(Δ): every row has steps of
    its own, with the logit gap Δ as clock, which are not held up by stiffness and need not end on
    the requested times; physical time is a function of the place on a step, dt = dΔ/(−ℓ′(Δ) ‖∇Δ‖²),
    and is inverted for each of ``t`` (``gap_steps``, ``gap_course``; own derivation). Rows that
    pass too near a saddle for this clock, and other models, are left to ``integrate``.

    Args:
        model: any reduced model.
        theta0: starts at time t[0], float64, shape (..., k).
        t: increasing times, shape (T,), T ≥ 2.
        rtol: error allowed per step, relative for coordinates that keep their sign. Errors at the
            times are found to be about ten times as large.
        atol: absolute error allowed per step for the other coordinates.

    Returns:
        θ, shape (T, ..., k). No row depends on the others, nor on the choice of times beyond
        rounding. A row that cannot be followed is NaN from its second time on.

    Raises:
        InputError: wrong shapes, times that do not increase, tolerances that are not positive.
    """
    starts = check_starts(model, theta0, rtol, atol)
    times = check_times(t).to(starts)
    if not loss_of_gap(model):
        return integrate(model, theta0, t, rtol, atol)
    path = starts.new_full((len(starts), len(times), starts.shape[1]), torch.nan)
    path[:, 0] = starts
    finite = torch.isfinite(starts).all(dim=1)
    target = torch.full_like(starts[:, 0], model.chain.target_logit_gap)
    critical = finite & GapOrbit.from_start(model, starts, target, rtol, atol).at_rest(starts)
    path[critical] = starts[critical].unsqueeze(1)
    moving = (finite & ~critical).nonzero()[:, 0]
    for rows in moving.split(CHUNK) if len(moving) else ():
        known = _follow(model, starts[rows], times - times[0], rtol, atol, path, rows)
        left = rows[~known]
        if len(left):
            slow = integrate(model, starts[left], times, min(rtol, _CAREFUL), atol)
            path[left] = slow.transpose(0, 1)
    return path.transpose(0, 1).reshape(len(times), *theta0.shape)


class _Visit(NamedTuple):
    """Pieces with requested times on them: ``first`` to ``stop`` − 1 in the vector of times."""

    piece: Piece
    signs: Tensor
    row: Tensor
    began: Tensor
    first: Tensor
    stop: Tensor

    @classmethod
    def join(cls, parts: list[_Visit]) -> _Visit:
        pieces, *columns = zip(*parts, strict=True)
        piece = Piece(*(torch.cat(column, dim=-1) for column in zip(*pieces, strict=True)))
        return cls(piece, *(torch.cat(column, dim=-1) for column in columns))


def _follow(
    model: GapModel,
    theta: Tensor,
    times: Tensor,
    rtol: float,
    atol: float,
    path: Tensor,
    place: Tensor,
) -> Tensor:
    """Write the paths of the rows of ``theta`` to ``path[place]``; which are known, shape (n,)."""
    n, target = len(theta), model.chain.target_logit_gap
    y, signs, clock, end = legs(model, theta)
    rows = Rows.start(model, y, signs, clock, end, 0)
    allowed = tolerances(model, rtol, atol, y)
    time, first = torch.zeros_like(clock), torch.ones(n, dtype=torch.int64, device=theta.device)
    known = torch.zeros(n, dtype=torch.bool, device=theta.device)
    visits = []
    while len(rows.index):
        tried = attempt(model, rows, allowed, rtol)
        accepted = advance(rows, tried.y, tried.rates, tried.ratio, tried.size, ATTEMPTS)
        turning = (accepted & (rows.clock == 0) & (rows.end == 0) & ~rows.near).nonzero()[:, 0]
        if "square" in model.clock_chart and target != 0 and len(turning):
            on_plane, elsewhere = meets_plane(model, rows.y[:, turning], rows.signs[:, turning])
            send_on(rows, turning[elsewhere], target)
            rows.near[turning[~on_plane & ~elsewhere]] = True
        moved = (accepted & ~rows.near).nonzero()[:, 0]
        index = rows.index[moved]
        began, since = time[index], first[index]
        time[index] = ended = began + tried.piece.duration()[moved]
        first[index] = stop = torch.searchsorted(times, ended, right=True)
        some = (stop > since).nonzero()[:, 0]
        piece, its_signs = tried.piece.select(moved[some]), rows.signs[:, moved[some]]
        where = place[index[some]], began[some], since[some], stop[some]
        visits.append(_Visit(piece, its_signs, *where))
        known[index] = ended >= times[-1]
        rows.done[moved] |= known[index]
        if int(rows.done.sum()) >= IDLE * len(rows.done):
            rows = rows.keep((~rows.done).nonzero()[:, 0])
    _write(model, _Visit.join(visits), times, path)
    return known


def _write(model: GapModel, visit: _Visit, times: Tensor, path: Tensor) -> None:
    """θ at all times on the given pieces; ``path`` has shape (rows, T, k)."""
    piece, signs, row, began, first, stop = visit
    final = (piece.fall == 1).nonzero()[:, 0]
    tail, since = Tail.of(piece.select(final)), began[final]
    for part in torch.arange(len(final), device=row.device).split(max(1, _BLOCK // len(times))):
        y = Tail(*(column[..., part] for column in tail)).at(times[1:] - since[part, None])
        path[row[final[part]], 1:] = from_clock_chart(model, y, signs[:, final[part], None])
    # what came before the tails overwrites what they give too early
    early = torch.searchsorted(times, since + tail.since, right=True)
    stop[final] = torch.minimum(torch.maximum(early, first[final]), stop[final])
    course, counts = Course.of(piece), stop - first
    which = torch.repeat_interleave(counts)
    ahead = first + counts - counts.cumsum(0)
    number = torch.arange(len(which), device=row.device) + ahead[which]
    out, k = path.view(-1), path.shape[-1]
    for mine, at in zip(which.split(_BLOCK), number.split(_BLOCK), strict=True):
        y = course.at(mine, times[at] - began[mine])
        theta = from_clock_chart(model, y, signs.index_select(1, mine))
        where = (row[mine] * len(times) + at) * k
        for i, column in enumerate(theta.unbind(-1)):
            out.scatter_(0, where + i, column)
