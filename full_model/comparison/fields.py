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
from dataclasses import replace

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.markov import GapChain
from flowsim.models.rank_one.model import RankOneModel
from full_model.lift.projection import project
from full_model.model.architecture import Architecture, Weights, flatten, unflatten
from full_model.model.prefix_tree import exact_loss
from full_model.model.sources import MarkovSource
from full_model.model.tree.evaluate import GRADIENT, STIFFNESS, evaluate


class FullField:
    """The field of M flattened models, exact over all sequences.

    The states are (M, K), the weights in the order of ``shapes``. On the CPU the stiffness is the
    trace of Σ P Σ_c h_c ∇(f_c − f̄) ∇(f_c − f̄)ᵀ in the metric, over prefixes of probability P, f̄
    the logits' mean under the model's chances and h_c the larger of chance and target; of a binary
    logit that of Σ P·s·∇f ∇fᵀ with s the larger of σ′(f) and t(1 − t). With W_Q or W_K it is a
    bound of it. It bounds the largest curvature where f is near its target, so that a step well
    below its inverse neither oscillates nor jumps. Elsewhere than on the CPU gradients are those of
    automatic differentiation, and the stiffness is that of the rank-one model at the weights'
    projection.

    Args:
        arch: one ReLU layer with learned positions and one softmax head or no attention; elsewhere
            than on the CPU a binary logit.
        chain: the data.
        shared: the N positions of every model are equal, and the state holds them once.
        rounding: half the width over which ReLU's kink is rounded off in a hidden unit's input, 0
            for ReLU itself: its derivative there is (2 + 3t − t³)/4 at t = input/rounding. The
            loss is always that of ReLU itself.

    Attributes:
        shapes: name and shape of the weights in a state.
        metric: (K,), by which a state's gradient is divided: 1, and N for a shared position.

    Raises:
        InputError: another architecture, too many sequences, or kinks to be rounded off elsewhere
            than on the CPU.
    """

    def __init__(
        self,
        arch: Architecture,
        chain: GapChain,
        shared: bool = False,
        device: str = "cpu",
        rounding: float = 0.0,
    ) -> None:
        attending = replace(arch, attention="softmax") if arch.attention == "none" else arch
        if not attending.plain_softmax:
            raise InputError("a field needs a ReLU layer with positions, one head or no attention")
        if rounding and torch.device(device).type != "cpu":
            raise InputError("gradient flow is computed on the CPU")
        self.arch, self.chain, self.rounding = arch, chain, rounding
        self.source = MarkovSource.of(chain)
        self.population = exact_loss(arch, self.source, device=device)
        self.shapes = dict(arch.shapes)
        if shared:
            self.shapes["positions"] = (1, arch.d)
        size = sum(math.prod(shape) for shape in self.shapes.values())
        self.metric = torch.ones(size, dtype=torch.float64, device=device)
        if shared:
            self.metric_weights()["positions"][:] = arch.length  # a view

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (M, K) and stiffness (M,) of states (M, K)."""
        if state.device.type == "cpu":
            return self._over_prefixes(state, GRADIENT | STIFFNESS)
        assert isinstance(self.chain, BinaryChain)
        attends, arch = self.arch.attention != "none", self.arch
        model = RankOneModel(self.chain, arch.length, attention=attends, tied=arch.tied)
        point = rank_one_coordinates(model, arch, self.whole(state))
        return self.slope(state), model.stiffness(point)

    def slope(self, state: Tensor) -> Tensor:
        """The gradient (M, K) at states (M, K), without the stiffness."""
        if state.device.type == "cpu":
            return self._over_prefixes(state, GRADIENT)[0]
        with torch.enable_grad():
            _, found = self.population.value_and_gradient(self.whole(state))
        if self.shapes["positions"][0] == 1:
            found["positions"] = found["positions"].sum(1, keepdim=True)
        return self.state(found)

    def _over_prefixes(self, state: Tensor, what: int) -> tuple[Tensor, Tensor]:
        """Compute gradient (M, K) and stiffness (M,) over prefixes; zeros unless in ``what``."""
        arch, source = self.arch, self.source
        _, gradient, stiffness = evaluate(
            state.contiguous().numpy(), source.stationary.numpy(), source.kernel.numpy(),
            self.shapes["positions"][0], arch.length, arch.d, arch.width, arch.logits, arch.tied,
            what, self.rounding, arch.attention != "none",
        )  # fmt: skip
        return torch.from_numpy(gradient), torch.from_numpy(stiffness)

    def loss(self, state: Tensor) -> Tensor:
        """The population loss in nats, (M,)."""
        with torch.no_grad():
            return self.population(self.whole(state))

    def weights(self, state: Tensor) -> Weights:
        """The weights of states (M, K) by name, a shared position as (M, 1, d)."""
        return unflatten(self.shapes, state)

    def whole(self, state: Tensor) -> Weights:
        """The full models' weights by name, (M, *shape), from states (M, K).

        Each of the N positions is written out, a shared one N times.
        """
        weights = self.weights(state)
        positions = weights["positions"].expand(-1, self.arch.length, -1)
        return {**weights, "positions": positions}

    def state(self, weights: Weights) -> Tensor:
        """States (M, K) from weights by name, of full models or with a shared position."""
        positions = weights["positions"][:, : self.shapes["positions"][0]]
        return flatten(self.shapes, {**weights, "positions": positions})

    def gradient(self, weights: Weights) -> Weights:
        """The gradient by name, at weights by name."""
        return self.weights(self.slope(self.state(weights)))

    def metric_weights(self) -> Weights:
        """The metric by name, each (1, *shape)."""
        return self.weights(self.metric.unsqueeze(0))


def rank_one_coordinates(model: RankOneModel, arch: Architecture, weights: Weights) -> Tensor:
    """The rank-one model's coordinates (M, k) of weights projected onto α = 1/√d."""
    alpha = weights["bias"].new_full((arch.d,), arch.d**-0.5)
    return project(arch, weights, alpha).point.to_coordinates(model.attention, model.tied)
