"""``flowsim.reduce``: the model of a few coordinates that all weights follow from a start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from flowsim.errors import InputError
from flowsim.interface import RecordedModel
from flowsim.reduction.names import readable
from flowsim.reduction.network import Network
from flowsim.reduction.span import equal_steps, grow, off_span, origin_of
from flowsim.running import threads

#: The largest part of a gradient outside the span of a model that is returned; the largest distance
#: after equal steps, in parts of the largest weight, unless last bits of the start grow to this
#: part of it.
_EXACT, _APART, _GROWN = 1e-9, 1e-9, 1e-3


@dataclass(frozen=True)
class Exactness:
    """Measured errors of a found model against training of all weights.

    Attributes:
        weights: how many there are.
        off_span: the largest part of the gradient outside the span, at 48 fresh points of it.
        steps: of gradient descent that all weights and the coordinates took from the start.
        differ: how far they are apart after these, in parts of the largest weight.
        sizes: (dimensions so far, size of the largest new direction, the same in parts of what
            rounding makes), round by round, the size in parts of the gradient.
    """

    weights: int
    off_span: float
    steps: int
    differ: float
    sizes: tuple[tuple[int, float, float], ...]


class ReducedNetwork(RecordedModel):
    """A loss restricted to an affine space of weights; ``reduce`` makes it.

    Coordinates are along orthonormal directions, so that the metric is the identity.

    Attributes:
        network: the loss of all weights.
        basis: the directions, (P, k).
        origin: the weights at which all coordinates are zero, (P,), orthogonal to the directions.
        start: the coordinates of the start, (k,).
        exactness: what was measured.
        large: whether its tensors are worth several threads of torch.
    """

    network: Network
    basis: Tensor
    origin: Tensor
    start: Tensor
    exactness: Exactness
    large: bool

    def embed(self, theta: Tensor) -> Tensor:
        """All weights as one vector, (..., P), at θ (..., k)."""
        return theta @ self.basis.to(theta).T + self.origin.to(theta)

    def loss(self, theta: Tensor) -> Tensor:
        """L at the weights that θ (..., k) stands for, shape (...)."""
        rows = self.embed(theta.reshape(-1, theta.shape[-1]))
        return self.network.rows(rows).reshape(theta.shape[:-1])

    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of θ; a few starts at a time, unless derivatives of it are taken."""
        if theta.requires_grad:
            return super().gradient(theta)
        rows = self.embed(theta.reshape(-1, theta.shape[-1]))
        return (self.network.gradients(rows) @ self.basis.to(theta)).reshape(theta.shape)

    def hessian(self, theta: Tensor) -> Tensor:
        """∂²L, shape (..., k, k): all columns from one gradient of the loss."""
        if theta.requires_grad or not self.network.batched:
            return super().hessian(theta)
        k = theta.shape[-1]
        return self.network.hessians(
            self.embed(theta.reshape(-1, k)), self.basis.to(theta)
        ).reshape(*theta.shape, k)

    def losses_and_gradients(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """L (n,) and ∇L (n, k) at rows of coordinates (n, k)."""
        losses, gradients = self.network.losses_and_gradients(self.embed(theta))
        return losses, gradients @ self.basis

    def curvatures(self, theta: Tensor, along: Tensor) -> Tensor:
        """∂²L · along, (n, k), at rows of coordinates (n, k), for one direction (n, k) of each."""
        return self.network.curvatures(self.embed(theta), along @ self.basis.T) @ self.basis

    def weights(self, theta: Tensor) -> dict[str, Tensor]:
        """All weights by name, (..., *shape), at θ (..., k)."""
        return self.network.named(self.embed(theta))

    def project(self, weights: Any) -> tuple[Tensor, Tensor]:
        """Project weights onto the span: coordinates (k,), and the distance from it."""
        row = Network(self.network.loss, weights).start
        theta = row @ self.basis
        return theta, (row - self.embed(theta)).norm()

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name, and the numbers of weights and coordinates, as a figure says them."""
        return (
            f"{self.name}\n{self.exactness.weights} weights in {len(self.coordinates)} coordinates"
        )

    def attributes(self) -> dict[str, Any]:
        """Attributes for a record: the model's name, and its measured errors."""
        measured = {k: v for k, v in asdict(self.exactness).items() if k != "sizes"}
        found = {f"reduced_{name}": value for name, value in measured.items()}
        return {**super().attributes(), **found, "reduced_start": self.start.tolist()}


def reduce(
    loss: Callable[..., Tensor],
    weights: Tensor | dict[str, Tensor] | nn.Module,
    name: str = "",
    most: int = 64,
    steps: int = 100,
) -> ReducedNetwork:
    """The reduced model that gradient flow of all weights follows from a start, found by machine.

    The space is the smallest affine one through the start whose gradients all lie along it. It is
    grown from gradients at random points around the start, and along gradient descent from it. The
    model is the loss restricted to it: dθ/dt = −∇L in its coordinates is the gradient flow of all
    weights from any of its points, and so are steps of gradient descent. Weights that never move
    keep their values, and are no coordinate.

    Args:
        loss: of ``weights``, one number, in torch; it draws no samples. Of a module it takes the
            module or nothing.
        weights: the start: a tensor, a dictionary of tensors, or a module, whose parameters are
            trained unless they need no gradient. All is computed in float64.
        name: of the model; by default that of the loss.
        most: the largest number of coordinates.
        steps: of gradient descent by which it is tested.

    Returns:
        A ``Model`` with ``basis``, ``start``, ``exactness`` and ``weights(theta)``. A coordinate is
        named after the tensor, or the tensors, that it moves, and is the distance along a direction
        of unit length.

    Raises:
        InputError: there is no such model of at most ``most`` coordinates; all weights and the
            coordinates go different ways in equal steps; the start is a critical point, or lies on
            kinks; the loss is random, no torch, or not finite; the network has no weights.

    >>> import flowsim, torch
    >>> product = lambda w: (w["a"] @ w["b"] - 1) ** 2 / 2
    >>> model = flowsim.reduce(product, {"a": torch.full((5,), 0.3), "b": torch.full((5,), 0.1)})
    >>> model.coordinates, model.exactness.off_span < 1e-12
    (('a', 'b'), True)
    """
    network = Network(loss, weights)
    with nullcontext() if network.large else threads(1):
        network.check()
        network.refuse_kinks(network.start, "the start lies")
        span, sizes = grow(network, most)
        generic = (network.start + span @ (span.T @ torch.cos(
            torch.arange(len(network.start), dtype=torch.float64)).to(network.start)))  # fmt: skip
        network.refuse_kinks(generic, "all of its span lies")
        basis, coordinates, called = readable(span, network.shapes)
        off = off_span(network, basis)
        if off > _EXACT:
            raise InputError(
                f"no exact model: at fresh points of the span of {len(coordinates)} dimensions "
                f"the gradient has a part of {off:.1e} outside it"
            )
        differ, rounding = equal_steps(network, basis, steps)
        if not differ <= max(_APART, rounding / _GROWN):
            raise InputError(
                f"no exact model: after {steps} equal steps of gradient descent all weights and "
                f"the {len(coordinates)} coordinates are {differ:.1e} of the largest weight apart, "
                f"and rounding makes {rounding:.1e}"
            )
        title = name or getattr(loss, "__name__", type(loss).__name__).strip("<>")
        home = getattr(loss, "__module__", None) or "__main__"
        kind = type(title, (ReducedNetwork,), {
            "coordinates": coordinates, "formula": staticmethod(loss), "__doc__": title,
            "__module__": "__main__" if home.startswith("flowsim.") else home, "name": title,
        })  # fmt: skip
        model: ReducedNetwork = kind()
        model.network, model.basis, model.long_names = network, basis, called
        model.origin, model.large = origin_of(network.start, basis), network.large
        model.start = basis.T @ network.start
        model.exactness = Exactness(len(basis), off, steps, differ, sizes)
        return model
