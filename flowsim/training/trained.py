"""Results of training from each start, from exact losses and the end; never guessed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from flowsim.labels import Status

#: A run has learned the bigram when at most this share of the gap between the losses of unigram and
#: bigram is open: with sampled batches, which never come to rest, and with the population loss.
LEARNED_SAMPLED, LEARNED_POPULATION = 0.1, 0.01
#: It is at the unigram when the open share is within this of 1.
AT_UNIGRAM = 0.1


@dataclass
class Trained:
    """Ends of training runs, one entry per start: tensors or numpy arrays.

    Attributes:
        theta: ends in the model's coordinates, shape (n, k); of the rank-one model without
            attention and with sampled batches rho is the mean of the positions.
        label: ``Label`` values, int8: what became of the run, see ``descend``. Of the rank-one
            model GLOBAL_MINIMUM: the exact loss ended, after each of the last 8 steps, with at most
            10 % (sampled) or 1 % (population) of the gap open. LOCAL_MINIMUM: gradient descent at a
            constant rate in the basin of a stable unigram point, from which it provably does not
            come back (docs/derivations/10.md). Else UNRESOLVED: Adam and sampled batches are never
            trapped for certain.
        status: ``Status`` values, int8: CONVERGED where it rests, or has a label in the rank-one
            model; TIMED_OUT where the steps ended, PERIODIC where large steps go round in a circle,
            DIVERGED, FAILED.
        rule: ``Rule`` values, int8.
        loss: exact loss at the end, in nats.
        period: int32, after how many steps a periodic run comes back; else 0.
        largest: the largest |√Gᵢ·θᵢ| on the way, G being the model's metric.
        steps_taken: until the run was decided, int32.

    The rank-one model leaves these three empty; all other models leave the others empty:

    Attributes:
        open_share: (loss − entropy rate)/(h(π₁) − entropy rate), 1 at the unigram and 0 at the
            bigram; NaN where p + q = 1.
        progress: int8, how far the run came; what the training rule's ``progress`` names.
        learned_step: the first of a hundred looks from which on the share stays learned; NaN if it
            does not.
        state: ends with a ρ for each position, shape (n, columns).
        path, path_loss: coordinates (T, n, k) and exact losses (T, n) after the steps that were to
            be kept.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> trained = flowsim.descend(model, [[1.0, -1.2]], "gd", steps=500)
    >>> str(flowsim.Label(int(trained.label[0]))), flowsim.Status(int(trained.status[0])).name
    ('global_minimum', 'CONVERGED')
    """

    theta: Tensor
    label: Tensor
    status: Tensor
    rule: Tensor
    loss: Tensor
    period: Tensor = field(default_factory=lambda: torch.zeros(0))
    largest: Tensor = field(default_factory=lambda: torch.zeros(0))
    steps_taken: Tensor = field(default_factory=lambda: torch.zeros(0))
    open_share: Tensor = field(default_factory=lambda: torch.zeros(0))
    progress: Tensor = field(default_factory=lambda: torch.zeros(0))
    learned_step: Tensor = field(default_factory=lambda: torch.zeros(0))
    state: Tensor = field(default_factory=lambda: torch.zeros(0))
    path: Tensor = field(default_factory=lambda: torch.zeros(0))
    path_loss: Tensor = field(default_factory=lambda: torch.zeros(0))

    @classmethod
    def unknown(cls, theta: Tensor) -> Trained:
        """Make the entries of n runs from θ (n, k) that count as failed until more is known."""
        none = torch.zeros_like(theta[:, 0], dtype=torch.int8)
        nothing, count = torch.full_like(theta[:, 0], torch.nan), none.to(torch.int32)
        status = torch.full_like(none, Status.FAILED)
        return cls(
            torch.full_like(theta, torch.nan), none, status, none.clone(), nothing, count,
            nothing.clone(), count.clone(),
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: list[Trained]) -> Trained:
        """Concatenate the runs of all parts."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def numpy(self) -> Trained:
        """The same entries as numpy arrays."""
        return Trained(**{f.name: getattr(self, f.name).numpy() for f in fields(self)})
