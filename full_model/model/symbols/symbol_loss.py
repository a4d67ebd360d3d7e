"""The exact loss of a transformer with S logits, its gradient and stiffness, compiled."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.model.architecture import Architecture, Weights, check_weights
from full_model.model.population import check_enumeration
from full_model.model.source import MarkovSource


class SymbolLoss:
    """The loss of ``PopulationLoss`` and its gradient, equal to rounding, for float64 on the CPU.

    Args:
        arch: one tied layer and head of softmax attention or none, S logits, ReLU, learned
            positions, without layer norm or window.
        source: one chain.

    Raises:
        InputError: another architecture, too many sequences, or a source on other states.
    """

    def __init__(self, arch: Architecture, source: MarkovSource) -> None:
        plain = (arch.layers, arch.heads, arch.output, arch.tied) == (1, 1, "states", True)
        plain &= arch.attention in ("softmax", "none") and arch.positions == "learned"
        if not plain or arch.activation != "relu" or arch.layer_norm or arch.window is not None:
            raise InputError(
                "compiled sums over symbols need one tied layer and head with S logits, softmax "
                "attention or none, learned positions and ReLU, without layer norm or window"
            )
        if source.states != arch.states:
            raise InputError(
                f"a source on {source.states} states cannot feed a model on {arch.states}"
            )
        if source.members != 1:
            raise InputError("compiled sums over symbols take one chain")
        self.arch, self.attention = arch, arch.attention == "softmax"
        if self.attention:
            check_enumeration(arch, arch.length)
        self._first = np.ascontiguousarray(source.stationary[0].cpu().numpy())
        self._kernel = np.ascontiguousarray(source.kernel[0].cpu().numpy())

    def __call__(self, weights: Weights) -> Tensor:
        """The loss in nats, (M,), of weights (M, *shape)."""
        from full_model.model.symbols.evaluate_symbols import LOSS

        check_weights(self.arch, weights)
        return self.evaluate(self._flat(weights), self.arch.length, LOSS)[0]

    def value_and_gradient(self, weights: Weights) -> tuple[Tensor, Weights]:
        """The loss (M,) and its gradient by name."""
        from full_model.model.symbols.evaluate_symbols import GRADIENT, LOSS

        check_weights(self.arch, weights)
        loss, flat, _ = self.evaluate(self._flat(weights), self.arch.length, LOSS | GRADIENT)
        sizes = [math.prod(shape) for shape in self.arch.shapes.values()]
        parts = zip(self.arch.shapes.items(), flat.split(sizes, dim=1), strict=True)
        return loss, {name: part.reshape(-1, *shape) for (name, shape), part in parts}

    def evaluate(
        self, states: Tensor, count: int, what: int, rounding: float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss (M,), gradient (M, K) and stiffness (M,) of states, see ``evaluate_symbols``."""
        from full_model.model.symbols.evaluate_symbols import evaluate_symbols  # loads numba

        arch = self.arch
        found = evaluate_symbols(
            states.detach().contiguous().numpy(), self._first, self._kernel, count, arch.length,
            arch.d, arch.width, self.attention, what, rounding,
        )  # fmt: skip
        loss, gradient, stiffness = (torch.from_numpy(values) for values in found)
        return loss, gradient, stiffness

    def _flat(self, weights: Weights) -> Tensor:
        members = len(weights["bias"])
        return torch.cat([weights[n].reshape(members, -1) for n in self.arch.shapes], dim=1)
