"""A whole training run: settings, telemetry, checkpoints, resume, and the record it leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import xarray as xr

from flowsim.errors import InputError
from full_model.model.architecture import Weights, check_weights
from full_model.model.execution import threads
from full_model.training.checkpoints import (
    check_checkpoint,
    fingerprint,
    load_checkpoint,
    refuse_other_settings,
)
from full_model.training.session import TELEMETRY, RunSession, StepProgress
from full_model.training.settings import RunSettings, starting_weights


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
        count = 1 if session.trainer.small else torch.get_num_threads()
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
    """On CUDA, kernels whose sums do not depend on the order of arrival."""
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
