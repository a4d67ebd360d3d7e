"""Results from starts: orbits in the plane and against time, and the shares of a cloud."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import thread_time

import numpy as np
import torch
from torch import Tensor

from flowsim.explorer.layers import ends_of, followed
from flowsim.explorer.view import DRAWS, FEWER_DRAWS, Start, Stop, Stopped, View
from flowsim.flow.options import Limits
from flowsim.flow.orbits import drawn_orbits, find_limits
from flowsim.flow.solver import solver_of
from flowsim.interface import Model, theta_at
from flowsim.labels import Label
from flowsim.records.ends import NO_BASIN
from flowsim.scan.record import wilson_interval

#: Distance from which on an end counts as off the plane.
_OFF = 2e-3
#: Distance from its end at which an orbit may stop, in sides of the window; parts of the excess
#: loss that are left then, until it is nearer.
_AWAY, _PARTS = 0.01, (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
#: End of a backward orbit: distance beyond the window in its sides, speed, and steps
#: of what part of a side.
_BEYOND, _REST, _SHORTEST = 0.6, 1e-9, 5000
#: Seconds of the processor for a search for another end.
_LONGEST = 10.0


@dataclass(frozen=True)
class Path:
    """Points of an orbit in time; ``others`` are the coordinates beside the plane."""

    time: np.ndarray
    y: np.ndarray
    x: np.ndarray
    loss: np.ndarray
    gap: np.ndarray
    others: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Orbit:
    """One start, followed: ``end`` is (y, x) of its limit, NaN where it is unresolved.

    ``beside`` has, of coordinates at whose end the plane is not, that value and the plane's.
    ``kind`` names the end; ``caption`` is its name in words, "" where ends have names of their own.
    """

    start: Start
    label: Label
    end: tuple[float, float]
    end_loss: float
    forward: Path
    backward: Path | None = None
    beside: dict[str, tuple[float, float]] = field(default_factory=dict)
    kind: str = "unresolved"
    caption: str = ""


def follow_start(view: View, start: Start, stop: Stop = lambda: False) -> Orbit:
    """Follow the flow from a start to its end, and also backward if the view asks for it."""
    model = view.model
    y, x = (torch.tensor([value], dtype=torch.float64) for value in start)
    theta = theta_at(model.plane, x, y, view.fixed_values)
    limits = find_limits(model, theta)
    label, ends = Label(int(limits.label[0])), ends_of(view)
    code = int(ends.identify(limits)[0])  # before the names, which it may add to
    kind = ends.names[code]
    times, rows = _to_its_end(view, theta, limits)
    finite = rows.isfinite().all(dim=-1)
    resolved = label != Label.UNRESOLVED
    end, beside = (np.nan, np.nan), {}
    if resolved:
        at = model.plane.project(limits.theta)
        plane = theta_at(model.plane, at[:, 1], at[:, 0], view.fixed_values)[0].tolist()
        end = at[0, 0].item(), at[0, 1].item()
        pairs = zip(limits.theta[0].tolist(), plane, strict=True)
        # a mirror image is no other point
        beside = {name: pair for name, pair in zip(model.coordinates, pairs, strict=True)
                  if abs(abs(pair[0]) - abs(pair[1])) > _OFF}  # fmt: skip
    return Orbit(
        start, label, end, float(limits.loss[0]),
        forward=_path(model, times[finite], rows[finite]),
        backward=_backward(view, theta[0], stop) if view.backward else None,
        beside=beside,
        kind=kind, caption=ends.captions.get(kind, ""),
    )  # fmt: skip


def edge_of(view: View, start: Start, stop: Stop) -> float:
    """Return the distance from a start to the nearest place in the window with another end.

    It is infinite if there is none, and NaN for a start in no basin. Raises ``Stopped``, also after
    ten seconds of the processor.
    """
    from flowsim.boundary.distance import Search  # loads scipy.interpolate

    plane, (x_low, x_high, y_low, y_high) = view.model.plane, view.window
    until = thread_time() + _LONGEST

    class InSlices(Search):
        """A search that can be stopped, and whose ends have the same codes on all pages."""

        def label(self, points: np.ndarray, exact: bool = True) -> np.ndarray:
            """Return the codes of the ends of points (m, 2), as (y, x); −1 of those in no basin."""
            codes = followed(
                view, points[:, 0], points[:, 1], lambda: stop() or thread_time() > until
            )
            none = [i for i, name in enumerate(ends_of(view).names) if name.startswith(NO_BASIN)]
            return np.where(np.isin(codes, none), -1, codes)

    search = InSlices(
        view.model, {plane.y: (y_low, y_high), plane.x: (x_low, x_high)}, view.fixed_values,
        lambda points: theta_at(plane, points[:, 1], points[:, 0], view.fixed_values),
    )  # fmt: skip
    search.nearest(np.array([start]))
    return float(search.distances[0])


def _to_its_end(view: View, theta: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    """Return times (n,) and points (n, k) of an orbit, up to near its end.

    It is followed to ever smaller rests of the excess loss, until the rest of the way is within a
    hundredth of the window's sides.
    """
    x_low, x_high, y_low, y_high = view.window
    sides = torch.tensor([y_high - y_low, x_high - x_low], dtype=torch.float64)
    end, times, rows = view.model.plane.project(limits.theta)[0, :2], None, None
    for left in _PARTS:
        longer, path = (found[:, 0] for found in drawn_orbits(view.model, theta, limits, left=left))
        if times is not None and not bool(longer[-1] > times[-1]):
            break
        times, rows = longer, path
        off = (view.model.plane.project(rows[-1:])[0, :2] - end).abs()
        if not bool((off > _AWAY * sides).any() & off.isfinite().all()):
            break
    assert times is not None and rows is not None
    return times, rows


def _path(model: Model, times: Tensor, rows: Tensor) -> Path:
    """Return the path through points (n, k) at these times; the gap of some models is NaN."""
    at, fixable = model.plane.project(rows), model.plane.fixable
    others = dict(zip(fixable, at[:, 2:].T.numpy(), strict=False))
    others |= {n: rows[:, i].numpy() for i, n in enumerate(model.coordinates) if n in fixable}
    measure = getattr(model, "logit_gap", None)
    gap = measure(rows) if callable(measure) else torch.full_like(times, torch.nan)
    y, x = at[:, 0].numpy(), at[:, 1].numpy()
    return Path(times.numpy(), y, x, model.loss(rows).numpy(), gap.numpy(), others)


def _backward(view: View, theta: Tensor, stop: Stop) -> Path | None:
    """Follow the flow backward from θ (k,), by length: dθ/ds = −v/‖v‖, dt/ds = −1/‖v‖.

    Returns the path up to θ, or None if there is no step. Runge-Kutta steps, for the eye; one that
    would turn back, past a point where the flow rests or a kink that two orbits leave, is halved.
    """
    model = view.model
    x_low, x_high, y_low, y_high = view.window
    wide, tall = x_high - x_low, y_high - y_low
    x, y, side = (x_low + x_high) / 2, (y_low + y_high) / 2, max(wide, tall)
    count, sides = (120, 3) if view.at_once else (60, 2)
    step, left = side / count, sides * side
    back, size = _heading(model, theta)
    rows, times = [theta], [0.0]
    while left > 0 and step > side / _SHORTEST and size > _REST and not stop():
        here = rows[-1]
        second, _ = _heading(model, here + step / 2 * back)
        third, _ = _heading(model, here + step / 2 * second)
        fourth, _ = _heading(model, here + step * third)
        there = here + step / 6 * (back + 2 * second + 2 * third + fourth)
        ahead, faster = _heading(model, there)
        turns = any(float((way * back).sum()) < 0 for way in (second, third, fourth, ahead))
        if turns or not bool(there.isfinite().all()):
            step /= 2
            continue
        rows.append(there)
        times.append(times[-1] - step * (1 / size + 1 / max(faster, _REST)) / 2)
        back, size, left = ahead, faster, left - step
        at_y, at_x = model.plane.project(there[None])[0, :2].tolist()
        if max(abs(at_x - x) / wide, abs(at_y - y) / tall) > 0.5 + _BEYOND:
            break
    if len(rows) < 2:
        return None
    return _path(model, torch.tensor(times[::-1]).double(), torch.stack(rows[::-1]))


def _heading(model: Model, theta: Tensor) -> tuple[Tensor, float]:
    """Return the unit vector against the flow at θ (k,), zero where it rests, and the speed."""
    v = model.field(theta[None])[0]
    size = float(v.norm())
    return -v / max(size, _REST), size


#: Starts that are followed between two looks at whether anybody still waits.
_AT_ONCE = 10


@dataclass(frozen=True)
class CloudShare:
    """Starts (y, x) of a cloud that were followed so far, and codes of their ends in ``label``.

    ``wanted`` is how many will be followed in all.
    """

    y: np.ndarray
    x: np.ndarray
    label: np.ndarray
    wanted: int

    def share(self, label: int) -> tuple[float, float, float]:
        """Return the share with that code among the followed starts, and its Wilson interval."""
        count = np.array((self.label == label).sum())
        low, high = wilson_interval(count, len(self.label))
        return float(count / len(self.label)), float(low), float(high)


def cloud_shares(view: View, stop: Stop = lambda: False) -> Iterator[CloudShare]:
    """Follow the starts of the view's cloud part by part, and yield all that are known each time.

    Raises ``Stopped``.
    """
    if view.cloud is None:
        return
    model, ends, label = view.model, ends_of(view), np.empty(0, np.int8)
    count = DRAWS if view.at_once else FEWER_DRAWS
    unit = np.random.Generator(np.random.PCG64(0)).standard_normal((count, 2))  # of every cloud
    y, x = (
        view.cloud.y + view.cloud.sigma * unit[:, 0],
        view.cloud.x + view.cloud.sigma * unit[:, 1],
    )
    rows = theta_at(model.plane, torch.from_numpy(x), torch.from_numpy(y), view.fixed_values)
    quick = view.at_once or solver_of(model).batched
    for part in rows.split(len(rows) if quick else _AT_ONCE):
        if stop():
            raise Stopped
        label = np.append(label, ends.identify(find_limits(model, part)))
        yield CloudShare(y[: len(label)], x[: len(label)], label, len(y))
