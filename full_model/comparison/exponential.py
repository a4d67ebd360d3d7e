"""Steps along the gradient flow that stiffness does not shorten, for many rows at once.

In z = √G θ the flow is z′ = F(z) = −G^(−1/2)∇L with the symmetric derivative J = F′. One step is

    u₂ = z + ½h φ₁(½hJ) F(z),  u₃ = z + h φ₁(hJ) (F(z) + D₂),  D_i = F(u_i) − F(z) − J (u_i − z),
    z⁺ = z + h φ₁(hJ) F(z) + h φ₃(hJ) (16 D₂ − 2 D₃) + h φ₄(hJ) (12 D₃ − 48 D₂),

of order 4, φ_k(x) = Σ_j x^j/(j + k)!; its last term is the error of the same without it, of order 3
(exprb43: Hochbruck & Ostermann, Acta Numerica 19, 2010, Sec. 2.4). The functions of hJ are taken in
the Krylov space of J and F(z), orthogonalised by Lanczos' method; J times a vector is a
difference of two gradients. The few stiff directions, those in which logits move, are in that space
after a few vectors, so that a valley's steepness costs nothing: step lengths follow how the orbit
bends.

The field must be smooth, and may be very steep: see ``fields`` for ReLU's kink, rounded off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from full_model.comparison.fields import FullField
from full_model.comparison.steps import repeat

#: F, at rows (M, K).
Flow = Callable[[Tensor], Tensor]
#: Error of one step, in ‖z‖ and beside 1 + ‖z‖.
TOLERANCE = 1e-6
#: Largest dimension of the Krylov space. The lift of a reduced point moves in five dimensions.
DIMENSION = 10
#: Displacement to both sides of the differences of gradients, relative to 1 + ‖z‖. Differences to
#: one side would see the walls of a steep, bent valley when they go along it.
_DISPLACEMENT = 1e-6
#: Part of the largest image of a vector below which the remainder of another counts as zero.
_NEGLIGIBLE = 1e-6
#: Share of the inverse stiffness below which no step is shortened, and a plain one is taken.
_SHORTEST = 1e-7
#: Length of a row's first step, and steps between two calls of ``pause``.
FIRST_STEP, _PAUSE_EVERY = 1e-3, 20


def flow_until(
    field: FullField,
    state: Tensor,
    time: Tensor,
    steps: Tensor,
    width: Tensor,
    until: float,
    active: Tensor,
    pause: Callable[[], object] | None = None,
    most: int = sys.maxsize,
) -> None:
    """Move the active rows of ``state`` (M, K) along the flow to time ``until``, in place.

    ``time`` and ``steps``, (M,), are changed too; the rest is as in ``steps.step_until``. A step is
    taken or rejected, which counts too; ``width`` (M,) is the length of each row's next one,
    changed.
    """
    root = field.metric.sqrt()

    def attempt(rows: Tensor) -> None:
        """Try one step with each of these rows, and set the lengths of their next ones.

        A step that is rejected at the least length is replaced by an Euler step. A row whose
        gradient or stiffness is not finite ends where it is.
        """
        z, left = state[rows] * root, until - time[rows]
        h = torch.minimum(width[rows], left)
        first, stiffness = field(state[rows])
        new, error = _step(field, root, z, -first / root, h)
        allowed = TOLERANCE * (1 + z.norm(dim=1))
        ratio = torch.where(error.isfinite(), error / allowed, torch.inf)
        shortest = _SHORTEST / stiffness
        lost = ~(stiffness.isfinite() & first.isfinite().all(1))  # nothing can be done for it
        forced = (ratio > 1) & (h <= shortest) & ~lost
        plain = torch.where(forced.unsqueeze(1), z - h.unsqueeze(1) * first / root, z)
        new = torch.where((ratio <= 1).unsqueeze(1), new, plain)
        taken = (ratio <= 1) | forced | lost
        state[rows] = torch.where(taken.unsqueeze(1), new / root, state[rows])
        ended = taken & (h == left) | lost
        time[rows] = torch.where(ended, until, time[rows] + torch.where(taken, h, 0.0))
        factor = (0.9 * ratio.clamp(min=1e-9) ** (-1 / 4)).clamp(0.2, 4.0)
        wanted = torch.where(forced, 2 * h, h * factor)
        # a step cut short to land on ``until`` is no evidence against the longer one
        kept = torch.where((ratio <= 1) & (h == left), torch.maximum(wanted, width[rows]), wanted)
        width[rows] = torch.maximum(kept, shortest)

    repeat(attempt, time, steps, until, active, most, pause, _PAUSE_EVERY)


class _KrylovSpace:
    """The Krylov space of J and F(z) for M rows, in the basis in which J is diagonal there.

    Vectors are pairs: their entries (M, m) in that basis, and what lies outside, (M, K).
    """

    def __init__(self, flow: Flow, z: Tensor, f: Tensor) -> None:
        self.flow, self.z, self.f = flow, z, f
        basis, matrix, self.beyond = _krylov(flow, z, f)
        self.values, vectors = torch.linalg.eigh(matrix)
        self.basis = vectors.mT @ basis[:, :-1]  # (M, m, K)
        self.next, self.last = basis[:, -1], vectors[:, -1]
        self.start = vectors[:, 0] * f.norm(dim=1, keepdim=True)  # F(z)

    def out(self, inside: Tensor) -> Tensor:
        """Return the vectors (M, K) that have these entries (M, m) in the space's basis."""
        return (inside.unsqueeze(1) @ self.basis).squeeze(1)

    def remainder(self, inside: Tensor, off_space: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return D = F(u) − F(z) − J (u − z), a pair like the given one, u − z.

        ``inside`` are entries (M, m) in the basis, ``off_space`` (M, K) is what lies outside.
        """
        step = self.out(inside) if off_space is None else self.out(inside) + off_space
        linear = self.out(self.values * inside)
        linear = linear + (self.beyond * (self.last * inside).sum(1)).unsqueeze(1) * self.next
        off = self.flow(self.z + step) - self.f - linear
        entries = (self.basis @ off.unsqueeze(-1)).squeeze(-1)
        return entries, off - self.out(entries)


def _step(field: FullField, root: Tensor, z: Tensor, f: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Take one exprb43 step (see the top of the file) of length h (M,) from z (M, K), F(z) = f.

    ``root`` is √G. Returns the new z (M, K) and the norm of its estimated error (M,).
    """

    def flow(at: Tensor) -> Tensor:
        """F at rows z (…, K)."""
        return -field.slope(at / root) / root

    space, wide = _KrylovSpace(flow, z, f), h.unsqueeze(1)
    half = _phi(wide / 2 * space.values)[0]
    one, two, three, four = _phi(wide * space.values)
    d2, off2 = space.remainder(wide / 2 * half * space.start)
    straight = wide * one * space.start
    d3, off3 = space.remainder(straight + wide * one * d2, wide * off2)
    taken = straight + wide * (three * (16 * d2 - 2 * d3) + four * (12 * d3 - 48 * d2))
    off_space = wide * (2 / 3 * off2 + off3 / 6)
    error = wide * four * (12 * d3 - 48 * d2)
    off = wide * (off3 / 2 - 2 * off2)
    # what the next vector of the space would add
    missing = (space.last * two * space.start).sum(1).abs() * h.square() * space.beyond
    size = (error.square().sum(1) + off.square().sum(1)).sqrt()
    return z + space.out(taken) + off_space, size + missing


def _krylov(flow: Flow, z: Tensor, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Build an orthonormal basis of the Krylov space of J and f = F(z), by Lanczos' method.

    Returns the basis (M, m + 1, K), J in its first m vectors, (M, m, m), and the entry of J from
    the m-th vector to the last, (M,). If the space is invariant before, the remaining vectors are
    zero.
    """
    basis = [_unit(f, torch.zeros_like(f[:, 0]))]
    width = _DISPLACEMENT * (1 + z.norm(dim=1, keepdim=True))
    columns, beyond = [], torch.zeros_like(f[:, 0])
    largest = torch.zeros_like(beyond)
    for _ in range(DIMENSION):
        move = width * basis[-1]
        after, before = flow(torch.cat([z + move, z - move])).chunk(2)
        image = (after - before) / (2 * width)
        largest = torch.maximum(largest, image.norm(dim=1))
        so_far = torch.stack(basis, dim=1)
        entries = torch.zeros_like(so_far[:, :, 0])
        for _ in range(2):  # once more, for rounding
            part = (so_far @ image.unsqueeze(-1)).squeeze(-1)
            image = image - (part.unsqueeze(1) @ so_far).squeeze(1)
            entries = entries + part
        beyond = image.norm(dim=1)
        new = _unit(image, _NEGLIGIBLE * largest)
        beyond = torch.where(new.any(1), beyond, 0.0)
        columns.append(entries)
        basis.append(new)
        if not bool(new.any()):
            break
    matrix = f.new_zeros(len(f), len(columns), len(columns))
    for j, entries in enumerate(columns):
        matrix[:, : j + 1, j] = entries
        matrix[:, j, : j + 1] = entries
    return torch.stack(basis, dim=1), matrix, beyond


def _unit(vector: Tensor, least: Tensor) -> Tensor:
    """Scale vectors (M, K) to length 1; those not longer than ``least`` (M,) become zero."""
    size = vector.norm(dim=1)
    there = (size > least).unsqueeze(1)
    return torch.where(there, vector / size.unsqueeze(1).clamp(min=1e-300), 0.0)


def _phi(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """φ₁ to φ₄, φ_k(x) = Σ_j x^j/(j + k)!, by the series where x is small."""
    x = x.clamp(max=100.0)  # a step that grows so much is rejected
    small = x.abs() < 0.5
    safe = torch.where(small, 1.0, x)
    found = [torch.expm1(safe) / safe]
    for factorial in (1.0, 2.0, 6.0):
        found.append((found[-1] - 1 / factorial) / safe)
    series = torch.zeros_like(x)
    for k in range(16, 4, -1):
        series = (1 + series) * x / k
    last = (1 + series) / 24
    by_series = [last]
    for factorial in (6.0, 2.0, 1.0):
        by_series.insert(0, 1 / factorial + x * by_series[0])
    one, two, three, four = (
        torch.where(small, a, b) for a, b in zip(by_series, found, strict=True)
    )
    return one, two, three, four
