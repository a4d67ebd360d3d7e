"""The command ``train``: the full transformer, one or many models at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from flowsim.cli import sizes
from flowsim.cli.commands.train_options import Train
from flowsim.cli.output import report, write_figure
from flowsim.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from full_model.training.settings import RunSettings


def train(given: Train) -> None:
    """Train the full transformer, one or many models at once, and record what it learned.

    With --p and --q alone the chain is binary and the model has one logit. With --states, --kernel
    or --prior, as of flowsim chain, it has a logit for every state; with --prior every sequence has
    a kernel of its own.

    \b
    Examples:
      flowsim train --p 0.5 --q 0.8 --trainer gd --length 6 --steps 2000 --plot
      flowsim train --states 5 --p 0.9 --trainer gd --length 3 --hidden 20 --plot
      flowsim train --prior dirichlet --states 2 --layers 2 --length 32 --plot
    """
    began = time.perf_counter()
    _check(given)
    settings = _settings(given)
    record = _run(given, settings)
    files = given.files()
    summary = _write(record, files)
    report("training", summary, files, began, given)


def _check(given: Train) -> None:
    """Options that must or must not come together, files, and sizes."""
    data = given.data()
    if data is None:
        given.chain()
    if (given.init == "lifted") != (given.theta is not None):
        raise InputError("--theta E,W or E,W,A goes with --init lifted, and --init lifted with it")
    hidden = 4 * given.d if given.hidden is None else given.hidden
    batch = given.batch if given.trainer in ("sgd", "adamw") else 0
    if not batch and given.attention_kind != "none" and data is None:
        sizes.check_enumeration(given.length)
    sizes.check_training(
        given.d, given.length, given.layers, hidden, given.seeds, batch, given.steps,
        states=2 if data is None else data.states, contexts=given.contexts_drawn(),
    )  # fmt: skip
    from flowsim.records.atomic import check_output

    check_output(given.out, "--out", (".nc",), given.overwrite)
    files = given.files()
    if files["checkpoint"].suffix != ".safetensors":
        raise InputError(f"--checkpoint must end in .safetensors, not {files['checkpoint'].name!r}")
    if given.plot:
        check_output(files["figure"], "--plot", (".png",), given.overwrite)


def _settings(given: Train) -> RunSettings:
    """Everything that decides the run's numbers."""
    from full_model.model.architecture import Architecture
    from full_model.training.recipe import Recipe
    from full_model.training.settings import RunSettings

    data = given.data()
    chain = given.chain() if data is None else None
    arch = Architecture(
        given.d, given.length, given.layers, given.heads, given.hidden, tied=not given.untied,
        attention=given.attention_kind, activation=given.activation, layer_norm=given.layer_norm,
        states=2 if data is None else data.states, output="binary" if data is None else "states",
        positions=given.positions, window=given.window,
    )  # fmt: skip
    recipe = Recipe(
        given.trainer, steps=given.steps, batch=given.batch, learning_rate=given.learning_rate,
        horizon=given.horizon, clip=1.0 if given.trainer == "adamw" else None,
    )  # fmt: skip
    return RunSettings(
        arch, recipe,
        p=None if chain is None else (chain.p,), q=None if chain is None else (chain.q,),
        data=data,
        seeds=tuple(range(given.seed, given.seed + given.seeds)),
        init=given.init, init_std=given.init_std, init_value=given.init_value, noise=given.noise,
        theta=None if given.theta is None else (tuple(given.theta),),
        data_seed=given.seed, telemetry_every=given.telemetry_every, dtype=given.dtype,
        device=given.device,
    )  # fmt: skip


def _run(given: Train, settings: RunSettings) -> xr.Dataset:
    """Train, with the loss and the two losses that it lies between as progress."""
    from torch import Tensor

    from flowsim.cli.progress import progress
    from flowsim.records.provenance import provenance
    from full_model.training.baseline_losses import RunLosses
    from full_model.training.run import train as run

    losses = RunLosses.of(settings)
    ends = (("unigram", losses.column("unigram")), ("least", losses.least))
    between = " ".join(f"{name} {float(x[0]):.4f}" for name, x in ends if x is not None)
    checkpoint = given.files()["checkpoint"]
    with progress(given.steps, "steps", given.quiet) as meter:

        def show(step: int, loss: Tensor) -> None:
            meter.reach(step, f"loss {float(loss.median()):.4f} {between}")

        record, _ = run(settings, checkpoint, given.resume, given.overwrite, progress=show)
    record.attrs = provenance({"kind": "training", **record.attrs})
    return record


def _write(record: xr.Dataset, files: dict[str, Path]) -> dict[str, object]:
    """Write the record, and the figure if there is to be one; the summary."""
    from flowsim.portraits.summaries import summarize
    from flowsim.records.netcdf import write_record

    try:
        if "figure" in files:
            return write_figure(record, files["figure"], files["record"])
        write_record(record, files["record"])
    except InputError as error:
        raise InputError(
            f"{error}; nothing is lost: the trained weights are in {files['checkpoint']}, and the "
            "same command with --resume writes the record"
        ) from None
    return summarize(record)
