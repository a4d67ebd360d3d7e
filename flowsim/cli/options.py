"""The options that commands share, each defined once, and the values that one word spells."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from flowsim.models.catalogue import MODELS, families_with, family_of, or_list
from flowsim.models.family import LENGTH
from flowsim.models.own import argument

MAX_CELLS = 10_000_000
#: States of a chain: the eigenvalues of a kernel take the third power of their number.
MAX_STATES = 2000
MAX_RANGE = 1000
MAX_LENGTH = 10**6
#: p and q lie between this and its complement: nearer to 0 or 1 float64 knows no 1 − p − q.
SMALLEST_CHANCE = 1e-12
#: Scales between which float64 holds every start of a cloud, its energy and its orbit.
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-12, 1e3


class Interval(NamedTuple):
    """A window, low < high."""

    low: float
    high: float


class Assignment(NamedTuple):
    """A coordinate held at a value."""

    name: str
    value: float


class Setting(NamedTuple):
    """An argument of a model's constructor."""

    name: str
    value: object


class Ranges(dict[str, Interval]):
    """Windows by the names of their axes."""


class Window(NamedTuple):
    """A coordinate and its window."""

    name: str
    bounds: Interval


class Numbers(tuple[float, ...]):
    """One number, or several that increase."""


class Lengths(tuple[int, ...]):
    """One number of positions, or several that increase."""


class Cells(tuple[int, ...]):
    """Cells of a grid along each coordinate."""


class Spread(NamedTuple):
    """Standard deviations: one, several that increase, or one for each named coordinate."""

    sigma: float | tuple[float, ...] | dict[str, float]


def number(text: str) -> float:
    """The float that plain characters spell, NaN if they spell none; Python's own takes 1_0."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def integer(text: str) -> int:
    """The integer of at least 0 that ``text`` spells, −1 if it spells none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1


def shown(text: str) -> str:
    """What the user wrote, in quotes and not longer than 60 characters."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def interval(text: str) -> Interval:
    """LOW:HIGH with LOW < HIGH."""
    low, _, high = text.partition(":")
    bounds = Interval(number(low), number(high))
    if not -MAX_RANGE <= bounds.low < bounds.high <= MAX_RANGE:
        raise typer.BadParameter(
            f"must be LOW:HIGH, increasing, between -{MAX_RANGE} and {MAX_RANGE}, "
            f"not {shown(text)}."
        )
    return bounds


def window(text: str) -> Window:
    """NAME=LOW:HIGH."""
    name, _, bounds = text.partition("=")
    return Window(name.strip(), interval(bounds))


def assignment(text: str) -> Assignment:
    """NAME=VALUE with a finite value."""
    name, _, value = text.partition("=")
    if not name.strip() or not math.isfinite(number(value)):
        raise typer.BadParameter(f"must be NAME=VALUE with a finite value, not {shown(text)}.")
    return Assignment(name.strip(), number(value))


def ranges(text: str) -> Ranges:
    """NAME=LOW:HIGH,NAME=LOW:HIGH."""
    found = Ranges(window(part) for part in text.split(","))
    if len(found) != text.count(",") + 1 or "" in found:
        raise typer.BadParameter(
            f"must be X=LOW:HIGH,Y=LOW:HIGH, each name once, not {shown(text)}."
        )
    return found


def setting(text: str) -> Setting:
    """NAME=VALUE, a number, True, False or a word."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise typer.BadParameter(f"must be NAME=VALUE, not {shown(text)}.")
    return Setting(name.strip(), argument(value))


def model_name(text: str) -> str:
    """The name of a model, or FILE.py:Class."""
    if ":" not in text and text not in MODELS:
        names = ", ".join(MODELS)
        raise typer.BadParameter(
            f"must be one of {names}, or FILE.py:Class of your own, not {shown(text)}."
        )
    return text


def _ends(text: str) -> tuple[float, float, int]:
    """LOW:HIGH:COUNT, increasing, with COUNT of at least 2."""
    low, high, count = (*text.split(":"), "", "")[:3]
    first, last, steps = number(low), number(high), integer(count)
    whole = text.count(":") == 2 and 2 <= steps <= MAX_CELLS
    if not (whole and first < last and math.isfinite(last - first)):
        raise typer.BadParameter(
            f"must be a number or LOW:HIGH:COUNT, increasing, COUNT at least 2, not {shown(text)}."
        )
    return first, last, steps


def probabilities(text: str) -> Numbers:
    """A probability strictly between 0 and 1, or LOW:HIGH:COUNT, evenly spaced."""
    if ":" in text:
        low, high, count = _ends(text)
        step = (high - low) / (count - 1)
        values = Numbers((*(low + i * step for i in range(count - 1)), high))
    else:
        values = Numbers((number(text),))
    if not all(SMALLEST_CHANCE <= value <= 1 - SMALLEST_CHANCE for value in values):
        raise typer.BadParameter(
            f"must lie strictly between 0 and 1, by at least {SMALLEST_CHANCE:g}, "
            f"not {shown(text)}."
        )
    return values


def probability(text: str) -> float:
    """One probability."""
    if ":" in text:
        raise typer.BadParameter(f"must be one number between 0 and 1, not {shown(text)}.")
    return probabilities(text)[0]


def lengths(text: str) -> Lengths:
    """N, or LOW:HIGH:COUNT, evenly spaced and rounded to whole numbers."""
    if ":" in text:
        low, high, count = _ends(text)
        step = (high - low) / (count - 1)
        values = Lengths(round(low + i * step) for i in range(count))
    else:
        values = Lengths((integer(text),))
    whole = all(1 <= value <= MAX_LENGTH for value in values) and len(set(values)) == len(values)
    if not whole:
        raise typer.BadParameter(
            f"must be from 1 to {MAX_LENGTH}, or LOW:HIGH:COUNT with no number twice, "
            f"not {shown(text)}."
        )
    return values


def states(text: str) -> int:
    """A number of states."""
    count = integer(text)
    if not 2 <= count <= MAX_STATES:
        raise typer.BadParameter(f"must be from 2 to {MAX_STATES}, not {shown(text)}.")
    return count


def spread(text: str) -> Spread:
    """A number; LOW:HIGH:COUNT, evenly spaced in the logarithm; or NAME=S,NAME=S."""
    found: float | tuple[float, ...] | dict[str, float]
    if "=" in text:
        found = dict(assignment(part) for part in text.split(","))
        values = tuple(found.values())
        if len(values) != text.count(",") + 1:
            raise typer.BadParameter(f"must name every coordinate once, not {shown(text)}.")
    elif ":" in text:
        low, high, count = _ends(text)
        ends = (max(low, 0.0), high)
        ratio = ends[1] / ends[0] if ends[0] > 0 else math.nan
        found = values = (
            *(low * ratio ** (i / (count - 1)) for i in range(count - 1)),
            high,
        )
    else:
        found, values = number(text), (number(text),)
    if not all(SMALLEST_SIGMA <= value <= LARGEST_SIGMA for value in values):
        raise typer.BadParameter(
            f"must be from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}: a number, LOW:HIGH:COUNT or "
            f"NAME=S,NAME=S, not {shown(text)}."
        )
    return Spread(found)


def cells(text: str) -> Cells:
    """64x64, or 64x64x32: cells along each coordinate that varies."""
    counts = Cells(map(integer, text.lower().split("x")))
    if not all(1 <= count <= MAX_CELLS for count in counts):
        raise typer.BadParameter(
            f"must be numbers of cells such as 512x512, each from 1 to {MAX_CELLS}, "
            f"not {shown(text)}."
        )
    return counts


def point(text: str) -> Numbers:
    """E,W or E,W,A."""
    values = Numbers(map(number, text.split(",")))
    if len(values) not in (2, 3) or not all(map(math.isfinite, values)):
        raise typer.BadParameter(f"must be E,W or E,W,A, finite numbers, not {shown(text)}.")
    return values


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


#: Sections of a command's help, in their order.
CHAIN, MODEL, OPTIMIZER, STARTS, FULL, WINDOW, ACCURACY, WORK, OUTPUT = SECTIONS = (
    "Chain", "Reduced model", "Optimizer", "Starts", "Full transformer",
    "Window", "Accuracy", "Work", "Output",
)  # fmt: skip

#: Positions N where none are given.
DEFAULT_LENGTH: int = LENGTH.default
MAX_RESOLUTION = 4000
MAX_SEED = 2**62

TrainerName = Literal["flow", "gd", "sgd", "adamw"]
DeviceName = Literal["cpu", "cuda", "auto"]


def having(option: str, about: bool = False) -> str:
    """The models that have an option, and what it is there."""
    named = []
    for family in families_with(option):
        own = family.options[option]
        only = f" with --{own.only_with}" if own.only_with else ""
        named.append(f"{family.name}{only}{f': {own.help}' if about else ''}")
    return "; ".join(named) if about else or_list(named)


P = Annotated[
    float | None,
    typer.Option(
        parser=probability, metavar="P", help="P(0→1), between 0 and 1.", rich_help_panel=CHAIN
    ),
]
Q = Annotated[
    float | None,
    typer.Option(
        parser=probability, metavar="Q", help="P(1→0), between 0 and 1.", rich_help_panel=CHAIN
    ),
]
States = Annotated[
    int | None,
    typer.Option(
        parser=states, metavar="S", rich_help_panel=CHAIN,
        help="S states: leave the state with probability P, uniformly to the others.",
    ),
]  # fmt: skip
Model = Annotated[
    str,
    typer.Option(
        parser=model_name, metavar="NAME", rich_help_panel=MODEL,
        autocompletion=lambda: list(MODELS),
        help=f"{'; '.join(family_of(name).help for name in MODELS)}; or a model of your own, "
        "FILE.py:Class or package.module:Class, whose code is run.",
    ),
]  # fmt: skip
Set = Annotated[
    list[Setting] | None,
    typer.Option(
        "--set", parser=setting, metavar="NAME=VALUE", rich_help_panel=MODEL,
        help="An argument of your own model's constructor, or flip of flips; may be repeated.",
    ),
]  # fmt: skip
Length = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_LENGTH, metavar="N",
        help=f"Positions, of {having('length')}.  [default: {DEFAULT_LENGTH}]",
        rich_help_panel=MODEL, show_default=False,
    ),
]  # fmt: skip
Attention = Annotated[
    bool,
    typer.Option(
        "--attention",
        rich_help_panel=MODEL,
        help=f"With attention ({having('attention', about=True)}).",
    ),
]
Untied = Annotated[
    bool,
    typer.Option(
        "--untied", rich_help_panel=MODEL,
        help=f"With untied weights ({having('tied', about=True)}).",
    ),
]  # fmt: skip
HiddenPerState = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**6, metavar="M", rich_help_panel=MODEL, show_default=False,
        help=f"Hidden units for each state, of {having('hidden_per_state')}.  [default: 4]",
    ),
]  # fmt: skip
Bias = Annotated[
    Literal["optimal", "dynamic"],
    typer.Option(
        metavar="KIND",
        help="optimal: the bias minimises the loss at every point; dynamic: it is a last "
        "coordinate, b.",
        rich_help_panel=MODEL,
    ),
]
Fix = Annotated[
    list[Assignment] | None,
    typer.Option(
        parser=assignment, metavar="NAME=X", rich_help_panel=MODEL,
        help="Hold a coordinate at a value, such as a=0.5 or u=1; may be repeated.",
    ),
]  # fmt: skip
Windows = Annotated[
    Ranges | None,
    typer.Option(
        "--window", parser=ranges, metavar="RANGES", rich_help_panel=WINDOW,
        help="Window, as x=-2:2,y=-1:1, in the axes of the model's plane; of your own model in any "
        "coordinates. A plane has the first across and the second up.",
    ),
]  # fmt: skip
WRange = Annotated[
    Interval | None,
    typer.Option(
        parser=interval, metavar="LOW:HIGH", help="Window in w.  [default: -3:3]",
        rich_help_panel=WINDOW,
    ),
]  # fmt: skip
ERange = Annotated[
    Interval | None,
    typer.Option(
        parser=interval, metavar="LOW:HIGH", help="Window in e.  [default: -3:3]",
        rich_help_panel=WINDOW,
    ),
]  # fmt: skip
ARange = Annotated[
    Interval | None,
    typer.Option(
        parser=interval, metavar="LOW:HIGH", help="Window in a.  [default: -1:1]",
        rich_help_panel=WINDOW,
    ),
]  # fmt: skip
Rtol = Annotated[
    float | None,
    typer.Option(
        min=1e-14, max=1e-4, metavar="X", rich_help_panel=ACCURACY,
        help="Relative error per step.  [default: the model's own, 1e-10 or 1e-6]",
    ),
]  # fmt: skip
Atol = Annotated[
    float,
    typer.Option(
        min=1e-14, max=1e-4, metavar="X", rich_help_panel=ACCURACY,
        help="Absolute error per step.",
    ),
]  # fmt: skip
Integrator = Annotated[
    Literal["flowsim", "torchdiffeq"],
    typer.Option(
        metavar="NAME", rich_help_panel=ACCURACY,
        help="flowsim, its own engines; or torchdiffeq, which decides every start by itself, "
        "much more slowly.",
    ),
]  # fmt: skip
Confirm = Annotated[
    int | None,
    typer.Option(
        min=0, max=1_000_000, metavar="N", rich_help_panel=ACCURACY,
        help="Starts that torchdiffeq decides again, drawn at random.  [default: 256; 16 where the "
        "loss is no function of the logit gap]",
    ),
]  # fmt: skip
Grid = Annotated[
    Cells | None,
    typer.Option(
        parser=cells, metavar="ExW", rich_help_panel=STARTS,
        help="Cells along e and w (and every further coordinate that is not fixed), as 64x64.",
    ),
]  # fmt: skip
Cloud = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**12, metavar="M", help="M normal draws around zero (for every sigma).",
        rich_help_panel=STARTS,
    ),
]  # fmt: skip
Sigma = Annotated[
    Spread | None,
    typer.Option(
        parser=spread, metavar="S", rich_help_panel=STARTS,
        help="Standard deviation of the draws: a number, LOW:HIGH:COUNT evenly spaced in the "
        "logarithm, or e=S,w=S.",
    ),
]  # fmt: skip
PointsFile = Annotated[
    Path | None,
    typer.Option(
        "--points", metavar="FILE", rich_help_panel=STARTS,
        help="The starts of a file: .csv with named columns, .npy, or a record (.nc).",
    ),
]  # fmt: skip
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_SEED, metavar="S", help="Seed of everything random.", rich_help_panel=STARTS
    ),
]
Dim = Annotated[
    int,
    typer.Option(
        min=1, max=10**6, metavar="D", help="Embedding dimension d.", rich_help_panel=FULL
    ),
]
Positions = Annotated[
    int,
    typer.Option(min=1, max=10**9, metavar="N", help="Context length N.", rich_help_panel=FULL),
]
Count = Annotated[
    int,
    typer.Option(
        min=1, max=10**6, metavar="M", help="How many seeds, one model each.",
        rich_help_panel=FULL,
    ),
]  # fmt: skip
Batch = Annotated[
    int,
    typer.Option(
        min=1, max=10**9, metavar="B", help="Sequences of each model in a sampled batch.",
        rich_help_panel=FULL,
    ),
]  # fmt: skip
Rate = Annotated[
    float | None,
    typer.Option(
        min=1e-300, max=1e300, metavar="X", rich_help_panel=FULL,
        help="Learning rate.  [default: 1e-3 for adam and adamw, else 0.1]",
    ),
]  # fmt: skip
Noise = Annotated[
    float,
    typer.Option(
        min=0, max=1e3, metavar="STD", help="Deviation of normal noise on the weights.",
        rich_help_panel=FULL,
    ),
]  # fmt: skip
Jobs = Annotated[
    int,
    typer.Option(
        min=1, max=4096, metavar="N", help="Processes that share the work.", rich_help_panel=WORK
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Use a running dask cluster, tcp://host:port.",
        rich_help_panel=WORK,
    ),
]  # fmt: skip
Device = Annotated[
    DeviceName,
    typer.Option(
        metavar="DEVICE", help="cpu, cuda (an error where there is none) or auto.",
        rich_help_panel=WORK,
    ),
]  # fmt: skip
Figure = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", rich_help_panel=OUTPUT,
        help="Figure: .png, .pdf or .svg; the record (.nc) is written beside it.",
    ),
]  # fmt: skip
Width = Annotated[
    float | None,
    typer.Option(
        min=1.5, max=100, metavar="INCHES", rich_help_panel=OUTPUT,
        help="Width of the figure, such as 3.3 for a column of text.",
    ),
]  # fmt: skip
NoTitle = Annotated[
    bool, typer.Option("--no-title", help="Leave the title out.", rich_help_panel=OUTPUT)
]
NoLegend = Annotated[
    bool, typer.Option("--no-legend", help="Leave the legend out.", rich_help_panel=OUTPUT)
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="RECORD", rich_help_panel=OUTPUT,
        help="Redraw a record; nothing is computed.",
    ),
]  # fmt: skip
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue an unfinished run.", rich_help_panel=WORK),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=OUTPUT),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace existing files.", rich_help_panel=OUTPUT),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=OUTPUT)
]
