"""The exact population loss of a softmax transformer, as a sum over the tree of all prefixes.

A prediction depends on the symbols up to its position alone, so that the prefixes of sequences are
all there is, 2^(N+1) − 2 of two symbols:

    L = (1/N) Σ_prefix π(x_0) Π P(x_m | x_{m−1}) H(P(· | last symbol), softmax f_prefix).

Every model is computed by itself, in compiled loops; its numbers do not depend on its neighbours.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.model.architecture import Architecture, Weights, check_weights, flatten, unflatten
from full_model.model.population import PopulationLoss, check_enumeration, check_states
from full_model.model.sources import MarkovSource, SequenceSource


def exact_loss(
    arch: Architecture,
    source: SequenceSource,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> PrefixTreeLoss | PopulationLoss:
    """Make the exact loss, a function of weights, of the faster class that fits.

    The sum over prefixes is for a plain softmax layer on a chain, in float64 on the CPU.
    """
    plain = dtype == torch.float64 and torch.device(device).type == "cpu"
    if plain and arch.plain_softmax and isinstance(source, MarkovSource):
        return PrefixTreeLoss(arch, source)
    return PopulationLoss(arch, source, dtype, device)


class PrefixTreeLoss:
    """The loss of ``PopulationLoss`` and its gradient, equal to rounding, for float64 on the CPU.

    Args:
        arch: one layer, one head, softmax attention, ReLU, learned positions.
        source: the chains, one for all or one per member.

    Raises:
        InputError: another architecture, too many sequences, or a source on other states.

    >>> import flowsim, full_model
    >>> source = full_model.MarkovSource.of(flowsim.BinaryChain(0.5, 0.8))
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0])
    >>> loss, gradient = full_model.PrefixTreeLoss(arch, source).value_and_gradient(weights)
    >>> bool(abs(loss - full_model.PopulationLoss(arch, source)(weights)) < 1e-12)
    True
    """

    def __init__(self, arch: Architecture, source: MarkovSource) -> None:
        if not arch.plain_softmax:
            raise InputError(
                "sums over prefixes need one layer and head of softmax attention, learned "
                "positions and ReLU, without layer norm or window"
            )
        check_states(arch, source)
        check_enumeration(arch, arch.length)
        self.arch = arch
        self._first = np.ascontiguousarray(source.stationary.cpu().numpy())
        self._kernels = np.ascontiguousarray(source.kernel.cpu().numpy())

    def __call__(self, weights: Weights) -> Tensor:
        """The loss in nats, shape (...) of the weights' ensemble axes (at most one axis)."""
        from full_model.model.tree.evaluate import LOSS

        states, ensemble = self._flat(weights)
        return self._evaluate(states, LOSS)[0].reshape(ensemble)

    def value_and_gradient(self, weights: Weights) -> tuple[Tensor, Weights]:
        """The loss (...) and its gradient by name."""
        from full_model.model.tree.evaluate import GRADIENT, LOSS

        states, ensemble = self._flat(weights)
        loss, flat = self._evaluate(states, LOSS | GRADIENT)
        shapes = self.arch.shapes
        parts = unflatten(shapes, flat)
        gradient = {n: w.reshape(ensemble + shapes[n]).contiguous() for n, w in parts.items()}
        return loss.reshape(ensemble), gradient

    def select(self, rows: Tensor) -> PrefixTreeLoss:
        """The same loss for the members of these indices; itself where one chain serves all."""
        if len(self._kernels) == 1:
            return self
        part, kept = copy(self), rows.numpy()
        part._first, part._kernels = self._first[kept], self._kernels[kept]
        return part

    def _flat(self, weights: Weights) -> tuple[Tensor, tuple[int, ...]]:
        """Return the weights as rows (M, K), M = 1 without an ensemble, and their ensemble axes."""
        ensemble = check_weights(self.arch, weights)
        if len(ensemble) > 1:
            raise InputError(f"the population loss takes one ensemble axis, not {len(ensemble)}")
        if not ensemble:
            weights = {name: w.unsqueeze(0) for name, w in weights.items()}
        return flatten(self.arch.shapes, weights), ensemble

    def _evaluate(self, states: Tensor, what: int) -> tuple[Tensor, Tensor]:
        """Compute loss (M,) and gradient (M, K) at rows of weights (M, K).

        ``what`` is LOSS, GRADIENT or both, LOSS | GRADIENT; what is not asked for is zero.
        """
        from full_model.model.tree.evaluate import evaluate  # numba takes a second to load

        if len(self._kernels) not in (1, len(states)):
            raise InputError(f"{len(self._kernels)} chains cannot serve {len(states)} models")
        if states.dtype != torch.float64 or states.device.type != "cpu":
            raise InputError("sums over prefixes need weights in float64 on the CPU")
        arch = self.arch
        loss, gradient, _ = evaluate(
            states.detach().contiguous().numpy(), self._first, self._kernels, arch.length,
            arch.length, arch.d, arch.width, arch.logits, arch.tied, what, 0.0, True,
        )  # fmt: skip
        return torch.from_numpy(loss), torch.from_numpy(gradient)
