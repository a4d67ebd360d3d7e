"""What moves flattened ensembles of transformers with S logits: gradient and stiffness."""

from __future__ import annotations

from torch import Tensor

from flowsim.markov import GapChain
from full_model.comparison.fields import FullField
from full_model.model.architecture import Architecture, Weights
from full_model.model.source import MarkovSource
from full_model.model.symbols.symbol_loss import SymbolLoss

#: Bits of ``evaluate_symbols``: the gradient alone, and with the stiffness.
_GRADIENT, _BOTH = 2, 6


class StatesField(FullField):
    """The field of models with S logits, exact over all prefixes, on the CPU.

    Args:
        arch: one tied layer and head, softmax attention or none, S logits, ReLU.
        chain: the data.
        shared: without attention: the N positions of every model are equal, and the state holds
            them once.
        rounding: see ``FullField``.

    Raises:
        InputError: another architecture, or too many sequences.
    """

    population: SymbolLoss

    def __init__(
        self, arch: Architecture, chain: GapChain, shared: bool = False, rounding: float = 0.0
    ) -> None:
        loss = SymbolLoss(arch, MarkovSource.of(chain))
        super().__init__(arch, chain, "cpu", rounding, loss)
        if shared:
            self.shapes["positions"] = (1, arch.d)
            self.metric = self.metric.new_ones(self.size)
            self.metric_weights()["positions"][:] = arch.length  # a view

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (M, K) and stiffness (M,) of states (M, K), see ``evaluate_symbols``."""
        _, gradient, stiffness = self._evaluate(state, _BOTH)
        return gradient, stiffness

    def gradient(self, weights: Weights) -> Weights:
        """The gradient by name, at weights by name."""
        return self.weights(self._evaluate(self.state(weights), _GRADIENT)[1])

    def _evaluate(self, state: Tensor, what: int) -> tuple[Tensor, Tensor, Tensor]:
        count = self.shapes["positions"][0]
        return self.population.evaluate(state, count, what, self.rounding)
