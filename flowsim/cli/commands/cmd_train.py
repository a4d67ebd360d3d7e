"""The command ``train``: the full transformer, one or many models at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flowsim.cli import options, sizes
from flowsim.cli.commands.cmd_chain import AnyChain
from flowsim.cli.groups import Printed
from flowsim.cli.options import Numbers, point
from flowsim.cli.output import progress, report, write_figure
from flowsim.errors import InputError
from flowsim.training.recipe import Recipe

if TYPE_CHECKING:
    import xarray as xr

    from flowsim.chains.higher_order import OrderChain
    from flowsim.chains.priors import Prior
    from flowsim.markov import MarkovChain
    from full_model.training.settings import RunSettings


@dataclass(frozen=True)
class Train(AnyChain, Printed):
    """The options of ``train``."""

    d: options.Dim = 8
    length: options.Positions = options.DEFAULT_LENGTH
    layers: Annotated[
        int,
        typer.Option(min=1, max=10**6, metavar="L", help="Layers.", rich_help_panel=options.FULL),
    ] = 1
    heads: Annotated[
        int,
        typer.Option(
            min=1, max=10**6, metavar="H", help="Attention heads.", rich_help_panel=options.FULL
        ),
    ] = 1
    hidden: Annotated[
        int | None,
        typer.Option(
            min=0, max=10**7, metavar="R", rich_help_panel=options.FULL,
            help="Feed-forward width, 0 for attention alone.  [default: 4d]",
        ),
    ] = None  # fmt: skip
    untied: Annotated[
        bool,
        typer.Option(
            "--untied", help="Untie the last linear map from the embedding.",
            rich_help_panel=options.FULL,
        ),
    ] = False  # fmt: skip
    attention_kind: Annotated[
        Literal["softmax", "uniform", "none"],
        typer.Option(
            metavar="KIND", rich_help_panel=options.FULL,
            help="Attention: softmax, uniform (no queries and keys) or none.",
        ),
    ] = "softmax"  # fmt: skip
    activation: Annotated[
        Literal["relu", "gelu"],
        typer.Option(
            metavar="KIND", help="Of the feed-forward layer: relu or gelu.",
            rich_help_panel=options.FULL,
        ),
    ] = "relu"  # fmt: skip
    positions: Annotated[
        Literal["learned", "relative", "relative-values", "none"],
        typer.Option(
            metavar="KIND", rich_help_panel=options.FULL,
            help="learned vectors; relative, a number of the distance added to the scores; "
            "relative-values, and a vector of it to the values; or none.",
        ),
    ] = "learned"  # fmt: skip
    window: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**9, metavar="W", rich_help_panel=options.FULL, show_default=False,
            help="Attend to the last W symbols alone.  [default: all]",
        ),
    ] = None  # fmt: skip
    layer_norm: Annotated[
        bool,
        typer.Option("--layer-norm", help="Use layer norms.", rich_help_panel=options.FULL),
    ] = False
    trainer: Annotated[
        Literal["flow", "gd", "momentum", "sgd", "adam", "adamw"],
        typer.Option(
            metavar="NAME", rich_help_panel=options.WORK,
            help="flow, gd or momentum (0.9), on the exact population loss unless given; sgd, "
            "adam or adamw, on sampled batches unless given.",
        ),
    ] = "adamw"  # fmt: skip
    steps: Annotated[
        int,
        typer.Option(
            min=1, max=10**9, metavar="K", rich_help_panel=options.WORK,
            help="Steps (for the flow: saved intervals of time).",
        ),
    ] = 1000  # fmt: skip
    batch: options.Batch = 16
    learning_rate: options.Rate = None
    loss: Annotated[
        Literal["population", "sampled"] | None,
        typer.Option(
            metavar="KIND", rich_help_panel=options.WORK,
            help="population (exact) or sampled batches.  [default: as of the trainer]",
        ),
    ] = None  # fmt: skip
    schedule: Annotated[
        Literal["constant", "cosine"] | None,
        typer.Option(
            metavar="KIND", rich_help_panel=options.WORK,
            help="Of the learning rate: constant, or cosine with 2 % warm-up.  [default: cosine "
            "for adam and adamw]",
        ),
    ] = None  # fmt: skip
    horizon: Annotated[
        float,
        typer.Option(
            min=1e-9, max=1e15, metavar="T", help="Final time of the flow.",
            rich_help_panel=options.WORK,
        ),
    ] = 100.0  # fmt: skip
    init: Annotated[
        Literal["gaussian", "rank-one", "recommended", "balanced", "lifted"],
        typer.Option(
            metavar="KIND", rich_help_panel=options.STARTS,
            help="gaussian, rank-one, recommended, balanced, or lifted (with --theta).",
        ),
    ] = "gaussian"  # fmt: skip
    init_std: Annotated[
        float,
        typer.Option(
            min=1e-12, max=1e3, metavar="STD", rich_help_panel=options.STARTS,
            help="Deviation of the first weights, gaussian or rank-one.",
        ),
    ] = 0.02  # fmt: skip
    init_value: Annotated[
        float,
        typer.Option(
            min=1e-12, max=1e3, metavar="C", rich_help_panel=options.STARTS,
            help="Size of the recommended or balanced feed-forward weights.",
        ),
    ] = 1.0  # fmt: skip
    theta: Annotated[
        Numbers | None,
        typer.Option(
            parser=point, metavar="E,W[,A]", help="Reduced point to lift.",
            rich_help_panel=options.STARTS,
        ),
    ] = None  # fmt: skip
    noise: options.Noise = 0.0
    seeds: options.Count = 1
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=options.MAX_SEED, metavar="S", rich_help_panel=options.STARTS,
            help="Seed of the first model; the others follow it.",
        ),
    ] = 0  # fmt: skip
    telemetry_every: Annotated[
        int,
        typer.Option(
            min=1, max=10**9, metavar="K", help="Measure after this many steps.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = 100  # fmt: skip
    dtype: Annotated[
        Literal["float32", "float64"],
        typer.Option(
            metavar="TYPE", help="Arithmetic: float32 or float64.", rich_help_panel=options.WORK
        ),
    ] = "float64"
    device: options.Device = "cpu"
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Record of the run, .nc.", rich_help_panel=options.OUTPUT
        ),
    ] = Path("train.nc")
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=options.OUTPUT,
            help="Checkpoint, .safetensors.  [default: beside the record]",
        ),
    ] = None  # fmt: skip
    plot: Annotated[
        bool,
        typer.Option(
            "--plot", help="Draw the losses beside the record, .png.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False  # fmt: skip
    resume: options.Resume = False
    overwrite: options.Overwrite = False

    def data(self) -> MarkovChain | OrderChain | Prior | None:
        """What the S logits train on; None for the binary chain of --p and --q alone."""
        if self.prior is not None:
            return self.any_prior()
        chosen = (self.states, self.kernel, self.order) != (None, None, None)
        return self.any_chain() if chosen else None

    def contexts_drawn(self) -> int:
        """Rows of the kernel that is drawn for every sequence; 0 where none is."""
        if self.prior is None:
            return 0
        prior = self.any_prior()
        return int(prior.states**prior.order)

    def recipe(self) -> Recipe:
        """The trainer with its numbers."""
        return Recipe.named(
            self.trainer, steps=self.steps, batch=self.batch, learning_rate=self.learning_rate,
            horizon=self.horizon, loss=self.loss, schedule=self.schedule,
            clip=1.0 if self.trainer in ("adam", "adamw") else None,
        )  # fmt: skip

    def files(self) -> dict[str, Path]:
        """The record, the checkpoint and perhaps the figure, by kind."""
        checkpoint = self.checkpoint or self.out.with_suffix(".safetensors")
        figure = {"figure": self.out.with_suffix(".png")} if self.plot else {}
        return {**figure, "record": self.out, "checkpoint": checkpoint}


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
    if given.trainer == "flow" and (given.learning_rate or given.schedule):
        raise InputError("--learning-rate and --schedule go with steps; the flow has --horizon")
    hidden = 4 * given.d if given.hidden is None else given.hidden
    batch = given.batch if given.recipe().loss == "sampled" else 0
    if not batch and given.attention_kind != "none" and data is None:
        sizes.check_enumeration(given.length)
    sizes.check_training(
        given.d, given.length, given.layers, hidden, given.seeds, batch, given.steps,
        states=2 if data is None else data.states, contexts=given.contexts_drawn(),
    )  # fmt: skip
    from flowsim.records.netcdf import check_output

    check_output(given.out, "--out", (".nc",), given.overwrite)
    files = given.files()
    if files["checkpoint"].suffix != ".safetensors":
        raise InputError(f"--checkpoint must end in .safetensors, not {files['checkpoint'].name!r}")
    if given.plot:
        check_output(files["figure"], "--plot", (".png",), given.overwrite)


def _settings(given: Train) -> RunSettings:
    """Everything that decides the run's numbers."""
    from full_model.model.architecture import Architecture
    from full_model.training.settings import RunSettings

    data = given.data()
    chain = given.chain() if data is None else None
    arch = Architecture(
        given.d, given.length, given.layers, given.heads, given.hidden, tied=not given.untied,
        attention=given.attention_kind, activation=given.activation, layer_norm=given.layer_norm,
        states=2 if data is None else data.states, output="binary" if data is None else "states",
        positions=given.positions, window=given.window,
    )  # fmt: skip
    return RunSettings(
        arch, given.recipe(),
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

    from flowsim.records.attributes import provenance
    from full_model.training.losses import RunLosses
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
