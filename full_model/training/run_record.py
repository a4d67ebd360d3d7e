"""The record of a training run, and the losses that it is compared with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from full_model.model.sequence_source import SequenceSource
from full_model.model.source import MarkovSource
from full_model.training.baseline_losses import RunLosses
from full_model.training.data import words_of
from full_model.training.probes import DISTANCES, matrix_names, plateau
from full_model.training.settings import RunSettings
from full_model.training.trainer import Trainer

#: Enumerate for the telemetry up to this many sequences, and sample a held-out batch beyond.
_EXACT_TELEMETRY = 2**10

_EXTRA_DIMENSIONS = {
    "canonical": ("coordinate",),
    "probability": ("symbol",),
    "predicted_kernel": ("symbol", "next"),
    "attention_share": ("layer",),
    "looks_back": ("layer", "head", "back"),
    "leading_share": ("matrix",),
}


def is_exact(settings: RunSettings, source: SequenceSource) -> bool:
    """Whether the loss reported is enumerated."""
    few = settings.arch.states**settings.arch.length <= _EXACT_TELEMETRY
    alone = settings.arch.attention == "none" and isinstance(source, MarkovSource)
    return source.exact and (few or alone)


def run_record(
    settings: RunSettings, history: dict[str, Tensor], trainer: Trainer, losses: RunLosses
) -> xr.Dataset:
    """The record over the dimensions step, model, coordinate, symbol, layer and matrix.

    Args:
        settings: of the run.
        history: what was measured, by name, (T, M, …), and the steps as "at".
        trainer: at its end.
        losses: what the loss is compared with.
    """
    steps, arch = history.pop("at"), settings.arch
    data: dict[str, Any] = {
        name: (("step", "model", *_EXTRA_DIMENSIONS.get(name, ())), values.numpy())
        for name, values in sorted(history.items())
    }
    data |= {
        name: (("model",), np.asarray(values))
        for name, values in _per_model(settings, steps, history["loss"], losses).items()
    }
    data["finite"] = (("model",), trainer.alive.cpu().numpy().astype("int8"))
    data["baseline_loss"] = (("model", "baseline"), losses.values.numpy())
    if "distance" in data:
        data["distance"] += ({"long_name": "distance of the weights from the rank-one family"},)
    coordinates: dict[str, Any] = {
        "step": steps.numpy(),
        "baseline": list(losses.names),
        "matrix": matrix_names(arch),
        "symbol": list(range(arch.states)),
    }
    if "canonical" in data:
        coordinates["coordinate"] = ["e", "w", "a"]
    if "predicted_kernel" in data:
        coordinates["next"] = list(range(arch.states))
    if "looks_back" in data:
        coordinates["back"] = list(range(min(arch.length, DISTANCES)))
    dataset = xr.Dataset(data, coords=coordinates, attrs=_attributes(settings, trainer, losses))
    if settings.recipe.trainer == "flow":
        time = steps.numpy() * settings.recipe.horizon / settings.recipe.steps
        dataset = dataset.assign_coords(time=("step", time))
    return dataset


def _per_model(
    settings: RunSettings, steps: Tensor, loss: Tensor, losses: RunLosses
) -> dict[str, Any]:
    """What has one number for every model."""
    found: dict[str, Any] = {"seed": settings.seeds}
    if settings.p is not None:
        found |= {"p": settings.p, "q": settings.q}
    unigram, least = losses.column("unigram"), losses.least
    if words_of(settings.every_data[0]) == "fixed":
        found |= {"entropy_rate": least, "stationary_entropy": unigram}
    if unigram is not None and least is not None:
        names = ("plateau_start", "escape", "plateau_length")
        found |= dict(zip(names, plateau(steps, loss, unigram, least), strict=True))
    return found


def _attributes(settings: RunSettings, trainer: Trainer, losses: RunLosses) -> dict[str, Any]:
    data = settings.every_data[0]
    found = {
        "title": "training of the full transformer",
        "states": settings.arch.states,
        "order": data.order,
        "prior": words_of(data),
        "settings": json.dumps(settings.as_dict(), sort_keys=True),
        "loss_is": loss_is(settings, losses),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "field_evaluations": trainer.evaluations,
    }
    return found | ({"baselines_missing": losses.missing} if losses.missing else {})


def loss_is(settings: RunSettings, losses: RunLosses) -> str:
    """What the loss of the record is."""
    source = settings.source()
    if is_exact(settings, source):
        return "exact population loss"
    if not source.exact:
        return "cross-entropy to each held-out sequence's own kernel"
    if losses.least is None:
        return "cross-entropy to Bayes's predictor over held-out sequences"
    if losses.column("Bayes") is None:
        return "entropy rate + KL over held-out sequences"
    return "held-out sequences, corrected by their errors of the baselines"
