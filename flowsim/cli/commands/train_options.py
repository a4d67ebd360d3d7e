"""The options of ``train``: the transformer, its trainer, its start, and the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flowsim.cli import options
from flowsim.cli.commands.kernel_files import AnyChain
from flowsim.cli.groups import Printed
from flowsim.cli.values import Numbers, point

if TYPE_CHECKING:
    from flowsim.chains.higher_order import OrderChain
    from flowsim.chains.priors import Prior
    from flowsim.markov import MarkovChain


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
        options.TrainerName,
        typer.Option(
            metavar="NAME", rich_help_panel=options.WORK,
            help="flow, gd (both on the exact population loss), sgd or adamw (sampled batches).",
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

    def files(self) -> dict[str, Path]:
        """The record, the checkpoint and perhaps the figure, by kind."""
        checkpoint = self.checkpoint or self.out.with_suffix(".safetensors")
        figure = {"figure": self.out.with_suffix(".png")} if self.plot else {}
        return {**figure, "record": self.out, "checkpoint": checkpoint}
