"""A loss of all weights of a network, whatever holds them, as a function of one vector of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from flowsim.errors import InputError

#: Weights that go through the loss at once, in whole vectors of rows: more leave the caches.
_AT_ONCE, _VECTOR = 2**15, 16
#: Two calls of a loss at the same weights differ by less than this part of it.
_SAME = 1e-10
#: Distances, in parts of the start's size, at which the gradient on both sides is compared; what
#: jumps, in parts of the gradient; and what part of the jump the smaller distance still shows.
_FAR, _CLOSE, _JUMP, _STAYS = 1e-5, 1e-7, 1e-8, 0.3


class _Closed(nn.Module):
    """A module together with its loss, so that torch can call the loss with other weights."""

    def __init__(self, module: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.module, self.loss = module, loss
        self.alone = not inspect.signature(loss).parameters

    def forward(self) -> Tensor:
        return self.loss() if self.alone else self.loss(self.module)


class Network:
    """L of a vector of all weights that are trained, in double precision.

    Attributes:
        shapes: of the weights by name, in their order.
        start: all of them, (P,), float64.
        large: whether one vector of them is worth several threads.
        loss: as it was given; ``bare`` if its weights are one tensor.
        closed, kept: of a module, it with its loss; and its buffers and fixed weights, by name.
        batched, at_once: whether torch can compute the loss of many vectors together, and of how
            many at most.
    """

    def __init__(self, loss: Callable[..., Tensor], weights: Any) -> None:
        self.loss, self.kept = loss, {}
        self.closed: _Closed | None = None
        if isinstance(weights, nn.Module):
            named: dict[str, Tensor] = {
                n: w for n, w in weights.named_parameters() if w.requires_grad
            }
            fixed: dict[str, Tensor] = dict(weights.named_buffers())
            fixed |= {n: w for n, w in weights.named_parameters() if not w.requires_grad}
            self.kept = {
                f"module.{n}": w.detach().double() if w.is_floating_point() else w.detach()
                for n, w in fixed.items()
            }
            self.closed = _Closed(weights, loss)
        elif isinstance(weights, Tensor):
            named = {"weights": weights}
        elif isinstance(weights, Mapping) and all(isinstance(w, Tensor) for w in weights.values()):
            named = dict(weights)
        else:
            raise InputError(
                "weights must be a tensor, a dictionary of tensors or a torch module, not "
                f"{type(weights).__name__}"
            )
        self.bare = isinstance(weights, Tensor)
        self.shapes = {name: tuple(w.shape) for name, w in named.items()}
        if not sum(w.numel() for w in named.values()):
            raise InputError("there are no weights to be trained")
        self.start = torch.cat([w.detach().double().reshape(-1) for w in named.values()])
        if not bool(self.start.isfinite().all()):
            raise InputError("the weights of the start are not all finite")
        self.batched, self.large = True, len(self.start) >= _AT_ONCE
        self.at_once = _VECTOR * max(1, _AT_ONCE // (_VECTOR * len(self.start)))

    @property
    def size(self) -> float:
        """The norm of the start; 1 at zero."""
        return float(self.start.norm()) or 1.0

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """Weights (..., *shape) by name, of vectors (..., P)."""
        parts = theta.split([math.prod(shape) for shape in self.shapes.values()], dim=-1)
        pairs = zip(self.shapes.items(), parts, strict=True)
        return {name: w.reshape((*theta.shape[:-1], *shape)) for (name, shape), w in pairs}

    def scales(self, rows: Tensor) -> Tensor:
        """The root mean square of rows (..., P) over each tensor, for every weight of it, (P,).

        At least 1e-16.
        """
        sizes = {n: w.square().mean().sqrt() for n, w in self.named(rows).items()}
        return torch.cat(
            [sizes[n].clamp_min(1e-16).expand(math.prod(s)) for n, s in self.shapes.items()]
        )

    def one(self, theta: Tensor) -> Tensor:
        """L of one vector (P,)."""
        weights = self.named(theta)
        if self.closed is not None:
            values = {f"module.{name}": w for name, w in weights.items()} | self.kept
            found = torch.func.functional_call(self.closed, values, ())
        else:
            found = self.loss(weights["weights"] if self.bare else weights)
        if not isinstance(found, Tensor) or found.numel() != 1:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"the loss must be one number of all weights, not {shape}")
        return found.reshape(())

    def rows(self, theta: Tensor) -> Tensor:
        """L, (n,), of vectors (n, P): together where torch can, else one by one."""
        if self.batched and len(theta) > 1:
            found: Tensor = torch.func.vmap(self.one, chunk_size=self.at_once)(theta)
            return found
        return torch.stack([self.one(row) for row in theta]) if len(theta) else theta[:, 0]

    def gradients(self, theta: Tensor) -> Tensor:
        """∇L, (n, P), of vectors (n, P)."""
        return self.losses_and_gradients(theta)[1]

    def losses_and_gradients(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """L, (n,), and ∇L, (n, P), of vectors (n, P)."""
        losses, gradients = [], []
        for part in theta.detach().split(self.at_once):
            point = part.requires_grad_()
            with torch.enable_grad():
                loss = self.rows(point)
                (gradient,) = torch.autograd.grad(loss.sum(), point)
            losses.append(loss.detach())
            gradients.append(gradient)
        return torch.cat(losses), torch.cat(gradients)

    def _along(self, point: Tensor, along: Tensor, several: bool = False) -> Tensor:
        """∂²L · along at vectors (n, P): for one direction (n, P) of each, or several (k, n, P)."""
        point = point.requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.rows(point).sum(), point, create_graph=True)
            if not gradient.requires_grad:
                return torch.zeros_like(along)
            (found,) = torch.autograd.grad(
                gradient, point, along, is_grads_batched=several, allow_unused=True
            )
        return torch.zeros_like(along) if found is None else found

    def curvature(self, theta: Tensor, along: Tensor) -> Tensor:
        """∂²L · along, (n, P), at one vector (P,) and for directions (n, P)."""
        return self._along(theta.detach()[None], along[:, None], several=True)[:, 0]

    def hessians(self, theta: Tensor, basis: Tensor) -> Tensor:
        """Bᵀ ∂²L B, (n, k, k), of vectors (n, P) and directions B (P, k), all columns together."""
        found = []
        for part in theta.detach().split(self.at_once):
            along = basis.T[:, None].expand(basis.shape[1], *part.shape)
            found.append((self._along(part, along, several=True) @ basis).movedim(0, -2))
        return torch.cat(found)

    def curvatures(self, theta: Tensor, along: Tensor) -> Tensor:
        """∂²L · along, (n, P), at vectors (n, P) and for one direction (n, P) of each."""
        parts = zip(theta.detach().split(self.at_once), along.split(self.at_once), strict=True)
        return torch.cat([self._along(part, vector) for part, vector in parts])

    def check(self) -> None:
        """InputError if the loss is random, not differentiable or not finite; set ``batched``."""
        here = self.start[None]
        self.batched = False
        try:
            before, gradient = self.rows(here), self.gradients(here)
            again = self.rows(here)
        except InputError:
            raise
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            if "does not require grad" in why or "appears to not have been used" in why:
                why = "it is not differentiable; it must be written in torch, of all the weights"
            raise InputError(f"the loss fails at these weights in float64: {why}") from None
        differ = float((again - before).detach().abs())
        if differ > _SAME * float(before.detach().abs()):
            raise InputError(
                f"the loss is random: two calls at the same weights differ by {differ:.1e}; "
                "reduce needs one that draws no samples"
            )
        if not bool(before.isfinite().all()) or not bool(gradient.isfinite().all()):
            bad = [n for n, g in self.named(gradient[0]).items() if not bool(g.isfinite().all())]
            what = f"the gradient of {', '.join(bad)}" if bad else "the loss"
            raise InputError(f"{what} is not finite at the start")
        pair = torch.cat([here, here + 0.01 * self.size])
        alone = self.rows(pair).detach()
        try:
            self.batched = True
            together = self.gradients(pair), self.rows(pair).detach()
            self.batched = bool(torch.allclose(together[1], alone, rtol=1e-9, atol=1e-12))
        except Exception:  # what torch cannot do for many at once it does one by one
            self.batched = False

    def refuse_kinks(self, theta: Tensor, what: str) -> None:
        """InputError if the gradient jumps at a vector (P,); its sentence begins with ``what``."""
        generator = torch.Generator().manual_seed(0)
        across = torch.randn(len(theta), generator=generator, dtype=torch.float64).to(theta)
        across *= self.size / across.norm()
        sides = torch.stack([theta + s * across for s in (_FAR, -_FAR, _CLOSE, -_CLOSE)])
        gradient = self.gradients(sides)
        large = float(gradient.abs().max()) or 1.0
        jumps = self.named(torch.stack([gradient[0] - gradient[1], gradient[2] - gradient[3]]))
        found = []
        for name, jump in jumps.items():
            far, close = jump.reshape(2, -1).abs().amax(1).tolist() if jump.numel() else (0.0, 0.0)
            if close > _STAYS * far and close > _JUMP * large:
                found.append(f"{name} (by {close / large:.0e} of it)")
        if found:
            raise InputError(
                f"{what} on kinks of the loss, where the flow is not defined: the gradient jumps "
                f"in {', '.join(found)}"
            )
