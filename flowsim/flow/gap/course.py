"""Where orbits are at given times, from the pieces of ``gap_steps``.

On a piece, t rises as v falls from 1 to 0; the inverse is found by Newton's method in s = log u, in
which t is nearly a straight line: dt = −κ ds. Towards the pole, where the orbit takes for ever, y
is a power series in e^{−t/A}. All times count from the start of the piece. Own derivation.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.flow.gap.steps import NODES, Piece

#: The power series is used where x, times the growth of its coefficients, is below this.
_SMALL = 3e-3
#: Newton steps in s, and the size that the last of them may have.
_STEPS, _CLOSE = 4, 1e-6
#: Rows of a course's table that are not coefficients.
_HEAD = 8


class Course(NamedTuple):
    """Pieces made ready for evaluation: all that a point needs, one column per piece.

    Rows of the table: A, least s, 1/φ, 1 − 1/φ, four for the first guess, then ``lags``, ``end``
    and ``slopes`` coordinate by coordinate. One gather brings them to the points.
    """

    table: Tensor

    @classmethod
    def of(cls, piece: Piece) -> Course:
        """The course of n pieces."""
        log_part, fall, lags = piece.log_part, piece.fall, piece.lags
        powers = torch.arange(NODES, device=lags.device)[:, None]
        signs = 1.0 - 2.0 * (powers % 2)  # (−1)ⁱ, since z = −1 at the end; at the start z = 1
        whole = (signs * lags).sum(dim=0)
        length = -torch.log1p(-fall)
        # κ at both ends, and the tangents of t(−s) there: −s = t/first and −s = offset + t/last
        first = log_part + lags.sum(dim=0) / fall
        last = log_part + (1 - fall) / fall * (whole + 2 * (signs * powers * lags).sum(dim=0))
        finite = length - (log_part * length + whole) / last
        offset = torch.where(fall == 1, -whole / last, finite)
        bend = torch.sign(first - last)  # on which side of both tangents the curve lies
        head = [log_part, (-length).clamp_min(-700.0), 1 / fall, 1 - 1 / fall]
        head += [bend / first, bend / last, bend * offset, bend]
        slopes = piece.slopes.transpose(0, 1).flatten(0, 1)
        return cls(torch.cat([torch.stack(head), lags, piece.end, slopes]))

    def at(self, which: Tensor, t: Tensor) -> Tensor:
        """y at time t after the start of piece ``which``, both of shape (points,): (k, points)."""
        columns = self.table.index_select(1, which)
        head, lags, rest = columns.split([_HEAD, NODES, len(columns) - _HEAD - NODES])
        s = _solve(head, lags, t)
        v = torch.addcmul(head[3], head[2], s.exp()).clamp_min_(0.0)
        k = len(rest) // (1 + NODES)
        y = rest[:k].clone()
        for row, slopes in zip(y, rest[k:].view(k, NODES, -1), strict=True):
            row.addcmul_(v, _polynomial(slopes, 2 * v - 1), value=-1.0)
        return y


def _solve(head: Tensor, lags: Tensor, t: Tensor) -> Tensor:
    """s at time t, by Newton's method; where that is not enough, between bounds."""
    _, least, _, _, early, late, offset, bend = head
    s = torch.maximum(early * t, torch.addcmul(offset, late, t)).mul_(bend).neg_()
    for _ in range(_STEPS):
        torch.maximum(s.clamp_max_(0.0), least, out=s)
        move = _newton(head, lags, t, s)[0]
        s += move
    hard = (~(move.abs() <= _CLOSE)).nonzero()[:, 0]
    if len(hard):
        s[hard] = _bisect(head[:, hard], lags[:, hard], t[hard])
    return torch.maximum(s.clamp_max_(0.0), least)


def _bisect(head: Tensor, lags: Tensor, t: Tensor) -> Tensor:
    low, high = head[1], torch.zeros_like(t)
    s = 0.5 * (low + high)
    for _ in range(60):
        move, is_late = _newton(head, lags, t, s)
        low, high = torch.where(is_late, s, low), torch.where(is_late, high, s)
        within = (s + move >= low) & (s + move <= high)
        move = torch.where(within, move, 0.5 * (low + high) - s)
        s += move
        if bool((move.abs() <= _CLOSE).all()):
            break
    return s


def _newton(head: Tensor, lags: Tensor, t: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's step at s, and whether the time there is later than t."""
    log_part, _, inverse, shift = head[:4]
    u = s.exp()
    v = torch.addcmul(shift, inverse, u)
    z = 2 * v - 1
    *others, slope = lags.unbind()
    value = torch.addcmul(others[-1], slope, z)
    for c in others[-2::-1]:  # Horner's rule for the mean of G and for its slope
        slope = torch.addcmul(value, slope, z)
        value = torch.addcmul(c, value, z)
    rest = 1 - v
    kappa = torch.addcmul(value, rest, slope, value=-2.0).mul_(u).mul_(inverse).add_(log_part)
    late_by = torch.addcmul(rest.mul_(value), log_part, s, value=-1.0).sub_(t)
    return late_by / kappa, late_by > 0


def _polynomial(coefficients: Tensor, z: Tensor) -> Tensor:
    """Σ cᵢ zⁱ by Horner's rule, along the first axis of c."""
    *others, value = coefficients.unbind()
    for c in others[::-1]:
        value = torch.addcmul(c, value, z)
    return value


class Tail(NamedTuple):
    """The last pieces of orbits, those that end at the pole, as power series.

    With t = −A log v + H(v), x = exp(−(t − H(0))/A) is v exp(−(H(v) − H(0))/A), and v(x) is its
    inverse series (Lagrange), of which four terms are kept.

    Attributes:
        origin, log_part: H(0) and A, shape (n,).
        since: time after which the series is exact enough, shape (n,).
        series: coefficients of y in x, shape (5, k, n).
    """

    origin: Tensor
    log_part: Tensor
    since: Tensor
    series: Tensor

    @classmethod
    def of(cls, piece: Piece) -> Tail:
        """The tails of n pieces with φ = 1."""
        taylor, log_part = _taylor(piece.lags.device), piece.log_part
        g0, g1, g2, g3 = taylor @ piece.lags
        h1, h2, h3 = (g1 - g0) / log_part, (g2 - g1) / log_part, (g3 - g2) / log_part
        r0, r1, r2, r3 = torch.tensordot(taylor, piece.slopes, dims=1)
        b2, b3 = h1, h2 + 1.5 * h1**2
        b4 = h3 + 4 * h1 * h2 + 8 / 3 * h1**3
        c2, c3 = r0 * b2 + r1, r0 * b3 + 2 * r1 * b2 + r2
        c4 = r0 * b4 + r1 * (2 * b3 + b2**2) + 3 * r2 * b2 + r3
        growth = torch.stack([b2.abs(), b3.abs().sqrt(), b4.abs().pow(1 / 3)]).amax(dim=0)
        since = g0 + log_part * (growth.clamp_min(2.0) / _SMALL).log()
        return cls(g0, log_part, since, torch.stack([piece.end, -r0, -c2, -c3, -c4]))

    def at(self, t: Tensor) -> Tensor:
        """y at times t, shape (n, T), as (k, n, T); not to be used before ``since``."""
        x = torch.exp((self.origin[:, None] - t) / self.log_part[:, None])
        return _polynomial(self.series.unsqueeze(-1), x)


@cache
def _taylor(device: torch.device) -> Tensor:
    """From coefficients in z = 2v − 1 to the leading ones in v, shape (4, NODES)."""
    rows = [[math.comb(j, i) * 2**i * (-1) ** (i + j) for j in range(NODES)] for i in range(4)]
    return torch.tensor(rows, dtype=torch.float64, device=device)
