"""A whole training run: telemetry, checkpoints, resume, and the record it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.running import threads
from full_model.model.architecture import Weights, check_weights
from full_model.model.batches import PIECE_ON_GPU
from full_model.model.population import PopulationLoss
from full_model.model.sources import MarkovSource
from full_model.training.checkpoints import (
    check_checkpoint,
    fingerprint,
    load_checkpoint,
    refuse_other_settings,
    save_checkpoint,
)
from full_model.training.losses import HeldOut, RunLosses
from full_model.training.probes import DISTANCES, Pass, matrix_names, measure, plateau
from full_model.training.settings import RunSettings, order_of, starting_weights, words_of
from full_model.training.trainer import Trainer, finite_members

#: Called with the step and the latest train loss (M,).
StepProgress = Callable[[int, Tensor], None]

_PROBE_NUMBERS = 2**22
#: Enumerate for the telemetry up to this many sequences, and sample a held-out batch beyond.
_EXACT_TELEMETRY = 2**10
#: Names of the measured quantities; a run is resumed with the same ones.
TELEMETRY = 2
_EXTRA_DIMENSIONS = {
    "canonical": ("coordinate",),
    "probability": ("symbol",),
    "predicted_kernel": ("symbol", "next"),
    "attention_share": ("layer",),
    "looks_back": ("layer", "head", "back"),
    "leading_share": ("matrix",),
}


class RunSession:
    """One run in progress: the trainer, the held-out sequences and the telemetry so far.

    If the loss cannot be enumerated cheaply, the reported loss is that of ``HeldOut``, and
    ``exact`` is None.
    """

    def __init__(self, settings: RunSettings, weights: Weights) -> None:
        self.settings, self.source = settings, settings.source()
        device, source, arch = settings.device, self.source, settings.arch
        self.generator = torch.Generator(device).manual_seed(settings.data_seed)
        self.trainer = Trainer(arch, weights, source, settings.recipe, self.generator)
        dtype = weights["bias"].dtype
        self.losses = RunLosses.of(settings)
        self.held_out = HeldOut(settings, source, self.losses, dtype)
        self.tokens = self.held_out.tokens
        self.exact: PopulationLoss | None = None
        few = arch.states**arch.length <= _EXACT_TELEMETRY
        alone = arch.attention == "none" and isinstance(source, MarkovSource)
        if source.exact and (few or alone):
            self.exact = PopulationLoss(arch, source, dtype, device)
        self.history: dict[str, list[Tensor]] = {}

    def run(
        self, checkpoint: Path | None, identity: dict[str, Any], progress: StepProgress | None
    ) -> None:
        """Train to the last step, measuring and saving on the way as the settings say.

        The first checkpoint is written before the first step: one that cannot be written costs
        nothing.
        """
        settings, trainer = self.settings, self.trainer
        last = settings.recipe.steps
        if not self.history:
            self.measure(torch.full((settings.members,), torch.nan))
            if checkpoint is not None:
                self.save(checkpoint, identity)
        stride = max(1, last // 200)
        while trainer.step < last:
            stops = [last]
            for every in (settings.telemetry_every, settings.checkpoint_every):
                stops.append((trainer.step // every + 1) * every)
            if settings.recipe.trainer != "flow":
                stops.append((trainer.step // stride + 1) * stride)
            loss = trainer.advance(min(stops) - trainer.step)
            done = trainer.step
            if done % settings.telemetry_every == 0 or done == last:
                self.measure(loss)
            if checkpoint is not None and (done % settings.checkpoint_every == 0 or done == last):
                self.save(checkpoint, identity)
            if progress is not None:
                progress(done, loss)

    def measure(self, train_loss: Tensor) -> None:
        """Append probes and losses of all models at this step to the history.

        ``train_loss`` (M,) is the loss that training saw. Models that are not finite get NaN.
        """
        trainer, arch = self.trainer, self.settings.arch
        found: dict[str, list[Tensor]] = {}
        numbers = self.tokens[0].numel() * max(arch.width, arch.heads * arch.length)
        on_cpu = self.tokens.device.type == "cpu"
        size = max(1, (_PROBE_NUMBERS if on_cpu else PIECE_ON_GPU) // numbers)
        for start in range(0, trainer.members, size):
            part = slice(start, start + size)
            weights = {name: w[part] for name, w in trainer.weights.items()}
            alive = finite_members(weights)
            safe = {
                name: torch.where(alive.reshape(-1, *[1] * (w.ndim - 1)), w, 0.0)
                for name, w in weights.items()
            }
            seen = Pass.of(arch, safe, self.tokens[part])
            line = measure(safe, seen)
            if self.exact is None:
                line["loss"] = self.held_out.loss(seen.logits, part)
            for name, values in line.items():
                dead = ~alive.reshape(-1, *[1] * (values.ndim - 1))
                found.setdefault(name, []).append(values.masked_fill(dead, torch.nan))
        whole = {name: torch.cat(parts) for name, parts in found.items()}
        if self.exact is not None:
            with torch.no_grad():
                whole["loss"] = self.exact(trainer.weights)
        whole["train_loss"] = train_loss
        whole["at"] = torch.tensor(trainer.step)
        for name, values in whole.items():
            kind = torch.int64 if name == "at" else torch.float64
            self.history.setdefault(name, []).append(values.detach().cpu().to(kind))

    def save(self, checkpoint: Path, identity: dict[str, Any]) -> None:
        """Write all that a resumed run needs to the checkpoint; ``identity`` are its settings."""
        trainer = self.trainer
        tensors = {f"weight/{name}": w for name, w in trainer.weights.items()}
        for slot, moments in trainer.moments.items():
            tensors |= {f"{slot}/{name}": m for name, m in moments.items()}
        tensors |= {f"history/{name}": torch.stack(rows) for name, rows in self.history.items()}
        tensors["generator"], tensors["alive"] = self.generator.get_state(), trainer.alive
        state = {
            "settings": identity,
            "step": trainer.step,
            "evaluations": trainer.evaluations,
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
        }
        save_checkpoint(checkpoint, tensors, state)

    def restore(self, path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> int:
        """Take over a checkpoint's state; return the number of threads it was made with."""
        trainer, device = self.trainer, self.settings.device
        try:
            self.generator.set_state(tensors["generator"])
            parts = {"weight": trainer.weights} | trainer.moments
            for slot, weights in parts.items():
                weights |= {name: tensors[f"{slot}/{name}"].to(device) for name in weights}
            trainer.alive = tensors["alive"].to(device)
            trainer.step, trainer.evaluations = state["step"], state["evaluations"]
            count = state["threads"]
        except KeyError as error:
            raise InputError(f"{path} is not a usable checkpoint: no {error}") from None
        history = {k.partition("/")[2]: v for k, v in tensors.items() if k.startswith("history/")}
        self.history = {name: list(values.unbind(0)) for name, values in history.items()}
        return count

    def record(self) -> xr.Dataset:
        """Return the record so far, over step, model, coordinate, symbol, layer and matrix."""
        settings, arch, losses = self.settings, self.settings.arch, self.losses
        history = {name: torch.stack(rows) for name, rows in self.history.items()}
        steps = history.pop("at")
        data: dict[str, Any] = {
            name: (("step", "model", *_EXTRA_DIMENSIONS.get(name, ())), values.numpy())
            for name, values in sorted(history.items())
        }
        per_model: dict[str, Any] = {"seed": settings.seeds}
        if settings.p is not None:
            per_model |= {"p": settings.p, "q": settings.q}
        unigram, least = losses.column("unigram"), losses.least
        if words_of(settings.every_data[0]) == "fixed":
            per_model |= {"entropy_rate": least, "stationary_entropy": unigram}
        if unigram is not None and least is not None:
            names = ("plateau_start", "escape", "plateau_length")
            found = plateau(steps, history["loss"], unigram, least)
            per_model |= dict(zip(names, found, strict=True))
        for name, each in per_model.items():
            data[name] = (("model",), np.asarray(each))
        data["finite"] = (("model",), self.trainer.alive.cpu().numpy().astype("int8"))
        data["baseline_loss"] = (("model", "baseline"), losses.values.numpy())
        if "distance" in data:
            data["distance"] += ({"long_name": "distance of the weights from the rank-one family"},)
        symbols = list(range(arch.states))
        coordinates: dict[str, Any] = {
            "step": steps.numpy(),
            "baseline": list(losses.names),
            "matrix": matrix_names(arch),
            "symbol": symbols,
        }
        if "canonical" in data:
            coordinates["coordinate"] = ["e", "w", "a"]
        if "predicted_kernel" in data:
            coordinates["next"] = symbols
        if "looks_back" in data:
            coordinates["back"] = list(range(min(arch.length, DISTANCES)))
        if settings.recipe.trainer == "flow":
            time = steps.numpy() * settings.recipe.horizon / settings.recipe.steps
            coordinates["time"] = ("step", time)
        attributes = {
            "title": "training of the full transformer",
            "states": arch.states,
            "order": order_of(settings.every_data[0]),
            "prior": words_of(settings.every_data[0]),
            "settings": json.dumps(settings.as_dict(), sort_keys=True),
            "loss_is": self._loss_is(),
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "field_evaluations": self.trainer.evaluations,
        }
        attributes |= {"baselines_missing": losses.missing} if losses.missing else {}
        return xr.Dataset(data, coords=coordinates, attrs=attributes)

    def _loss_is(self) -> str:
        """Say in words how the reported loss is computed, for the record."""
        if self.exact is not None:
            return "exact population loss"
        if not self.source.exact:
            return "cross-entropy to each held-out sequence's own kernel"
        if self.losses.least is None:
            return "cross-entropy to Bayes's predictor over held-out sequences"
        if self.losses.column("Bayes") is None or words_of(self.settings.every_data[0]) == "hidden":
            return "entropy rate + KL over held-out sequences"
        return "held-out sequences, corrected by their errors of the baselines"


def train(
    settings: RunSettings,
    checkpoint: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    initial: Weights | None = None,
    progress: StepProgress | None = None,
) -> tuple[xr.Dataset, Weights]:
    """Run to the end and return the record and the final weights.

    Args:
        settings: what to run.
        checkpoint: where to keep the state; None keeps none.
        resume: continue from ``checkpoint``, which must exist and hold the same settings.
        overwrite: start anew although ``checkpoint`` exists.
        initial: the first weights, (M, *shape), for init "given".
        progress: called with the step and the latest train loss (M,), often.

    Returns:
        The record over the dimensions step, model, coordinate, symbol, layer and matrix, with every
        setting among its attributes, and the weights (M, *shape).

    Raises:
        InputError: settings and weights that do not match; a checkpoint that exists and is neither
            to be resumed nor overwritten, is unusable, or was made with other settings (the
            sentence names the differences).

    A killed run resumed ends with the same bytes as an undisturbed one on the same machine: the
    checkpoint holds weights, moments, generator, telemetry and the number of threads, and the
    places where the flow's solver is restarted are those of the settings, not of the interruption.

    >>> import full_model
    >>> arch, recipe = full_model.Architecture(d=4, length=4), full_model.Recipe("gd", steps=20)
    >>> settings = full_model.RunSettings(arch, recipe, (0.5,), (0.8,), seeds=(0, 1))
    >>> record, weights = full_model.train(settings)
    >>> record.sizes["step"], tuple(weights["embedding"].shape)
    (2, (2, 4))
    """
    if (settings.init == "given") != (initial is not None):
        raise InputError('init "given" goes with initial weights, and initial weights with it')
    check_checkpoint(checkpoint, resume, overwrite)
    first = starting_weights(settings) if initial is None else initial
    if check_weights(settings.arch, first) != (settings.members,):
        raise InputError(f"initial weights must carry one axis of {settings.members} models")
    dtype = getattr(torch, settings.dtype)
    first = {name: w.to(settings.device, dtype) for name, w in first.items()}
    with _determinism(settings.device):
        session = RunSession(settings, first)
        arithmetic = "compiled kernel" if session.trainer.fast else "torch"
        identity = settings.as_dict() | {
            "start": fingerprint(first), "arithmetic": arithmetic, "telemetry": TELEMETRY,
        }  # fmt: skip
        count = session.trainer.threads
        if resume:
            assert checkpoint is not None
            tensors, state = load_checkpoint(checkpoint)
            refuse_other_settings(checkpoint, identity, state.get("settings"))
            count = session.restore(checkpoint, tensors, state)
        with threads(count):
            session.run(checkpoint, identity, progress)
            return session.record(), session.trainer.weights


@contextmanager
def _determinism(device: str) -> Iterator[None]:
    """Use torch's deterministic algorithms within the context, unless the device is the CPU."""
    if device == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
