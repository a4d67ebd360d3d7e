"""What moves flattened ensembles of full weights: gradient and stiffness of the population loss.

Without attention position n sees its own symbol only, Y_{n,x} = p_n + x·e, and

    f_{n,x} = ⟨u, Y + W_2 ReLU(W_1 Y)⟩ + b,    L = (1/N) Σ_n Σ_x π_x H(t(x), σ(f_{n,x})),

so the 2N pairs (n, x) are all there is to sum over, at any N, and the derivatives are a few batched
matrix products. Positions that start equal stay equal (their gradients are equal), so one of them
can stand for all N, each moving with 1/N of their common gradient. With attention the sum runs over
all prefixes of the sequences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.rank_one import RankOneModel
from full_model.lift.projection import project
from full_model.model.architecture import Architecture, Weights
from full_model.model.prefix_tree import PrefixTreeLoss, exact_loss
from full_model.model.source import MarkovSource

#: Numbers of one hidden layer held at once: what stays in a core's cache.
_CHUNK = 2**17


class FullField:
    """What both fields share: M models as states (M, K), their weights in a fixed order.

    Attributes:
        shapes: name and shape of the weights in a state.
        metric: (K,), by which a state's gradient is divided: 1, and N for a shared position.
    """

    def __init__(self, arch: Architecture, chain: BinaryChain, device: str = "cpu") -> None:
        self.arch, self.chain = arch, chain
        self.population = exact_loss(arch, MarkovSource.of(chain), device=device)
        self.shapes = dict(arch.shapes)
        self.metric = torch.ones(self.size, dtype=torch.float64, device=device)

    @property
    def size(self) -> int:
        """K."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def loss(self, state: Tensor) -> Tensor:
        """The population loss in nats, (M,)."""
        with torch.no_grad():
            return self.population(self.whole(state))

    def weights(self, state: Tensor) -> Weights:
        """The weights of states (M, K) by name, a shared position as (M, 1, d)."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            found[name] = state[:, start : start + size].reshape(-1, *shape)
            start += size
        return found

    def whole(self, state: Tensor) -> Weights:
        """The weights of the full models, every position written out."""
        weights = self.weights(state)
        positions = weights["positions"].expand(-1, self.arch.length, -1)
        return {**weights, "positions": positions}

    def state(self, weights: Weights) -> Tensor:
        """(M, K) from the weights of full models, or of models with a shared position."""
        parts = {**weights, "positions": weights["positions"][:, : self.shapes["positions"][0]]}
        members = len(weights["bias"])
        return torch.cat([parts[name].reshape(members, -1) for name in self.shapes], dim=1)

    def gradient(self, weights: Weights) -> Weights:
        """The gradient by name, at weights by name."""
        return self.weights(self(self.state(weights))[0])

    def metric_weights(self) -> Weights:
        """The metric by name, each (1, *shape)."""
        return self.weights(self.metric.unsqueeze(0))


class EnumeratedField(FullField):
    """The field of models with attention, exact over all 2^N sequences.

    On the CPU, the sum over their prefixes, with the trace of the Gauss-Newton matrix for the
    stiffness, see ``AttentionFreeField``. Elsewhere, automatic differentiation of all sequences,
    with that trace for the rank-one model at the weights' projection onto α = 1/√d; on the
    manifold, both are the same.

    Args:
        arch: one layer, one head, that can carry a lift.
        chain: the data.
    """

    def __init__(self, arch: Architecture, chain: BinaryChain, device: str = "cpu") -> None:
        super().__init__(arch, chain, device)
        self.reduced = RankOneModel(chain, arch.length, attention=True, tied=arch.tied)

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self.population, PrefixTreeLoss):
            return self.population.gradient_and_stiffness(state)
        weights = self.weights(state)
        with torch.enable_grad():
            _, gradient = self.population.value_and_gradient(weights)
        stiffness = self.reduced.stiffness(rank_one_coordinates(self.reduced, self.arch, weights))
        return self.state(gradient), stiffness


def rank_one_coordinates(model: RankOneModel, arch: Architecture, weights: Weights) -> Tensor:
    """The rank-one model's coordinates (M, k) of weights projected onto α = 1/√d."""
    alpha = weights["bias"].new_full((arch.d,), arch.d**-0.5)
    return project(arch, weights, alpha).point.to_coordinates(model.attention, model.tied)


class AttentionFreeField(FullField):
    """The field of gradient descent on M flattened models without attention.

    Args:
        arch: one layer, no attention, ReLU, learned positions, a binary logit.
        chain: the data.
        shared: the N positions of every model are equal, and the state holds them once.

    Raises:
        InputError: another architecture.
    """

    def __init__(
        self, arch: Architecture, chain: BinaryChain, shared: bool = False, device: str = "cpu"
    ) -> None:
        fits = arch.layers == 1 and arch.attention == "none" and arch.output == "binary"
        plain = arch.activation == "relu" and arch.positions == "learned" and not arch.layer_norm
        if not (fits and plain):
            raise InputError("the closed form needs one ReLU layer with positions, no attention")
        super().__init__(arch, chain, device)
        if shared:
            self.shapes["positions"] = (1, arch.d)
            self.metric = self.metric.new_ones(self.size)
            self.metric_weights()["positions"][:] = arch.length  # a view

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (M, K) and stiffness (M,) of states (M, K).

        The stiffness is the trace of the Gauss-Newton matrix Σ law·s·∇f ∇fᵀ in the metric, with s
        the larger of σ′(f) and t(1 − t): it bounds the largest curvature where f is near its
        target, so that a step well below its inverse neither oscillates nor jumps.
        """
        positions = self.shapes["positions"][0]
        size = max(1, _CHUNK // (2 * positions * self.arch.width))
        parts = [self._evaluate(part) for part in state.split(size)]
        if len(parts) == 1:
            return parts[0]
        gradient, stiffness = (torch.cat(column) for column in zip(*parts, strict=True))
        return gradient, stiffness

    def _evaluate(self, state: Tensor) -> tuple[Tensor, Tensor]:
        w = self.weights(state)
        e, p, up, down, b = (w[k] for k in ("embedding", "positions", "0.up", "0.down", "bias"))
        u = e if self.arch.tied else w["unembedding"]
        members, count, _ = p.shape
        y = torch.cat([p, p + e.unsqueeze(1)], dim=1)  # (M, 2n, d), symbol 0 first
        before = y @ up.mT
        hidden = before.relu()
        z = y + hidden @ down.mT
        f = (z @ u.unsqueeze(-1)).squeeze(-1) + b.unsqueeze(-1)
        law, target, spread = self._law(count, state)
        chance = f.sigmoid()
        omega = (chance - target) * law
        # j = ∂f/∂Y: the reader itself and what it reads through the open hidden units
        back = (u.unsqueeze(1) @ down) * (before > 0)
        j = u.unsqueeze(1) + back @ up
        wide = omega.unsqueeze(-1)
        by_y = wide * j
        gradient = {
            "embedding": by_y[:, count:].sum(1),
            "positions": by_y[:, :count] + by_y[:, count:],
            "0.up": (wide * back).mT @ y,
            "0.down": u.unsqueeze(-1) * (omega.unsqueeze(1) @ hidden),
            "bias": omega.sum(1),
        }
        by_u = (omega.unsqueeze(1) @ z).squeeze(1)
        if self.arch.tied:
            gradient["embedding"] = gradient["embedding"] + by_u
        else:
            gradient["unembedding"] = by_u
        through_e = z.clone() if self.arch.tied else torch.zeros_like(z)
        through_e[:, count:] += j[:, count:]
        j_size = j.square().sum(-1)
        squares = (
            through_e.square().sum(-1)
            + j_size / self.arch.length
            + back.square().sum(-1) * y.square().sum(-1)
            + u.square().sum(-1, keepdim=True) * hidden.square().sum(-1)
            + 1
        )
        if not self.arch.tied:
            squares = squares + z.square().sum(-1)
        weight = law * torch.maximum(chance * (1 - chance), spread)
        flat = torch.cat([gradient[name].reshape(members, -1) for name in self.shapes], dim=1)
        return flat, (weight * squares).sum(1)

    def _law(self, count: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probability of each (x, n), target t(x) and t(1 − t), each (2n,)."""
        pi0, pi1 = self.chain.stationary
        t0, t1 = self.chain.p, 1 - self.chain.q
        law = like.new_tensor([pi0 / count, pi1 / count]).repeat_interleave(count)
        target = like.new_tensor([t0, t1]).repeat_interleave(count)
        return law, target, target * (1 - target)
