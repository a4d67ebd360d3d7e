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
    """The loss (...) of order 0, its gradient (..., k) of 1 or its Hessian (..., k, k) of 2.

    An axis of vmap is one more batch axis.
    """

    @staticmethod
    def forward(model: Any, theta: Tensor, order: int) -> Tensor:
        found: Tensor = model.by_rows(theta, QUANTITIES[order])
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, Tensor, int], output: Tensor) -> None:
        ctx.model, theta, ctx.order = inputs
        ctx.save_for_backward(theta)
        ctx.save_for_forward(theta)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[None, int, None], model: Any, theta: Tensor, order: int
    ) -> tuple[Tensor, int]:
        return _Derivative.apply(model, theta.movedim(in_dims[1], 0), order), 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (theta,) = ctx.saved_tensors
        found = _Derivative.apply(ctx.model, theta, ctx.order + 1) * grad.unsqueeze(-1)
        return None, found if ctx.order == 0 else found.sum(-2), None

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor, __: None) -> Tensor:
        (theta,) = ctx.saved_tensors
        along = tangent if ctx.order == 0 else tangent.unsqueeze(-2)
        return (_Derivative.apply(ctx.model, theta, ctx.order + 1) * along).sum(-1)


#: Torch works the signature out again at every call, unless it is kept.
_Derivative.forward.__signature__ = inspect.signature(_Derivative.forward)  # type: ignore[attr-defined]


def evaluate_rows(
    theta: Tensor, axes: int, fill: Callable[[np.ndarray, np.ndarray], None], at_once: int = 4096
) -> Tensor:
    """A compiled quantity at θ (..., k), a number, a vector or a matrix by its ``axes``.

    ``fill`` is given rows (n, k) and what it fills, (n, 1, k or k²); after ``at_once`` of them
    Ctrl-C is seen.
    """
    k = theta.shape[-1]
    rows = np.ascontiguousarray(theta.detach().reshape(-1, k).double().cpu().numpy())
    found = np.empty((len(rows), k**axes))
    for low in range(0, len(rows), at_once):
        fill(rows[low : low + at_once], found[low : low + at_once])
    return torch.from_numpy(found).reshape((*theta.shape[:-1], *[k] * axes)).to(theta.device)


def loss(model: Any, theta: Tensor) -> Tensor:
    """Exact expected next-symbol cross-entropy in nats, shape (...)."""
    return _Derivative.apply(model, theta, 0)


def gradient(model: Any, theta: Tensor) -> Tensor:
    """∇L, shape of θ."""
    return _Derivative.apply(model, theta, 1)


def hessian(model: Any, theta: Tensor) -> Tensor:
    """∂²L, shape (..., k, k), without the jumps at ReLU kinks."""
    return _Derivative.apply(model, theta, 2)
