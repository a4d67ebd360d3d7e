"""Places of a boundary whose trajectories end in a saddle, by Newton's method on its flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import DOP853
from torch import Tensor

from flowsim.interface import Model
from flowsim.landscape.critical import zeros_from

#: c of dx/ds = f/(|f| + c), over the mean speed of the first places; steps of all rows together;
#: the speed, over the least before, at which a row has left a saddle, and over the fastest, at
#: which a row may be next to a sink.
_SOFT, _STEPS, _LEFT, _SLOW = 0.1, 200, 8.0, 0.1
#: Newton's steps along each way, and steps to a saddle.
_TRIALS, _SEARCHED = 7, 30
#: In parts of the places' spread: half the width of difference quotients, and how far apart two
#: saddles are.
_SMALL, _APART = 1e-6, 1e-6
#: The slowest rate of a saddle over the fastest, below which it is one of a continuum.
_SLOWEST = 1e-4
#: Error per step at first, and at last; the part of a step that it may be between; and the error
#: of the derivative, on which only the number of Newton's steps depends.
_ROUGH, _FINE, _SAFE, _TURNED = 1e-5, 1e-8, 1e-2, 1e-5
#: Greatest distance of a trajectory from its saddle, over its first distance, at a place found.
_NEAR = 0.05
#: Distance from a saddle to ask where the flow leads, and of difference quotients there, in parts
#: of the spread.
_BESIDE, _WIDTH = 1e-2, 1e-4


class Saddle(NamedTuple):
    """A saddle that the flow leaves in one direction.

    Attributes:
        theta: the point, (k,).
        left: the left eigenvector of that direction, (k,); the flow leads to the first end on the
            side to which it points.
        bend: M of ψ = ℓ·y + y·My, of y beside the saddle, which the flow multiplies by e^{λt}.
        end_codes: of the ends to which the flow leads from both sides.
    """

    theta: np.ndarray
    left: np.ndarray
    bend: np.ndarray
    end_codes: tuple[int, int]


class Shooting:
    """Finds where ways cross the stable manifolds of saddles.

    A trajectory is followed to where it is nearest to a saddle, with its derivative w along the
    way. With the left eigenvector ℓ of the direction in which the flow leaves the saddle,
    ℓ·(θ − saddle) / ℓ·w is Newton's step.

    Args:
        place: the model's coordinates (m, k) of places (m, d).
        end_codes: gives codes of the ends of θ (m, k), not positive for no end.
        size: of the places' differences, by which errors are measured.
    """

    def __init__(
        self, model: Model, place: Callable[[Tensor], Tensor],
        end_codes: Callable[[Tensor], np.ndarray], size: float,
    ) -> None:  # fmt: skip
        self.model, self.place, self.end_codes, self.size = model, place, end_codes, size
        self.saddles: list[Saddle] = []

    def crossings(
        self, middle: np.ndarray, half: np.ndarray, ends: np.ndarray, exact: float
    ) -> np.ndarray:
        """Places middle + u half (n, d), |u| ≤ 1, where the end changes; NaN where none is found.

        ``ends`` are the codes before and after it, (n, 2), ``exact`` the length of the last step.
        """
        n = len(middle)
        found = np.full(middle.shape, np.nan)
        part, low, high = np.zeros(n), np.full(n, -1.0), np.ones(n)
        length, going, rtol = np.linalg.norm(half, axis=1), np.arange(n), _ROUGH
        for _ in range(_TRIALS if n else 0):
            at = middle[going] + part[going, None] * half[going]
            shot = self._newton_steps(at, half[going], ends[going], rtol)
            if shot is None:
                break
            step, ahead, ok, near = shot
            high[going] = np.where(ahead, high[going], part[going])
            low[going] = np.where(ahead, part[going], low[going])
            new = part[going] + step
            inside = (new > low[going]) & (new < high[going])
            new = np.where(inside, new, (low[going] + high[going]) / 2)
            moved = np.abs(new - part[going])
            done = ok & (near <= _NEAR) & (near * moved * length[going] <= exact) & (rtol <= _FINE)
            found[going[done]] = middle[going[done]] + new[done, None] * half[going[done]]
            part[going] = new
            stays = ok & ~done
            going = going[stays]
            if not len(going):
                break
            rtol = float(np.clip(_SAFE * np.median(near[stays] * moved[stays]), _FINE, _ROUGH))
        return found

    def _newton_steps(
        self, at: np.ndarray, along: np.ndarray, ends: np.ndarray, rtol: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Newton's steps for the crossings on ways from ``at``, each in parts of its ``along``.

        Returned are, (n,) each: the steps; whether the crossing is ahead; whether it is one between
        these ``ends`` (n, 2); and how near the trajectory comes to the saddle, in parts of its
        first distance. None, if there is no saddle or trajectories cannot be followed.
        """
        ways = self._trajectories(at, along, rtol)
        if ways is None:
            return None
        theta, moved, speed = ways
        self._add_saddles(theta, speed)
        if not self.saddles:
            return None
        points = np.stack([saddle.theta for saddle in self.saddles])
        left = np.stack([saddle.left for saddle in self.saddles])
        codes = np.array([saddle.end_codes for saddle in self.saddles])
        away = np.linalg.norm(theta[:, :, None] - points, axis=3)  # (steps, n, saddles)
        nearest = away.min(0)
        # of its two ends
        alike = (np.sort(codes, 1)[None] == np.sort(ends, 1)[:, None]).all(2)
        nearest[~alike] = np.inf
        which, rows = nearest.argmin(1), np.arange(len(at))
        step = away[:, rows, which].argmin(0)
        ok = np.isfinite(nearest[rows, which])
        offset = theta[step, rows] - points[which]
        bend = np.stack([saddle.bend for saddle in self.saddles])[which]
        bent = np.einsum("nij,nj->ni", bend, offset)
        side = ((left[which] + bent) * offset).sum(1)
        slope = ((left[which] + 2 * bent) * moved[step, rows]).sum(1)
        last = ((theta[-1, rows] - points[which]) * left[which]).sum(1)
        # w must lead to the side of the saddle on which the end after the crossing is
        ok &= np.where(slope > 0, codes[which, 0], codes[which, 1]) == ends[:, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.nan_to_num(-side / slope, posinf=9.0, neginf=-9.0)
        near = away[step, rows, which] / np.maximum(away[0, rows, which], 1e-300)
        return newton, last * slope < 0, ok, near

    def _trajectories(
        self, at: np.ndarray, along: np.ndarray, rtol: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Follow places (n, d) until all have left a saddle or rest; None if steps get too short.

        Returns θ (steps, n, k), its derivatives along the ways, of the same shape, and the speeds
        (steps, n).
        """
        n = len(at)
        start = self.place(torch.from_numpy(at)).numpy()
        k, width = start.shape[1], _SMALL * self.size
        moved = self.place(torch.from_numpy(at + along)).numpy() - start
        speed = np.linalg.norm(self._field(start), axis=1)
        soft, going = _SOFT * speed.mean(), np.ones((n, 1))

        def ahead(_: float, state: np.ndarray) -> np.ndarray:
            """d/ds of θ, the derivative's direction, and the logarithm of its length."""
            theta, way = np.split(state.reshape(n, -1), [k, 2 * k], axis=1)[:2]
            field = self._field(np.concatenate([theta, theta + width * way, theta - width * way]))
            here, up, down = field.reshape(3, n, k)
            turn = (up - down) / (2 * width)
            grows = (turn * way).sum(1, keepdims=True) / (way**2).sum(1, keepdims=True)
            pace = going / (np.linalg.norm(here, axis=1, keepdims=True) + soft)
            return np.nan_to_num(np.hstack([here, turn - grows * way, grows]) * pace).ravel()

        size = np.linalg.norm(moved, axis=1, keepdims=True)
        first = np.hstack([start, moved / size, np.log(size)])
        exact = np.where(np.arange(2 * k + 1) < k, 1e-3 * rtol * self.size, _TURNED)
        solver = DOP853(ahead, 0.0, first.ravel(), np.inf, rtol=rtol, atol=np.tile(exact, n))
        states, speeds = [first], [speed]
        least, fastest = speed.copy(), speed.copy()
        for _ in range(_STEPS):
            solver.step()
            if solver.status != "running":
                return None
            states.append(solver.y.reshape(n, -1))
            speed = np.linalg.norm(self._field(states[-1][:, :k]), axis=1)
            speeds.append(speed)
            least, fastest = np.minimum(least, speed), np.maximum(fastest, speed)
            stops = (speed > _LEFT * least) & (least < 0.5 * speeds[0])
            slow = np.flatnonzero((speed <= _SLOW * fastest) & (going[:, 0] > 0))
            stops[slow] |= self._contracts(states[-1][slow, :k])
            if (stops & (going[:, 0] > 0)).any():
                going[stops] = 0.0
                solver.f = ahead(solver.t, solver.y)
            if not going.any():
                break
        theta, way, grown = np.split(np.stack(states), [k, 2 * k], axis=2)
        return theta, way * np.exp(grown), np.stack(speeds)

    def _field(self, theta: np.ndarray) -> np.ndarray:
        """The field at θ (n, k), of the same shape."""
        found: np.ndarray = self.model.field(torch.from_numpy(theta)).detach().numpy()
        return found

    def _contracts(self, theta: np.ndarray) -> np.ndarray:
        """Mask (n,) of places (n, k) at which all of the Jacobian's rates are negative."""
        if not len(theta):
            return np.zeros(0, bool)
        slope = self.model.jacobian(torch.from_numpy(theta)).detach().numpy()
        finite = np.isfinite(slope).all((1, 2))
        rates = np.linalg.eigvals(np.where(finite[:, None, None], slope, 1.0))
        found: np.ndarray = finite & (rates.real.max(1) < 0)
        return found

    def _add_saddles(self, theta: np.ndarray, speed: np.ndarray) -> None:
        """Find and keep the saddles beside which trajectories are slowest, before they leave them.

        Given are places (steps, n, k) along n trajectories and speeds (steps, n).
        """
        later = np.maximum.accumulate(speed[::-1])[::-1]
        slow = np.where(later > 2 * speed, speed, np.inf)
        step = slow.argmin(0)
        rows = np.flatnonzero(np.isfinite(slow.min(0)))
        if not len(rows):
            return
        size = float(np.median(np.ptp(theta, axis=0).max(1)))  # some may be far out
        point = torch.from_numpy(theta[step[rows], rows])
        if self.saddles:  # from places near to none
            known = torch.from_numpy(np.stack([saddle.theta for saddle in self.saddles]))
            away = torch.cdist(point, known).amin(1)
            point = point[away > _NEAR * size]
        if not len(point):
            return
        moved, arrived = zeros_from(
            lambda x, rows: self.model.field(point[rows] + size * x),
            lambda x, rows: size * self.model.jacobian(point[rows] + size * x),
            torch.zeros_like(point), 1.0, _SEARCHED,
        )  # fmt: skip
        for one in (point + size * moved)[arrived]:
            if all(np.linalg.norm(one.numpy() - s.theta) > _APART * size for s in self.saddles):
                self._add_saddle(one, size)

    def _add_saddle(self, point: Tensor, size: float) -> None:
        """Keep a point of rest (k,), if it is a saddle that the flow leaves to two ends."""
        slope = self.model.jacobian(point[None])[0].detach().numpy()
        if not np.isfinite(slope).all():
            return
        rates, vectors = np.linalg.eig(slope)
        if (rates.real > 0).sum() != 1 or np.abs(rates).min() < _SLOWEST * np.abs(rates).max():
            return
        out = int(rates.real.argmax())
        left = np.linalg.inv(vectors)[out].real
        way = torch.from_numpy(vectors[:, out].real)
        both = torch.stack([point + sign * _BESIDE * size * way for sign in (1, -1)])
        one, other = self.end_codes(both).tolist()
        if one != other and min(one, other) > 0:
            left /= np.linalg.norm(left)
            bend = self._bend(point, left, float(rates[out].real), size)
            self.saddles.append(Saddle(point.numpy(), left, bend, (one, other)))

    def _bend(self, point: Tensor, left: np.ndarray, rate: float, size: float) -> np.ndarray:
        """The matrix M of ψ = ℓ·y + y·My, so that ψ grows at the rate λ up to second order in y.

        (k, k), of a saddle with ``left`` ℓ and ``rate`` λ; y is the place beside the saddle.
        With the Jacobian A + B(y) at y beside the saddle: AᵀM + MA − λM = −½ ℓ·B.
        """
        k, width = len(left), _WIDTH * size
        unit = torch.eye(k).to(point)
        ends = (
            self.model.jacobian(
                torch.cat([point[None], point + width * unit, point - width * unit])
            )
            .detach()
            .numpy()
        )
        slope, second = ends[0], (ends[1 : k + 1] - ends[k + 1 :]) / (2 * width)
        push = np.einsum("i,jim->jm", left, second) / 2
        push = (push + push.T) / 2
        one = np.eye(k)
        matrix = np.kron(slope.T, one) + np.kron(one, slope.T) - rate * np.eye(k * k)
        found: np.ndarray = np.linalg.lstsq(matrix, -push.ravel(), rcond=1e-9)[0].reshape(k, k)
        return found
