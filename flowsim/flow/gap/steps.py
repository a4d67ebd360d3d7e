"""Steps with the logit gap as clock along which θ and physical time are known everywhere.

``gap_clock`` asks where orbits end; here the same motion has dense output. On a step from Δₐ to
Δ_b let v fall from 1 to 0, let r be the distance of Δ from a pole and u = r/rₐ = 1 − φ(1 − v),
φ = (Δ_b − Δₐ)/rₐ. Physical time obeys dt = −κ du/u with κ = r/(|ℓ′(Δ)| ‖∇Δ‖²), and κ stays smooth
and positive up to the end of the leg if the pole is there: at Δ*, or at Δ = 0 if the plane e = 0 is
met there. So, with A near κ's value at the pole, G = (κ − A)/u and y′ = dy/dΔ,

    t(v) = tₐ − A log u + φ ∫ᵥ¹ G dv′,        y(v) = y_b − (Δ_b − Δₐ) ∫₀ᵛ y′ dv′,

where both integrals are those of polynomials through Gauss nodes. The step is Dormand and Prince's
8(5,3) with its interpolant of order 7 (Hairer, Nørsett & Wanner, *Solving Ordinary Differential
Equations I*, II.5 and II.6), with scipy's tableau. Source: own derivation.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import legendre
from scipy.integrate import DOP853
from torch import Tensor

from flowsim.flow.gap.clock import Rows, meets_plane
from flowsim.models.base import GapModel
from flowsim.models.gap_loss import gap_slope

#: Gauss nodes on a step, and so the number of coefficients of its polynomials.
NODES = 8
#: φ above which the pole is taken out of κ/u; far from it κ/u is as smooth as κ.
_POLE_NEAR = 0.15
#: What is neglected in the time of a step, as a part of its last coefficients (cautious: with a
#: tenth of it, steps are hardly longer).
_NEGLECTED = 1 / (16 * NODES)


class Piece(NamedTuple):
    """Accepted or attempted steps as polynomials in z = 2v − 1, one column per row.

    Attributes:
        end: y_b, shape (k, n).
        slopes: coefficients of (Δ_b − Δₐ) times the mean of y′ over [0, v], shape (NODES, k, n).
        lags: coefficients of φ times the mean of G over [v, 1], shape (NODES, n).
        log_part, fall: A and φ, shape (n,); φ = 1 says that the step ends at the pole.
    """

    end: Tensor
    slopes: Tensor
    lags: Tensor
    log_part: Tensor
    fall: Tensor

    def duration(self) -> Tensor:
        """Physical time that each step takes, ∞ where it ends at the pole, shape (n,)."""
        signs = torch.ones_like(self.lags[:, 0])
        signs[1::2] = -1.0  # z = −1 at the end
        finite = signs @ self.lags - self.log_part * torch.log1p(-self.fall)
        return torch.where(self.fall == 1, torch.inf, finite)

    def select(self, rows: Tensor) -> Piece:
        """The pieces of the chosen rows (index)."""
        return Piece(*(column.index_select(-1, rows) for column in self))


class Attempt(NamedTuple):
    """y, dy/dΔ and size at the end of a step, its error over what is allowed, and its piece."""

    y: Tensor
    rates: Tensor
    ratio: Tensor
    size: Tensor
    piece: Piece


def attempt(model: GapModel, rows: Rows, allowed: tuple[Tensor, Tensor], rtol: float) -> Attempt:
    """One step of every row, of the length ``rows.step``; ``rows`` is left as it is.

    Args:
        model: its loss is a function of the logit gap.
        rows: where the rows are.
        allowed: absolute and relative error allowed in y, shape (k, 1) each.
        rtol: error that the time of the step may make in u.
    """
    table, y, signs, step = _tables(rows.y.device), rows.y, rows.signs, rows.step
    moves = y.new_empty(16, *y.shape)  # stages times step
    flat = moves.view(16, -1)
    torch.mul(rows.rates, step, out=moves[0])
    for i, weights in enumerate(table.stages, start=1):
        stage = torch.addmv(y.reshape(-1), flat[: len(weights)].T, weights).view_as(y)
        numerators, size = model.clock_rates(stage, signs)
        scale = step / size
        for row, numerator in zip(moves[i], numerators, strict=True):
            torch.mul(numerator, scale, out=row)
        if i == len(DOP853.B):
            end, end_size = stage, size
            end_rates = torch.stack(numerators).div_(size)
    error5 = torch.mv(flat[:13].T, table.error5).square_()
    error3 = torch.mv(flat[:13].T, table.error3).square_()
    error = error5 / error3.mul_(0.01).add_(error5).add_(1e-300).sqrt_()
    scale = torch.addcmul(*allowed, torch.maximum(y.abs(), end.abs()))
    ratio = (error.view_as(y) / scale).amax(dim=0)

    pole, missed = _pole(model, rows, end)
    inside = torch.addmm(y.reshape(-1), table.inside, flat).view(NODES, *y.shape).movedim(0, 1)
    inside[0] -= (1 - table.v) * missed
    piece, unsure = _piece(model, rows, pole, inside, end)
    return Attempt(end, end_rates, torch.maximum(ratio, unsure / rtol), end_size, piece)


def _pole(model: GapModel, rows: Rows, end: Tensor) -> tuple[Tensor, Tensor]:
    """The pole of each row's time, and by how much ``end`` missed e² = 0; it is put there.

    The pole is the end of the leg, unless the orbit goes on from there.
    """
    pole, missed = rows.end.clone(), torch.zeros_like(rows.end)
    if "square" in model.clock_chart:
        at_zero = ((rows.step == rows.end - rows.clock) & (rows.end == 0)).nonzero()[:, 0]
        if len(at_zero):
            on_plane = meets_plane(model, end[:, at_zero], rows.signs[:, at_zero])[0]
            pole[at_zero[~on_plane]] = model.chain.target_logit_gap
            onto = at_zero[on_plane]
            missed[onto] = end[0, onto]
            end[0, onto] = 0.0
    return pole, missed


def _piece(
    model: GapModel, rows: Rows, pole: Tensor, inside: Tensor, end: Tensor
) -> tuple[Piece, Tensor]:
    """The piece of each row, from y at the nodes, shape (k, NODES, n); the error in u of its time.

    The error is ∞ for a step that ends at the pole, but not with κ > 0 there.
    """
    table = _tables(end.device)
    first = pole - rows.clock
    fall = rows.step / first
    u = 1 - fall * (1 - table.v)
    numerators, size = model.clock_rates(inside, rows.signs)
    slopes = torch.stack([numerator / size for numerator in numerators], dim=1).mul_(rows.step)
    squared = 4 * inside[0] * size if "square" in model.clock_chart else size  # ‖∇Δ‖²
    kappa = -first * u / (gap_slope(model.chain, rows.clock + rows.step * (1 - table.v)) * squared)
    weights = table.barycentric / (1 - 1 / fall - table.v)  # of the value at u = 0
    near = fall > _POLE_NEAR
    log_part = torch.where(near, (weights * kappa).sum(dim=0) / weights.sum(dim=0), 0.0)
    rest = (kappa - log_part).div_(u).mul_(fall)
    last, top = (table.tail @ rest).abs_()
    unsure = _NEGLECTED * torch.where(near, top + last, top) * (u / kappa).amax(dim=0)
    unsure = torch.where((fall == 1) & ~(log_part > 0), torch.inf, unsure)
    slopes = (table.before @ slopes.view(NODES, -1)).view_as(slopes)
    return Piece(end, slopes, table.after @ rest, log_part, fall), unsure


class _Tables(NamedTuple):
    """The tableau and the Gauss nodes as matrices.

    ``stages``: for every stage but the first, the weights of those before it; ``error5`` and
    ``error3``: of the two error estimates; ``inside``: of all stages for y at the nodes v, v and
    the barycentric weights being columns; ``before`` and ``after``: from values at the nodes to
    the coefficients in z of the means over [0, v] and over [v, 1]; ``tail``: to the last two
    Legendre coefficients.
    """

    stages: list[Tensor]
    error5: Tensor
    error3: Tensor
    inside: Tensor
    v: Tensor
    barycentric: Tensor
    before: Tensor
    after: Tensor
    tail: Tensor


@cache
def _tables(device: torch.device) -> _Tables:
    z, weights = legendre.leggauss(NODES)
    v, weights = (z[:, None] + 1) / 2, weights / 2
    # scipy's interpolant, evaluated at x = 1 − v, as weights of the 16 stages
    whole = np.append(DOP853.B, np.zeros(4))
    at_start, at_end = np.eye(16)[[0, 12]]
    inside = np.zeros((NODES, 16))
    parts = [whole, at_start - whole, 2 * whole - at_start - at_end, *DOP853.D]
    for i, part in enumerate(reversed(parts)):
        inside = (inside + part) * (v if i % 2 else 1 - v)
    # integrals over [0, v] and over [0, 1] of the Legendre polynomials
    degrees = np.arange(NODES)
    to_legendre = (2 * degrees[:, None] + 1) * legendre.legvander(z, NODES - 1).T * weights
    integrals = [legendre.legint(row, lbnd=-1) / 2 for row in np.eye(NODES)]
    below = np.stack([legendre.legval(z, row) for row in integrals], axis=1)
    total = np.array([legendre.legval(1.0, row) for row in integrals])
    to_powers = np.linalg.inv(np.vander(z, increasing=True))
    before = to_powers @ (below / v) @ to_legendre
    after = to_powers @ ((total - below) / (1 - v)) @ to_legendre
    barycentric = 1 / np.prod(v - v.T + np.eye(NODES), axis=1, keepdims=True)
    stages = [row[:i] for i, row in enumerate([*DOP853.A[1:], DOP853.B, *DOP853.A_EXTRA], start=1)]
    found = [DOP853.E5, DOP853.E3, inside, v, barycentric, before, after, to_legendre[-2:]]

    def tensor(array: np.ndarray) -> Tensor:
        return torch.tensor(array, dtype=torch.float64, device=device)

    return _Tables([tensor(row) for row in stages], *map(tensor, found))
