"""The command ``train``: the full transformer, one or many models at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from flowsim.cli import options
from flowsim.cli.commands.cmd_chain import AnyChain
from flowsim.cli.groups import Printed, check_enumeration, refuse
from flowsim.cli.options import FULL, OUTPUT, SSM, STARTS, TRAINING, WORK, flag, option
from flowsim.cli.output import progress, report, write_figure
from flowsim.errors import InputError
from flowsim.memory import require_memory
from flowsim.training.optimizer_choice import Recipe

if TYPE_CHECKING:
    from full_model.training.settings import Data

#: Sequences on which the loss of sampled training is measured.
_HELD_OUT = 64


@dataclass(frozen=True)
class Train(AnyChain, Printed):
    d: options.Dim = 8
    length: options.Positions = options.DEFAULT_LENGTH
    layers: Annotated[int, option(FULL, "L", "Layers.", min=1, max=1000)] = 1
    heads: Annotated[int, option(FULL, "H", "Attention heads.", min=1, max=10**6)] = 1
    hidden: Annotated[
        int | None,
        option(FULL, "R", "Hidden units; 0 for attention only.  [default: 4d]",
               min=0, max=10**7),
    ] = None  # fmt: skip
    untied: Annotated[bool, flag(FULL, "--untied", "Read the output with weights of its own.")] = (
        False
    )
    mixer: Annotated[
        Literal["attention", "ssm", "selective"],
        option(FULL, "KIND", "What mixes positions: attention; ssm, a state-space layer with a "
               "diagonal linear recurrence; or selective, a recurrence whose decay depends on the "
               "symbol, as Mamba's does."),
    ] = "attention"  # fmt: skip
    decay: Annotated[
        Literal["signed", "positive"] | None,
        option(SSM, "KIND", "Range of the decays: signed, (-1, 1), or positive, (0, 1).  "
               "[default: signed]"),
    ] = None  # fmt: skip
    channels: Annotated[
        int | None,
        option(SSM, "M", "Channels; 2d - 1 of them have one weight less than attention.  "
               "[default: d]", min=1, max=10**6, show_default=False),
    ] = None  # fmt: skip
    convolution: Annotated[
        int | None,
        option(FULL, "W", "Convolve the inputs of attention or ssm over the last W symbols.  "
               "[default: none]", min=1, max=10**6, show_default=False),
    ] = None  # fmt: skip
    channel_relu: Annotated[
        bool, flag(SSM, "--channel-relu", "Apply a ReLU before the recurrence.")
    ] = False
    gated: Annotated[
        bool, flag(SSM, "--gated", "Multiply what the recurrence gives by silu(W_G x), as Mamba.")
    ] = False
    attention_kind: Annotated[
        Literal["softmax", "uniform", "none"],
        option(FULL, "KIND", "softmax; uniform, without queries and keys; or none."),
    ] = "softmax"
    activation: Annotated[
        Literal["relu", "gelu"], option(FULL, "KIND", "Activation of the hidden units.")
    ] = "relu"
    positions: Annotated[
        Literal["learned", "relative", "relative-values", "none"],
        option(FULL, "KIND", "learned: a vector per position; relative: a learned number per "
               "distance, added to the scores; relative-values: also a learned vector per "
               "distance, added to the values; or none."),
    ] = "learned"  # fmt: skip
    window: Annotated[
        int | None,
        option(FULL, "W", "Attend only to the last W symbols.  [default: all]",
               min=1, max=10**9, show_default=False),
    ] = None  # fmt: skip
    layer_norm: Annotated[bool, flag(FULL, "--layer-norm", "Use layer norms.")] = False
    trainer: Annotated[
        Literal["flow", "gd", "momentum", "sgd", "adam", "adamw", "adamw-papers"],
        option(TRAINING, "NAME", "flow, gd or momentum (0.9), on the exact population loss unless "
               "given; sgd, adam or adamw, as in torch, or adamw-papers (beta2 0.95, decay 1e-3, "
               "cosine, clipped), on sampled batches unless given."),
    ] = "adamw-papers"  # fmt: skip
    steps: Annotated[
        int, option(TRAINING, "K", "Steps; with the flow, saved time intervals.", min=1, max=10**9)
    ] = 1000
    batch: options.Batch = 16
    learning_rate: options.Rate = None
    loss: Annotated[
        Literal["population", "sampled"] | None,
        option(TRAINING, "KIND",
               "population, the exact loss, or sampled batches.  [default: by trainer, see there]"),
    ] = None  # fmt: skip
    schedule: Annotated[Literal["constant", "cosine"] | None, options.schedule(TRAINING)] = None
    horizon: Annotated[
        float, option(TRAINING, "T", "Final time of the flow.", min=1e-9, max=1e15)
    ] = 100.0
    init: Annotated[
        Literal["gaussian", "rank-one", "recommended", "balanced", "lifted"],
        option(STARTS, "KIND",
               "gaussian, rank-one, recommended (by LG), balanced, or lifted (from --theta)."),
    ] = "gaussian"  # fmt: skip
    init_std: Annotated[
        float,
        option(STARTS, "STD", "Standard deviation of gaussian and rank-one first weights.",
               min=1e-12, max=1e3),
    ] = 0.02  # fmt: skip
    init_value: Annotated[
        float,
        option(STARTS, "C", "Size of the recommended or balanced feed-forward weights.",
               min=1e-12, max=1e3),
    ] = 1.0  # fmt: skip
    theta: Annotated[
        options.Numbers | None,
        option(
            STARTS, "E,W[,A]", "Reduced point that --init lifted starts from.", parser=options.point
        ),
    ] = None
    noise: options.Noise = 0.0
    seeds: Annotated[
        int, option(FULL, "M", "Number of seeds, one model for each.", min=1, max=10**6)
    ] = 1
    seed: Annotated[
        int,
        option(STARTS, "S", "Seed of the first model; the others follow it.",
               min=0, max=options.MAX_SEED),
    ] = 0  # fmt: skip
    telemetry_every: Annotated[
        int, option(OUTPUT, "K", "Measure after this many steps.", min=1, max=10**9)
    ] = 100
    dtype: Annotated[
        Literal["float32", "float64"], option(WORK, "TYPE", "Precision of the arithmetic.")
    ] = "float64"
    device: options.Device = "cpu"
    out: Annotated[Path, option(OUTPUT, "FILE", "Record of the run, .nc.")] = Path("train.nc")
    checkpoint: Annotated[
        Path | None,
        option(OUTPUT, "FILE", "Checkpoint, .safetensors.  [default: beside the record]"),
    ] = None
    plot: Annotated[bool, flag(OUTPUT, "--plot", "Also draw the losses, as .png.")] = False
    resume: options.Resume = False
    overwrite: options.Overwrite = False

    def data(self) -> Data | None:
        """Return the source of sequences over S symbols; None for a chain of --p and --q alone."""
        if (process := self.hidden_process()) is not None:
            return process
        if self.prior is not None:
            return self.any_prior()
        chosen = (self.states, self.kernel, self.order) != (None, None, None)
        return self.any_chain() if chosen else None

    def recipe(self) -> Recipe:
        """Return the trainer with all its numbers."""
        time: dict[str, Any] = {"horizon": self.horizon} if self.trainer == "flow" else {}
        return Recipe.named(
            self.trainer, steps=self.steps, batch=self.batch, learning_rate=self.learning_rate,
            loss=self.loss, schedule=self.schedule, **time,
        )  # fmt: skip

    def files(self) -> dict[str, Path]:
        """Return the paths of the figure (with --plot), the record and the checkpoint, by name."""
        checkpoint = self.checkpoint or self.out.with_suffix(".safetensors")
        figure = {"figure": self.out.with_suffix(".png")} if self.plot else {}
        return {**figure, "record": self.out, "checkpoint": checkpoint}


def train(given: Train) -> None:
    """Train the full transformer, one or many models at once, and record what it learned.

    With --p and --q alone the chain is binary and the model has one logit. With --states,
    --kernel, --process or --prior, as of flowsim chain, it has a logit for every symbol; with
    --prior every sequence has a kernel of its own, and with --process the chain is hidden.

    \b
    Examples:
      flowsim train --p 0.5 --q 0.8 --trainer gd --length 6 --steps 2000 --plot
      flowsim train --states 5 --p 0.9 --trainer gd --length 3 --hidden 20 --plot
      flowsim train --prior dirichlet --states 2 --layers 2 --length 32 --plot
      flowsim train --process mess3 --mixer ssm --length 6 --trainer gd --plot
    """
    data = given.data()
    _check(given, data)
    from torch import Tensor

    from flowsim.portraits.summaries import summarize
    from flowsim.records.attributes import provenance
    from flowsim.records.netcdf import write_record
    from full_model.model.architecture import Architecture
    from full_model.training.losses import RunLosses
    from full_model.training.run import train as run
    from full_model.training.settings import RunSettings

    chain = given.chain() if data is None else None
    architecture = Architecture(
        given.d, given.length, given.layers, given.heads, given.hidden, tied=not given.untied,
        attention=given.attention_kind if given.mixer == "attention" else given.mixer,
        activation=given.activation, layer_norm=given.layer_norm, states=_symbols(data),
        output="binary" if data is None else "states", positions=given.positions,
        window=given.window, channels=given.channels, decay=given.decay,
        convolution=given.convolution,
        channel_activation="relu" if given.channel_relu else None, gated=given.gated,
    )  # fmt: skip
    settings = RunSettings(
        architecture, given.recipe(),
        p=None if chain is None else (chain.p,), q=None if chain is None else (chain.q,),
        data=data,
        seeds=tuple(range(given.seed, given.seed + given.seeds)),
        init=given.init, init_std=given.init_std, init_value=given.init_value, noise=given.noise,
        theta=None if given.theta is None else (tuple(given.theta),),
        data_seed=given.seed, telemetry_every=given.telemetry_every, dtype=given.dtype,
        device=given.device,
    )  # fmt: skip
    losses = RunLosses.of(settings)
    ends = (("unigram", losses.column("unigram")), ("least", losses.least))
    between = " ".join(f"{name} {float(x[0]):.4f}" for name, x in ends if x is not None)
    files = given.files()
    with progress(given.steps, "steps", given.quiet) as meter:

        def show(step: int, loss: Tensor) -> None:
            meter.update(step, f"loss {float(loss.median()):.4f} {between}")

        record, _ = run(settings, files["checkpoint"], given.resume, given.overwrite, progress=show)
    record.attrs = provenance({"kind": "training", **record.attrs})
    try:
        if given.plot:
            write_figure(record, files["figure"], files["record"])
        else:
            write_record(record, files["record"])
    except InputError as error:
        raise InputError(
            f"{error}; nothing is lost: the trained weights are in {files['checkpoint']}, and the "
            "same command with --resume writes the record"
        ) from None
    report(summarize(record), files, given)


def _check(given: Train, data: Data | None) -> None:
    """Raise InputError for options that do not go together, or need too much memory or time."""
    if data is None:
        given.chain()
    if (given.init == "lifted") != (given.theta is not None):
        raise InputError("--theta E,W or E,W,A goes with --init lifted, and --init lifted with it")
    if given.trainer == "flow":
        refuse(given, ("learning_rate", "schedule"), "the flow has a --horizon, and no steps")
    hidden = 4 * given.d if given.hidden is None else given.hidden
    batch = given.batch if given.recipe().loss == "sampled" else 0
    if given.mixer != "attention":
        refuse(given, ("attention_kind",), f"--mixer {given.mixer} stands in place of attention")
    if not batch and given.attention_kind != "none" and data is None:
        check_enumeration(given.length)
    # from below: weights, their gradient and two moments, and the activations of a batch
    d, length, states, models = given.d, given.length, _symbols(data), given.seeds
    contexts = 0 if given.prior is None else states ** (given.order or 1)
    weights = d * (states + length) + given.layers * (4 * d * d + 2 * d * hidden)
    traces = batch * length * given.layers * (8 * d + 2 * hidden + length)
    traces += max(batch, _HELD_OUT) * states * (length + 2 * contexts)
    those = f"{models} transformers" if models > 1 else "a transformer"
    require_memory(
        f"training {those} of {weights:.3g} weights on {batch} sequences of {length}",
        8.0 * models * (4 * weights + traces),
        "--batch, --seeds, --layers, --d or --length",
    )
    require_memory(f"the losses of {given.steps} steps", 0.08 * models * given.steps, "--steps")
    from flowsim.records.netcdf import check_output

    check_output(given.out, "--out", (".nc",), given.overwrite)
    files = given.files()
    if files["checkpoint"].suffix != ".safetensors":
        raise InputError(f"--checkpoint must end in .safetensors, not {files['checkpoint'].name!r}")
    if given.plot:
        check_output(files["figure"], "--plot", (".png",), given.overwrite)


def _symbols(data: Data | None) -> int:
    """Return S, the number of symbols of the data; 2 of the binary chain."""
    return 2 if data is None else int(getattr(data, "symbols", 0) or data.states)
