"""A random sample of labels, decided again by torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from flowsim.arrays import Numbers, to_tensor
from flowsim.errors import InputError
from flowsim.flow.reference_limits import default_rtol, reference_labels, reference_limits
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.landscape.ends import Ends

#: By how much smaller the tolerance is with which a label that differs is decided again.
_TIGHTER = 1e-3


def sample_size(model: Model) -> int:
    """How many labels are confirmed unless another number is asked for.

    256 where orbits are fast, 16 elsewhere: there a row takes a second.
    """
    return 256 if model.fast else 16


def confirm(
    model: Model,
    theta0: Numbers,
    labels: Numbers,
    count: int,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    ends: Ends | None = None,
) -> dict[str, int]:
    """How many labels of a random sample torchdiffeq finds again.

    Rows without a label are not drawn. Where torchdiffeq differs, it decides again with tolerances
    a thousand times smaller, since close to a boundary its own error can change sides.

    Args:
        model: the reduced model.
        theta0: starts, shape (..., k).
        labels: ``Label`` values of the starts, shape (...).
        count: how many rows to draw, at most; without replacement.
        seed: of the draw.
        progress: called with the number of rows decided.
        ends: whose codes the labels are, of a model whose ends were found.

    Returns:
        confirm_cells rows drawn: confirm_agree with the same label, confirm_disagree with another,
        confirm_undecided by torchdiffeq.

    Raises:
        InputError: a negative count or seed, labels of another shape, or bad starts.
    """
    own, starts = to_tensor(labels, "labels").to(torch.int8), to_tensor(theta0, "starts")
    if count < 0 or seed < 0:
        raise InputError(f"count and seed must not be negative, not {count} and {seed}")
    if own.shape != starts.shape[:-1]:
        raise InputError(
            f"labels of shape {tuple(own.shape)} do not fit starts of shape {tuple(starts.shape)}"
        )
    own, rows = own.reshape(-1), starts.reshape(-1, starts.shape[-1])
    labelled = (own != Label.UNRESOLVED).nonzero()[:, 0].numpy()
    source = np.random.default_rng(seed)
    drawn = source.choice(labelled, min(count, len(labelled)), replace=False)
    own, rows = own[drawn], rows[drawn]
    found = torch.zeros_like(own)
    if len(rows):
        found = _decided(model, ends, rows, None, 1e-12, progress)
        again = ((found != own) & (found != Label.UNRESOLVED)).nonzero()[:, 0]
        if len(again):
            tight = _TIGHTER * default_rtol(model)
            found[again] = _decided(model, ends, rows[again], tight, 1e-13, None)
    undecided = int((found == Label.UNRESOLVED).sum())
    agree = int((found == own).sum())
    return {
        "confirm_cells": len(rows),
        "confirm_agree": agree,
        "confirm_disagree": len(rows) - agree - undecided,
        "confirm_undecided": undecided,
    }


def _decided(
    model: Model,
    ends: Ends | None,
    rows: torch.Tensor,
    rtol: float | None,
    atol: float,
    progress: Callable[[int], object] | None,
) -> torch.Tensor:
    """What torchdiffeq says of the rows: labels, or the codes of ends."""
    if ends is None or ends.named:
        labels: torch.Tensor = reference_labels(model, rows, rtol, atol, progress)
        return labels
    limits = reference_limits(model, rows, rtol, atol, progress)
    return ends.codes(limits.label, limits.theta, limits.loss)
