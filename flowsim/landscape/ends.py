"""Ends of a model that names none: classes of its orbits' limits."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from flowsim.interface import Model
from flowsim.labels import BASINS, Label
from flowsim.landscape.stability import with_rounding

#: Steps of Newton's method at most that polish an end, and that project a point onto a set of ends.
#: After the first few a step counts while it leaves at most this part of the speed.
_POLISHES, _PROJECTED, _FIRST, _FASTER = 60, 8, 6, 0.5
#: Rates below this part of the largest are zero to rounding; below the second it is tried whether
#: ends extend that way.
_ROUNDED, _SLOW = 1e-13, 1e-3
#: Two zeros of the field are one if on the way between them its speed is nowhere this many times
#: that at both, and what rounding may do to it: so many units of the last place.
_BARRIER, _UNITS = 4.0, 64 * 2.0**-52
#: Numbers this small are zero.
_NONE = 1e-300
#: Between two minima the loss rises by more than this part of what their slopes make of the way.
_RISES = 0.01
#: Places on the way between two points that are tried: as parts of it.
_PARTS = (0.23, 0.5, 0.81)
#: Nearest ends that a limit is compared with.
_NEAREST = 3
#: A way along a set of ends is as long as changes the rates by this part, and tried at these parts
#: of that length: a point is new that is this part of the length away, and slower than the last.
_BENDS, _TRIED, _NEW = 0.1, (0.25, 0.125), 0.3
#: A place of a set is none where the field is, within this part, that of the rates, and this many
#: times what rounding may do.
_ALIKE, _RESOLVED = 0.5, 30.0
#: Losses at ends are rounded to this part of those between the ends.
_EQUAL = 1e-9
#: Ends are numbered by their losses where these differ by this part of those between the ends, or
#: else by their places, where these differ by it; a minimum at a kink is known to 1e-8 of its way.
_IN_ORDER = 1e-6
#: Points are at a kink where their slopes make more than this part of a rise between them; there
#: losses are lowered by so many steps. Slopes are taken beside them, at this part of the way.
_AT_KINK, _LOWERED, _BESIDE = 1e-3, 60, 1e-6
#: Losses on the way along a set of ends differ by this part of those on the straight way at most.
_LEVEL = 1e-6
#: Points at once, of many.
_AT_ONCE = 2**14
#: Points of a set of ends on which its connection is tried, and places on the way between two.
_MEMBERS, _BETWEEN = 400, 15
#: Members, the nearest, to which a point's connection is tried.
_TRIED_MEMBERS = 4
#: A step along a set bends evenly: at its ends its parts across the set add up to this part of
#: them at most, and this part of the step; and the way back onto the set is this part of it.
_UNEVEN, _STRAIGHT, _BACK = 0.25, 1e-3, 0.2
#: A curve is followed so many times as far as the points are that may be on it.
_FAR = 20.0
#: A point is straight across a set that is not further along it than this part of the way.
_ACROSS = 0.02
#: Losses to which orbits fall at infinity are extrapolated, and known less well.
_LOSS_FAR = 1e-3
#: Distances to compare a law of motion, in parts of the points' size: this and its square.
_ASIDE = 1e-3
_KINDS = {
    Label.GLOBAL_MINIMUM: "minimum",
    Label.LOCAL_MINIMUM: "minimum",
    Label.SADDLE: "saddle",
    Label.INFINITY: "infinity",
}
_CRITICAL = ("minimum", "saddle")
#: The kinds of which there can be several, by their order: an optimizer's runs come after them.
_NUMBERED = {"minimum": 0, "infinity": 0, "saddle": 1}
_SETS = {1: "a curve", 2: "a surface"}


@dataclass(frozen=True)
class End:
    """One end of a model's orbits.

    Attributes:
        kind: minimum, saddle, infinity, or another label's name.
        loss: at the end; at infinity the limit of the loss, NaN if it has none.
        theta: a point of it, shape (k,); ±∞ in coordinates that grow without bound, NaN in those
            that go back and forth further and further.
        dimension: 0 of a point, else of a connected set of such ends.
        name: the kind and a number, by which records call it.
        rounding: losses within it of 0 are called 0.

    >>> import flowsim, torch
    >>> place = torch.tensor([-1.0466, 0.0])
    >>> end = flowsim.landscape.End("minimum", -0.2087, place, name="minimum_1")
    >>> end.caption(("x", "y"))
    'minimum 1 (loss −0.209)'
    """

    kind: str
    loss: float
    theta: Tensor
    dimension: int = 0
    name: str = ""
    rounding: float = 0.0

    @property
    def flat(self) -> int:
        """The former name of ``dimension``."""
        warnings.warn("End.flat is now End.dimension", DeprecationWarning, stacklevel=2)
        return self.dimension

    def caption(self, coordinates: Sequence[str]) -> str:
        """Name of the end in a legend."""
        number = self.name.rpartition("_")[2]
        if self.kind == "infinity":
            far = []
            for name, value in zip(coordinates, self.theta.tolist(), strict=True):
                if math.isinf(value):
                    far.append(f"{name} → {'+' if value > 0 else '−'}∞")
                elif math.isnan(value):
                    far.append(f"|{name}| → ∞ back and forth")
            loss = f" (loss → {_number(self.loss, self.rounding)})"
            return f"to infinity: {', '.join(far)}{loss if self.loss == self.loss else ''}"
        if self.kind not in _CRITICAL:
            return self.kind.replace("_", " ")
        if not self.dimension:
            return f"{self.kind} {number} (loss {_number(self.loss, self.rounding)})"
        several = "minima" if self.kind == "minimum" else "saddles"
        shape = _SETS.get(self.dimension, f"a set of dimension {self.dimension}")
        return f"{several} {number}, {shape} (loss {_number(self.loss, self.rounding)})"


class _Descent(Model):
    """The gradient flow of another model's loss."""

    def __init__(self, model: Model) -> None:
        self.of, self.coordinates = model, model.coordinates

    def loss(self, theta: Tensor) -> Tensor:
        return self.of.loss(theta)


def _jumps(model: Model, theta: Tensor) -> bool:
    """Return whether a model's own field jumps at minima (n, k) of the loss, as −sign ∇L does.

    It does if it slows down towards none of them although ∇L does towards all; speeds are compared
    at two distances from each. False for gradient flows.
    """
    if type(model).field is Model.field:
        return False
    size = float(theta.abs().max()) or 1.0
    way = size * torch.linspace(1, 2, theta.shape[1]).to(theta)
    near, far = theta + _ASIDE**2 * way, theta + _ASIDE * way
    slower = [
        law(near).detach().norm(dim=1) < 0.1 * law(far).detach().norm(dim=1)
        for law in (model.field, model.gradient)
    ]
    return not bool(slower[0].any()) and bool(slower[1].all())


@dataclass
class _Place:
    """Points that an end is known by.

    Attributes:
        members: some of its points, (m, k), the first met first.
        followed: how far from the first member a curve has been followed.
        is_whole: whether following it further gives no new member: it is closed, or at a kink.
    """

    members: Tensor
    followed: float = 0.0
    is_whole: bool = False


class Labelled(Protocol):
    """Limits of starts, (n,) or (n, k), such as ``Limits`` and ``Trained``."""

    label: Tensor
    theta: Tensor
    loss: Tensor


class Ends:
    """The ends of a model's orbits, by the codes that records give them.

    A model with ``end_losses`` has these as labels. For another one ends are found: limits are
    polished by Newton's method; two are one end unless the field between them is faster than at
    both; a connected curve or surface of critical points is one end, and two points are on the same
    one if points between them, projected onto it, leave no gap, or steps along it lead from one to
    the other. Whether a set extends around a point is tried by going along it. Ends at infinity are
    distinguished by the coordinates that grow, their signs, and the limit of the loss.

    Args:
        model: any model.

    Attributes:
        found: the ends, code 1 first. Those of the first limits are in order: the lowest loss
            first, saddles last. Ends that are met later follow.

    >>> import flowsim, torch
    >>> well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 + y**2 + 0.2 * x, "well")
    >>> limits = flowsim.find_limits(well, torch.tensor([[-1.0, 0.5], [1.0, 0.5]]))
    >>> ends = flowsim.landscape.Ends(well)
    >>> ends.identify(limits), ends.names
    (tensor([1, 2], dtype=torch.int32), ['unresolved', 'minimum_1', 'minimum_2'])
    """

    def __init__(self, model: Model) -> None:
        self.model, self.found = model, list[End]()
        self._flow = model
        self.named = model.end_losses() is not None
        self._places: list[_Place] = []  # of the ends found
        self._rounding = 0.0

    @property
    def names(self) -> list[str]:
        """The names of codes 0, 1, …"""
        if self.named:
            return list(BASINS)
        return ["unresolved", *(end.name for end in self.found)]

    def attributes(self) -> dict[str, object]:
        """Attributes of found ends for a record: names, and the tolerances of their classes."""
        if self.named:
            return {}
        found = {end.name: end.caption(self.model.coordinates) for end in self.found}
        named = {name: self.model.long_names.get(name, text) for name, text in found.items()}
        return {
            "ends": "found from the limits: points by place, a connected curve or surface as one "
            "end, ends at infinity by the coordinates that grow and the limit of the loss; "
            "numbered by loss",
            "end_names": json.dumps(named, ensure_ascii=False),
        }

    def identify(self, limits: Labelled) -> Tensor:
        """The code of each limit's end, (n,), 0 for none; see ``codes``."""
        return self.codes(limits.label, limits.theta, limits.loss)

    def basins(self, label: Tensor, theta: Tensor, loss: Tensor) -> Tensor:
        """The code of each limit's end, (n,), but −1 for limits at a saddle and unresolved ones.

        Codes, and the arguments, are as in ``codes``.
        """
        none = (label == Label.UNRESOLVED) | (label == Label.SADDLE)
        return torch.where(none, -1, self.codes(label, theta, loss))

    def codes(self, label: Tensor, theta: Tensor, loss: Tensor) -> Tensor:
        """The code of each limit's end, (n,), by its label (n,), place (n, k) and loss (n,).

        A model that names its ends has the labels themselves as codes, int8. Else code i stands for
        the end ``found[i − 1]``, int32, and 0 for an unresolved limit; ends that are not in
        ``found`` yet are added to it.
        """
        if self.named:
            return label
        device, label, theta, loss = label.device, label.cpu(), theta.cpu(), loss.cpu()
        codes, new = torch.zeros_like(label, dtype=torch.int32), not self.found
        for value in label.unique().tolist():
            if value != Label.UNRESOLVED:
                rows = (label == value).nonzero()[:, 0]
                kind = _KINDS.get(value, Label(value).name.lower())
                codes[rows] = self._assigned(kind, theta[rows], loss[rows]).to(codes)
        if new and self.found:
            codes = self._sort()[codes.long()].to(codes)
        return codes.to(device)

    def _assigned(self, kind: str, theta: Tensor, loss: Tensor) -> Tensor:
        """The codes (n,) of limits (n, k) of one kind, with losses (n,).

        Ends that are not in ``found`` yet are added to it.
        """
        critical = kind in _CRITICAL
        numbers = [i for i, end in enumerate(self.found) if end.kind == kind]
        if critical and not numbers and _jumps(self.model, theta):
            self._flow = _Descent(self.model)
        if critical:
            polished = torch.cat([self._polished(part) for part in theta.split(_AT_ONCE)])
            if kind == "minimum" and type(self._flow).field is Model.field:
                # beside a kink of a concave loss the field slows down on the way up
                slope = (self._flow.field(theta).detach() * (polished - theta)).abs().sum(1)
                rise = self.model.loss(polished).detach() - loss
                up = rise > _RISES * slope + _UNITS * loss.abs()
                polished = torch.where(up.unsqueeze(1), theta, polished)
            theta = polished
        theta, which = torch.unique(theta, dim=0, return_inverse=True)
        first = torch.full((len(theta),), len(which))
        first.scatter_reduce_(0, which, torch.arange(len(which)), "amin")
        order = first.argsort()  # the first limits come first
        theta, which, first = theta[order], order.argsort()[which], first[order]
        loss = self.model.loss(theta).detach() if critical else loss[first]
        codes = torch.zeros(len(theta), dtype=torch.long)
        if critical and numbers:
            codes = self._codes_of_known(numbers, theta)
        elif numbers:
            for number in numbers:
                codes[(codes == 0) & self._goes_to(number, theta, loss)] = number + 1
        sets = [number for number in numbers if critical and self.found[number].dimension]
        for walks in (False, True):
            for number in sets:
                left = (codes == 0).nonzero()[:, 0]
                codes[left[self._on_set(number, theta[left], walks)]] = number + 1
        while len(left := (codes == 0).nonzero()[:, 0]):
            joined = left[self._new_end(kind, theta[left], loss[left])]
            codes[joined] = len(self.found)
        return codes[which]

    def _new_end(self, kind: str, theta: Tensor, loss: Tensor) -> Tensor:
        """Add the end of the first of limits (m, k) to ``found``.

        Returns a mask (m,) of the limits that are at this end.
        """
        number, critical = len(self.found), kind in _CRITICAL
        name = _named(kind, sum(end.kind == kind for end in self.found) + 1)
        dimension = self._dimension(theta[0]) if critical else 0
        at_kink = kind == "minimum" and not dimension
        if at_kink:
            dimension = self._dimension_at_kink(theta[0], theta[1:])
        self.found.append(End(kind, float(loss[0]), theta[0], dimension, name, self._rounding))
        self._places.append(_Place(theta[:1], is_whole=at_kink))
        if critical:
            first, single = theta[0].expand(len(theta), -1), torch.tensor(dimension == 0)
            joins = self._are_one(theta, first, kind == "minimum", single)
            if dimension:
                rest = (~joins).nonzero()[:, 0]
                joins[rest] = self._on_set(number, theta[rest], walks=True)
        else:
            joins = self._goes_to(number, theta, loss)
        joins[0] = True
        return joins

    def _goes_to(self, number: int, theta: Tensor, loss: Tensor) -> Tensor:
        """Mask (m,) of limits (m, k), no critical points, that are at the end ``found[number]``.

        They are of its kind. At infinity the same coordinates grow, with the same signs, and the
        losses (m,) are the end's. Of every other kind there is one end.
        """
        end = self.found[number]
        if end.kind != "infinity":
            return torch.ones(len(theta), dtype=torch.bool)
        signs = [torch.where(x.isinf(), x.sign(), 2.0 * x.isnan()) for x in (theta, end.theta)]
        near = (loss - end.loss).abs() <= _LOSS_FAR * (self._fall(end) + abs(end.loss))
        near |= (loss == end.loss) | (loss.isnan() & (end.loss != end.loss))
        return (signs[0] == signs[1]).all(1) & near

    def _fall(self, end: End) -> float:
        """The fall of the loss to an end at infinity from where its infinite coordinates are 0.

        0 if that is not finite.
        """
        start = torch.where(end.theta.isinf(), 0.0, end.theta)
        fall = float(self.model.loss(start[None]).detach()[0]) - end.loss
        return abs(fall) if math.isfinite(fall) else 0.0

    def _codes_of_known(self, numbers: list[int], theta: Tensor) -> Tensor:
        """The code of the end, one of ``numbers`` in ``found``, to which each point (m, k) belongs.

        These ends are of one kind; the code is 0 for none, (m,). A point is compared with the
        members of these ends that are nearest to it.
        """
        members = [self._places[number].members for number in numbers]
        minima = self.found[numbers[0]].kind == "minimum"
        single = torch.tensor([end.dimension == 0 for end in self.found])
        of = torch.cat([torch.full((len(x),), i) for i, x in zip(numbers, members, strict=True)])
        places, codes = torch.cat(members), torch.zeros(len(theta), dtype=torch.long)
        for part in torch.arange(len(theta)).split(_AT_ONCE):
            away = _apart(theta[part], places)
            near = away.topk(min(_NEAREST, len(places)), largest=False).indices
            for column in near.T:
                left = (codes[part] == 0).nonzero()[:, 0]
                if not len(left):
                    break
                other, alone = places[column[left]], single[of[column[left]]]
                same = self._are_one(theta[part[left]], other, minima, alone)
                codes[part[left[same]]] = of[column[left[same]]] + 1
        return codes

    def _are_one(self, one: Tensor, other: Tensor, minima: bool, single: Tensor) -> Tensor:
        """Mask (m,) of pairs of points at rest (m, k) that belong to one end.

        ``minima`` says whether all are minima, ``single`` whether the end of ``other`` is a point
        and no set. Around a point in a flat valley places of rest lie a little apart, and where the
        valley bends the straight way between them climbs: then places along it are first projected
        onto the valley.
        """
        found = self._no_barrier(one, other, minima)
        left = (~found & single).nonzero()[:, 0]
        rates = torch.linalg.svdvals(self._flow.jacobian(other[left]).detach().nan_to_num())
        flat = (rates <= _SLOW * rates[:, :1]).sum(1)
        for dimension in flat[(flat > 0) & (flat < one.shape[1])].unique().tolist():
            rows = left[flat == dimension]
            begun = one[rows] + one.new_tensor(_PARTS)[:, None, None] * (other - one)[rows]
            way = self._polished(begun.flatten(0, 1), _PROJECTED, dimension).reshape(begun.shape)
            near = (way - begun).norm(dim=2) <= 0.5 * (other - one)[rows].norm(dim=1)
            found[rows] = near.all(0) & self._no_barrier(one[rows], other[rows], minima, way)
        return found

    def _no_barrier(
        self, one: Tensor, other: Tensor, minima: bool, way: Tensor | None = None
    ) -> Tensor:
        """Mask (m,) of pairs of points at rest (m, k) between which the field is nowhere fast.

        Fast is what neither rounding nor the speed left at the two explains, so that no unit of the
        coordinates or of the loss matters. At kinks, where the field jumps, it is the loss that may
        not rise between two minima. The places asked, (parts, m, k), are on the straight way unless
        others are given.
        """
        m, k = one.shape
        if not m:
            return torch.zeros(0, dtype=torch.bool)
        parts = one.new_tensor(_PARTS)[:, None, None]
        between = (one + parts * (other - one) if way is None else way).reshape(-1, k)
        moving = (between != one.repeat(len(_PARTS), 1)).any(1)
        moving &= (between != other.repeat(len(_PARTS), 1)).any(1)
        points = torch.cat([one, other, between])
        speed = self._flow.field(points).detach().abs()
        ends = torch.maximum(speed[:m], speed[m : 2 * m]).repeat(len(_PARTS), 1)
        steep, rounding = self._steepness(between)
        quiet = (speed[2 * m :] <= _BARRIER * ends + rounding).all(1)
        if minima and type(self._flow).field is Model.field:
            way_off = (steep @ (other - one).abs().repeat(len(_PARTS), 1).unsqueeze(2)).squeeze(2)
            quiet |= ends.sum(1) > way_off.sum(1) + rounding.sum(1)  # only at kinks
            loss = self.model.loss(points).detach()
            floor = torch.maximum(loss[:m], loss[m : 2 * m]).repeat(len(_PARTS))
            slope = (ends * (other - one).abs().repeat(len(_PARTS), 1)).sum(1)
            known = (rounding * between.abs()).sum(1) + _UNITS * floor.abs()
            quiet &= loss[2 * m :] - floor <= _RISES * slope + known
        return (quiet | ~moving).reshape(len(_PARTS), m).all(0)

    def _on_set(self, number: int, theta: Tensor, walks: bool) -> Tensor:
        """Mask (m,) of points (m, k) on the end ``found[number]``, a curve, a surface or more.

        A point is on it if no gap divides it from a near member of the end. It becomes a member, so
        that others may be beside it. With ``walks`` a curve is followed, which gives it members,
        and on a surface steps are taken from a point towards the nearest member.
        """
        joined = torch.zeros(len(theta), dtype=torch.bool)
        place, dimension = self._places[number], self.found[number].dimension
        # of many points some are tried; the others are where the nearest of these are
        tried = torch.arange(0, len(theta), 1 + len(theta) // _MEMBERS)
        while len(left := tried[~joined[tried]]):
            away = _apart(theta[left], place.members)
            new = left[:0]
            for column in away.topk(min(_TRIED_MEMBERS, away.shape[1]), largest=False).indices.T:
                new = left[self._no_gap(theta[left], place.members[column], dimension)]
                if len(new):
                    break
            if walks and not len(new) and not place.is_whole:
                reach = float(torch.cdist(theta[left], place.members[:1]).max())
                if dimension == 1 and place.followed < reach:
                    self._follow_curve(place, reach)
                    continue
                if dimension > 1:
                    nearest = place.members[away.argmin(1)]
                    new = left[self._leads_to(theta[left], nearest, dimension)]
            if not len(new):
                break
            joined[new] = True
            members = torch.cat([place.members, theta[new]])
            place.members = members[:: 1 + len(members) // (2 * _MEMBERS)]
        if len(tried) < len(theta):
            joined = joined[tried][torch.cdist(theta, theta[tried]).argmin(1)]
        return joined

    def _no_gap(self, one: Tensor, other: Tensor, dimension: int) -> Tensor:
        """Mask (m,) of pairs of points (m, k) that are on one connected set of critical points.

        Places of the segment between the two, projected onto the set of that dimension, leave no
        gap, and the loss is the same at all.
        """
        part = torch.linspace(0, 1, _BETWEEN + 2, dtype=one.dtype)[:, None, None]
        way = one + part * (other - one)
        straight = self.model.loss(way).detach()
        rise = (straight - straight[0]).abs().amax(0)
        inner = self._polished(way[1:-1].reshape(-1, one.shape[1]), _PROJECTED, dimension)
        inner, length = inner.reshape(_BETWEEN, *one.shape), (other - one).norm(dim=-1)
        at_kink = self._at_kink(one, other, rise)
        if bool(at_kink.any()):
            inner[:, at_kink] = self._lowered_to(way[1:-1, at_kink], straight[0, at_kink])
            rise = torch.where(at_kink, self._rise_by_slope(one, other), rise)
        way = torch.cat([one[None], inner, other[None]])
        level = self._is_level(way, one, rise).all(0)
        return level & (way.diff(dim=0).norm(dim=-1).amax(0) <= 0.5 * length)

    def _steepness(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The Jacobian's absolute entries at points (m, k), (m, k, k), and the field's rounding.

        It is the change of each component of the field by rounding of the points, (m, k).
        """
        steep = self._flow.jacobian(theta).detach().nan_to_num().abs()
        size = theta.abs().clamp_min(_NONE).unsqueeze(2)
        return steep, _UNITS * (steep @ size).squeeze(2)

    def _rise_by_slope(self, one: Tensor, other: Tensor) -> Tensor:
        """Distance of two points (m, k) times the loss's slope close beside them, (m,).

        The loss would rise that much on the way. At smooth minima it is next to nothing, at kinks
        it is not.
        """
        places = [x + _BESIDE * (y - x) for x, y in ((one, other), (other, one))]
        speed = torch.stack([self._flow.field(place).detach().norm(dim=1) for place in places])
        speed = (speed.amax(0) - self._steepness(one)[1].norm(dim=1)).clamp_min(0.0)
        return speed * (other - one).norm(dim=1)

    def _at_kink(self, one: Tensor, other: Tensor, rise: Tensor) -> Tensor:
        """Mask (m,) of pairs of minima (m, k) at a kink.

        There slopes beside the two explain much of the ``rise`` (m,) of the loss between them.
        """
        if type(self._flow).field is not Model.field:
            return torch.zeros(len(one), dtype=torch.bool)
        return self._rise_by_slope(one, other) > _AT_KINK * rise.clamp_min(0.0)

    def _lowered_to(self, theta: Tensor, level: Tensor) -> Tensor:
        """Move points (…, m, k) along −∇L until the loss is down to a level (m,).

        By Newton's steps, for a loss without curvature.
        """
        for _ in range(_LOWERED):
            excess = (self.model.loss(theta).detach() - level).clamp_min(0.0)
            slope = self.model.gradient(theta).detach()
            step = (excess / slope.square().sum(-1)).nan_to_num(0.0, 0.0, 0.0)
            theta = theta - step.unsqueeze(-1) * slope
        return theta

    def _dimension_at_kink(self, theta: Tensor, others: Tensor) -> int:
        """The dimension of the set of minima at a kink through a point (k,) and some of ``others``.

        0 if it is connected to none of these, (m, k).
        """
        away = (others - theta).norm(dim=1)
        middle = self.model.loss((others + theta) / 2).detach()
        one, loss = theta.expand_as(others), self.model.loss(others).detach()
        here = self.model.loss(theta[None]).detach()
        alike = self._at_kink(one, others, middle - here)
        alike &= (middle > here) & (
            (loss - here).abs() <= _LEVEL * self._rise_by_slope(one, others)
        )
        near = alike.nonzero()[:, 0]
        near = near[away[near].argsort()[:_TRIED_MEMBERS]]
        if len(near):
            near = near[self._no_gap(one[near], others[near], 1)]
        if not len(near):
            return 0
        radius = 0.1 * away[near].amin()
        moved = self._lowered_to(theta + radius * torch.eye(len(theta)).to(theta), here) - theta
        return int((torch.linalg.svdvals(moved / radius) > _NEW).sum())

    def _is_level(self, place: Tensor, one: Tensor, rise: Tensor) -> Tensor:
        """Mask (…, m) of places (…, m, k) at which the loss equals that at ``one`` (m, k).

        Tolerated are rounding and a small part of ``rise`` (m,), a loss difference met nearby.
        """
        first = self.model.loss(one).detach()
        loss, noise = with_rounding(
            lambda x: self.model.loss(x).detach(), place.reshape(-1, one.shape[1])
        )
        allowed = _LEVEL * rise + noise.reshape(-1, len(one)).amax(0) + _UNITS * first.abs()
        return (loss.reshape(place.shape[:-1]) - first).abs() <= allowed

    def _tangents(self, theta: Tensor, dimension: int) -> Tensor:
        """Orthonormal directions along the set of critical points at points (m, k) on it.

        The Jacobian's singular values are least along them, (m, dimension, k).
        """
        jacobian = self._flow.jacobian(theta).detach().nan_to_num()
        return torch.linalg.svd(jacobian)[2][:, -dimension:]

    def _step(
        self, here: Tensor, ahead: Tensor, tangents: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Go from points ``here`` of a set by ``ahead``, (m, k) both, and by Newton onto it again.

        Returns the new points (m, k); the tangents there (m, dimension, k); a mask (m,) of the
        steps that count, which bend as much at their end as at their start and so lead to no other
        set beside; and how far the way back was, in parts of the step, (m,).
        """
        dimension = tangents.shape[1]
        begun = here + ahead
        new = self._polished(begun, _PROJECTED, dimension)
        there, way = self._tangents(new, dimension), new - here
        bends = [
            way - ((x @ way.unsqueeze(2)) * x).sum(1) for x in (tangents, there)
        ]  # away from the tangents at both ends: opposite on a curve of constant curvature
        uneven = (bends[0] + bends[1]).norm(dim=1)
        bent = bends[0].norm(dim=1) + bends[1].norm(dim=1)
        length = ahead.norm(dim=1)
        back = (new - begun).norm(dim=1) / length
        rise = (self.model.loss(begun).detach() - self.model.loss(here).detach()).abs()
        counts = (uneven <= _UNEVEN * bent + _STRAIGHT * length) & (back <= _BACK)
        return new, there, counts & self._is_level(new, here, rise), back

    def _follow_curve(self, place: _Place, length_scale: float) -> None:
        """Follow a curve of ends from its first member both ways, and add points of it as members.

        It is followed until it closes, or is ``_FAR`` times ``length_scale`` away.
        """
        first = place.members[:1]
        here, tangents = first.repeat(2, 1), self._tangents(first, 1).repeat(2, 1, 1)
        direction = tangents[:, 0] * first.new_tensor([[1.0], [-1.0]])
        length = self._straight_reach(first[0], direction).clamp_max(length_scale)
        shortest, going, places = length / 2**40, torch.arange(2), [place.members]
        place.followed = length_scale
        for _ in range(_MEMBERS):
            ahead = length[going].unsqueeze(1) * direction[going]
            new, there, counts, back = self._step(here[going], ahead, tangents[going])
            length[going] *= torch.where(counts, torch.where(back < _BACK / 2, 1.5, 1.0), 0.5)
            rows, new, there = going[counts], new[counts], there[counts]
            away, way = (new - first).norm(dim=1), new - here[rows]
            closed = (away <= way.norm(dim=1)) & (here[rows] != first).any(1)
            here[rows], tangents[rows] = new, there
            direction[rows] = there[:, 0] * (there[:, 0] * way).sum(1, keepdim=True).sign()
            places.append(new)
            if bool(closed.any()):
                last = new[closed]  # on a thin loop it may be on the other side
                if bool(self._no_gap(last, first.expand_as(last), 1).any()):
                    place.is_whole = True
                    break
            far = torch.zeros(2, dtype=torch.bool)
            far[rows] = away > _FAR * length_scale
            going = going[~far[going] & (length[going] > shortest[going])]
            if not len(going):
                break
        place.members = torch.cat(places)

    def _leads_to(self, one: Tensor, other: Tensor, dimension: int) -> Tensor:
        """Mask (m,) of pairs of points (m, k) between which steps along the set lead.

        They go from ``one`` to ``other``.
        """
        length = (other - one).norm(dim=1) / _BETWEEN
        here, tangents, arrived = one.clone(), self._tangents(one, dimension), length < 0
        most, going = length.clone(), torch.arange(len(one))
        for step in range(4 * _BETWEEN):
            way = other[going] - here[going]
            along = tangents[going] @ way.unsqueeze(2)
            if not step:  # where the other is straight across
                across = along.norm(dim=1, keepdim=True) <= _ACROSS * way.norm(dim=1)[:, None, None]
                along = torch.where(across, way.norm(dim=1)[:, None, None], along)
            ahead = (along * tangents[going]).sum(1)
            size = ahead.norm(dim=1)
            stuck = size <= _ACROSS * way.norm(dim=1)
            near = stuck | (way.norm(dim=1) <= 1.5 * most[going])
            rows = going[near]
            if len(rows):
                arrived[rows] = self._no_gap(here[rows], other[rows], dimension)
            going, ahead, size = going[~near], ahead[~near], size[~near]
            if not len(going):
                break
            ahead = ahead * (length[going] / size).clamp_max(1.0).unsqueeze(1)
            new, there, counts, _ = self._step(here[going], ahead, tangents[going])
            length[going] *= torch.where(counts, 1.0, 0.5)
            here[going[counts]], tangents[going[counts]] = new[counts], there[counts]
            going = going[length[going] > most[going] / 2**4]
            if not len(going):
                break
        return arrived

    def _polished(self, theta: Tensor, most: int = _POLISHES, dimension: int = 0) -> Tensor:
        """Move points (n, k) towards zeros of the field by at most ``most`` of Newton's steps.

        A point moves as long as steps lead to much slower places. The shortest step is taken where
        there are several. With a ``dimension``, that of a set of zeros, no step goes along the set.
        """
        theta = theta.detach().clone()
        going, speed = torch.arange(len(theta)), self._flow.field(theta).detach()
        rank = theta.shape[1] - dimension
        for step in range(most):
            if not len(going):
                break
            here, jacobian = theta[going], self._flow.jacobian(theta[going]).detach().nan_to_num()
            if dimension:
                left, rates, right = torch.linalg.svd(jacobian)
                kept = rates > _ROUNDED * rates[:, :1]
                kept[:, rank:] = False
                parts = torch.where(kept, (left.mT @ speed.unsqueeze(2)).squeeze(2) / rates, 0.0)
                new = here - (right.mT @ parts.unsqueeze(2)).squeeze(2)
            else:
                inverse = torch.linalg.pinv(jacobian, rtol=_ROUNDED)
                new = here - (inverse @ speed.unsqueeze(2)).squeeze(2)
            slower = self._flow.field(new).detach()
            less = 1.0 if step < _FIRST else _FASTER
            better = slower.norm(dim=1) <= less * speed.norm(dim=1)
            better &= (new != here).any(1)
            going, speed = going[better], slower[better]
            theta[going] = new[better]
        return theta

    def _dimension(self, theta: Tensor) -> int:
        """The dimension of the set of critical points around one of them (k,); 0 of a single one.

        From the point a step is taken along every direction in which the rates are small, as long
        as the rates stay nearly what they are, and corrected to a zero of the field. On a set that
        extends these zeros are elsewhere, and the dimension is that of the space they span. Near a
        single point, however flat, the zeros are the point itself. A zero elsewhere does not count
        if the field there still points back to the point, about as fast as the point's Jacobian
        predicts and by more than rounding.
        """
        jacobian = self._flow.jacobian(theta[None]).detach().nan_to_num()[0]
        _, rates, across = torch.linalg.svd(jacobian)
        flat = across[rates <= _SLOW * rates[:1]]
        if not len(flat):
            return 0
        lengths = self._straight_reach(theta, flat)
        usual = float(theta.abs().max()) or 1.0  # where any length will do
        lengths = torch.where(lengths.isinf(), usual, lengths)
        ranks = []
        for part in _TRIED:
            steps = part * lengths[:, None] * flat
            begun = theta + steps
            zero = self._polished(begun)
            moved = (zero - theta) / steps.norm(dim=1, keepdim=True)
            steep = torch.stack([jacobian, *self._flow.jacobian(begun).detach()]).nan_to_num()
            left = self._flow.field(zero).detach().abs().amax(1)
            size = steps.abs().amax(1) + _UNITS / _ROUNDED * zero.abs().amax(1)
            rests = left <= _ROUNDED * steep.abs().max() * size
            # where the field along the step is that of the rates at the point, it leads back
            terms = 2.0**-52 * (zero.abs() @ jacobian.abs().mT * flat.abs()).sum(1)
            speed, noise = with_rounding(
                lambda x: (self._flow.field(x).detach() * flat).sum(1), zero
            )
            noise = torch.maximum(noise, terms)
            along = speed - (self._flow.field(theta[None]).detach() * flat).sum(1)
            expected = ((zero - theta) @ jacobian.mT * flat).sum(1)
            alike = (along / expected - 1).abs() <= _ALIKE
            rests &= ~(alike & (along.abs() > _RESOLVED * noise))
            ranks.append(int((torch.linalg.svdvals(moved[rests]) > _NEW).sum()))
        return min(ranks)

    def _straight_reach(self, theta: Tensor, directions: Tensor) -> Tensor:
        """The distance from a point (k,) along directions (m, k) with the same Jacobian, (m,).

        The first power of 2 at which it has changed; ∞ where it never does.
        """
        jacobian = self._flow.jacobian(theta[None]).detach().nan_to_num()[0]
        lengths = torch.pow(2.0, torch.arange(-80, 61, dtype=theta.dtype))
        lengths = lengths[lengths > 2.0**-26 * float(theta.abs().max())]
        places = theta + lengths[:, None, None] * directions
        there = self._flow.jacobian(places.flatten(0, 1)).detach().reshape(*places.shape, -1)
        change = (there - jacobian).abs().amax((2, 3)).nan_to_num(torch.inf, torch.inf)
        bends = change > _BENDS * jacobian.abs().max()
        return torch.where(bends.any(0), lengths[bends.int().argmax(0)], torch.inf)

    def _sort(self) -> Tensor:
        """Order ``found`` by kind, then by loss, and name the ends anew.

        Returns the new code of each old code 0, 1, …, (ends + 1,). Ends whose losses are equal,
        beside the losses between the ends, are ordered by place.
        """
        theta = torch.stack([end.theta for end in self.found])
        inner, unit = theta[theta.isfinite().all(1)], 0.0
        known = torch.zeros(theta.shape[1])
        if len(inner):
            middle = (inner + inner[0]) / 2
            between = self.model.loss(torch.cat([middle, inner])).detach()
            if len(inner) == 1:  # what the loss is a little way off
                way = torch.eye(inner.shape[1], dtype=inner.dtype)
                far = self._straight_reach(inner[0], way)
                off = inner + (far[:, None] * way)[far.isfinite()]
                between = torch.cat([between, self.model.loss(off).detach()])
            between = between[between.isfinite()]
            unit = float(between.max() - between.min()) if len(between) else 0.0
            known = self._resolution(inner, unit)
        kinds = [_NUMBERED.get(end.kind, 2) for end in self.found]
        losses = _ranks([end.loss for end in self.found], _IN_ORDER * unit)
        places = [_ranks(*column) for column in zip(theta.T.tolist(), known.tolist(), strict=True)]
        keys = [*zip(kinds, losses, *places, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        counts: dict[str, int] = {}
        found = [self.found[i] for i in order]
        self._places = [self._places[i] for i in order]
        self.found = []
        for end in found:
            counts[end.kind] = counts.get(end.kind, 0) + 1
            name = _named(end.kind, counts[end.kind])
            scale = max(unit, self._fall(end)) if end.kind == "infinity" else unit
            self.found.append(replace(end, name=name, rounding=_EQUAL * scale))
        self._rounding = _EQUAL * unit
        return torch.tensor([0, *(1 + order.index(i) for i in range(len(order)))])

    def _resolution(self, theta: Tensor, unit: float) -> Tensor:
        """The least difference in each coordinate that puts ends (n, k) in order, (k,).

        ``unit`` is how much losses differ between the ends. ∞ in a coordinate on which the loss of
        a gradient flow does not depend.
        """
        low, high = theta.amin(0), theta.amax(0)
        first = theta[theta.argmin(0)]
        parts = torch.tensor([0.0, *_PARTS, 1.0], dtype=theta.dtype).reshape(-1, 1, 1)
        moved = first + parts * torch.diag(high - low)
        loss = self.model.loss(moved.flatten(0, 1)).detach().reshape(len(parts), -1)
        still = (loss - loss[0]).abs().amax(0) <= _IN_ORDER * unit
        is_gradient_flow = type(self._flow).field is Model.field
        return torch.where(still & is_gradient_flow, torch.inf, _IN_ORDER * (high - low))


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """Distances between points (m, k) and (n, k), coordinates in units of their spread, (m, n)."""
    size = torch.cat([one, other]).std(0, correction=0)
    unit = torch.where(size > 0, size, 1.0)
    return torch.cdist(one / unit, other / unit)


def _ranks(values: list[float], apart: float) -> list[int]:
    """The rank of each value in ascending order, NaN last.

    Neighbours in this order that are no further apart than ``apart`` share a rank.
    """
    found, values = [0] * len(values), [math.inf if x != x else x for x in values]
    ascending = sorted(range(len(values)), key=values.__getitem__)
    for before, i in pairwise(ascending):
        found[i] = found[before] + bool(values[i] - values[before] > apart)
    return found


def _named(kind: str, number: int) -> str:
    """Name an end in records by its kind and number; kinds of which there is one have no number."""
    return f"{kind}_{number}" if kind in _NUMBERED else kind


def _number(value: float, rounding: float = 0.0) -> str:
    """Write a loss for a legend: three digits, a true minus, and 0 for what rounding left."""
    text = f"{0.0 if abs(value) <= rounding else value:.3g}".replace("inf", "∞")
    return text.replace("-", "−")
