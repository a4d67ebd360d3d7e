"""Groups of options that commands share, as dataclasses.

A field is an option and its default the option's; a method gives what several options say
together. The options of a command are a dataclass over the groups that it needs, and ``command``
makes of it the function that typer reads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from flowsim.chain import BinaryChain
from flowsim.cli import options
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.models.catalogue import ModelChoice

Options = TypeVar("Options")

#: Formats of figures.
FIGURES = (".png", ".pdf", ".svg")


def command(run: Callable[[Options], None], kind: type[Options]) -> Callable[..., None]:
    """A function with the fields of a dataclass as its arguments, which runs on one of these."""

    def from_shell(**values: object) -> None:
        run(kind(**values))

    hints = get_type_hints(kind, include_extras=True)
    fields = inspect.signature(kind).parameters.values()
    from_shell.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            field.replace(annotation=hints[field.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for field in fields
        ]
    )
    from_shell.__annotations__ = {field.name: hints[field.name] for field in fields}
    from_shell.__doc__, from_shell.__name__ = run.__doc__, run.__name__
    return from_shell


@dataclass(frozen=True)
class OneChain:
    """The Markov chain."""

    p: options.P = None
    q: options.Q = None

    def chain(self) -> BinaryChain:
        if self.p is None or self.q is None:
            raise InputError("--p and --q are needed: two probabilities strictly between 0 and 1")
        return BinaryChain(self.p, self.q)


@dataclass(frozen=True)
class ReducedModelOptions:
    """Which reduced model, and what is held fixed in it."""

    model: options.Model = "canonical"
    states: options.States = None
    hidden_per_state: options.HiddenPerState = None
    length: options.Length = None
    attention: options.Attention = False
    untied: options.Untied = False
    bias: options.Bias = "optimal"
    fix: options.Fix = None

    def positions(self) -> int | None:
        """N: as given, the default where the model has positions, or None."""
        from flowsim.models.catalogue import has_length

        has = has_length(self.model, self.attention)
        return options.DEFAULT_LENGTH if has and self.length is None else self.length

    def choice(self) -> ModelChoice:
        """The model without its chain; InputError for an option that it does not have."""
        from flowsim.models.catalogue import ModelChoice

        own = self.states, self.hidden_per_state
        return ModelChoice(
            self.model, self.positions(), self.bias, self.attention, not self.untied, *own
        )

    def fixed(self) -> dict[str, float]:
        """The value of every coordinate that --fix names."""
        values = dict(self.fix or ())
        if len(values) < len(self.fix or ()):
            raise InputError("--fix names a coordinate twice")
        return values

    def words(self) -> list[str]:
        """The model as a file's name says it; nothing for the canonical one."""
        said: list[str] = [] if self.model == "canonical" else [self.model]
        said += [] if self.states is None else [f"S{self.states}"]
        said += [] if self.hidden_per_state is None else [f"m{self.hidden_per_state}"]
        said += [] if self.positions() is None else [f"N{self.positions()}"]
        said += ["attention"] * self.attention + ["untied"] * self.untied
        said += ["dynamic"] * (self.bias == "dynamic")
        return [*said, *(f"{name}{value:g}" for name, value in self.fix or ())]


@dataclass(frozen=True)
class ModelOnChain(OneChain, ReducedModelOptions):
    """A reduced model on one chain of its kind."""

    def chain_of_model(self) -> Any:
        """The chain; InputError unless the options describe one that the model is for."""
        if self.model == "induction":
            return self.choice().chain(self.p, self.q)
        if self.model != "states":
            self.choice()
            return self.chain()
        if self.states is None or self.p is None:
            raise InputError("--model states needs --states and --p, the probability to leave one")
        return self.choice().chain(self.p, self.q)


@dataclass(frozen=True)
class Tolerances:
    """Error allowed per step."""

    rtol: options.Rtol = None
    atol: options.Atol = 1e-12


@dataclass(frozen=True)
class Budget:
    """When a comparison leaves a run of full training undecided."""

    horizon: Annotated[
        float | None,
        typer.Option(
            min=1e-9, max=1e15, metavar="T", rich_help_panel=options.FULL,
            help="Time after which flow and gd leave a run open.  [default: long; grows with N]",
        ),
    ] = None  # fmt: skip
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**9, metavar="K", rich_help_panel=options.FULL,
            help="Steps of sgd and adamw, or the most of a run of flow or gd, which is left open "
            "then.  [default: 8000; flow and gd: 20000]",
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """What a command prints."""

    as_json: options.Json = False
    quiet: options.Quiet = False


@dataclass(frozen=True)
class FigureFiles:
    """The figure, the record beside it, and whether they may replace others."""

    out: options.Figure = None
    source: options.Source = None
    overwrite: options.Overwrite = False

    def names(self, *words: str) -> tuple[Path, Path]:
        """The figure (--out, or named after the words) and the record beside it.

        Raises:
            InputError: a name that cannot be written, or a file that exists.
        """
        from flowsim.records.atomic import check_output

        out = self.out or Path(f"{'_'.join(words)}.png")
        check_output(out, "--out", FIGURES, self.overwrite)
        check_output(out.with_suffix(".nc"), "--out (its record)", (".nc",), self.overwrite)
        return out, out.with_suffix(".nc")


def only_redraws(given: object) -> None:
    """InputError if a command's options hold more than redrawing a record needs."""
    allowed = {"source", "out", "energy", "show", "as_json", "overwrite", "quiet"}
    plain = type(given)()
    for name, value in vars(given).items():
        if name not in allowed and value != getattr(plain, name):
            raise InputError(
                f"--from redraws a stored record, which has its own settings: omit "
                f"--{name.replace('_', '-')}; only --out, --energy, --show, --json, --overwrite "
                "and --quiet go with it"
            )


def chain_words(p: float | None, q: float | None = None) -> list[str]:
    """p and q, where there are any, as a file's name says them."""
    return [f"{name}{value:g}" for name, value in (("p", p), ("q", q)) if value is not None]
