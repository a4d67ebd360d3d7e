"""Stationary Markov sources, one per member of an ensemble, as tensors on a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.markov import MarkovChain
from full_model.model.sequence_source import SequenceSource


class MarkovSource(SequenceSource):
    """M stationary chains on k states: kernels, stationary laws, entropies and samples.

    Attributes:
        kernel: (M, k, k), P(next = j | now = i), float64.
        stationary: (M, k), π with π P = π.
        entropy_rate: (M,), Σᵢ πᵢ H(P(i, ·)) in nats, the bigram loss.
        stationary_entropy: (M,), H(π) in nats, the unigram loss.

    Raises:
        InputError: no chain, or a kernel whose rows are not positive and of sum one.

    Source: AM Sec. 2 (binary), AM Sec. 4.3 (k states).
    """

    def __init__(self, kernel: Tensor) -> None:
        kernel = kernel.to(torch.float64)
        if kernel.ndim != 3 or kernel.shape[0] < 1 or kernel.shape[1] != kernel.shape[2]:
            raise InputError(f"kernels must have shape (M, k, k), not {tuple(kernel.shape)}")
        if kernel.shape[1] < 2 or not (kernel > 0).all():
            raise InputError("every entry of a kernel on at least two states must be positive")
        if (kernel.sum(-1) - 1).abs().max() > 1e-12:
            raise InputError("the rows of a kernel must sum to one")
        self.kernel = kernel
        self.stationary = _stationary(kernel)
        self.entropy_rate = -(self.stationary[..., None] * kernel * kernel.log()).sum((-2, -1))
        self.stationary_entropy = -(self.stationary * self.stationary.log()).sum(-1)

    @classmethod
    def of(cls, chains: MarkovChain | Sequence[MarkovChain]) -> MarkovSource:
        """The source of one chain or of several on as many states, one per member."""
        several = [chains] if isinstance(chains, MarkovChain) else list(chains)
        if len({chain.states for chain in several}) != 1:
            raise InputError("a source needs at least one chain, all on the same number of states")
        source = cls(torch.stack([torch.from_numpy(chain.kernel) for chain in several]))
        source.entropy_rate = torch.tensor([c.entropy_rate for c in several], dtype=torch.float64)
        source.stationary_entropy = torch.tensor(
            [c.stationary_entropy for c in several], dtype=torch.float64
        )
        return source

    @property
    def members(self) -> int:
        return self.kernel.shape[0]

    @property
    def states(self) -> int:
        return self.kernel.shape[1]

    def repeat(self, members: int) -> MarkovSource:
        """The same chain for every member; InputError if there are already several of them."""
        if self.members == members:
            return self
        if self.members != 1:
            raise InputError(f"{self.members} chains cannot serve {members} models")
        source = MarkovSource(self.kernel.expand(members, -1, -1))
        source.entropy_rate = self.entropy_rate.expand(members)
        source.stationary_entropy = self.stationary_entropy.expand(members)
        return source

    def sample(self, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent stationary sequences for every member, and their next symbols.

        Args:
            batch: sequences per member, at least 1.
            length: N, at least 1.
            generator: the only source of randomness; the sample lies on its device.

        Returns:
            (inputs, targets), uint8 of shape (M, batch, N); targets[..., n] follows inputs[..., n].

        Every step is a random map of the states, read off one uniform number; the sequence is the
        chain of their compositions, taken by doubling in log₂ N rounds (own derivation).
        """
        if batch < 1 or length < 1:
            raise InputError(f"a sample needs batch ≥ 1 and length ≥ 1, not {batch} and {length}")
        device = generator.device
        size = (self.members, batch, length + 1)
        u = torch.rand(size, dtype=torch.float64, device=device, generator=generator)
        laws = torch.cat([self.stationary[:, None], self.kernel], dim=1)  # π, then a row per state
        steps = laws.cumsum(-1)[..., :-1].to(device)  # (M, 1 + k, k − 1)
        if self.states == 2:
            return _binary_paths(u, steps[..., 0])
        maps = (u[..., None, None] >= steps[:, None, None, 1:]).sum(-1)  # (M, B, N + 1, k)
        maps[:, :, 0] = (u[:, :, 0, None] >= steps[:, None, 0]).sum(-1, keepdim=True)
        shift = 1
        while shift <= length:
            maps[:, :, shift:] = maps[:, :, shift:].gather(-1, maps[:, :, :-shift])
            shift *= 2
        paths = maps[..., 0].to(torch.uint8)
        return paths[..., :-1], paths[..., 1:]

    def first_law(self) -> Tensor:
        return self.stationary

    def next_laws(self, tokens: Tensor) -> Tensor:
        whole, member = self.of_members(tokens)
        return self.kernel[member, whole]


def _binary_paths(u: Tensor, zero_below: Tensor) -> tuple[Tensor, Tensor]:
    """Two-state paths from uniforms (M, B, N + 1) and P(0 | start, 0, 1), shape (M, 3).

    Step n maps the state s to c ⊕ (d ∧ s), and maps after maps are of that form. All sequences are
    composed as one long row: a first step has d = 0, and nothing reaches over it.
    """
    image = (u >= zero_below[:, 1, None, None]).view(torch.uint8)
    moves = (u >= zero_below[:, 2, None, None]).view(torch.uint8).bitwise_xor_(image)
    image[..., 0] = u[..., 0] >= zero_below[:, 0, None]
    moves[..., 0] = 0
    c, d = image.view(-1), moves.view(-1)
    shift, last = 1, u.shape[-1] - 1
    while shift <= last:
        c[shift:] ^= d[shift:] & c[:-shift]
        d[shift:] &= d[:-shift].clone()
        shift *= 2
    return image[..., :-1], image[..., 1:]


def _stationary(kernel: Tensor) -> Tensor:
    """π of each kernel: the cofactors of 1 − P, by solving with one equation replaced by Σπ = 1."""
    k = kernel.shape[-1]
    if k == 2:
        weights = torch.stack([kernel[:, 1, 0], kernel[:, 0, 1]], dim=-1)
        return weights / weights.sum(-1, keepdim=True)
    system = torch.eye(k, dtype=kernel.dtype, device=kernel.device) - kernel.mT
    system[:, -1] = 1
    right = torch.zeros(kernel.shape[0], k, dtype=kernel.dtype, device=kernel.device)
    right[:, -1] = 1
    return torch.linalg.solve(system, right)
