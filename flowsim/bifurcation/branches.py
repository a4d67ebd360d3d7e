"""Branches of zeros by pseudo-arclength, all together, and the places where they change."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flowsim.bifurcation.system import System
from flowsim.landscape import critical

#: Steps along a branch in parts of the scaled space (coordinates over their size, parameter over
#: its range): the first, the largest, and the least; and how many of them.
_FIRST, _LARGEST, _LEAST, _STEPS = 2e-3, 0.04, 1e-7, 1500
#: Newton's steps of a corrector; how short the last is, and along a branch: the error left is of
#: the size of its square.
_CORRECTIONS, _EXACT, _CLOSE = 8, 1e-10, 1e-6
#: A branch turns by less than this in a step (the cosine), and moves by less than this part of the
#: step across the predicted direction.
_TURN, _ASIDE = 0.97, 0.5
#: A branch is left this many sizes of the coordinates away from where all began.
_FAR = 20.0
#: Singular values below this part of the largest belong to a continuum.
FLAT = 1e-7
#: Slopes below this part of the usual ones turn no direction along a continuum.
_SOFT = 1e-5


@dataclass
class Branch:
    """One branch: its points in order.

    Attributes:
        state: (m, size); ``value``: of the parameter, (m,).
        unstable: in how many directions the flow or the map leaves each point, int, (m,).
        dimension: of the continuum that each point belongs to, 0 of an isolated one.
        period: steps after which the points of a step map come back.
        closed: whether it returns to its first point.
        tangent: unit tangents in the scaled space, (m, size + 1); ``kept`` the directions along the
            continuum, (m, size, dimension).
    """

    state: Tensor
    value: Tensor
    unstable: Tensor
    dimension: int
    period: int
    closed: bool
    tangent: Tensor
    kept: Tensor


class Tracer:
    """Follows zeros of a system in a scaled space, as points (n, size + 1).

    A point has the state over the ``size`` (size,) of its numbers, and then the parameter as a part
    of its range.

    Attributes:
        span: of the parameter's range.
        typical: the usual norm of ∂F/∂(scaled state).
    """

    def __init__(self, system: System, size: Tensor) -> None:
        self.system, self.size = system, size
        self.span = system.high - system.low
        self.typical = 1.0

    def slope(self, point: Tensor) -> Tensor:
        """∂F/∂(scaled point), (n, size, size + 1)."""
        return self.linearised(point)[1]

    def linearised(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """F at scaled points (n, size + 1), (n, size), and ``slope``."""
        state, value = self.split(point)
        here, by_state, by_value = self.system.linearised(state, value, self.size)
        return here, torch.cat([by_state, by_value.unsqueeze(2) * self.span], 2)

    def split(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """States (n, size) and values (n,) of scaled points; values are clipped to the range."""
        value = self.system.low + point[:, -1] * self.span
        return point[:, :-1] * self.size, value.clamp(self.system.low, self.system.high)

    def joined(self, state: Tensor, value: Tensor) -> Tensor:
        """Scaled points (n, size + 1) of states (n, size) and values (n,)."""
        place = (value - self.system.low) / self.span
        return torch.cat([state / self.size, place.unsqueeze(1)], 1)

    def continua(self, slope: Tensor) -> Tensor:
        """Orthonormal bases of the kernels of ∂F/∂θ (n, size, size), along continua of zeros.

        (n, size, d), with zeros for the directions that a row has less.
        """
        _, sizes, across = torch.linalg.svd(slope)
        flat = sizes <= FLAT * sizes[:, :1]
        most = int(flat.sum(1).max()) if len(slope) else 0
        kernel = across.mT * flat.unsqueeze(1)
        return kernel.flip(2)[..., :most]

    def kept_on(self, slope: Tensor, kept: Tensor) -> Tensor:
        """Turn directions ``kept`` along a continuum, (n, size, d), into the kernel at new points.

        ``slope`` is ∂F/∂θ there, (n, size, size). Where all of it vanishes nothing is turned.
        """
        if not kept.shape[2]:
            return kept
        unit = torch.eye(slope.shape[-1], dtype=slope.dtype)
        soft = slope / (_SOFT * self.typical)
        found: Tensor = torch.linalg.qr(torch.linalg.solve(unit + soft.mT @ soft, kept))[0]
        sign = (found * kept).sum(1, keepdim=True).sign()
        return found * sign * (kept.square().sum(1, keepdim=True) > 0.5)

    def solved(self, rows: list[Tensor], right: list[Tensor]) -> Tensor:
        """Solve a system of linear equations for each of n rows, (n, m).

        Given in blocks: matrices (n, ·, m), and right sides (n, ·). By least squares where there
        are more or fewer equations than m.
        """
        matrix, wanted = torch.cat(rows, 1), torch.cat(right, 1)
        if matrix.shape[1] == matrix.shape[2]:
            return torch.linalg.solve_ex(matrix, wanted.unsqueeze(2))[0].squeeze(2)
        safe = matrix.nan_to_num(0.0, 0.0, 0.0)
        found = torch.linalg.lstsq(safe, wanted.nan_to_num().unsqueeze(2)).solution
        return found.squeeze(2)

    def tangent(self, slope: Tensor, kept: Tensor, before: Tensor) -> Tensor:
        """Unit tangents (n, size + 1) of the branches, in the sense of the tangents ``before``.

        ``slope`` is ∂F/∂(scaled point), ``kept`` the directions along a continuum, to which they
        are orthogonal.
        """
        n, last = len(slope), torch.nn.functional.pad(kept.mT, (0, 1))
        zeros = slope.new_zeros(n, slope.shape[1] + last.shape[1])
        found = self.solved([slope, last, before.unsqueeze(1)], [zeros, slope.new_ones(n, 1)])
        return found / found.norm(dim=1, keepdim=True)

    def corrected(
        self, guess: Tensor, along: Tensor, kept: Tensor, steps: int = _CORRECTIONS,
        exact: float = _EXACT,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Zeros in the plane across ``along`` through guesses (n, size + 1), by Newton's steps.

        Across ``kept``, directions along a continuum, they do not move either. Returns the points
        (n, size + 1), whether each has converged (n,), ∂F before the last step
        (n, size, size + 1), and how many steps each took (n,).
        """
        point, n = guess.clone(), len(guess)
        going = torch.arange(n)
        done, count = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.long)
        slopes = guess.new_zeros(n, guess.shape[1] - 1, guess.shape[1])
        last = torch.nn.functional.pad(kept.mT, (0, 1))
        for _ in range(steps):
            here = point[going]
            value, slope = self.linearised(here)
            slopes[going] = slope
            away = (guess[going] - here).unsqueeze(2)
            rows = [slope, last[going], along[going].unsqueeze(1)]
            right = [-value, (last[going] @ away).squeeze(2),
                     (along[going].unsqueeze(1) @ away).squeeze(2)]  # fmt: skip
            step = self.solved(rows, right)
            fine = step.isfinite().all(1) & (step.norm(dim=1) < 1e3)
            point[going[fine]] += step[fine]
            count[going] += 1
            arrived = fine & (step.norm(dim=1) <= exact * (1 + point[going].norm(dim=1)))
            done[going[arrived]] = True
            going = going[fine & ~arrived]
            if not len(going):
                break
        return point, done, slopes, count

    def unstable(self, slopes: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The number of unstable directions at points, (n,), and all rates of growth, (n, m).

        ``slopes`` are ∂F/∂(scaled point); directions ``kept`` along a continuum are left out.
        """
        n, k, dimension = len(slopes), self.size.shape[0], kept.shape[2]
        inner = slopes[..., :k] / self.size.unsqueeze(1)
        if dimension:
            whole = torch.linalg.qr(torch.cat([kept, torch.eye(k).expand(n, k, k).to(kept)], 2))[0]
            across = whole[..., dimension:k]
            inner = across.mT @ inner @ across
        rates = self.system.rates(inner)
        scale = inner.flatten(1).norm(dim=1, keepdim=True)
        return (rates > 1e-12 * scale).sum(1), rates

    def trace(self, state: Tensor, value: Tensor) -> list[Branch]:
        """Follow the branches through zeros (n, size) at values (n,) to both sides, one of each."""
        if not len(state):
            return []
        start, n = self.joined(state, value), len(state)
        slope = self.slope(start)
        self.typical = float(slope[..., :-1].flatten(1).norm(dim=1).max())
        kept = self.continua(slope[..., :-1])
        up = torch.zeros_like(start)
        up[:, -1] = 1.0
        first = self.tangent(slope, kept, up)
        both = (start, first, slope, kept)
        sides = [torch.cat([x, y]) for x, y in zip(both, (start, -first, slope, kept), strict=True)]
        ways, came_back = self._to_one_side(*sides)
        branches = []
        for i in range(n):
            closed = bool(came_back[i])
            parts = ways[i]
            if not closed:  # the other side's points come first, and went the other way
                other = [part[1:].flip(0) for part in ways[n + i]]
                other[1] = -other[1]
                parts = [torch.cat(pair) for pair in zip(other, parts, strict=True)]
            points, tangents, slopes, keeps = parts
            dimension = int((kept[i].norm(dim=0) > 0.5).sum())
            keeps = keeps[..., :dimension]
            there, values = self.split(points)
            period = 1 if self.system.step is None else self.system.step.period
            branches.append(Branch(
                there, values, self.unstable(slopes, keeps)[0], dimension, period, closed, tangents,
                keeps,
            ))  # fmt: skip
        return branches

    def _to_one_side(
        self, start: Tensor, tangent: Tensor, slope: Tensor, kept: Tensor
    ) -> tuple[list[list[Tensor]], Tensor]:
        """Follow every row (n, size + 1) along its tangent.

        Returns for each row the points (m, size + 1), the first included, with their tangents, ∂F
        and directions kept along a continuum; and a mask (n,) of the rows that came back.
        """
        n, first = len(start), tangent.clone()
        point, tangent, kept = start.clone(), tangent.clone(), kept.clone()
        numbers, found = [torch.arange(n)], [(start, tangent, slope, kept)]
        length = torch.full((n,), _FIRST, dtype=start.dtype)
        outwards = torch.where(tangent[:, -1] > 0, 1 - start[:, -1], start[:, -1]) < 1e-9
        length[outwards] = 0.0
        gone = torch.zeros(n, dtype=start.dtype)
        closed, going = torch.zeros(n, dtype=torch.bool), torch.arange(n)
        for _ in range(_STEPS):
            going = going[length[going] > _LEAST]
            if not len(going):
                break
            here, way = point[going], tangent[going]
            step = length[going]
            # the end of the range is met exactly
            room = torch.where(way[:, -1] > 0, 1 - here[:, -1], -here[:, -1])
            lands = way[:, -1].abs() * step >= room.abs() - 1e-12
            lands &= way[:, -1].abs() > 1e-9
            ratio = torch.where(lands, room.abs() / way[:, -1].abs().clamp_min(1e-9), step)
            guess = here + ratio.unsqueeze(1) * way
            across = way.clone()
            across[lands] = 0.0
            across[lands, -1] = 1.0
            new, done, slopes, count = self.corrected(guess, across, kept[going], exact=_CLOSE)
            follows = self.kept_on(slopes[..., :-1], kept[going])
            turned = self.tangent(slopes, follows, way)
            ok = done & ((new - guess).norm(dim=1) <= _ASIDE * ratio + 1e-9)
            ok &= (turned * way).sum(1) >= _TURN
            ok &= (new[:, -1] >= -1e-9) & (new[:, -1] <= 1 + 1e-9)
            good = going[ok]
            numbers.append(good)
            found.append((new[ok], turned[ok], slopes[ok], follows[ok]))
            point[good], tangent[good], kept[good] = new[ok], turned[ok], follows[ok]
            gone[good] += step[ok]
            quick = count[ok] <= 4
            length[good] = torch.where(quick, 1.4 * length[good], length[good]).clamp_max(_LARGEST)
            length[going[~ok]] *= 0.4
            home = (gone[good] > 4 * _LARGEST) & ((new[ok] - start[good]).norm(dim=1) < step[ok])
            home &= (turned[ok] * first[good]).sum(1) > 0.5
            closed[good[home]] = True
            numbers.append(good[home])
            found.append(tuple(x[good[home]] for x in found[0]))  # type: ignore[arg-type]
            ends = home | lands[ok] | (new[ok, :-1].abs().amax(1) > _FAR)
            length[good[ends]] = 0.0
        which = torch.cat(numbers)
        order, counts = which.argsort(stable=True), which.bincount(minlength=n).tolist()
        columns = [torch.cat(x)[order].split(counts) for x in zip(*found, strict=True)]
        return [list(row) for row in zip(*columns, strict=True)], closed


def zeros_from(
    system: System, state: Tensor, value: Tensor, size: Tensor, steps: int = 60
) -> tuple[Tensor, Tensor]:
    """Search zeros of F from states (n, size) at values (n,) of the parameter.

    By Levenberg and Marquardt's ``steps`` at most, in units of the coordinates' ``size``. Returns
    the last states (n, size), and a mask (n,) of those that are zeros.
    """
    place, found = critical.zeros_from(
        lambda x, rows: system.field(x * size, value[rows]),
        lambda x, rows: system.jacobian(x * size, value[rows]) * size, state / size, _FAR, steps,
    )  # fmt: skip
    return place * size, found
