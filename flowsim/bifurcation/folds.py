"""Curves of folds, crossings and flips in the plane of two parameters, with their cusps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.bifurcation.branches import Branch, Tracer
from flowsim.bifurcation.events import Event, searched
from flowsim.bifurcation.find import Diagram, diagram, sampled
from flowsim.bifurcation.record import given_or_drawn, step_of, values_of
from flowsim.bifurcation.system import STEP_NUMBERS, StepMap, System, with_decay
from flowsim.errors import InputError
from flowsim.records.attributes import described, provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.running import Arrays, Keep, expect, keep_nothing, quickly
from flowsim.spec import ModelSpec
from flowsim.training.optimizer_choice import OptimizerChoice

#: Events that are followed; the second are crossings, held by a symmetry or a branch at rest.
_CROSSINGS = ("pitchfork", "transcritical")
_FOLLOWED = ("fold", "flip", *_CROSSINGS)
#: Half the width of difference quotients, in parts of the scaled space.
_SMALL = 1e-5
#: Singular values below this part of the largest: a seed at which the curve turns back.
_SINGULAR = 1e-7
#: A crossing that needs more than this to persist, in parts of ∂F/∂θ, has split.
_SPLIT = 1e-7
#: Two places are one if so near, in the scaled space.
_SAME = 1e-5
#: The relative error of a cusp, and the speed in the parameters at it.
_EXACT, _STILL = 1e-12, 1e-6


class Extended:
    """The equations of an event over a second parameter: F = 0, (F_θ + cI) v = 0, |v| = 1.

    c is 2 of a flip, else 0. A ``Tracer`` follows their zeros as it does those of a ``System``.
    The state is (θ, v, the first parameter, slack), scaled. Along a continuum θ is fixed and v
    across it; at a crossing θ is fixed along v too, and a slack term takes the place of the
    symmetry. Slack is 0 where the event persists. The event is one of the first parameter where the
    second is ``other``.

    Args:
        system: F over both parameters.
        size: of the coordinates, (k,), by which states are scaled.
        event: where the curve begins.
        other: the second parameter there.

    Attributes:
        k: number of coordinates of θ, velocities of a step map included.
        first, last: the range of the first parameter; it is in the state as a part of this.
        low, high: the range of the second parameter, over which the curve is followed.
        shift: c.
        theta: scaled θ of the event, (k,).
        kept, pins: directions (k, ·) to which v is orthogonal, and along which θ is fixed.
        slack_field, slack_vector: directions (k, ·) of slack in F = 0, and in (F_θ + cI) v = 0.
        start: the state of the event.
        scale: size of F_θ there.
    """

    step = None

    def __init__(self, system: System, size: Tensor, event: Event, other: float) -> None:
        self.system, self.size, self.k = system, size, len(size)
        (self.first, self.last), (self.low, self.high) = system.ranges.values()
        self.shift = 2.0 * (event.kind == "flip")
        vector = event.critical / event.critical.norm()
        self.theta, dimension = event.state / size, event.dimension
        at = torch.tensor([other]).to(size)
        begin = torch.tensor([(event.value - self.first) / (self.last - self.first)]).to(size)
        slope = self._matrix(self.theta[None], begin, at)[0]
        left, _, right = torch.linalg.svd(slope)
        crosses = event.kind in _CROSSINGS
        left_kernel = left[:, self.k - dimension - 1 :]
        # the continuum's directions: those of the kernel across the critical one
        kernel = right[self.k - dimension - 1 :].mT
        kept = torch.linalg.svd(kernel - vector[:, None] * (vector @ kernel))[0][:, :dimension]
        self.kept, self.pins = kept, torch.cat([kept, vector[:, None]], 1) if crosses else kept
        field_slopes, matrix_slopes = self._by_parameters(self.theta[None], begin, at)
        across = _orthogonal_to(field_slopes[0, :, 0], left_kernel)
        self.slack_field = left_kernel if crosses else across
        self.slack_vector = _orthogonal_to(matrix_slopes[0, :, 0] @ vector, left_kernel)
        slack = self.slack_field.shape[1] + dimension
        self.start = torch.cat([self.theta, vector, begin, begin.new_zeros(slack)])
        self.scale = float(slope.norm())

    def _values(self, part: Tensor, other: Tensor) -> Tensor:
        """Values (n, 2) of both parameters, clipped to their ranges.

        ``part`` (n,) is the place of the first in its range, ``other`` (n,) the second itself.
        """
        first = self.first + part.clamp(0, 1) * (self.last - self.first)
        return torch.stack([first, other.clamp(self.low, self.high)], 1)

    def _matrix(self, theta: Tensor, part: Tensor, other: Tensor) -> Tensor:
        """F_θ + cI at scaled θ (n, k), columns times ``size`` as for scaled θ, (n, k, k)."""
        slope = self.system.jacobian(theta * self.size, self._values(part, other))
        return (slope + self.shift * torch.eye(self.k).to(slope)) * self.size

    def _by_parameters(self, theta: Tensor, part: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives of F, (n, k, 2), and of ``_matrix``, (n, k, 2, k), by both parameters.

        The parameters are in units of their ranges.
        """
        span, n = self.high - self.low, len(theta)
        sides = []
        for sign in (1, -1):
            one = (part.clamp(0, 1) + sign * _SMALL).clamp(0, 1)
            two = (other + sign * _SMALL * span).clamp(self.low, self.high)
            sides.append((torch.cat([one, part]), torch.cat([other, two])))
        (up, over), (down, under) = sides
        width = torch.cat([(up - down)[:n], (over - under)[n:] / span])
        rows = theta.repeat(4, 1)
        ends = torch.cat([up, down]), torch.cat([over, under])
        field = self.system.field(rows * self.size, self._values(*ends))
        slope = self._matrix(rows, *ends)
        by = [((x[: 2 * n] - x[2 * n :]) / width.reshape(-1, *[1] * (x.ndim - 1))).unflatten(
            0, (2, n)) for x in (field, slope)]  # fmt: skip
        return by[0].permute(1, 2, 0), by[1].permute(1, 2, 0, 3)

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Split states (n, m) into θ, v, the first parameter (n,), and slack of F and of F_θ v."""
        k, spare = self.k, self.slack_field.shape[1]
        theta, vector, part, slack = state.split([k, k, 1, state.shape[1] - 2 * k - 1], 1)
        return theta, vector, part[:, 0], slack[:, :spare], slack[:, spare:]

    def field(self, state: Tensor, value: Tensor) -> Tensor:
        """The equations at states (n, m) and values (n,) of the second parameter, (n, m)."""
        theta, vector, part, slack, other = self._split(state)
        field = self.system.field(theta * self.size, self._values(part, value))
        product = (self._matrix(theta, part, value) @ vector[..., None])[..., 0]
        return torch.cat([
            field + slack @ self.slack_field.mT,
            product + other @ self.slack_vector.mT,
            (vector.square().sum(1, keepdim=True) - 1) / 2,
            (theta - self.theta) @ self.pins,
            vector @ self.kept,
        ], 1)  # fmt: skip

    def _slope(self, state: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives of the equations by the state (n, m, m) and the second parameter (n, m)."""
        theta, vector, part, slack, _ = self._split(state)
        n, k, m = len(state), self.k, state.shape[1]
        aside = _SMALL * torch.cat([torch.eye(k), -torch.eye(k)]).to(state)
        rows = (theta + aside[:, None]).reshape(-1, k)
        ends = self._matrix(rows, part.repeat(2 * k), value.repeat(2 * k)).reshape(2, k, n, k, k)
        second = ((ends[0] - ends[1]) / (2 * _SMALL)).permute(1, 2, 0, 3) @ vector[:, None, :, None]
        field_slopes, matrix_slopes = self._by_parameters(theta, part, value)
        product_slopes = (matrix_slopes @ vector[:, None, :, None])[..., 0]
        slope, pins, spare = state.new_zeros(n, m, m), self.pins.mT, slack.shape[1]
        middle = 2 * k + 1
        matrix = self._matrix(theta, part, value)
        slope[:, :k, :k] = matrix - self.shift * torch.diag(self.size)
        slope[:, k : 2 * k, :k] = second[..., 0]
        slope[:, k : 2 * k, k : 2 * k] = matrix
        slope[:, :k, 2 * k] = field_slopes[..., 0]
        slope[:, k : 2 * k, 2 * k] = product_slopes[..., 0]
        slope[:, :k, middle : middle + spare] = self.slack_field
        slope[:, k : 2 * k, middle + spare :] = self.slack_vector
        slope[:, 2 * k, k : 2 * k] = vector
        slope[:, middle : middle + len(pins), :k] = pins
        slope[:, middle + len(pins) :, k : 2 * k] = self.kept.mT
        along = state.new_zeros(n, m)
        along[:, :k], along[:, k : 2 * k] = field_slopes[..., 1], product_slopes[..., 1]
        return slope, along / (self.high - self.low)

    def jacobian(self, state: Tensor, value: Tensor) -> Tensor:
        """The derivative of the equations by the state, (n, m, m)."""
        return self._slope(state, value)[0]

    def linearised(
        self, state: Tensor, value: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The equations (n, m), and their derivatives by the state over ``size`` and by the value.

        These are (n, m, m) and (n, m).
        """
        slope, along = self._slope(state, value)
        return self.field(state, value), slope * size, along

    def rates(self, slopes: Tensor) -> Tensor:
        """Zeros, (n, 1): a point of such a curve is neither stable nor unstable."""
        return slopes.new_zeros(len(slopes), 1)

    def persists(self, branch: Branch) -> Branch:
        """The piece of a branch around the start on which the event lasts, inside both ranges."""
        part, slack = branch.state[:, 2 * self.k], branch.state[:, 2 * self.k + 1 :]
        fine = (part >= -1e-9) & (part <= 1 + 1e-9)
        fine &= slack.abs().amax(1) <= _SPLIT * self.scale if slack.shape[1] else True
        middle = int((branch.state - self.start).norm(dim=1).argmin())
        wrong = (~fine).nonzero()[:, 0]
        low = max([-1, *wrong[wrong < middle].tolist()])
        high = min([len(fine), *wrong[wrong >= middle].tolist()])
        piece = slice(low + 1, high)
        return replace(
            branch, state=branch.state[piece], value=branch.value[piece],
            unstable=branch.unstable[piece], tangent=branch.tangent[piece],
            kept=branch.kept[piece], closed=branch.closed and high - low - 1 == len(fine),
        )  # fmt: skip


def _orthogonal_to(vector: Tensor, basis: Tensor) -> Tensor:
    """An orthonormal basis (k, m) of the directions in a span (k, m + 1) across a vector (k,)."""
    if basis.shape[1] == 1:
        return basis[:, :0]
    entries = basis.mT @ vector[:, None]
    return basis @ torch.linalg.svd(entries)[0][:, 1:]


def followed(extended: Extended, other: float) -> tuple[Tracer, Branch] | None:
    """Follow the curve through the start of an extended system, to both sides.

    ``other`` is the second parameter at the start. Returns the curve's tracer and the curve; None
    if none is found, or it turns back just there.
    """
    tracer = Tracer(extended, torch.ones_like(extended.start))  # type: ignore[arg-type]
    at = torch.tensor([other]).to(extended.start)
    state, ok = _at_value(tracer, extended.start[None], at)
    sizes = torch.linalg.svdvals(extended.jacobian(state, at))[0]
    if not bool(ok[0]) or float(sizes[-1]) <= _SINGULAR * float(sizes[0]):
        return None
    extended.start = state[0]
    curve = extended.persists(tracer.trace(state, at)[0])
    return (tracer, curve) if len(curve.value) > 2 else None


def _at_value(tracer: Tracer, state: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The states (n, m) of curves at values (n,) of the second parameter, by Newton from guesses.

    And a mask (n,) of those that were found.
    """
    along = torch.zeros(len(state), state.shape[1] + 1).to(state)
    along[:, -1] = 1.0
    none = state.new_zeros(len(state), state.shape[1], 0)
    found, done, _, _ = tracer.corrected(tracer.joined(state, value), along, none)
    return found[:, :-1], done


def _lies_on(curve: tuple[Tracer, Branch], event: Event, other: float) -> bool:
    """Return whether an event, met where the second parameter is ``other``, lies on a curve."""
    tracer, branch = curve
    extended: Any = tracer.system
    if len(extended.theta) != len(event.state):
        return False
    low, high = branch.value[:-1], branch.value[1:]
    i = ((low - other) * (high - other) <= 0).nonzero()[:, 0]
    share = ((other - low[i]) / torch.where(high == low, 1.0, high - low)[i])[:, None]
    guess = branch.state[i] + share * (branch.state[i + 1] - branch.state[i])
    there, _ = _at_value(tracer, guess, torch.full_like(low[i], other))
    part = (event.value - extended.first) / (extended.last - extended.first)
    place = torch.cat([event.state / extended.size, event.state.new_tensor([part])])
    own = torch.cat([there[:, : extended.k], there[:, 2 * extended.k : 2 * extended.k + 1]], 1)
    kept = torch.nn.functional.pad(extended.kept, (0, 0, 0, 1))  # anywhere on a continuum
    away = own - place
    away = (away - away @ kept @ kept.mT)[:, -1 if event.period > 1 else 0 :]  # of a cycle: one
    return bool((away.abs().amax(1) < _SAME).any())


def _cusps(tracer: Tracer, branch: Branch) -> Tensor:
    """Scaled points of a curve at which both parameters turn, (c, m + 1), of states (m,)."""
    extended: Any = tracer.system
    both = [2 * extended.k, -1]
    speed = branch.tangent[:, both]
    at = ((speed[1:] * speed[:-1]).sum(1) < 0).nonzero()[:, 0]
    if not len(at):
        return branch.state.new_zeros(0, len(extended.start) + 1)
    points = tracer.joined(branch.state, branch.value)
    ends, turn = torch.stack([points[at], points[at + 1]], 1), speed[at + 1] - speed[at]
    kept = ends.new_zeros(len(at), ends.shape[2] - 1, 0)
    found, _, tangents = searched(
        tracer, ends, kept, lambda _, __, way: (way[:, both] * turn).sum(1), _EXACT
    )
    return found[tangents[:, both].norm(dim=1) < _STILL]


@quickly
def fold_curves(
    spec: ModelSpec | str,
    parameter: str,
    values: Iterable[float],
    second: str,
    others: Iterable[float],
    starts: Numbers | None = None,
    optimizer: OptimizerChoice | None = None,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    near: Mapping[str, float] | None = None,
    keep: Keep = keep_nothing,
) -> xr.Dataset:
    """Curves of folds, pitchforks, transcritical points and flips in the plane of two parameters.

    At up to five values of the second parameter the events over the first are found as by
    ``continuation``. Each that lies on no known curve begins one: F = 0, F_θ v = 0, |v| = 1, of a
    flip (F_θ + 2) v = 0, is followed in (θ, v, both parameters) by pseudo-arclength. A pitchfork or
    transcritical point is followed as long as it does not split into folds. At a cusp both
    parameters turn.

    Args:
        spec: the model, a ``ModelSpec`` or its name.
        parameter, values: as of ``continuation``; the range between the first and last counts.
        second, others: the second parameter, and values of it.
        starts, optimizer, seed: as of ``continuation``, for the search.
        progress: called with the number of values of the second parameter done.
        near: values of both parameters, by name: only the event nearest to the first one's, at the
            second one's, is followed.
        keep: as of ``continuation``, of the events at each value of the second parameter.

    Returns:
        Dataset with curve_value, curve_second, curve_<c> and curve_number over the curves' points,
        curve_kind and curve_period over curves, and cusp_value, cusp_second and cusp_<c>.

    Raises:
        InputError: as ``continuation``; no such event at these values; twice the same parameter;
            ``near`` of other parameters, or outside their ranges.

    >>> import flowsim
    >>> class Cusp(flowsim.Model):
    ...     coordinates = ("x",)
    ...     def __init__(self, a=0.0, b=0.0):
    ...         self.a, self.b = a, b
    ...     def loss(self, theta):
    ...         x = theta[..., 0]
    ...         return x**4 + self.a * x**2 + self.b * x
    ...
    >>> spec = flowsim.ModelSpec(Cusp)
    >>> found = flowsim.bifurcation.fold_curves(spec, "b", [-3.0, 3.0], "a", [-2.0, 1.0])
    >>> off = 8 * found.curve_second**3 + 27 * found.curve_value**2
    >>> found.sizes["cusp"], bool(abs(off).max() < 1e-8)
    (1, True)
    """
    spec = spec if isinstance(spec, ModelSpec) else ModelSpec(spec)
    if second == parameter:
        raise InputError(f"{parameter} is given twice: fold curves need two parameters")
    step, _ = (step_of(optimizer, name) for name in (parameter, second))
    spec = with_decay(spec) if "weight_decay" in (parameter, second) else spec
    values = values_of(spec, parameter, values, step)
    others = values_of(spec, second, others, step)
    if step is not None and "momentum" in (parameter, second):
        step = replace(step, has_memory=True)
    low, high = float(values[0]), float(values[-1])
    both = System(spec, parameter, low, high, step, (second, float(others[0]), float(others[-1])))
    theta = given_or_drawn(both.model(low, float(others[0])), starts, seed)
    if near is None:
        asked = others[sampled(torch.from_numpy(others)).numpy()].tolist()
    else:
        inside = near.keys() == {parameter, second} and all(
            side[0] <= near[name] <= side[-1] for name, side in ((parameter, values),
                                                                 (second, others))
        )  # fmt: skip
        if not inside:
            raise InputError(f"a value of {parameter} and one of {second}, both in their ranges, "
                             "say which fold to follow")  # fmt: skip
        asked = [near[second]]
    expect(progress, len(asked))
    curves: list[tuple[Tracer, Branch]] = []
    kinds: list[tuple[str, int]] = []
    for other in asked:
        one = _at(spec, parameter, (low, high), step, second, other)
        found = keep(partial(_events, one, torch.from_numpy(values), theta))
        events = [_event(found, i) for i in range(len(found["value"]))]
        if near is not None:
            order = np.argsort(abs(found["value"] - near[parameter]), kind="stable")
            events = [events[i] for i in order[:1]]
        for event, size in events:
            known = any(
                kind == (event.kind, event.period) and _lies_on(curve, event, other)
                for kind, curve in zip(kinds, curves, strict=True)
            )
            if known:
                continue
            system = both if step is None else both.with_period(event.period)
            curve = followed(Extended(system, size, event, other), other)
            if curve is not None:
                curves.append(curve)
                kinds.append((event.kind, event.period))
        if progress is not None:
            progress(1)
    if not curves:
        raise InputError(
            f"no fold, crossing or flip over {parameter} was found at {len(asked)} value"
            f"{'s' * (near is None)} of {second} that can be followed: choose other ranges"
        )
    record = _curves(both, curves, kinds)
    first = both.model(low, float(others[0]))
    record.attrs = provenance({
        "kind": "fold curves",
        "parameter": parameter,
        "second": second,
        "range": [low, high],
        "second_range": [float(others[0]), float(others[-1])],
        **model_attributes(first, both.own, both.model(high, float(others[-1]))),
        **(optimizer.on(first).attributes() if optimizer is not None else {}),
    })  # fmt: skip
    return described(record, first.long_names)


def _events(system: System, values: Tensor, theta: Tensor) -> Arrays:
    """Find the events over the first parameter that can be followed, as columns.

    The columns are the attributes of ``Event``, and ``size``, the sizes of the coordinates by which
    each was found. They are empty if there is no such event.
    """
    found = Diagram([], [])
    with suppress(InputError):  # nothing to follow at this value
        found = diagram(system, values, theta, [theta[:0]] * len(values))
    events = [event for event in found.events if event.kind in _FOLLOWED]
    columns = {name: np.array([getattr(event, name) for event in events])
               for name in ("kind", "value", "dimension", "period")}  # fmt: skip
    columns |= {name: np.array([getattr(event, name).numpy() for event in events])
                for name in ("state", "critical")}  # fmt: skip
    return columns | {"size": np.array([found.sizes[event.period].numpy() for event in events])}


def _event(found: Arrays, i: int) -> tuple[Event, Tensor]:
    """The i-th event of the columns of ``_events``, and the sizes of its coordinates (size,)."""
    row = {name: column[i] for name, column in found.items()}
    size = torch.from_numpy(row.pop("size"))
    state, critical = (torch.from_numpy(row.pop(name)) for name in ("state", "critical"))
    plain = {name: value.item() for name, value in row.items()}
    return Event(**plain, state=state, critical=critical, branch=-1), size


def _at(
    spec: ModelSpec, parameter: str, side: tuple[float, float], step: StepMap | None, second: str,
    other: float,
) -> System:  # fmt: skip
    """The system over the first parameter at a value of the second."""
    if step is not None and second in STEP_NUMBERS:
        return System(spec, parameter, *side, replace(step, **{second: other}))  # type: ignore[arg-type]
    return System(spec.replace(**{second: other}), parameter, *side, step)


def _curves(
    system: System, curves: Sequence[tuple[Tracer, Branch]], kinds: Sequence[tuple[str, int]]
) -> xr.Dataset:
    """The curves, their cusps, and the event's kind and period of each curve as a record."""
    points: list[np.ndarray] = []
    cusps: list[np.ndarray] = []
    for number, (tracer, branch) in enumerate(curves):
        for found, rows in ((points, tracer.joined(branch.state, branch.value)),
                            (cusps, _cusps(tracer, branch))):  # fmt: skip
            extended: Any = tracer.system
            value, other = extended._values(rows[:, 2 * extended.k], tracer.split(rows)[1]).T
            theta = rows[:, : len(system.coordinates)] * extended.size[: len(system.coordinates)]
            whole = torch.cat([torch.full((len(rows), 1), number), value[:, None], other[:, None],
                               theta], 1)  # fmt: skip
            found.append(whole.numpy())
    names = ("number", "value", "second", *system.coordinates)
    record = xr.Dataset()
    for kind, dim, columns in (("curve", "curve_point", points), ("cusp", "cusp", cusps)):
        for name, column in zip(names, np.concatenate(columns).T, strict=True):
            record[f"{kind}_{name}"] = (dim, column.astype(int) if name == "number" else column)
    record["curve_kind"] = ("curve", np.array([kind for kind, _ in kinds]))
    record["curve_period"] = ("curve", np.array([period for _, period in kinds]))
    return record
