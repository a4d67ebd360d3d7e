"""Vector fields of flattened weight ensembles: gradient and stiffness of the population loss.

Without attention position n sees its own symbol only, Y_{n,x} = p_n + x·e, and

    f_{n,x} = ⟨u, Y + W_2 ReLU(W_1 Y)⟩ + b,    L = (1/N) Σ_n Σ_x π_x H(t(x), σ(f_{n,x})),

and likewise of S logits, so that the pairs (n, x) are all there is to sum over, at any N. Positions
that start equal stay equal (their gradients are equal), so one of them
can stand for all N, each moving with 1/N of their common gradient. With attention the sum runs over
all prefixes of the sequences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.markov import GapChain
from flowsim.models.rank_one.model import RankOneModel
from full_model.lift.projection import project
from full_model.model.architecture import Architecture, Weights, flatten, unflatten
from full_model.model.attention_free import without_attention
from full_model.model.prefix_tree import PrefixTreeLoss, exact_loss
from full_model.model.sources import MarkovSource


class FullField:
    """Base of both fields: M models as states (M, K), their weights in a fixed order.

    Attributes:
        rounding: half the width over which ReLU's kink is rounded off in a hidden unit's input, 0
            for ReLU itself: its derivative there is (2 + 3t − t³)/4 at t = input/rounding. The
            loss is always that of ReLU itself.
        shapes: name and shape of the weights in a state.
        metric: (K,), by which a state's gradient is divided: 1, and N for a shared position.
    """

    def __init__(
        self, arch: Architecture, chain: GapChain, device: str = "cpu", rounding: float = 0.0
    ) -> None:
        if rounding and torch.device(device).type != "cpu":
            raise InputError("gradient flow is computed on the CPU")
        self.arch, self.chain, self.rounding = arch, chain, rounding
        self.source = MarkovSource.of(chain)
        self.population = exact_loss(arch, self.source, device=device)
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
        return unflatten(self.shapes, state)

    def whole(self, state: Tensor) -> Weights:
        """The weights of the full models, every position written out."""
        weights = self.weights(state)
        positions = weights["positions"].expand(-1, self.arch.length, -1)
        return {**weights, "positions": positions}

    def state(self, weights: Weights) -> Tensor:
        """(M, K) from the weights of full models, or of models with a shared position."""
        positions = weights["positions"][:, : self.shapes["positions"][0]]
        return flatten(self.shapes, {**weights, "positions": positions})

    def gradient(self, weights: Weights) -> Weights:
        """The gradient by name, at weights by name."""
        return self.weights(self(self.state(weights))[0])

    def differentiated(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient by automatic differentiation, and the stiffness (M,) of the rank-one model at
        the weights' projection onto α = 1/√d."""
        assert isinstance(self.chain, BinaryChain)
        weights = self.whole(state)
        with torch.enable_grad():
            _, gradient = self.population.value_and_gradient(weights)
        if self.shapes["positions"][0] == 1:
            gradient["positions"] = gradient["positions"].sum(1, keepdim=True)
        arch, attention = self.arch, self.arch.attention != "none"
        model = RankOneModel(self.chain, arch.length, attention=attention, tied=arch.tied)
        stiffness = model.stiffness(rank_one_coordinates(model, arch, weights))
        return self.state(gradient), stiffness

    def metric_weights(self) -> Weights:
        """The metric by name, each (1, *shape)."""
        return self.weights(self.metric.unsqueeze(0))


def rank_one_coordinates(model: RankOneModel, arch: Architecture, weights: Weights) -> Tensor:
    """The rank-one model's coordinates (M, k) of weights projected onto α = 1/√d."""
    alpha = weights["bias"].new_full((arch.d,), arch.d**-0.5)
    return project(arch, weights, alpha).point.to_coordinates(model.attention, model.tied)


class EnumeratedField(FullField):
    """The field of models with attention, exact over all sequences.

    On the CPU, the sum over their prefixes. The stiffness bounds the trace of the Gauss-Newton
    matrix, see ``AttentionFreeField``, and is the trace where W_Q = W_K = 0. Elsewhere, automatic
    differentiation of all sequences, with that trace for the rank-one model at the weights'
    projection onto α = 1/√d; on the manifold, both are the same.

    Args:
        arch: one layer, one head, that can carry a lift; elsewhere than on the CPU a binary logit.
        chain: the data.
        rounding: see ``FullField``; 0 where automatic differentiation is used.

    Raises:
        InputError: another architecture, too many sequences, or kinks to be rounded off elsewhere
            than on the CPU.
    """

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self.population, PrefixTreeLoss):
            return self.population.gradient_and_stiffness(state, self.rounding)
        return self.differentiated(state)


class AttentionFreeField(FullField):
    """The field of gradient descent on M flattened models without attention.

    Args:
        arch: one layer, no attention, ReLU, learned positions; elsewhere than on the CPU a binary
            logit.
        chain: the data.
        shared: the N positions of every model are equal, and the state holds them once.
        rounding: see ``FullField``.

    Raises:
        InputError: another architecture.
    """

    def __init__(
        self,
        arch: Architecture,
        chain: GapChain,
        shared: bool = False,
        device: str = "cpu",
        rounding: float = 0.0,
    ) -> None:
        plain = arch.activation == "relu" and arch.positions == "learned" and not arch.layer_norm
        if not (arch.layers == 1 and arch.attention == "none" and plain):
            raise InputError("the closed form needs one ReLU layer with positions, no attention")
        super().__init__(arch, chain, device, rounding)
        if shared:
            self.shapes["positions"] = (1, arch.d)
            self.metric = self.metric.new_ones(self.size)
            self.metric_weights()["positions"][:] = arch.length  # a view

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (M, K) and stiffness (M,) of states (M, K).

        On the CPU the stiffness of a binary logit is the trace of the Gauss-Newton matrix
        Σ law·s·∇f ∇fᵀ in the metric, with s the larger of σ′(f) and t(1 − t): it bounds the largest
        curvature where f is near its target, so that a step well below its inverse neither
        oscillates nor jumps. Of S logits it is that of Σ law Σ_c h_c ∇(f_c − f̄) ∇(f_c − f̄)ᵀ, f̄
        their mean under the model's chances and h_c the larger of chance and target. Elsewhere it
        is that trace at the weights' projection, as for models with attention.
        """
        count, arch = self.shapes["positions"][0], self.arch
        if state.device.type != "cpu":
            return self.differentiated(state)
        found = without_attention(
            state.contiguous().numpy(), self.source.stationary[0].numpy(),
            self.source.kernel[0].numpy(), count, arch.length, arch.d, arch.width, arch.logits,
            arch.tied, self.rounding,
        )  # fmt: skip
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
