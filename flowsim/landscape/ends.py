"""The ends of a model that names none: found among its orbits' limits, and told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flowsim.interface import Model
from flowsim.labels import BASINS, Label
from flowsim.models.words import model_captions

#: Steps of Newton's method that polish an end, and project a point onto a set of ends.
_POLISHES = 6
#: A rate below this part of the largest counts as zero: there the ends are a curve or more.
_FLAT = 1e-8
#: Points this near to one another, in parts of 1 + |θ|, are one; losses this near, of 1 + |L|.
_PLACE, _LOSS = 1e-4, 1e-7
#: Points of a set of ends on which its connection is tried, and places on the way between two.
_MEMBERS, _BETWEEN = 400, 15
#: Losses to which orbits fall at infinity are extrapolated, and known less well.
_LOSS_FAR = 1e-3
_KINDS = {
    Label.GLOBAL_MINIMUM: "minimum",
    Label.LOCAL_MINIMUM: "minimum",
    Label.SADDLE: "saddle",
    Label.INFINITY: "infinity",
}
#: The kinds of which there can be several, by their order: an optimizer's runs come after them.
_NUMBERED = {"minimum": 0, "infinity": 0, "saddle": 1}
_SETS = {1: "a curve", 2: "a surface"}


@dataclass(frozen=True)
class End:
    """One end of a model's orbits.

    Attributes:
        kind: minimum, saddle, infinity, or another label's name.
        loss: at the end; at infinity the limit of the loss.
        theta: a point of it, shape (k,); ±∞ in coordinates that grow without bound.
        flat: 0 of a point, else the dimension of a connected set of such ends.
        name: the kind and a number, by which records call it.

    >>> import flowsim, torch
    >>> end = flowsim.End("minimum", -0.2087, torch.tensor([-1.0466, 0.0]), name="minimum_1")
    >>> end.caption(("x", "y"))
    'minimum 1 (loss −0.209)'
    """

    kind: str
    loss: float
    theta: Tensor
    flat: int = 0
    name: str = ""

    def caption(self, coordinates: Sequence[str]) -> str:
        """What a legend calls it."""
        number = self.name.rpartition("_")[2]
        if self.kind == "infinity":
            far = [
                f"{name} → {'+' if value > 0 else '−'}∞"
                for name, value in zip(coordinates, self.theta.tolist(), strict=True)
                if abs(value) == float("inf")
            ]
            return f"to infinity: {', '.join(far)} (loss → {_number(self.loss)})"
        if self.kind not in ("minimum", "saddle"):
            return self.kind.replace("_", " ")
        if not self.flat:
            return f"{self.kind} {number} (loss {_number(self.loss)})"
        several = "minima" if self.kind == "minimum" else "saddles"
        shape = _SETS.get(self.flat, f"a set of dimension {self.flat}")
        return f"{several} {number}, {shape} (loss {_number(self.loss)})"


class Ends:
    """The ends of a model's orbits, by the codes that records give them.

    Of a model with ``levels`` these are the labels. Of another one ends are found: limits are
    polished by Newton's method; isolated points are told apart by place; a connected curve or
    surface of critical points is one end, and two points are on the same one if points between
    them, projected onto it, leave no gap; ends at infinity are told apart by the coordinates that
    grow, their signs, and the limit of the loss.

    Args:
        model: any model.

    Attributes:
        found: the ends, code 1 first. Those of the first limits are in order: the lowest loss
            first, saddles last. Ends that are met later follow.

    >>> import flowsim, torch
    >>> well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 + y**2 + 0.2 * x, "well")
    >>> limits = flowsim.find_limits(well, torch.tensor([[-1.0, 0.5], [1.0, 0.5]]))
    >>> ends = flowsim.Ends(well)
    >>> ends.codes(limits.label, limits.theta, limits.loss), ends.names
    (tensor([1, 2], dtype=torch.int32), ['unresolved', 'minimum_1', 'minimum_2'])
    """

    def __init__(self, model: Model) -> None:
        self.model, self.found = model, list[End]()
        self.named = model.levels() is not None
        self._members: list[Tensor] = []

    @property
    def names(self) -> list[str]:
        """The names of codes 0, 1, …"""
        if self.named:
            return list(BASINS)
        return ["unresolved", *(end.name for end in self.found)]

    def attributes(self) -> dict[str, object]:
        """What a record says of ends that were found: how they were told apart, and captions."""
        if self.named:
            return {}
        found = {f"end_{end.name}": end.caption(self.model.coordinates) for end in self.found}
        return {
            "ends": "found from the limits: points by place, a connected curve or surface as one "
            "end, ends at infinity by the coordinates that grow and the limit of the loss; "
            "numbered by loss",
            **model_captions(self.model, more=found),
        }

    def codes(self, label: Tensor, theta: Tensor, loss: Tensor) -> Tensor:
        """Which end limits have, (n,), of their labels, places (n, k) and losses; or 0.

        The labels themselves, int8, of a model that names its ends; else int32.
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
        """The codes (n,) of points (n, k) of one kind; ends that are new are put into ``found``."""
        flat = torch.zeros(len(theta), dtype=torch.long)
        _, which = torch.unique(torch.round(theta / _PLACE), dim=0, return_inverse=True)
        first = torch.full((int(which.max()) + 1,), len(theta))
        first.scatter_reduce_(0, which, torch.arange(len(theta)), "amin")
        theta, loss, flat = theta[first], loss[first], flat[first]
        if kind in ("minimum", "saddle"):
            theta, flat = self._polished(theta)
            loss = self.model.loss(theta).detach()
        codes, number = torch.zeros(len(theta), dtype=torch.long), 0
        while bool((codes == 0).any()):
            left = (codes == 0).nonzero()[:, 0]
            if number == len(self.found):
                count = sum(end.kind == kind for end in self.found)
                i = int(left[0])
                name = _named(kind, count + 1)
                end = End(kind, float(loss[i]), theta[i], int(flat[i]), name)
                self.found.append(end)
                self._members.append(theta[i : i + 1])
            if self.found[number].kind == kind:
                joins = self._same(number, theta[left], loss[left], flat[left])
                codes[left[joins]] = number + 1
            number += 1
        return codes[which]

    def _same(self, number: int, theta: Tensor, loss: Tensor, flat: Tensor) -> Tensor:
        """Which of some points (m, k) are of the end of that number, bool (m,)."""
        end = self.found[number]
        if end.kind == "infinity":
            signs = [torch.where(x.isinf(), x.sign(), 0.0) for x in (theta, end.theta)]
            near = (loss - end.loss).abs() <= _LOSS_FAR * (1 + abs(end.loss))
            return (signs[0] == signs[1]).all(1) & (near | (loss == end.loss))
        if end.kind not in ("minimum", "saddle"):
            return torch.ones(len(theta), dtype=torch.bool)
        alike = (loss - end.loss).abs() <= _LOSS * (1 + abs(end.loss))
        alike &= flat == end.flat
        joined = alike & self._at(theta, end.theta)
        if end.flat:
            rest = (alike & ~joined).nonzero()[:, 0]
            joined[rest] = self._connected(number, theta[rest])
        return joined

    @staticmethod
    def _at(theta: Tensor, place: Tensor) -> Tensor:
        distance = (theta - place).abs().amax(-1)
        return distance <= _PLACE * (1 + place.abs().amax(-1))

    def _connected(self, number: int, theta: Tensor) -> Tensor:
        """Which points (m, k) no gap divides from the members of an end; some become members."""
        joined = torch.zeros(len(theta), dtype=torch.bool)
        if not len(theta):
            return joined
        tried = torch.arange(0, len(theta), 1 + len(theta) // _MEMBERS)
        while True:
            left = tried[~joined[tried]]
            if not len(left):
                break
            members = self._members[number]
            nearest = torch.cdist(theta[left], members).argmin(1)
            new = left[self._no_gap(theta[left], members[nearest])]
            if not len(new):
                break
            joined[new] = True
            self._members[number] = torch.cat([members, theta[new]])[-_MEMBERS:]
        if len(tried) < len(theta):
            joined = joined[tried][torch.cdist(theta, theta[tried]).argmin(1)]
        return joined

    def _no_gap(self, one: Tensor, other: Tensor) -> Tensor:
        """Whether points between, projected onto the set of ends, leave no gap, bool (m,)."""
        part = torch.linspace(0, 1, _BETWEEN + 2, dtype=one.dtype)[:, None, None]
        way = one + part * (other - one)
        inner = self._polished(way[1:-1].reshape(-1, one.shape[1]))[0]
        way = torch.cat([one[None], inner.reshape(_BETWEEN, *one.shape), other[None]])
        loss = self.model.loss(way).detach()
        level = ((loss - loss[0]).abs() <= _LOSS * (1 + loss[0].abs())).all(0)
        gaps, length = way.diff(dim=0).norm(dim=-1).amax(0), (other - one).norm(dim=-1)
        return level & (gaps <= 0.5 * length)

    def _polished(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Points (n, k) after some steps of Newton's method, and in how many directions they are
        flat, (n,). The shortest step is taken where that is possible, and none that goes uphill.
        """
        for _ in range(_POLISHES):
            inverse = torch.linalg.pinv(self.model.jacobian(theta).nan_to_num(), rtol=_FLAT)
            speed = self.model.field(theta)
            new = theta - (inverse @ speed.unsqueeze(2)).squeeze(2)
            better = self.model.field(new).norm(dim=1) < speed.norm(dim=1)
            theta = torch.where(better.unsqueeze(1), new, theta)
        rates = torch.linalg.svdvals(self.model.jacobian(theta).nan_to_num())
        return theta.detach(), (rates <= _FLAT * rates[:, :1]).sum(1)

    def _sort(self) -> Tensor:
        """Order the ends by kind, then by loss; the new codes of codes 0, 1, …"""
        place = range(len(self.found))
        order = sorted(
            place,
            key=lambda i: (
                _NUMBERED.get(self.found[i].kind, 2),
                round(self.found[i].loss, 9),
                self.found[i].theta.tolist(),
            ),
        )
        counts: dict[str, int] = {}
        found = [self.found[i] for i in order]
        self._members = [self._members[i] for i in order]
        self.found = []
        for end in found:
            counts[end.kind] = counts.get(end.kind, 0) + 1
            self.found.append(replace(end, name=_named(end.kind, counts[end.kind])))
        return torch.tensor([0, *(1 + order.index(i) for i in place)])


def _named(kind: str, number: int) -> str:
    """What records call the end of that number of its kind; of an optimizer's there is one."""
    return f"{kind}_{number}" if kind in _NUMBERED else kind


def _number(value: float) -> str:
    """A loss in a legend: three digits, a true minus, and nothing of rounding about zero."""
    text = f"{0.0 if abs(value) < 1e-12 else value:.3g}".replace("inf", "∞")
    return text.replace("-", "−")
