"""The options that commands share: how their values are read, and the sentence for a bad one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

MAX_RESOLUTION = 4000
MAX_RANGE = 1000
ATTENTIONS = ("none", "uniform", "linear")
VIEWS = ("plane", "3d")


def number(text: str) -> float:
    """The float that ``text`` spells, NaN if it spells none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def probability(text: str) -> float:
    """A number in the open interval (0, 1)."""
    value = number(text)
    if not 0 < value < 1:
        raise typer.BadParameter(f"must be a number strictly between 0 and 1, not {text!r}.")
    return value


def tolerance(text: str) -> float:
    """A number that float64 can meet and that still resolves the basins."""
    value = number(text)
    if not 1e-14 <= value <= 1e-4:
        raise typer.BadParameter(f"must be a number from 1e-14 to 1e-4, not {text!r}.")
    return value


def finite(text: str) -> float:
    """Any finite number."""
    value = number(text)
    if not math.isfinite(value):
        raise typer.BadParameter(f"must be a finite number, not {text!r}.")
    return value


def interval(text: str) -> tuple[float, float]:
    """LOW:HIGH with LOW < HIGH."""
    low, _, high = text.partition(":")
    bounds = number(low), number(high)
    if not -MAX_RANGE <= bounds[0] < bounds[1] <= MAX_RANGE:
        raise typer.BadParameter(
            f"must be LOW:HIGH, increasing, between -{MAX_RANGE} and {MAX_RANGE}, not {text!r}."
        )
    return bounds


def positive(text: str) -> float:
    """A positive finite number."""
    value = number(text)
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"must be a positive number, not {text!r}.")
    return value


def point(text: str) -> tuple[float, ...]:
    """E,W or E,W,A."""
    values = tuple(number(part) for part in text.split(","))
    if len(values) not in (2, 3) or not all(map(math.isfinite, values)):
        raise typer.BadParameter(f"must be E,W or E,W,A, finite numbers, not {text!r}.")
    return values


def resolution(text: str) -> int:
    """An integer number of cells."""
    if not text.isdecimal() or not 2 <= int(text) <= MAX_RESOLUTION:
        raise typer.BadParameter(f"must be an integer from 2 to {MAX_RESOLUTION}, not {text!r}.")
    return int(text)


def positive_integer(text: str) -> int:
    """An integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"must be an integer of at least 1, not {text!r}.")
    return int(text)


def seed(text: str) -> int:
    """An integer of at least 0."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise typer.BadParameter(f"must be an integer of at least 0, not {text!r}.")
    return int(text)


def one_of(*names: str) -> Any:
    """A parser for one of a few names."""

    def choose(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"must be one of {', '.join(names)}, not {text!r}.")
        return text

    return choose


def _option(parser: Any, metavar: str, text: str) -> Any:
    return Annotated[Any, typer.Option(parser=parser, metavar=metavar, help=text)]


P = _option(probability, "P", "P(0→1), in (0, 1).")
Q = _option(probability, "Q", "P(1→0), in (0, 1).")
Resolution = _option(
    resolution, "N", "Cells along each axis.  [default: 208; 64 with uniform attention]"
)
WRange = _option(interval, "LOW:HIGH", "Window in w.")
ERange = _option(interval, "LOW:HIGH", "Window in e.")
Rtol = _option(tolerance, "X", "Relative error per step.  [default: 1e-11, uniform 1e-6]")
Atol = _option(tolerance, "X", "Absolute error per step.")
Attention = _option(one_of(*ATTENTIONS), "KIND", f"One of {', '.join(ATTENTIONS)}.")
Length = _option(positive_integer, "N", "Positions that uniform attention averages over.")
Slice = _option(finite, "A", "Attention of the slice that is drawn.")
View = _option(one_of(*VIEWS), "VIEW", "plane: basins in (w, e); 3d: orbits in (w, e, a).")
Dim = _option(positive_integer, "D", "Embedding dimension d.")
Positions = _option(positive_integer, "N", "Context length N.")
Count = _option(positive_integer, "M", "How many seeds, one model each.")
Steps = _option(positive_integer, "K", "Steps (for the flow: saved intervals of time).")
Batch = _option(positive_integer, "B", "Sequences per step and model.")
Every = _option(positive_integer, "K", "Measure after this many steps.")
Out = Annotated[
    Path | None,
    typer.Option(help="Figure: .png, .pdf or .svg; the record (.nc) is written beside it."),
]
Source = Annotated[Path | None, typer.Option("--from", help="Redraw a record without integrating.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
