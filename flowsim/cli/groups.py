"""Groups of options that commands share, as dataclasses.

A field is an option and its default the option's; a method gives what several options say
together. The options of a command are a dataclass over the groups that it needs.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from flowsim.chain import BinaryChain
from flowsim.cli import options
from flowsim.cli.options import (
    ACCURACY,
    CHAIN,
    MODEL,
    OPTIMIZER,
    OUTPUT,
    SOME,
    STARTS,
    WINDOW,
    WORK,
    flag,
    having,
    option,
    read_kernel,
)
from flowsim.errors import InputError
from flowsim.memory import require_memory
from flowsim.spec import BUILT_IN, ModelSpec, built_in, models_with, or_list, parameters
from flowsim.training.optimizer_choice import MAPPED

if TYPE_CHECKING:
    from flowsim.chains.hidden import HiddenMarkovProcess
    from flowsim.training.optimizer_choice import OptimizerChoice

#: Formats of figures.
FIGURES = (".png", ".pdf", ".svg")
#: The first sentences of the built-in models.
_MODELS = "; ".join(built_in(name).__doc__ for name in BUILT_IN)
#: Help of --set where one value is taken, and where several are.
SET = "An argument of the model's constructor, by its name, such as flip=0.1"


def refuse(given: Any, names: Iterable[str], reason: str) -> None:
    """Raise InputError for the first option among ``names`` that is not at its default.

    ``given`` are the options of a command; ``reason`` begins the message.
    """
    usual = vars(type(given)())
    for name in names:
        if getattr(given, name) != usual[name]:
            raise InputError(f"{reason}: omit --{name.replace('_', '-')}")


def check_enumeration(length: int, instead: str = "", states: int = 2) -> None:
    """Raise InputError if the exact loss would sum too many sequences.

    ``instead``, what else can be done, ends the message.
    """
    most = int(16 / math.log2(states) + 1e-9)
    if length > (60 if states == 2 else most):
        raise InputError(
            f"the exact loss with attention runs through all {states}^N sequences, and there are "
            f"10^{length * math.log10(states):.0f} of --length {length}: choose at most {most}"
            f"{instead}"
        )


@dataclass(frozen=True)
class OneChain:
    """Options of a binary Markov chain."""

    p: Annotated[
        float | None,
        option(CHAIN, "P", "P(0→1), between 0 and 1.", parser=options.probability),
    ] = None
    q: Annotated[
        float | None,
        option(CHAIN, "Q", "P(1→0), between 0 and 1.", parser=options.probability),
    ] = None

    def chain(self) -> BinaryChain:
        """Return the chain; InputError unless --p and --q are given."""
        if self.p is None or self.q is None:
            raise InputError("--p and --q are needed: two probabilities strictly between 0 and 1")
        return BinaryChain(self.p, self.q)


@dataclass(frozen=True)
class ReducedModelOptions:
    """Options of the reduced model and its fixed coordinates."""

    model: Annotated[
        str,
        option(MODEL, "NAME", f"{_MODELS}; or a model of your own, FILE.py:Class or "
               "package.module:Class, whose code is run.",
               parser=options.model_name, autocompletion=options.model_names),
    ] = "canonical"  # fmt: skip
    length: Annotated[
        int | None,
        option(SOME, "N",
               f"{having('length')}: number of positions.  [default: {options.DEFAULT_LENGTH}]",
               parser=options.length, show_default=False),
    ] = None  # fmt: skip
    fix: Annotated[
        list[options.Assignment] | None,
        option(MODEL, "NAME=X", "Hold a coordinate at a value, such as a=0.5 or u=1; may be "
               "repeated.", parser=options.assignment),
    ] = None  # fmt: skip
    attention: Annotated[
        bool, flag(SOME, "--attention", f"With attention ({having('attention', about=True)}).")
    ] = False
    untied: Annotated[
        bool, flag(SOME, "--untied", f"With untied weights ({having('tied', about=True)}).")
    ] = False
    bias: Annotated[
        Literal["optimal", "dynamic"],
        option(MODEL, "KIND", "optimal: the bias minimizes the loss at every point; dynamic: the "
               "bias b is one more coordinate."),
    ] = "optimal"  # fmt: skip
    states: options.States = None
    hidden_per_state: Annotated[
        int | None,
        option(SOME, "M", f"{having('hidden_per_state')}: hidden units per state.  [default: 4]",
               min=1, max=10**6, show_default=False),
    ] = None  # fmt: skip
    set: Annotated[
        list[options.Assignment] | None,
        option(MODEL, "NAME=VALUE", f"{SET}; may be repeated.", "--set", parser=options.setting),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the model that the options give, by name."""
        given = {x.name: getattr(self, x.name) for x in fields(self)
                 if models_with(x.name) and getattr(self, x.name) != x.default}  # fmt: skip
        given |= {"tied": False} if self.untied else {}
        for name, value in self.set or ():
            if name in given:
                raise InputError(f"{name} is given twice")
            given[name] = value
        return given

    def spec(self) -> ModelSpec:
        """Return the model's spec; InputError for an argument that is missing or unknown to it."""
        given = self.arguments()
        if self.model in BUILT_IN:
            known = parameters(built_in(self.model))
            needed = {name: about for name, about in known.items() if about.required}
            if not needed.keys() <= given.keys() and "process" not in given:
                names = " and ".join(f"--{name}" for name in needed)
                meanings = ", ".join(about.help for about in needed.values())
                raise InputError(f"{names} are needed: {meanings}")
        return ModelSpec(self.model, given)

    def fixed(self) -> dict[str, float]:
        """Return the values of --fix by coordinate; InputError for one that is named twice."""
        values = dict(self.fix or ())
        if len(values) < len(self.fix or ()):
            raise InputError("--fix names a coordinate twice")
        return values

    def name_parts(self) -> list[str]:
        """Return words for the model in a file's name, such as rank-one and N8.

        The canonical model with its defaults has none.
        """
        given = [f"{name}{'to'.join(map(str, (x[0], x[-1])) if isinstance(x, tuple) else [str(x)])}"
                 for name, x in self.set or ()]  # fmt: skip
        given += [f"{name}{value:g}" for name, value in self.fix or ()]
        if ":" in self.model:
            return [self.model.rpartition(":")[2], *given]
        said: list[str] = [] if self.model == type(self)().model else [self.model]
        said += [] if self.states is None else [f"S{self.states}"]
        said += [] if self.hidden_per_state is None else [f"m{self.hidden_per_state}"]
        length = self.spec().get("length")
        said += [] if length is None else [self.length_word(length)]
        said += ["attention"] * self.attention + ["untied"] * self.untied
        return [*said, *["dynamic"] * (self.bias == "dynamic"), *given]

    def length_word(self, length: int) -> str:
        """Return the word for N in a file's name."""
        return f"N{length}"


@dataclass(frozen=True)
class ProcessOptions:
    """Options of a transition matrix and of a hidden Markov process."""

    process: Annotated[
        str | None,
        option(CHAIN, "PROCESS", "A hidden Markov process by name, with its numbers: flips:p=0.9,"
               "q=0.9,epsilon=0.2, mess3:x=0.05,a=0.85, golden-mean, even, rrxor or z1r."),
    ] = None  # fmt: skip
    kernel: Annotated[
        Path | None,
        option(CHAIN, "FILE", "A transition matrix, one row per line, numbers separated by "
               "commas."),
    ] = None  # fmt: skip
    emission: Annotated[
        Path | None,
        option(CHAIN, "FILE", "Probabilities with which each state of --kernel emits the symbols, "
               "one row per state. The chain is then hidden."),
    ] = None  # fmt: skip

    def hidden_process(self) -> HiddenMarkovProcess | None:
        """Return the hidden process of --process, or of --kernel and --emission, or None."""
        from flowsim.chains.hidden import HiddenMarkovProcess, parse_process

        if self.process is not None:
            refuse(self, ("kernel", "emission"), "--process gives the whole process")
            return parse_process(self.process)
        if self.emission is None:
            return None
        if self.kernel is None:
            raise InputError("--emission goes with --kernel: give both")
        return HiddenMarkovProcess.from_emission(*map(read_kernel, (self.kernel, self.emission)))


@dataclass(frozen=True)
class HiddenProcess(ProcessOptions, ReducedModelOptions):
    """A hidden process in place of a chain, for a model that reads one symbol of it."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the model, with the hidden process that files describe."""
        given = super().arguments()
        if self.kernel is not None and self.emission is None:
            raise InputError("--kernel goes with --emission here: give both, a hidden process")
        if self.kernel is not None or self.emission is not None:
            given["process"] = self.hidden_process().name  # type: ignore[union-attr]
        return given

    def name_parts(self) -> list[str]:
        """Return words for the model and the process in a file's name."""
        named = [re.sub("[:,]", "_", self.process)] if self.process else []
        named += [file.stem for file in (self.kernel, self.emission) if file is not None]
        return [*super().name_parts(), *(re.sub(r"[^\w.-]+", "", name) for name in named)]


@dataclass(frozen=True)
class ModelOnChain(ReducedModelOptions, OneChain):
    """A reduced model on one chain of its kind."""


#: The options of an optimizer that are of its recipe.
_OF_RECIPES = ("learning_rate", "steps", "loss", "batch", "schedule")


@dataclass(frozen=True)
class OptimizerOptions:
    """Options of training by an optimizer's steps instead of following the flow."""

    optimizer: Annotated[
        Literal["gd", "momentum", "adam", "adamw", "adamw-papers", "own"] | None,
        option(OPTIMIZER, "NAME",
               "Train by steps of gd, momentum (0.9), adam or adamw, as in torch, or by those of "
               "adamw-papers (beta2 0.95, decay 1e-3, cosine, clipped); else follow the flow."),
    ] = None  # fmt: skip
    learning_rate: Annotated[float | None, options.rate(OPTIMIZER)] = None
    steps: Annotated[
        int | None, option(OPTIMIZER, "K", "Steps.  [default: 8000]", min=1, max=10**9)
    ] = None
    loss: Annotated[
        Literal["population", "sampled"] | None,
        option(OPTIMIZER, "KIND", "rank-one: population, the exact loss (default for gd and "
               "momentum), or sampled batches, the same for all starts (default for Adam's)."),
    ] = None  # fmt: skip
    batch: Annotated[
        int | None,
        option(OPTIMIZER, "B", "rank-one: sequences per step.  [default: 16]", min=1, max=10**6),
    ] = None
    schedule: Annotated[Literal["constant", "cosine"] | None, options.schedule(OPTIMIZER)] = None
    d: Annotated[
        int | None,
        option(OPTIMIZER, "D", "rank-one: embedding dimension of its transformer, which does not "
               "matter for gd.  [default: 8]", min=1, max=10**6),
    ] = None  # fmt: skip
    nudge: Annotated[
        float | None,
        option(OPTIMIZER, "X", "Multiply every coordinate of the starts by 1 + X times a normal "
               "number, as rounding displaces full training.  [default: 1e-12 for rank-one, "
               "else 0]", min=0, max=0.1),
    ] = None  # fmt: skip

    def choice_of_optimizer(self, model: str, seed: int) -> OptimizerChoice | None:
        """Return the optimizer with all its numbers; None where the flow is followed."""
        from flowsim.training.optimizer_choice import OptimizerChoice

        if self.optimizer is None:
            return None
        given: dict[str, Any] = {name: getattr(self, name) for name in _OF_RECIPES}
        numbers = {name: value for name, value in given.items() if value is not None}
        if model not in MAPPED:
            numbers.setdefault("loss", "population")
        choice = OptimizerChoice.named(self.optimizer, self.d or 8, seed, self.nudge, **numbers)
        if self.batch is not None and choice.loss == "population":
            raise InputError("--batch goes with --loss sampled; the population loss is exact")
        return choice

    def check_optimizer(self, model: str, *of_flow: str) -> None:
        """Raise InputError for options that do not go with --optimizer, or without it.

        ``of_flow`` names those that only the flow has.
        """
        if self.optimizer is None:
            refuse(self, (*_OF_RECIPES, "d", "nudge"), "without --optimizer the flow is followed")
            return
        if model not in MAPPED:
            only = f"a transformer is trained with --model {or_list(MAPPED)} alone"
            refuse(self, ("d", "batch", "loss"), only)
        refuse(self, of_flow, "with --optimizer no flow is followed")
        self.choice_of_optimizer(model, 0)

    def check_optimizer_size(self, model: Any, starts: int) -> None:
        """Raise InputError if training so many starts together needs more memory than there is."""
        choice = self.choice_of_optimizer(model.name, 0)
        if choice is None or model.name not in MAPPED:  # others are trained in small parts
            return
        batch, length = choice.batch if choice.loss == "sampled" else 0, model.length
        seen = (batch if model.attention else 2) * length if batch else 0
        columns = length if batch or model.attention else 1  # a start at every position
        require_memory(
            f"training {starts} starts on {batch or 'all'} sequences of {length}",
            8.0 * (batch * (length + 1) + 5 * seen + 3 * starts * columns),
            f"{'--batch, ' * bool(batch)}--length or number of starts",
        )

    def optimizer_words(self) -> list[str]:
        """Return words for the optimizer in a file's name, such as adamw; none without one."""
        if self.optimizer is None:
            return []
        name_parts: list[str] = [self.optimizer]
        name_parts += [] if self.learning_rate is None else [f"rate{self.learning_rate:g}"]
        name_parts += [] if self.steps is None else [f"steps{self.steps}"]
        name_parts += [] if self.loss is None else [self.loss]
        return name_parts + ([] if self.d is None else [f"d{self.d}"])


@dataclass(frozen=True)
class Window:
    """The option of the window."""

    window: Annotated[
        list[options.Ranges] | None,
        option(WINDOW, "RANGES", "Window, such as x=-2:2,y=-1:1, along the axes of the model's "
               "plane or any coordinates of your own model: the first horizontal, the second "
               "vertical; may be repeated. --w-range, --e-range and --a-range LOW:HIGH are of w, e "
               "and a.", "--window", parser=options.ranges),
    ] = None  # fmt: skip

    def windows(self) -> dict[str, options.Interval]:
        """Return the window of every coordinate that has one; InputError if one has two."""
        found: dict[str, options.Interval] = {}
        for several in self.window or ():
            if twice := found.keys() & several:
                raise InputError(f"{min(twice)} has two ranges: give it one of them")
            found |= several
        return found


@dataclass(frozen=True)
class Tolerances:
    """Options of the integrator's errors and steps."""

    rtol: Annotated[
        float | None,
        option(ACCURACY, "X", "Relative error per step.  [default: 1e-10 or 1e-6, by model]",
               min=1e-14, max=1e-4),
    ] = None  # fmt: skip
    atol: Annotated[
        float, option(ACCURACY, "X", "Absolute error per step.", min=1e-14, max=1e-4)
    ] = 1e-12
    max_steps: Annotated[
        int | None,
        option(ACCURACY, "K", "Steps attempted from each start before it is left unresolved.  "
               "[default: 3000 or 30000, by model]", min=1, max=10**9),
    ] = None  # fmt: skip


@dataclass(frozen=True)
class StartsOptions:
    """The starts of many runs: a grid, a cloud or the points of a file."""

    grid: Annotated[
        options.Counts | None,
        option(STARTS, "ExW",
               "Cells along e and w (and every further coordinate that is not fixed), as 64x64.",
               parser=options.cells),
    ] = None  # fmt: skip
    points: options.PointsFile = None
    cloud: Annotated[
        int | None,
        option(STARTS, "M", "Number of normal draws around zero, for each sigma.",
               min=1, max=10**12),
    ] = None  # fmt: skip
    sigma: Annotated[
        options.Spread | None,
        option(STARTS, "S", "Standard deviation of the draws: a number, LOW:HIGH:COUNT evenly "
               "spaced in the logarithm, or e=S,w=S.", parser=options.spread),
    ] = None  # fmt: skip
    seed: options.Seed = 0


@dataclass(frozen=True)
class Workers:
    """Options of what computes many runs, and of continuing an unfinished one."""

    device: options.Device = "cpu"
    jobs: Annotated[int, option(WORK, "N", "Processes that share the work.", min=1, max=4096)] = 1
    scheduler: Annotated[
        str | None, option(WORK, "ADDRESS", "Use a running dask cluster, tcp://host:port.")
    ] = None
    resume: options.Resume = False

    def check_workers(self) -> None:
        """Raise InputError if both --jobs and --scheduler are given."""
        if self.jobs > 1 and self.scheduler is not None:
            raise InputError("--jobs and --scheduler are two ways to compute: give one of them")


@dataclass(frozen=True)
class Printed:
    """Options of the output, and the time at which the command began."""

    as_json: options.Json = False
    quiet: options.Quiet = False
    began: float = field(default_factory=time.perf_counter, init=False)


@dataclass(frozen=True)
class FigureFiles(Printed):
    """Options of the figure and the record: files, and whether they may replace others."""

    #: The kind of record that --from redraws; any by default.
    kind: ClassVar[str] = ""
    out: Annotated[
        Path | None,
        option(OUTPUT, "FILE", "Figure: .png, .pdf or .svg; the record (.nc) is written beside "
               "it."),
    ] = None  # fmt: skip
    source: Annotated[
        Path | None, option(OUTPUT, "RECORD", "Redraw a record; nothing is computed.", "--from")
    ] = None
    overwrite: options.Overwrite = False
    width: Annotated[
        float | None,
        option(OUTPUT, "INCHES", "Width of the figure, such as 3.3 for a column of text.",
               min=1.5, max=100),
    ] = None  # fmt: skip
    no_title: Annotated[bool, flag(OUTPUT, "--no-title", "Leave the title out.")] = False
    no_legend: Annotated[bool, flag(OUTPUT, "--no-legend", "Leave the legend out.")] = False

    def look(self) -> dict[str, Any]:
        """Return the arguments of ``draw`` that the options give."""
        return {"width": self.width, "title": not self.no_title, "legend": not self.no_legend}

    def names(self, *name_parts: str) -> tuple[Path, Path]:
        """Return the paths of the figure (--out, or named after the words) and of the record.

        InputError if one of them cannot be written.
        """
        from flowsim.records.netcdf import check_output

        out = self.out or Path(f"{'_'.join(name_parts)}.png")
        check_output(out, "--out", FIGURES, self.overwrite)
        check_output(out.with_suffix(".nc"), "--out (its record)", (".nc",), self.overwrite)
        return out, out.with_suffix(".nc")


@dataclass(frozen=True)
class ModelFigure(HiddenProcess, ModelOnChain, OptimizerOptions, FigureFiles):
    """A figure of a reduced model on one chain, followed by the flow or trained."""

    def files_of(self, kind: str, *more: str) -> tuple[Path, Path]:
        """Return the paths of the figure and of the record, as ``names`` does.

        By default they are named after the kind of figure, model, optimizer, ``more`` and chain.
        """
        chances = chain_words(self.p, self.q)
        return self.names(kind, *self.name_parts(), *self.optimizer_words(), *more, *chances)


def chain_words(p: float | None, q: float | None = None) -> list[str]:
    """Return words for p and q in a file's name, such as p0.5; none for a model without them."""
    return [f"{name}{value:g}" for name, value in (("p", p), ("q", q)) if value is not None]
