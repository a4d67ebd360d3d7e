"""The induction head reduced to two numbers: how it finds the symbol before, and how it matches."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.chains.exact_losses import count_classes
from flowsim.chains.priors import DirichletPrior, Prior
from flowsim.errors import InputError
from flowsim.flow.rows.engine import SwitchingSolver
from flowsim.interface import EndLosses, RecordedModel, accepts_theta
from flowsim.labels import Label
from flowsim.models import autograd
from flowsim.models.induction.ends import induction_landscape
from flowsim.models.induction.field import SequenceClasses, write_losses_and_derivatives
from flowsim.models.induction.plane import InductionPlane
from flowsim.models.induction.rows import compiled_model_of

#: The law of kernels unless another is given.
DIRICHLET = DirichletPrior(2)
#: Beyond this length a portrait takes more than a minute: there are some T³/6 classes.
MAX_LENGTH = 24
#: Distance of an orbit of torchdiffeq from its end's loss, in parts of the drop to it from
#: the plateau.
_NEAR = 0.01


class InductionModel(RecordedModel):
    """θ = (α, β): two layers of attention over sequences whose kernels are drawn anew, S = 2.

    Layer 1 puts the share s = σ(α) on the symbol before and the rest on the own one,
    u_i = s e_{x_{i−1}} + (1 − s) e_{x_i}. Layer 2 attends with scores β⟨u_i, e_{x_n}⟩ to the places
    i = 2 … n, and what it finds is read as shares of n − 1 counts to which one is added:

        P(x_{n+1} = x) = ((n − 1) Σ_i A_i 1{x_i = x} + 1)/(n + 1).

    On β = 0 this is the in-context unigram for every α, a plateau; for large α and β it looks at
    what followed x_n before. The loss is the mean over n = 2 … T of the expected cross-entropy, and
    exact: scores depend on (x_{i−1}, x_i, x_n) alone, so that a sequence enters through its counts
    of pairs.

    Args:
        length: T, from 3 to 24.
        prior: the law of kernels, of order 1 on two states; Dirichlet(1) rows if None.

    Raises:
        InputError: T out of range, or another kind of prior.

    Source: own derivation, docs/derivations/19.md.

    >>> import flowsim
    >>> model = flowsim.models.InductionModel(length=8)
    >>> round(float(model.loss([2.0, 4.0]) - model.loss([2.0, 0.0])), 3)
    -0.019
    """

    name = "induction"
    long_names = MappingProxyType(
        {
            "alpha": "previous symbol α",
            "beta": "match β",
            "global_minimum": "learns to look at what followed before",
            "local_minimum": "creeps along the other valley (own symbol, β < 0)",
        }
    )
    coordinates = ("alpha", "beta")

    def __init__(self, length: int, prior: Prior | None = None) -> None:
        prior = DIRICHLET if prior is None else prior
        if isinstance(length, bool) or not isinstance(length, int) or not 3 <= length <= MAX_LENGTH:
            raise InputError(
                f"the induction model needs a length from 3 to {MAX_LENGTH}, not {length!r}"
            )
        if (prior.states, prior.order) != (2, 1):
            raise InputError(
                f"the induction model is of order 1 on two states, not of order {prior.order} on "
                f"{prior.states}"
            )
        self.length, self.prior = length, prior
        self.terms, self.bayes = _sequence_classes(prior, length)

    def __repr__(self) -> str:
        return f"InductionModel(length={self.length}, prior={type(self.prior).__name__})"

    def options(self) -> dict[str, Any]:
        """Return the length T, by name."""
        return {"length": self.length}

    def attributes(self) -> dict[str, Any]:
        """Return attributes of a record, with the law of kernels."""
        usual = self.prior.settings() == DIRICHLET.settings()
        return {**super().attributes(), "prior": "dirichlet" if usual else repr(self.prior)}

    @property
    def title(self) -> str:  # type: ignore[override]
        """The data, and the losses of the plateau and of Bayes's predictor."""
        usual = self.prior.settings() == DIRICHLET.settings()
        prior, found = "Dirichlet(1)" if usual else repr(self.prior), induction_landscape(self)
        return (
            "induction head\n"
            f"$N$ = {self.length} symbols, kernels from {prior}, anew per sequence\n"
            f"loss {found.plateau:.4f} on the plateau, {self.bayes:.4f} of Bayes"
        )

    @property
    def chain(self) -> Any:
        """The law of kernels, which stands where other models have their one chain."""
        return self.prior

    @property
    def plane(self) -> InductionPlane:
        """The plane (α, β)."""
        return InductionPlane(self)

    def end_losses(self) -> EndLosses | None:
        """Return the losses of the lower end and of the plateau; None where no end is known."""
        found = induction_landscape(self)
        if not found.ends:
            return None
        best = found.ends[found.best].loss
        drop = found.plateau - best
        return EndLosses(
            best, found.plateau, drop, drop, rate=6e-5, classify=self.classify,
            label_of_point=self.label_of_point,
        )  # fmt: skip

    @accepts_theta
    def classify(self, theta: Tensor, decisive: bool = False) -> Tensor:
        """Label critical points (n, 2): SADDLE by their curvature, else UNRESOLVED, int8 (n,).

        The minima are at no finite place that rows start at.
        """
        values = torch.linalg.eigvalsh(self.hessian(theta))
        falls = values[:, 0] < -1e-9 * values.abs().amax(dim=-1)
        return torch.where(falls, Label.SADDLE, Label.UNRESOLVED).to(torch.int8)

    @property
    def plateau(self) -> float:
        """The loss of the in-context unigram, that of every point with β = 0."""
        return float(self.loss(torch.zeros(2, dtype=torch.float64)))

    loss, gradient, hessian = autograd.loss, autograd.gradient, autograd.hessian

    def by_rows(self, theta: Tensor, quantity: str) -> Tensor:
        """Return the "loss" (...), "gradient" (..., 2) or "hessian" (..., 2, 2) at θ (..., 2)."""
        theta = theta.detach()
        share = theta[..., 0].double().sigmoid()
        if quantity == "loss":
            return self.by_share(share, theta[..., 1])[0]
        if quantity == "gradient":
            _, along_share, along_beta = self.by_share(share, theta[..., 1])
            return torch.stack([along_share * share * (1 - share), along_beta], dim=-1)
        _, by_s, _, by_ss, by_sb, by_bb = self._derivatives(share, theta[..., 1], 6)
        rate = share * (1 - share)  # ds/dα, whose own derivative is (1 − 2s) times it
        by_aa = rate * (rate * by_ss + (1 - 2 * share) * by_s)
        mixed = rate * by_sb
        return torch.stack([by_aa, mixed, mixed, by_bb], dim=-1).unflatten(-1, (2, 2))

    def label_of_point(self, theta: Tensor) -> Tensor:
        """Label rows (n, 2) whose loss is close to that of their side's end, int8 (n,)."""
        landscape, loss = induction_landscape(self), self.loss(theta)
        label = torch.full_like(loss, Label.UNRESOLVED, dtype=torch.int8)
        for side, end in landscape.ends.items():
            near = loss - end.loss <= _NEAR * (landscape.plateau - end.loss)
            best = side == landscape.best
            kind = Label.GLOBAL_MINIMUM if best else Label.LOCAL_MINIMUM
            label[near & (theta[:, 1].sign() == side)] = kind
        return label

    def flow(self) -> SwitchingSolver:
        """Return the solver of the rows engine."""
        return SwitchingSolver(self, compiled_model_of(self))

    def by_share(self, share: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return L, ∂L/∂s and ∂L/∂β at shares s in [0, 1], its ends included; all of one shape."""
        loss, along_share, along_beta = self._derivatives(share, beta, 3)
        return loss, along_share, along_beta

    def _derivatives(self, share: Tensor, beta: Tensor, count: int) -> list[Tensor]:
        """Return L and its first (3 tensors) or also second derivatives (6), shape of ``share``."""
        flat = [x.detach().reshape(-1).double().cpu().numpy() for x in (share, beta)]
        found = np.empty((count, len(flat[0])))
        write_losses_and_derivatives(*self.terms, *flat, found)
        return [torch.from_numpy(x).reshape(share.shape) for x in found]


def _sequence_classes(prior: Prior, length: int) -> tuple[SequenceClasses, float]:
    """Return the classes of sequences of 2 … T symbols by their last symbol, and Bayes's loss."""
    rows, bayes = [], 0.0
    for n, classes in enumerate(count_classes(prior, length), 1):
        if n == 1:
            continue
        chance = prior.predict(classes.counts, classes.context)
        weight = classes.weight / (length - 1)
        bayes -= float((weight[:, None] * torch.xlogy(chance, chance)).sum())
        place, q = torch.arange(len(weight)), classes.context
        counts = classes.counts
        seen = [counts[place, q, q], counts[place, 1 - q, q], counts[place, q, 1 - q],
                counts[place, 1 - q, 1 - q]]  # fmt: skip
        rows.append(torch.stack([*seen, weight, chance[place, q]]))
    whole = torch.cat(rows, dim=1).numpy()
    return SequenceClasses.merged(whole[:4], whole[4], whole[5]), bayes
