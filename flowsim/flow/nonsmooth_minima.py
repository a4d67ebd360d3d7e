"""Minima at kinks: where rows that creep along a kink of a loss lead, and whether they rest there.

Next to a kink the gradient jumps, and a row crosses it back and forth in very short steps. On
the kink the flow is −(the shortest vector in the hull of the gradients around), which is 0 at a
minimum. Such vectors, of gradients in a ball that shrinks, lead there in steps that all descend
(the gradient sampling of Burke, Lewis and Overton, SIAM J. Optim. 15, 2005).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from scipy.optimize import nnls
from torch import Tensor

from flowsim.flow.labelling import EndStates
from flowsim.flow.return_codes import KINK, NOT_FINITE, OUT_OF_STEPS, SADDLE
from flowsim.interface import Model
from flowsim.labels import Status

#: Radii of the balls, in parts of the row's way; the longest step, in parts of the way by then; and
#: steps in each ball.
_RADII, _LONGEST, _STEPS = tuple(10.0**-n for n in range(3, 9)), 0.05, 100
#: A row that has come no further than this many radii in the steps of the last ball goes back and
#: forth about where it rests.
_BESIDE = 100.0
#: The loss falls by this part of what its slope says, or the step is halved, so often at most.
_DESCENT, _HALVINGS = 1e-4, 32
#: A ball is done once the shortest vector is at most this, times the radius in parts of the way, of
#: the longest gradient; at a minimum it is at most the second part of it.
_SHORTEST, _SHORT = 0.1, 1e-4
#: A slope that is left at a minimum is that of another place near it: of the gradients in a wider
#: ball, with radii in parts of the way, the shortest vector is at most this part of it.
_WIDER, _TURNS, _NOTHING = (1e-4, 1e-3, 1e-2, 1e-1), 0.5, 1e-12
#: From ball to ball gradients around a kink become neither so much shorter, as around smooth
#: minima, nor so much longer, where the slope has no bound.
_SMOOTH, _UNBOUNDED = 0.1, 2.0
#: Distances, in parts of the way, at which no loss around a minimum is lower.
_AROUND = (1e-6, 1e-5, 1e-4, 1e-3)
#: Radii, in parts of the way, around a row that is held where a field jumps.
_HELD = (1e-3, 1e-4, 1e-5)
#: Steps of a tenth of a radius with which what is displaced by one comes back, or goes away.
_NEARBY = 100
#: A row slides along a jump where velocities around differ by this part of the fastest. It is
#: followed by Euler's steps of both first parts of its way, and rests where it comes no further
#: than so many steps in a hundred; then by those of the others. As often as the last number goes
#: into a part, but the smallest, steps are taken.
_JUMP, _SLIDES, _RESTS, _FAR = 0.1, (2e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7), 5.0, 10


def rest_on_kinks(model: Model, start: Tensor, ends: EndStates) -> None:
    """Move the rows that crept along a kink of the loss to the minimum where they rest, if any.

    A jump of the field, such as −sign ∇L, holds rows too.
    """
    if model.end_losses() is not None:
        return
    way = (ends.theta - start).abs().amax(1)
    spent = (ends.why == OUT_OF_STEPS) | (ends.why == NOT_FINITE)
    spent &= way.isfinite() & (way > 0)
    theta, way, places = ends.theta[spent].cpu(), way[spent].cpu(), list[Tensor | None]()
    if type(model).field is Model.field:
        way = ((theta - start[spent].cpu()) * theta.new_tensor(model.metric).sqrt()).abs().amax(1)
        places = [kink_minimum(model, *row) for row in zip(theta, way.tolist(), strict=True)]
    elif len(theta):
        places = held_at_jump(model, theta, way)
        goes = [i for i, place in enumerate(places) if place is None]
        slid = slide(model, theta[goes], way[goes])
        for i, place in zip(goes, held_at_jump(model, slid, way[goes]), strict=True):
            places[i] = place
    for i, place in zip(spent.nonzero()[:, 0].tolist(), places, strict=True):
        if place is not None:
            ends.theta[i], ends.loss[i] = place, model.loss(place[None])[0].detach()
            ends.why[i], ends.status[i] = KINK, Status.CONVERGED
    held = (spent & (ends.why == KINK)).nonzero()[:, 0]
    if type(model).field is not Model.field and len(held):
        radius = _HELD[-1] * (ends.theta - start).abs().amax(1)[held].cpu()
        ends.why[held[~attracts(model, ends.theta[held].cpu(), radius)]] = SADDLE


def kink_minimum(model: Model, theta: Tensor, way: float) -> Tensor | None:
    """Descend from a point θ (k,) on a kink to the minimum there, (k,); None where none is seen.

    Radii and steps are in parts of the ``way`` in √G θ on which a row came here.
    """
    root = theta.new_tensor(model.metric).sqrt()
    y = begun = theta * root
    around = _directions(len(y)).to(y)

    def gradients(y: Tensor, radius: float) -> Tensor:
        """Return the gradients by y in a ball around y (k,): at its middle, then on its sphere."""
        return model.gradient((y + radius * around) / root).detach() / root

    sizes: list[float] = []
    for part in _RADII:
        radius, entered = part * way, y
        for _ in range(_STEPS):
            slopes = gradients(y, radius)
            if not bool(slopes.isfinite().all()):
                return None
            down, longest = -_shortest(slopes), float(slopes.norm(dim=1).max())
            size = float(down.norm())
            if size <= _SHORTEST * part * longest:
                break
            reach = max(way, float((y - begun).abs().max()))
            step = _LONGEST * reach / size * 0.5 ** torch.arange(_HALVINGS).to(y)
            there = model.loss((y + step[:, None] * down) / root).detach()
            here = model.loss((y / root)[None]).detach()
            falls = there <= here - _DESCENT * size * step * size
            # the lowest of them: the longest may go back and forth across a valley
            best = torch.where(falls, there, torch.inf).argmin()
            if not bool(falls[best]) or float(step[best]) * size < 0.1 * radius:
                break
            y = y + step[best] * down
        else:
            if part == _RADII[-1] and float((y - entered).abs().max()) > _BESIDE * radius:
                return None
        sizes.append(float(slopes[1:].norm(dim=1).max()))  # the middle may be next to a pole
    jumps = all(_SMOOTH * a < b < _UNBOUNDED * a for a, b in pairwise(sizes))
    if not jumps or size > _SHORT * longest:
        return None
    wider = (float(_shortest(gradients(y, part * way)).norm()) for part in _WIDER)
    if size > _NOTHING * longest and not any(least <= _TURNS * size for least in wider):
        return None  # the kink leads on, however slowly
    along = down / size if size > 0 else 0 * down
    ways = torch.cat([around[1:], along[None], -along[None]])
    near = torch.cat([y + part * way * ways for part in _AROUND])
    here = model.loss((y / root)[None]).detach()
    known = 1e-14 * here.abs() + longest * radius  # the kink itself is not met more exactly
    return y / root if bool((model.loss(near / root) >= here - known).all()) else None


def held_at_jump(model: Model, theta: Tensor, way: Tensor) -> list[Tensor | None]:
    """Find the places where a field jumps and holds points θ (n, k) near them; None if none does.

    0 is then in the hull of the velocities around (Filippov), which do not become shorter from
    radius to radius, and the velocities before and behind θ point towards each other.
    """
    unit, around, sizes = way[:, None], _directions(theta.shape[1]).to(theta), list[Tensor]()
    holds = torch.ones(len(theta), dtype=torch.bool)
    for part in _HELD:
        speeds = model.field(theta[:, None] + part * unit[:, None] * around).detach()
        sizes.append(speeds.norm(dim=2).amax(1))
        holds &= sizes[-1].isfinite()
        least = [
            float(_shortest(v).norm()) if on else 0.0
            for v, on in zip(speeds, holds.tolist(), strict=True)
        ]
        holds &= theta.new_tensor(least) <= _SHORT * sizes[-1]
    for a, b in pairwise(sizes):
        holds &= (_SMOOTH * a < b) & (b < _UNBOUNDED * a)
    along = model.field(theta).detach()
    along = along / along.norm(dim=1, keepdim=True).clamp_min(1e-300)
    low, high = (theta + side * _HELD[-1] * unit * along for side in (-1, 1))
    before, behind = ((model.field(place).detach() * along).sum(1) for place in (low, high))
    holds &= (before > 0) & (behind < 0)
    for _ in range(60):
        middle = (low + high) / 2
        on = (model.field(middle).detach() * along).sum(1, keepdim=True) > 0
        low, high = torch.where(on, middle, low), torch.where(on, high, middle)
    return [place if on else None for place, on in zip(high, holds.tolist(), strict=True)]


def slide(model: Model, theta: Tensor, way: Tensor) -> Tensor:
    """Return the points of rest to which points θ (n, k) on a jump slide, (n, k); else NaN.

    Euler's steps cross the jump back and forth, which leads along it (Filippov's solution). Steps
    of two lengths must lead to one place.
    """
    unit, around = way[:, None, None], _directions(theta.shape[1]).to(theta)
    jumps, before = torch.ones(len(theta), dtype=torch.bool), torch.zeros_like(way)
    for part in _HELD:
        speeds = model.field(theta[:, None] + part * unit * around).detach()
        apart = (speeds - speeds[:, :1]).norm(dim=2).amax(1)
        jumps &= (apart > _JUMP * speeds.norm(dim=2).amax(1)) & (apart > before / 2)
        before = apart
    rows, ends = jumps.nonzero()[:, 0], torch.full_like(theta, torch.nan)
    rough = place = _slid(model, theta[rows], way[rows], _SLIDES[0])
    rests = place.isfinite().all(1)
    rows, rough, place = rows[rests], rough[rests], theta[rows[rests]]
    for part in _SLIDES[1:]:
        place = _slid(model, place, way[rows], part) if len(rows) else place
    alike = (rough - place).norm(dim=1) <= _RESTS * _SLIDES[0] * (rough - theta[rows]).norm(dim=1)
    ends[rows[alike]] = place[alike]
    return ends


def _slid(model: Model, theta: Tensor, way: Tensor, part: float) -> Tensor:
    """Return where Euler's steps of ``part`` of the way bring points θ (n, k) to rest; else NaN."""
    begun = theta
    for _ in range(round(_FAR / max(part, _SLIDES[1]) / 100)):
        before = theta
        length = part * torch.maximum(way, (theta - begun).abs().amax(1))[:, None]
        for _ in range(100):
            speed = model.field(theta).detach()
            theta = theta + length * speed / speed.norm(dim=1, keepdim=True).clamp_min(1e-300)
        rests = (theta - before).abs().amax(1) <= _RESTS * length[:, 0]
        if bool(rests.all()):
            break
    return torch.where(rests[:, None], theta, torch.nan)


def attracts(model: Model, theta: Tensor, radius: Tensor) -> Tensor:
    """Mask (n,) of places (n, k) at jumps near which starts displaced by a radius (n,) stay."""
    around, unit = _directions(theta.shape[1]).to(theta), radius[:, None, None]
    moved = theta[:, None] + unit * around
    for _ in range(_NEARBY):
        speed = model.field(moved).detach()
        moved = moved + 0.1 * unit * speed / speed.norm(dim=2, keepdim=True).amax(1, keepdim=True)
    far = ((moved - theta[:, None]).norm(dim=2) > 0.05 * _NEARBY * radius[:, None]).any(1)
    return ~far


def _directions(k: int) -> Tensor:
    """Return 0, the axes both ways, and random unit vectors, (m, k), to fill torch's vectors."""
    count = 16 * (1 + (2 * k + 8) // 16)
    draws = torch.Generator().manual_seed(1)
    other = torch.randn(count - 2 * k - 1, k, generator=draws, dtype=torch.float64)
    eye = torch.eye(k, dtype=torch.float64)
    return torch.cat([0 * eye[:1], eye, -eye, other / other.norm(dim=1, keepdim=True)])


def _shortest(vectors: Tensor) -> Tensor:
    """Return the shortest vector in the convex hull of vectors (m, k), (k,)."""
    unit = vectors.norm(dim=1).max().clamp_min(1e-300)
    rows = torch.cat([(vectors / unit).T, torch.ones(1, len(vectors)).to(vectors)])
    right = torch.zeros(len(rows)).to(vectors)
    right[-1] = 1.0
    weights = torch.from_numpy(nnls(rows.numpy(), right.numpy())[0])
    return weights @ vectors / weights.sum()
