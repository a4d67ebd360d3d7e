"""Loss, gradient and Hessian of a model that sorts rows, as torch.autograd and torch.func see them.

Sorting rows by their values and solving for the bias cannot be traced by torch.func.vmap, so each
of the three is one opaque function of θ whose derivative is the next. A model of that kind has
``by_rows(theta, quantity)`` for the three, and these functions as its methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Quantities that ``by_rows`` gives, by the order of the derivative.
QUANTITIES = ("loss", "gradient", "hessian")


class _Derivative(torch.autograd.Function):
    """The loss (...), gradient (..., k) or Hessian (..., k, k) of a model as a function for torch.

    Which of the three is said by ``order``, 0, 1 or 2. An axis of vmap is one more batch axis.
    """

    @staticmethod
    def forward(model: Any, theta: Tensor, order: int) -> Tensor:
        """Return the loss, gradient or Hessian of the model at θ (..., k), by ``order``."""
        found: Tensor = model.by_rows(theta, QUANTITIES[order])
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, Tensor, int], output: Tensor) -> None:
        """Keep the model, θ and the order for the derivatives."""
        ctx.model, theta, ctx.order = inputs
        ctx.save_for_backward(theta)
        ctx.save_for_forward(theta)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[None, int, None], model: Any, theta: Tensor, order: int
    ) -> tuple[Tensor, int]:
        """Evaluate with the mapped axis of θ in front; return the result and that axis, 0."""
        return _Derivative.apply(model, theta.movedim(in_dims[1], 0), order), 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        """Return the gradient by θ, given that by the output; None for the model and the order."""
        (theta,) = ctx.saved_tensors
        found = _Derivative.apply(ctx.model, theta, ctx.order + 1) * grad.unsqueeze(-1)
        return None, found if ctx.order == 0 else found.sum(-2), None

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor, __: None) -> Tensor:
        """Return the derivative of the output along the tangent of θ."""
        (theta,) = ctx.saved_tensors
        along = tangent if ctx.order == 0 else tangent.unsqueeze(-2)
        return (_Derivative.apply(ctx.model, theta, ctx.order + 1) * along).sum(-1)


#: Torch works the signature out again at every call, unless it is kept.
_Derivative.forward.__signature__ = inspect.signature(_Derivative.forward)  # type: ignore[attr-defined]


def evaluate_rows(
    theta: Tensor, axes: int, fill: Callable[[np.ndarray, np.ndarray], None], at_once: int = 4096
) -> Tensor:
    """Evaluate a compiled quantity at θ (..., k); return shape (...), (..., k) or (..., k, k).

    The three are for ``axes`` 0, 1 and 2. ``fill`` is given rows (n, k) and what it fills, (n, 1, k
    or k²); after ``at_once`` of them Ctrl-C is seen.
    """
    k = theta.shape[-1]
    rows = np.ascontiguousarray(theta.detach().reshape(-1, k).double().cpu().numpy())
    found = np.empty((len(rows), k**axes))
    for low in range(0, len(rows), at_once):
        fill(rows[low : low + at_once], found[low : low + at_once])
    return torch.from_numpy(found).reshape((*theta.shape[:-1], *[k] * axes)).to(theta.device)


def loss(model: Any, theta: Tensor) -> Tensor:
    """Return the exact expected next-symbol cross-entropy in nats at θ, shape (...)."""
    return _Derivative.apply(model, theta, 0)


def gradient(model: Any, theta: Tensor) -> Tensor:
    """Return ∇L at θ, shape of θ."""
    return _Derivative.apply(model, theta, 1)


def hessian(model: Any, theta: Tensor) -> Tensor:
    """Return ∂²L at θ, shape (..., k, k), without the jumps at ReLU kinks."""
    return _Derivative.apply(model, theta, 2)
