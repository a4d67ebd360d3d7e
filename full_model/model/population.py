"""The population loss, exact by enumeration of all sequences."""

from __future__ import annotations

import math
from copy import copy

import torch
from torch import Tensor

from flowsim.errors import InputError
from full_model.model.architecture import Architecture, Weights, check_weights
from full_model.model.sources import MarkovSource, SequenceSource, sequence_law
from full_model.model.transformer import cross_entropy, forward

#: Largest number of enumerated sequences: 16 binary symbols.
MAX_SEQUENCES = 2**16
#: Numbers of the widest activations held at once: about 0.3 GiB with what their gradients need.
CHUNK_NUMBERS = 2**23
#: Seconds that loss and gradient take for one such number, on one core of 2023.
_SECONDS_PER_NUMBER = 2e-8
#: The same by compiled sums over prefixes, for each of a prefix's multiplications.
_SECONDS_PER_PRODUCT = 1e-10


class PopulationLoss:
    """L(θ) = E (1/N) Σ_n −log f_θ(x_{n+1} | x_1 … x_n) over a source of sequences, exactly.

    All k^N sequences are run through the model and weighed with their probability; the next symbol
    is averaged out in closed form (of a prior, by Bayes's predictor). On a first-order chain a
    prediction without attention sees the current symbol only, so k constant sequences, weighed with
    π, give the same number at any N.

    Args:
        arch: the architecture; its ``length`` is N and its ``states`` is k.
        source: of the sequences, one for all or one per member.
        dtype, device: of the weights to come.

    Attributes:
        tokens: (S, N) uint8; weights of the sequences (M, S) and target laws (M, S, N[, k]) follow.

    Raises:
        InputError: another number of states, more than ``MAX_SEQUENCES`` sequences, or a prior
            without a known Bayes predictor.

    Source: AM Sec. 2 (loss); the constant sequences by own derivation.

    >>> import flowsim, full_model
    >>> source = full_model.MarkovSource.of(flowsim.BinaryChain(0.5, 0.8))
    >>> arch = full_model.Architecture(d=4, length=4)
    >>> weights = full_model.initial_weights(arch, "gaussian", seeds=[0, 1])
    >>> full_model.PopulationLoss(arch, source)(weights).numpy().round(2)
    array([0.69, 0.69])
    """

    def __init__(
        self,
        arch: Architecture,
        source: SequenceSource,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        check_states(arch, source)
        n, k = arch.length, arch.states
        self.arch, self.source = arch, source
        if arch.attention == "none" and isinstance(source, MarkovSource):
            self.tokens = torch.arange(k, dtype=torch.uint8).unsqueeze(-1).expand(k, n)
            probability = source.stationary.clone()
            laws = source.next_laws(self.tokens)
        else:
            check_enumeration(arch, n)
            self.tokens = all_sequences(n, k)
            laws = source.next_laws(self.tokens)
            probability = sequence_law(source, self.tokens, laws)
        if arch.output == "binary":
            laws = laws[..., 1]
        self.tokens = self.tokens.to(device)
        self.probability, self.targets = probability.to(device, dtype), laws.to(device, dtype)

    def __call__(self, weights: Weights) -> Tensor:
        """The loss in nats, shape (...) of the weights' ensemble axes (at most one axis)."""
        ensemble = check_weights(self.arch, weights)
        total = torch.zeros((), dtype=self.probability.dtype, device=self.probability.device)
        for part in self._chunks(ensemble):
            total = total + self._part(weights, part, ensemble)
        return total

    def value_and_gradient(self, weights: Weights) -> tuple[Tensor, Weights]:
        """The loss (...) and its gradient by name; memory is that of one chunk of sequences."""
        ensemble = check_weights(self.arch, weights)
        free = {name: w.detach().requires_grad_() for name, w in weights.items()}
        total: Tensor | None = None
        gradient: list[Tensor] = []
        for part in self._chunks(ensemble):
            value = self._part(free, part, ensemble)
            grads = torch.autograd.grad(value.sum(), list(free.values()))
            if total is None:
                total, gradient = value.detach(), list(grads)
            else:
                total = total + value.detach()
                gradient = [old + new for old, new in zip(gradient, grads, strict=True)]
        assert total is not None
        return total, dict(zip(free, gradient, strict=True))

    def select(self, rows: Tensor) -> PopulationLoss:
        """The same loss for the members of these indices; itself where one chain serves all."""
        if self.probability.shape[0] == 1:
            return self
        part = copy(self)
        part.probability, part.targets = self.probability[rows], self.targets[rows]
        return part

    def optimal_bias(self, weights: Weights) -> Tensor:
        """The bias that minimises the loss with all other weights kept, shape (...).

        The loss is convex in b; E (σ(logit) − t) = 0 is solved by bisection to rounding.

        Raises:
            InputError: k logits, where the bias is no number.
        """
        if self.arch.output != "binary":
            raise InputError("an optimal bias needs the binary logit")
        ensemble = check_weights(self.arch, weights)
        plain = {**weights, "bias": 0 * weights["bias"]}
        with torch.no_grad():
            parts = [forward(self.arch, plain, self.tokens[c]) for c in self._chunks(ensemble)]
        free = torch.cat(parts, dim=-2)
        weight, targets = self.probability, self.targets
        probability, targets = (weight, targets) if ensemble else (weight[0], targets[0])
        steepest = float(targets.logit().abs().nan_to_num(posinf=750.0).max())  # where one is sure
        high = free.abs().amax((-2, -1)) + 1 + steepest
        low = -high
        for _ in range(200):
            middle = (low + high) / 2
            residual = (free + middle[..., None, None]).sigmoid() - targets
            above = (residual.mean(-1) * probability).sum(-1) > 0
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return (low + high) / 2

    def _chunks(self, ensemble: tuple[int, ...]) -> list[slice]:
        """Cut the enumerated sequences into slices whose activations are held at once."""
        if len(ensemble) > 1:
            raise InputError(f"the population loss takes one ensemble axis, not {len(ensemble)}")
        models = ensemble[0] if ensemble else 1
        if self.probability.shape[0] not in (1, models):
            raise InputError(f"{self.probability.shape[0]} chains cannot serve {models} models")
        count, n = self.tokens.shape
        size = max(1, CHUNK_NUMBERS // (models * n * _widest(self.arch, n)))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def _part(self, weights: Weights, part: slice, ensemble: tuple[int, ...]) -> Tensor:
        """Sum probability × cross-entropy over a slice of the sequences: its part of the loss."""
        logits = forward(self.arch, weights, self.tokens[part])
        probability, targets = self.probability[:, part], self.targets[:, part]
        if not ensemble:
            probability, targets = probability[0], targets[0]
        return (cross_entropy(self.arch, logits, targets).mean(-1) * probability).sum(-1)


def check_states(arch: Architecture, source: SequenceSource) -> None:
    """InputError unless the model and the source have the same number of symbols."""
    if source.states != arch.states:
        raise InputError(f"a source on {source.states} states cannot feed a model on {arch.states}")


def _widest(arch: Architecture, n: int) -> int:
    """Count the numbers that a layer computes at one position of sequences of n symbols."""
    return arch.width + 4 * arch.states_kept + arch.heads * n


def check_enumeration(arch: Architecture, n: int) -> None:
    """InputError, with an estimate of the cost, if n symbols have too many sequences."""
    bits = n * math.log2(arch.states)
    if bits <= math.log2(MAX_SEQUENCES):
        return
    count = 2.0 ** min(bits, 900.0)
    if arch.plain_softmax:  # 2 count prefixes, see prefix_tree
        products = 3 * arch.d * arch.width + 12 * arch.d**2 + 30 * arch.d
        seconds = 2 * count * products * _SECONDS_PER_PRODUCT
        gib = 2 * count * 8 * (arch.d + 2) / 2**30  # the mixtures and the law
    else:
        seconds = count * n * _widest(arch, n) * arch.layers * _SECONDS_PER_NUMBER
        gib = count * (9 * n + 8) / 2**30  # the sequences, their probabilities and their targets
    units = ((86400 * 365, "years"), (86400, "days"), (3600, "hours"), (60, "minutes"))
    size, unit = next(((s, u) for s, u in units if seconds >= 2 * s), (1, "seconds"))
    raise InputError(
        f"the exact loss sums over all {arch.states}^{n} sequences: {seconds / size:.3g} {unit} or "
        f"more and {gib:.2g} GiB a gradient; take a length of "
        f"{int(math.log2(MAX_SEQUENCES) / math.log2(arch.states))} or less; "
        "training on sampled batches takes any"
    )


def all_sequences(n: int, k: int = 2) -> Tensor:
    """Every sequence of n symbols, (k^n, n) uint8, the last symbol running fastest.

    >>> import full_model
    >>> full_model.all_sequences(2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    index = torch.arange(k**n).unsqueeze(-1)
    return (index // k ** torch.arange(n - 1, -1, -1) % k).to(torch.uint8)
