"""The options that commands share: how their values are read, and the sentence for a bad one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from flowsim.chain import BinaryChain
from flowsim.errors import InputError

MAX_RESOLUTION = 4000
MAX_CELLS = 10_000_000
MAX_LEVELS = 20
MAX_RANGE = 1000
ATTENTIONS = ("none", "uniform", "linear")
VIEWS = ("plane", "3d")
MODELS = ("canonical", "uniform", "linear", "untied", "rank-one")


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


def chain(p: float | None, q: float | None) -> BinaryChain:
    """The chain that --p and --q give."""
    if p is None or q is None:
        raise InputError("--p and --q are needed: two probabilities strictly between 0 and 1")
    return BinaryChain(p, q)


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


def spread(text: str) -> tuple[float, ...]:
    """LOW:HIGH:COUNT: evenly spaced numbers with both ends, or a single number."""
    low, *rest = text.split(":")
    if not rest:
        return (finite(text),)
    count = int(rest[1]) if len(rest) == 2 and rest[1].isdecimal() else 0
    first, last = number(low), number(rest[0])
    if not (1 < count <= MAX_CELLS and first < last and math.isfinite(last - first)):
        raise typer.BadParameter(
            f"must be a number or LOW:HIGH:COUNT, increasing, COUNT at least 2, not {text!r}."
        )
    step = (last - first) / (count - 1)
    return (*(first + i * step for i in range(count - 1)), last)


def probabilities(text: str) -> tuple[float, ...]:
    """A probability in (0, 1), or LOW:HIGH:COUNT."""
    values = spread(text) if ":" in text else (number(text),)
    if not all(0 < value < 1 for value in values):
        raise typer.BadParameter(f"must lie strictly between 0 and 1, not {text!r}.")
    return values


def deviations(text: str) -> float | tuple[float, ...] | dict[str, float]:
    """A standard deviation, LOW:HIGH:COUNT, or NAME=S,NAME=S for single coordinates."""
    if "=" in text:
        named = dict(assignment(part) for part in text.split(","))
        if len(named) != text.count(",") + 1:
            raise typer.BadParameter(f"must name every coordinate once, not {text!r}.")
        values: tuple[float, ...] = tuple(named.values())
    else:
        named, values = {}, spread(text)
    if not all(value > 0 for value in values):
        raise typer.BadParameter(f"must be positive, not {text!r}.")
    return named or (values if ":" in text else values[0])


def assignment(text: str) -> tuple[str, float]:
    """NAME=VALUE with a finite value."""
    name, _, value = text.partition("=")
    if not name.strip() or not math.isfinite(number(value)):
        raise typer.BadParameter(f"must be NAME=VALUE with a finite value, not {text!r}.")
    return name.strip(), number(value)


def named_interval(text: str) -> tuple[str, tuple[float, float]]:
    """NAME=LOW:HIGH."""
    name, _, bounds = text.partition("=")
    return name.strip(), interval(bounds)


def cells(text: str) -> tuple[int, ...]:
    """NxN or NxNxN: cells along each coordinate that varies."""
    counts = text.lower().split("x")
    if not all(count.isdecimal() and 1 <= int(count) <= MAX_CELLS for count in counts):
        raise typer.BadParameter(
            f"must be numbers of cells such as 512x512, each from 1 to {MAX_CELLS}, not {text!r}."
        )
    return tuple(map(int, counts))


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


def join_ranges(arguments: list[str]) -> list[str]:
    """``--w-range -3 3`` as ``--w-range=-3:3``: both spellings are accepted."""
    joined: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.endswith("-range") and len(rest) > 1 and not math.isnan(number(rest[1])):
            word = f"{word}={rest.pop(0)}:{rest.pop(0)}"
        joined.append(word)
    return joined


def levels(text: str) -> int:
    """How many times cells are halved."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_LEVELS:
        raise typer.BadParameter(f"must be an integer from 1 to {MAX_LEVELS}, not {text!r}.")
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
WRange = _option(interval, "LOW:HIGH", "Window in w.  [default: -3:3]")
ERange = _option(interval, "LOW:HIGH", "Window in e.  [default: -3:3]")
Rtol = _option(
    tolerance, "X", "Relative error per step.  [default: 1e-10; uniform, rank-one, dynamic 1e-6]"
)
Atol = _option(tolerance, "X", "Absolute error per step.")
Attention = _option(one_of(*ATTENTIONS), "KIND", f"One of {', '.join(ATTENTIONS)}.")
Length = _option(positive_integer, "N", "Positions that uniform attention averages over.")
Slice = _option(finite, "A", "Attention of the slice that is drawn.  [default: 0]")
View = _option(one_of(*VIEWS), "VIEW", "plane: basins in (w, e); 3d: orbits in (w, e, a).")
Dim = _option(positive_integer, "D", "Embedding dimension d.")
Positions = _option(positive_integer, "N", "Context length N.")
Layers = _option(positive_integer, "L", "Layers.")
Heads = _option(positive_integer, "H", "Attention heads.")
Count = _option(positive_integer, "M", "How many seeds, one model each.")
Steps = _option(positive_integer, "K", "Steps (for the flow: saved intervals of time).")
Batch = _option(positive_integer, "B", "Sequences per step and model.")
Every = _option(positive_integer, "K", "Measure after this many steps.")
Chances = _option(probabilities, "P", "A probability in (0, 1), or LOW:HIGH:COUNT.")
Model = _option(one_of(*MODELS), "NAME", f"One of {', '.join(MODELS)}.")
Bias = _option(one_of("optimal", "dynamic"), "KIND", "optimal, or dynamic: a last coordinate b.")
Cells = _option(cells, "NxN", "Grid: cells along each coordinate that is not fixed.")
ARange = _option(interval, "LOW:HIGH", "Window in a.  [default: -1:1]")
Sigma = _option(deviations, "S", "Spread: a number, LOW:HIGH:COUNT, or e=S,w=S.")
Seed = _option(seed, "S", "Seed of the draws.  [default: 0]")
Samples = _option(positive_integer, "COUNT", "Gaussian cloud: draws around zero.")
Fraction = _option(
    probability, "X", "Also record the time until the excess loss has fallen to X of its start."
)
Refine = _option(
    levels,
    "K",
    "Halve the cells that the boundary of the basins crosses, K times.",
)
Jobs = _option(positive_integer, "N", "Processes that share the work.")
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Use a running dask cluster, tcp://host:port.")
]
PointsFile = Annotated[
    Path | None, typer.Option("--points", help="Starts from .csv (named columns), .npy or .nc.")
]
Ranges = Annotated[
    list[Any] | None,
    typer.Option(
        "--range",
        parser=named_interval,
        metavar="NAME=LOW:HIGH",
        help="Window of any coordinate; may be repeated.",
    ),
]
Fixed = Annotated[
    list[Any] | None,
    typer.Option(
        "--fix", parser=assignment, metavar="NAME=X", help="Hold a coordinate; may be repeated."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Figure: .png, .pdf or .svg; the record (.nc) is written beside it."),
]
Source = Annotated[Path | None, typer.Option("--from", help="Redraw a record without integrating.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
