"""What a reduced model is, and the models whose loss is a function of the logit gap.

A reduced model is anything with ``chain``, ``coordinates``, ``metric``, ``keeps_sign`` and the
methods ``loss``, ``gradient``, ``optimal_bias`` and ``conserved`` below; parameters θ have shape
(..., k), one column per coordinate in the order of ``coordinates``. Methods of θ return tensors for
tensors, and numpy arrays for numpy arrays and lists.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.markov import GapChain
from flowsim.models.gap_loss import (
    cross_entropy,
    gap_loss,
    gap_slope,
    optimal_logit,
    residual0,
    residual1,
)


class ReducedModel(Protocol):
    """What the flow, the landscape and the scans ask of a model."""

    #: The one name it has on the command line, in Python and in records.
    name: str
    coordinates: tuple[str, ...]
    #: Diagonal of the induced metric G, one entry per coordinate; the flow is −G⁻¹∇L.
    metric: tuple[float, ...]
    #: Coordinates whose zero the flow never crosses; they are integrated as log|θᵢ|.
    keeps_sign: tuple[bool, ...]
    #: Names of the conserved quantities, in the order of ``conserved``'s last axis.
    conserved_names: tuple[str, ...]
    #: Whether L = ℓ(Δ(θ)), the bias at its optimum: orbits are then functions of the gap Δ.
    loss_of_gap: bool

    @property
    def chain(self) -> GapChain: ...

    def loss(self, theta: Tensor) -> Tensor: ...

    def gradient(self, theta: Tensor) -> Tensor: ...

    def optimal_bias(self, theta: Tensor) -> Tensor: ...

    def conserved(self, theta: Tensor) -> Tensor: ...


_Method = TypeVar("_Method", bound=Callable[..., Any])


def of_theta(method: _Method) -> _Method:
    """Let a model's method of θ take tensors, arrays and lists, and check the number of columns.

    The method raises InputError for θ with another number of columns than coordinates.
    """

    @wraps(method)
    def checked(model: Any, theta: Numbers) -> Any:
        if not isinstance(theta, Tensor):
            found = checked(model, to_tensor(theta, "theta"))
            return found.numpy() if isinstance(found, Tensor) else found
        k = len(model.coordinates)
        if theta.ndim == 0 or theta.shape[-1] != k:
            names = ", ".join(model.coordinates)
            raise InputError(f"theta needs shape (..., {k}) = ({names}), not {tuple(theta.shape)}")
        return method(model, theta)

    return checked  # type: ignore[return-value]


def described(model: Any) -> str:
    """A model's repr: its class, its chain and what was chosen beside the defaults."""
    words = [f"p={model.chain.p!r}", f"q={model.chain.q!r}"]
    if hasattr(model, "length"):
        words.append(f"length={model.length}")
    if getattr(model, "dynamic_bias", False):
        words.append("bias='dynamic'")
    words += ["attention=True"] if getattr(model, "attention", False) else []
    words += [] if getattr(model, "tied", True) else ["tied=False"]
    return f"{type(model).__name__}({', '.join(words)})"


def velocity(model: ReducedModel, theta: Tensor) -> Tensor:
    """The gradient flow's field −G⁻¹∇L, shape of θ."""
    metric = torch.tensor(model.metric, dtype=theta.dtype, device=theta.device)
    return -model.gradient(theta) / metric


class GapModel:
    """Models whose prediction is one logit gap: L = ℓ(Δ(θ)), ∇L = ℓ′(Δ) ∇Δ.

    Subclasses give Δ and its gradient, ℓ and ℓ′, and what is conserved. ℓ is convex and smallest at
    the chain's target gap.
    """

    name: str
    chain: GapChain
    coordinates: tuple[str, ...]
    metric: tuple[float, ...]
    keeps_sign: tuple[bool, ...]
    conserved_names: tuple[str, ...]
    #: Whether the bias is a coordinate, so that the loss is no function of the gap alone.
    dynamic_bias = False
    loss_of_gap = True

    def __repr__(self) -> str:
        return described(self)

    def logit_gap(self, theta: Tensor) -> Tensor:
        """Δ, shape (...)."""
        raise NotImplementedError

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """∇Δ over the coordinates without the bias; shape (..., k)."""
        raise NotImplementedError

    def loss_at(self, gap: Tensor) -> Tensor:
        """ℓ(Δ) in nats, shape of Δ."""
        raise NotImplementedError

    def slope_at(self, gap: Tensor) -> Tensor:
        """ℓ′(Δ), of the sign of Δ − Δ*."""
        raise NotImplementedError

    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias that minimises the loss at θ, shape (...)."""
        raise NotImplementedError

    @of_theta
    def conserved(self, theta: Tensor) -> Tensor:
        """Conserved quantities, shape (..., len(conserved_names)); none with a dynamic bias."""
        if self.dynamic_bias:
            return theta.new_zeros(*theta.shape[:-1], 0)
        return self._conserved(theta)

    def _conserved(self, theta: Tensor) -> Tensor:
        raise NotImplementedError

    @of_theta
    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...)."""
        return self.loss_at(self.logit_gap(theta))

    @of_theta
    def gradient(self, theta: Tensor) -> Tensor:
        """∇L = ℓ′(Δ) ∇Δ, shape of ``theta``."""
        slope = self.slope_at(self.logit_gap(theta))
        return slope.unsqueeze(-1) * self.logit_gap_gradient(theta)


class BinaryGapModel(GapModel):
    """Models with logit f₀ = b + c(θ) after a zero and f₁ = f₀ + Δ(θ) after a one.

    With ``bias="optimal"`` the bias is minimised out and L = ℓ(Δ(θ)); with ``bias="dynamic"`` it
    is one more coordinate, the last, as in the authors' own three-parameter code. Subclasses give
    Δ, the offset c and their gradients.

    Raises:
        InputError: ``bias`` is neither "optimal" nor "dynamic".
    """

    chain: BinaryChain

    def __init__(self, chain: BinaryChain, bias: str = "optimal") -> None:
        if bias not in ("optimal", "dynamic"):
            raise InputError(f'bias must be "optimal" or "dynamic", not {bias!r}')
        self.chain = chain
        self.dynamic_bias = bias == "dynamic"
        self.loss_of_gap = not self.dynamic_bias
        if self.dynamic_bias:  # the conservation laws need the bias at its optimum
            self.coordinates = (*self.coordinates, "b")
            self.keeps_sign = (*self.keeps_sign, False)
            self.conserved_names = ()
        self.metric: tuple[float, ...] = (1.0,) * len(self.coordinates)

    def offset(self, theta: Tensor) -> Tensor:
        """c, the logit after a zero minus the bias; shape (...)."""
        raise NotImplementedError

    def offset_gradient(self, theta: Tensor) -> Tensor:
        """∇c over the coordinates without the bias; shape (..., k)."""
        raise NotImplementedError

    def loss_at(self, gap: Tensor) -> Tensor:
        return gap_loss(self.chain, gap)

    def slope_at(self, gap: Tensor) -> Tensor:
        return gap_slope(self.chain, gap)

    @of_theta
    def optimal_bias(self, theta: Tensor) -> Tensor:
        """The bias b that minimises the loss at θ, shape (...); a stored bias is ignored."""
        return optimal_logit(self.chain, self.logit_gap(theta)) - self.offset(theta)

    @of_theta
    def loss(self, theta: Tensor) -> Tensor:
        """Exact expected next-symbol cross-entropy in nats, shape (...)."""
        if not self.dynamic_bias:
            return self.loss_at(self.logit_gap(theta))
        logit0 = theta[..., -1] + self.offset(theta)
        return cross_entropy(self.chain, logit0, logit0 + self.logit_gap(theta))

    @of_theta
    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of ``theta``: ℓ′(Δ) ∇Δ, or its three terms when the bias is a coordinate."""
        if not self.dynamic_bias:
            slope = self.slope_at(self.logit_gap(theta))
            return slope.unsqueeze(-1) * self.logit_gap_gradient(theta)
        logit0 = theta[..., -1] + self.offset(theta)
        after_one = residual1(self.chain, logit0 + self.logit_gap(theta)).unsqueeze(-1)
        both = residual0(self.chain, logit0).unsqueeze(-1) + after_one
        weights = both * self.offset_gradient(theta) + after_one * self.logit_gap_gradient(theta)
        return torch.cat([weights, both], dim=-1)
