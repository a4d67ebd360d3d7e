"""An exponential Rosenbrock step for rows too stiff for an explicit one.

With attention the global minima are a curve whose two attracting directions differ in rate by three
or four orders: the logit gap settles fast, the attention scalar slowly. There the explicit step is
bound by stability, not by accuracy. Here every step solves the flow linearised at its start
exactly, so the only bound is the nonlinear rest; as the step grows, what it reaches is the limit
of the linearised flow.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from flowsim.flow.rows.stepping import Method, RowProblem

#: Below this |z| the φ-functions are summed as series, of this many terms.
_SMALL, _TERMS = 1.0, 17


class GradientProblem(RowProblem, Protocol):
    """A row problem y(θ) with dθ/dτ = −G⁻¹∇L(θ), in a chart y of its own."""

    root: Tensor  # of the metric: √Gᵢᵢ, shape (k,)

    def theta(self, y: Tensor) -> Tensor:
        """θ(y), shape (n, k)."""
        ...

    def y(self, theta: Tensor) -> Tensor:
        """y(θ), shape (n, k); NaN where θ is outside the chart."""
        ...

    def push(self, theta: Tensor, vector: Tensor) -> Tensor:
        """A tangent vector at θ in the chart, shape (n, k)."""
        ...

    def velocity(self, theta: Tensor, hint: Tensor) -> tuple[Tensor, Tensor]:
        """dθ/dτ, shape (n, k), and the hint for the next evaluation."""
        ...

    def linearise(self, theta: Tensor, hint: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """dθ/dτ, the loss's Hessian ∂²L, shape (n, k, k), and the hint."""
        ...


def _begin(problem: GradientProblem, y: Tensor) -> tuple[Tensor, Tensor]:
    return _linearised(problem, problem.theta(y), None)


def _linearised(
    problem: GradientProblem, theta: Tensor, hint: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The field in the chart; and the hint, dθ/dτ and ∂²L as one memory."""
    velocity, hessian, hint = problem.linearise(theta, hint)
    return problem.push(theta, velocity), torch.cat([velocity, hessian.flatten(1), hint], dim=1)


def _exponential_rosenbrock(
    problem: GradientProblem, y: Tensor, field: Tensor, memory: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fourth-order step with an embedded third-order one, in the coordinates θ.

    With v = dθ/dτ, J its derivative at the start, z = hJ and the rests Dᵢ = v(Uᵢ) − v − J(Uᵢ − θ),

        U₂ = θ + ½h φ₁(½z) v,   U₃ = θ + h φ₁(z)(v + D₂),
        θ′ = θ + h[φ₁(z) v + φ₃(z)(16D₂ − 2D₃) + φ₄(z)(12D₃ − 48D₂)];

    the last term, without which the order is three, is the error estimate. J is symmetric in the
    metric, so φ(z) takes one eigenvalue problem a step. Source: Hochbruck, Ostermann and
    Schweitzer, SIAM J. Numer. Anal. 47 (2009), "exprb43"; its order conditions are a test.
    """
    n, k = y.shape
    theta, root = problem.theta(y), problem.root
    velocity, hessian, hint = memory.split([k, k * k, memory.shape[1] - k - k * k], dim=1)
    symmetric = hessian.view(n, k, k) / (root * root[:, None])
    usable = torch.isfinite(symmetric).all(dim=2).all(dim=1)
    safe = torch.where(usable[:, None, None], symmetric, torch.eye(k).to(symmetric))
    rates, modes = torch.linalg.eigh(safe)
    rates = torch.where(usable[:, None], -rates, torch.nan)

    def to_modes(vector: Tensor) -> Tensor:
        return torch.bmm((root * vector)[:, None], modes)[:, 0]

    def to_theta(vector: Tensor) -> Tensor:
        return torch.bmm(modes, vector[:, :, None])[:, :, 0] / root

    h = step[:, None]
    z, start = h * rates, to_modes(velocity)
    phi1, phi3, phi4 = phi_functions(z)

    def rest(moved: Tensor, hint: Tensor) -> tuple[Tensor, Tensor]:
        there, hint = problem.velocity(theta + to_theta(moved), hint)
        return to_modes(there) - start - rates * moved, hint

    rest2, hint2 = rest(h / 2 * phi_functions(z / 2)[0] * start, hint)
    rest3, hint3 = rest(h * phi1 * (start + rest2), hint2)
    error = h * phi4 * (12 * rest3 - 48 * rest2)
    moved = h * (phi1 * start + phi3 * (16 * rest2 - 2 * rest3)) + error
    new = theta + to_theta(moved)
    field_new, memory_new = _linearised(problem, new, hint3)
    return problem.y(new), field_new, memory_new, problem.push(new, to_theta(error))


def phi_functions(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """φ₁, φ₃ and φ₄ of z, with φ₀ = exp and φⱼ₊₁(z) = (φⱼ(z) − 1/j!)/z; shape of ``z``."""
    near = z.abs() < _SMALL
    small, large = torch.where(near, z, 0.0), torch.where(near, 1.0, z)
    phi4 = torch.full_like(z, 1 / math.factorial(_TERMS + 3))
    for j in range(_TERMS + 2, 3, -1):
        phi4 = phi4 * small + 1 / math.factorial(j)
    phi3 = 1 / 6 + small * phi4
    phi1 = 1 + small * (1 / 2 + small * phi3)
    far1 = torch.expm1(large) / large
    far3 = ((far1 - 1) / large - 1 / 2) / large
    far4 = (far3 - 1 / 6) / large
    pairs = (phi1, far1), (phi3, far3), (phi4, far4)
    phi1, phi3, phi4 = (torch.where(near, *pair) for pair in pairs)
    return phi1, phi3, phi4


#: Two more field evaluations a step, and the field with its derivative at the end.
EXPONENTIAL = Method(_begin, _exponential_rosenbrock, 4, 4)
