"""The losses of a run: what its loss is compared with, and its own over held-out sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.chains.baselines import baselines
from flowsim.chains.hidden import HiddenMarkovProcess, hidden_baselines
from flowsim.chains.paths import in_context
from flowsim.chains.priors import Prior
from flowsim.errors import InputError
from full_model.model.sources import SequenceSource
from full_model.model.transformer import cross_entropy
from full_model.training.settings import RunSettings, symbols_of


@dataclass(frozen=True)
class RunLosses:
    """The baselines' names, their values (M, baselines), and why some are not known."""

    names: tuple[str, ...]
    values: Tensor
    missing: str = ""

    @classmethod
    def of(cls, settings: RunSettings) -> RunLosses:
        """Compute the baselines of every model's data; the uniform one alone where not known."""
        found: dict[Any, dict[str, float]] = {}
        missing = ""
        for data in settings.every_data:
            if data in found:
                continue
            try:
                length = settings.arch.length
                found[data] = (
                    hidden_baselines(data, length)
                    if isinstance(data, HiddenMarkovProcess)
                    else baselines(data, length)
                )
            except InputError as error:
                found[data], missing = {"uniform": float(np.log(symbols_of(data)))}, str(error)
        rows = [found[data] for data in settings.every_data]
        values = torch.tensor([list(row.values()) for row in rows], dtype=torch.float64)
        return cls(tuple(rows[0]), values, missing)

    def column(self, loss: str) -> Tensor | None:
        """The values (M,) of the baseline of that name, or None if there is none."""
        return self.values[:, self.names.index(loss)] if loss in self.names else None

    @property
    def least(self) -> Tensor | None:
        """The least possible loss (M,) without knowing more than the sequence and its law."""
        bayes = self.column("Bayes")
        return self.column("kernel") if bayes is None else bayes


class HeldOut:
    """Sequences that are not trained on, with the law of what follows each symbol.

    The mean cross-entropy to that law is unbiased, but errs by how telling the sequences happen to
    be. So do the losses of the baselines on them, whose exact values are known:

    - of a chain, the entropy of the law itself is taken off and the entropy rate added: what is
      reported is the entropy rate plus the mean divergence KL(P(· | x_1 … x_n) ‖ f_θ) (AM Lemma 1);
      of a hidden process alike, with Bayes's loss in place of the entropy rate;
    - of a prior, the loss of every sequence is fitted by those of the baselines (counting of every
      order, Bayes), and what the fit errs in the mean is taken off (control variates). For a model
      that predicts as one of them, the number is exact.

    Attributes:
        tokens: (M, B, N).
    """

    def __init__(
        self, settings: RunSettings, source: SequenceSource, losses: RunLosses, dtype: torch.dtype
    ) -> None:
        self.arch, device = settings.arch, settings.device
        generator = torch.Generator(device).manual_seed(settings.data_seed + 1)
        size = settings.test_batch, settings.arch.length
        self.tokens, targets = source.repeat(settings.members).held_out(*size, generator)
        targets = targets.to(device)
        self.targets = (targets[..., 1] if settings.arch.output == "binary" else targets).to(dtype)
        entropy = torch.stack([-torch.xlogy(law, law).sum(-1).mean(-1) for law in targets])
        self._errs = torch.zeros(settings.members, dtype=torch.float64, device=device)
        self._fit: tuple[Tensor, Tensor] | None = None
        data = settings.every_data[0]
        if losses.column("Bayes") is not None and isinstance(data, Prior):
            order = data.order
            columns, whole = [], self.tokens.flatten(0, 1)
            for j in range(order + 1):  # the loss of add-one counting on every sequence, (M, B)
                said = in_context(whole, j, targets.shape[-1], 1.0).reshape(targets.shape)
                columns.append(-(targets * said.log()).sum(-1).mean(-1))
            controls = torch.stack([*columns, entropy], dim=-1)  # (M, B, controls)
            exact = losses.values[:, 1 : order + 3].to(device)
            errs = controls.mean(1) - exact
            inverse = torch.linalg.pinv(controls - controls.mean(1, keepdim=True), rtol=1e-6)
            self._fit = inverse, errs
        elif losses.least is not None:
            self._errs = entropy.mean(-1) - losses.least.to(device)

    def loss(self, logits: Tensor, part: slice) -> Tensor:
        """The loss (m,) of some of the models from their logits for ``tokens[part]``, float64."""
        each = cross_entropy(self.arch, logits, self.targets[part]).mean(-1).double()
        mean = each.mean(-1)
        if self._fit is None:
            return mean - self._errs[part]
        inverse, errs = self._fit
        share = (inverse[part] @ (each - mean[:, None])[..., None])[..., 0]
        return mean - (share * errs[part]).sum(-1)
