"""Groups of options that commands share, as dataclasses.

A field is an option and its default the option's; a method gives what several options say
together. The options of a command are a dataclass over the groups that it needs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from flowsim.chain import BinaryChain
from flowsim.cli import options, sizes
from flowsim.cli.files import read_kernel
from flowsim.cli.options import OPTIMIZER, option
from flowsim.errors import InputError
from flowsim.spec import BUILT_IN, ModelSpec, built_in, models_with, or_list, parameters
from flowsim.training.optimizer_choice import MAPPED

if TYPE_CHECKING:
    from flowsim.training.optimizer_choice import OptimizerChoice

#: Formats of figures.
FIGURES = (".png", ".pdf", ".svg")


def refuse(given: Any, names: Iterable[str], reason: str) -> None:
    """InputError, with the reason, for the first of a command's options that is not as usual."""
    usual = vars(type(given)())
    for name in names:
        if getattr(given, name) != usual[name]:
            raise InputError(f"{reason}: omit --{name.replace('_', '-')}")


@dataclass(frozen=True)
class OneChain:
    p: options.P = None
    q: options.Q = None

    def chain(self) -> BinaryChain:
        if self.p is None or self.q is None:
            raise InputError("--p and --q are needed: two probabilities strictly between 0 and 1")
        return BinaryChain(self.p, self.q)


@dataclass(frozen=True)
class ReducedModelOptions:
    """Options of the reduced model and its fixed coordinates."""

    model: options.Model = "canonical"
    length: options.Length = None
    fix: options.Fix = None
    attention: options.Attention = False
    untied: options.Untied = False
    bias: options.Bias = "optimal"
    states: options.States = None
    hidden_per_state: options.HiddenPerState = None
    set: options.Set = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model that the options give."""
        given = {x.name: getattr(self, x.name) for x in fields(self)
                 if models_with(x.name) and getattr(self, x.name) != x.default}  # fmt: skip
        given |= {"tied": False} if self.untied else {}
        for name, value in self.set or ():
            if name in given:
                raise InputError(f"{name} is given twice")
            given[name] = value
        return given

    def spec(self) -> ModelSpec:
        """The model; InputError for an argument that is missing or that it does not have."""
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
        values = dict(self.fix or ())
        if len(values) < len(self.fix or ()):
            raise InputError("--fix names a coordinate twice")
        return values

    def name_parts(self) -> list[str]:
        """The model as a file's name says it; nothing for the canonical one."""
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
        return f"N{length}"


@dataclass(frozen=True)
class HiddenProcess(ReducedModelOptions):
    """A hidden process in place of a chain, for a model that reads one symbol of it."""

    process: options.Process = None
    kernel: options.KernelFile = None
    emission: options.Emission = None

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if (self.kernel is None) != (self.emission is None):
            raise InputError("--kernel and --emission go together: a hidden process")
        if self.kernel is not None and self.emission is not None:
            from flowsim.chains.hidden import HiddenMarkovProcess

            if self.process is not None:
                raise InputError("--process gives the whole process: omit --kernel, --emission")
            rows = map(read_kernel, (self.kernel, self.emission))
            given["process"] = HiddenMarkovProcess.from_emission(*rows).name
        return given

    def name_parts(self) -> list[str]:
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
        """The optimizer with all its numbers; None where the flow is followed."""
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
        """InputError for numbers without an optimizer, and for options that only the flow has."""
        if self.optimizer is None:
            refuse(self, (*_OF_RECIPES, "d", "nudge"), "without --optimizer the flow is followed")
            return
        if model not in MAPPED:
            only = f"a transformer is trained with --model {or_list(MAPPED)} alone"
            refuse(self, ("d", "batch", "loss"), only)
        refuse(self, of_flow, "with --optimizer no flow is followed")
        self.choice_of_optimizer(model, 0)

    def check_optimizer_size(self, model: Any, starts: int) -> None:
        """InputError if training so many starts together needs more memory than there is."""
        choice = self.choice_of_optimizer(model.name, 0)
        if choice is None or model.name not in MAPPED:  # others are trained in small parts
            return
        batch = choice.batch if choice.loss == "sampled" else 0
        sizes.check_optimizer(batch, model.length, model.attention, starts)

    def optimizer_words(self) -> list[str]:
        if self.optimizer is None:
            return []
        name_parts: list[str] = [self.optimizer]
        name_parts += [] if self.learning_rate is None else [f"rate{self.learning_rate:g}"]
        name_parts += [] if self.steps is None else [f"steps{self.steps}"]
        name_parts += [] if self.loss is None else [self.loss]
        return name_parts + ([] if self.d is None else [f"d{self.d}"])


@dataclass(frozen=True)
class Window:
    window: options.Windows = None

    def windows(self) -> dict[str, options.Interval]:
        """The window of every coordinate that has one; InputError if one has two."""
        found: dict[str, options.Interval] = {}
        for several in self.window or ():
            if twice := found.keys() & several:
                raise InputError(f"{min(twice)} has two ranges: give it one of them")
            found |= several
        return found


@dataclass(frozen=True)
class Tolerances:
    rtol: options.Rtol = None
    atol: options.Atol = 1e-12
    max_steps: options.MaxSteps = None


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
    out: options.Figure = None
    source: options.Source = None
    overwrite: options.Overwrite = False
    width: options.Width = None
    no_title: options.NoTitle = False
    no_legend: options.NoLegend = False

    def look(self) -> dict[str, Any]:
        return {"width": self.width, "title": not self.no_title, "legend": not self.no_legend}

    def names(self, *name_parts: str) -> tuple[Path, Path]:
        """Paths of the figure (--out, or named after the words) and of the record."""
        from flowsim.records.netcdf import check_output

        out = self.out or Path(f"{'_'.join(name_parts)}.png")
        check_output(out, "--out", FIGURES, self.overwrite)
        check_output(out.with_suffix(".nc"), "--out (its record)", (".nc",), self.overwrite)
        return out, out.with_suffix(".nc")


@dataclass(frozen=True)
class ModelFigure(HiddenProcess, ModelOnChain, OptimizerOptions, FigureFiles):
    """A figure of a reduced model on one chain, followed by the flow or trained."""

    def files_of(self, kind: str, *more: str) -> tuple[Path, Path]:
        """``names``, by default of the kind of figure, the model, the optimizer and the chain."""
        chances = chain_words(self.p, self.q)
        return self.names(kind, *self.name_parts(), *self.optimizer_words(), *more, *chances)


def chain_words(p: float | None, q: float | None = None) -> list[str]:
    """p and q as they stand in a file's name; empty for a model without them."""
    return [f"{name}{value:g}" for name, value in (("p", p), ("q", q)) if value is not None]
