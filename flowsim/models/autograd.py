"""Loss, gradient and Hessian of a model that sorts rows, as torch.autograd and torch.func see them.

Sorting rows by their values and solving for the bias cannot be traced by torch.func.vmap, so each
of the three is one opaque function of θ whose derivative is the next.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from torch import Tensor


class ByRows(Protocol):
    """A model that evaluates "loss" (...), "gradient" (..., k) and "hessian" (..., k, k)."""

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor: ...


class _Function(torch.autograd.Function):
    """Common part of all three: θ is stored, and an axis of vmap is one more batch axis."""

    def __init_subclass__(cls) -> None:
        """Keep the signature of ``forward``, which torch works out again at every call."""
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[ByRows, Tensor], output: Tensor) -> None:
        ctx.model = inputs[0]
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @classmethod
    def vmap(
        cls, info: Any, in_dims: tuple[None, int], model: ByRows, theta: Tensor
    ) -> tuple[Tensor, int]:
        return cls.apply(model, theta.movedim(in_dims[1], 0)), 0


class Loss(_Function):
    @staticmethod
    def forward(model: ByRows, theta: Tensor) -> Tensor:
        return model.by_rows(theta, "loss")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (theta,) = ctx.saved_tensors
        return None, grad.unsqueeze(-1) * Gradient.apply(ctx.model, theta)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        (theta,) = ctx.saved_tensors
        return (Gradient.apply(ctx.model, theta) * tangent).sum(-1)


class Gradient(_Function):
    @staticmethod
    def forward(model: ByRows, theta: Tensor) -> Tensor:
        return model.by_rows(theta, "gradient")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (theta,) = ctx.saved_tensors
        return None, (Hessian.apply(ctx.model, theta) * grad.unsqueeze(-1)).sum(-2)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        (theta,) = ctx.saved_tensors
        return (Hessian.apply(ctx.model, theta) * tangent.unsqueeze(-2)).sum(-1)


class Hessian(_Function):
    @staticmethod
    def forward(model: ByRows, theta: Tensor) -> Tensor:
        return model.by_rows(theta, "hessian")
