"""The options that commands share, each defined once, and the values that one word spells."""

from __future__ import annotations

import ast
import math
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from flowsim.errors import InputError, integer, number
from flowsim.models.arguments import LENGTH
from flowsim.spec import BUILT_IN, models_with, or_list

MAX_CELLS = 10_000_000
#: States of a chain: the eigenvalues of a kernel take the third power of their number.
MAX_STATES = 2000
MAX_LENGTH = 10**6
#: p and q lie between this and its complement: nearer to 0 or 1 float64 knows no 1 − p − q.
SMALLEST_CHANCE = 1e-12


class Interval(NamedTuple):
    """The ends of a range, low < high."""

    low: float
    high: float


class Assignment(NamedTuple):
    """A word of a command, NAME=VALUE."""

    key: str
    value: Any


class Ranges(dict[str, Interval]):
    """Windows by the names of their axes."""


class Numbers(tuple[float, ...]):
    """One number, or several that increase."""


class Counts(tuple[int, ...]):
    """Whole numbers: of positions, or of cells along each coordinate."""


class Spread(NamedTuple):
    """Standard deviations: one, several that increase, or one for each named coordinate."""

    sigma: float | tuple[float, ...] | dict[str, float]


def quoted(text: str) -> str:
    """Return the text as typed, in quotes, cut to 60 characters."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def wrong(must: str, text: str) -> typer.BadParameter:
    """Return the error for a typed text, with what it must be or do."""
    return typer.BadParameter(f"must {must}, not {quoted(text)}.")


def positive(text: str) -> float:
    """Read a finite number above 0."""
    if not 0 < number(text) < math.inf:
        raise wrong("be a positive number", text)
    return number(text)


def interval(text: str) -> Interval:
    """Read LOW:HIGH with LOW < HIGH."""
    low, _, high = text.partition(":")
    bounds = Interval(number(low), number(high))
    if not -math.inf < bounds.low < bounds.high < math.inf:
        raise wrong("be LOW:HIGH, finite and increasing", text)
    return bounds


def assignment(text: str) -> Assignment:
    """Read NAME=VALUE with a finite value."""
    name, _, value = text.partition("=")
    if not name.strip() or not math.isfinite(number(value)):
        raise wrong("be NAME=VALUE with a finite value", text)
    return Assignment(name.strip(), number(value))


def ranges(text: str) -> Ranges:
    """Read NAME=LOW:HIGH,NAME=LOW:HIGH."""
    parts = [part.partition("=") for part in text.split(",")]
    found = Ranges((name.strip(), interval(bounds)) for name, _, bounds in parts)
    if len(found) < len(parts) or "" in found:
        raise wrong("be X=LOW:HIGH,Y=LOW:HIGH, each name once", text)
    return found


def setting(text: str) -> Assignment:
    """Read NAME=VALUE, where the value is a number, True, False or a word."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise wrong("be NAME=VALUE", text)
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = value
    return Assignment(name.strip(), found if isinstance(found, (bool, int, float)) else value)


def settings(text: str) -> Assignment:
    """Read NAME=VALUE, or NAME=LOW:HIGH:COUNT of numbers, whole ones where all are whole."""
    name, value = setting(text)
    if not (isinstance(value, str) and value.count(":") == 2):
        return Assignment(name, value)
    numbers = _evenly(value)
    whole = "." not in value and all(abs(x - round(x)) < 1e-9 for x in numbers)
    return Assignment(name, Numbers(map(round, numbers) if whole else numbers))


def model_names() -> list[str]:
    """Return the names of the built-in models, with which a shell completes a word."""
    return list(BUILT_IN)


def model_name(text: str) -> str:
    """Read the name of a built-in model, or FILE.py:Class."""
    if ":" not in text and text not in BUILT_IN:
        meant = get_close_matches(text.lower().replace("_", "-"), BUILT_IN, 1, 0.75)
        hint = f" (is {meant[0]} meant?)" if meant else ""
        raise wrong(f"be one of {', '.join(BUILT_IN)}, or FILE.py:Class of your own{hint}", text)
    return text


def _ends(text: str) -> tuple[float, float, int]:
    """Read LOW:HIGH:COUNT, increasing, with COUNT of at least 2."""
    low, high, count = (*text.split(":"), "", "")[:3]
    first, last, steps = number(low), number(high), integer(count)
    whole = text.count(":") == 2 and 2 <= steps <= MAX_CELLS
    if not (whole and first < last and math.isfinite(last - first)):
        raise wrong("be a number or LOW:HIGH:COUNT, increasing, COUNT at least 2", text)
    return first, last, steps


def _evenly(text: str) -> list[float]:
    """Read a number, or the evenly spaced numbers of LOW:HIGH:COUNT."""
    if ":" not in text:
        return [number(text)]
    low, high, count = _ends(text)
    step = (high - low) / (count - 1)
    return [*(low + i * step for i in range(count - 1)), high]


def _one(text: str) -> str:
    """Return the text, unless it is the range that only ``scan`` takes."""
    if ":" in text:
        raise typer.BadParameter(
            f"must be one number, not {quoted(text)}: flowsim scan takes a range."
        )
    return text


def probabilities(text: str) -> Numbers:
    """Read a probability strictly between 0 and 1, or LOW:HIGH:COUNT, evenly spaced."""
    values = Numbers(_evenly(text))
    if set(text) & {",", "%"}:
        raise wrong("be a probability with a decimal point, such as 0.5", text)
    if not all(SMALLEST_CHANCE <= value <= 1 - SMALLEST_CHANCE for value in values):
        raise wrong(f"lie strictly between 0 and 1, by at least {SMALLEST_CHANCE:g}", text)
    return values


def probability(text: str) -> float:
    """Read one probability strictly between 0 and 1."""
    return probabilities(_one(text))[0]


def length(text: str) -> int:
    """Read one number of positions N."""
    count = integer(_one(text))
    if not 1 <= count <= MAX_LENGTH:
        raise wrong(f"be from 1 to {MAX_LENGTH}", text)
    return count


def lengths(text: str) -> Counts:
    """Read N, or LOW:HIGH:COUNT, evenly spaced and rounded to whole numbers."""
    values = Counts(map(round, _evenly(text)) if ":" in text else [integer(text)])
    if not all(1 <= value <= MAX_LENGTH for value in values) or len(set(values)) < len(values):
        raise wrong(f"be from 1 to {MAX_LENGTH}, or LOW:HIGH:COUNT with no number twice", text)
    return values


def states(text: str) -> int:
    """Read a number of states S."""
    count = integer(text)
    if not 2 <= count <= MAX_STATES:
        raise wrong(f"be from 2 to {MAX_STATES}", text)
    return count


def spread(text: str) -> Spread:
    """Read standard deviations: a number, LOW:HIGH:COUNT or NAME=S,NAME=S.

    Values of a range are evenly spaced in the logarithm.
    """
    found: float | tuple[float, ...] | dict[str, float]
    if "=" in text:
        found = dict(assignment(part) for part in text.split(","))
        values = tuple(found.values())
        if len(values) != text.count(",") + 1:
            raise wrong("name every coordinate once", text)
    elif ":" in text:
        low, high, count = _ends(text)
        ratio = high / low if low > 0 else math.nan
        found = values = (*(low * ratio ** (i / (count - 1)) for i in range(count - 1)), high)
    else:
        found, values = number(text), (number(text),)
    if not all(0 < value < math.inf for value in values):
        raise wrong("be positive: a number, LOW:HIGH:COUNT or NAME=S,NAME=S", text)
    return Spread(found)


def cells(text: str) -> Counts:
    """Read numbers of cells along each coordinate that varies, as 64x64 or 64x64x32."""
    counts = Counts(map(integer, text.lower().split("x")))
    if not all(1 <= count <= MAX_CELLS for count in counts):
        raise wrong(f"be numbers of cells such as 512x512, each from 1 to {MAX_CELLS}", text)
    return counts


def point(text: str) -> Numbers:
    """Read a reduced point, E,W or E,W,A."""
    values = Numbers(map(number, text.split(",")))
    if len(values) not in (2, 3) or not all(map(math.isfinite, values)):
        raise wrong("be E,W or E,W,A, finite numbers", text)
    return values


def read_kernel(path: Path) -> list[list[float]]:
    """Return the numbers of a text file, a list for each line; InputError if it has others."""
    rows: list[list[float]] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for place, line in enumerate(map(str.strip, lines), 1):
                values = [number(word) for word in line.split(",")] if line else []
                if len(rows) >= MAX_STATES or len(values) > MAX_STATES:
                    raise InputError(f"{str(path)!r} has more than {MAX_STATES} states")
                if any(map(math.isnan, values)):
                    raise InputError(f"line {place} of {str(path)!r} is {quoted(line)}, "
                                     "not numbers with commas between them")  # fmt: skip
                rows += [values] if values else []
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is no text file") from None
    return rows


def with_windows(arguments: list[str]) -> list[str]:
    """Rewrite --w-range, --e-range, --a-range and --range among a command's words as --window.

    For example ``--w-range -3 3``, or ``-3:3``, becomes ``--window=w=-3:3``.
    """
    found, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        option, equals, bounds = word.partition("=")
        if option in ("--w-range", "--e-range", "--a-range"):
            bounds = bounds if equals else "".join(rest[:1])
            rest = rest if equals else rest[1:]
            if rest and not math.isnan(number(rest[0])):
                bounds += f":{rest.pop(0)}"
            word = f"--window={option[2]}={bounds}"
        found.append(f"--window{equals}{bounds}" if option == "--range" else word)
    return found


#: Sections of a command's help, in their order.
CHAIN, MODEL, SOME, OPTIMIZER, STARTS, FULL, SSM, TRAINING, WINDOW, ACCURACY, WORK, OUTPUT = (
    "Chain", "Reduced model", "Some reduced models", "Optimizer", "Starts", "Full transformer",
    "State-space layer (--mixer ssm, selective)", "Training", "Window", "Accuracy", "Work",
    "Output",
)  # fmt: skip
PARAMETERS, NOISE = "Parameters", "Noise"
SECTIONS = (
    CHAIN, MODEL, SOME, PARAMETERS, NOISE, OPTIMIZER, STARTS, FULL, SSM, TRAINING, WINDOW, ACCURACY,
    WORK, OUTPUT,
)  # fmt: skip

#: Positions N where none are given.
DEFAULT_LENGTH: int = LENGTH.default
MAX_RESOLUTION = 4000
MAX_SEED = 2**62


def having(option: str, about: bool = False) -> str:
    """Return words for the help: the models with an option.

    With ``about`` each is followed by the option's description.
    """
    named = []
    for model, own in models_with(option).items():
        only = f" with --{own.requires}" if own.requires else ""
        named.append(f"{model}{only}{f': {own.help}' if about else ''}")
    return "; ".join(named) if about else or_list(named)


def option(section: str, metavar: str, help: str, *names: str, **more: Any) -> Any:
    """Declare an option with a value: its section and words in the help, and more for typer."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=section, **more)


def flag(section: str, option: str, help: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(option, help=help, rich_help_panel=section)


def rate(section: str) -> Any:
    """Declare the option of the learning rate, in a section of the help."""
    text = "Learning rate.  [default: 1e-3 for Adam and AdamW, else 0.1]"
    return option(section, "X", text, parser=positive)


def schedule(section: str) -> Any:
    """Declare the option of the learning rate's schedule, in a section of the help."""
    text = "Learning rate over time: constant, or cosine with 2 % warm-up."
    return option(section, "KIND", f"{text}  [default: cosine for adamw-papers]")


States = Annotated[
    int | None,
    option(CHAIN, "S", "S states: leave the state with probability P, uniformly to the others.",
           parser=states),
]  # fmt: skip
Integrator = Annotated[
    Literal["flowsim", "torchdiffeq"],
    option(ACCURACY, "NAME", "flowsim: compiled integrators; torchdiffeq: decides every start by "
           "itself, much more slowly."),
]  # fmt: skip
Confirm = Annotated[
    int | None,
    option(ACCURACY, "N", "Number of random starts that torchdiffeq decides again.  [default: "
           "256; 16 where the loss is not a function of the logit gap]", min=0, max=1_000_000),
]  # fmt: skip
Edge = Annotated[
    bool,
    flag(WORK, "--edge", "Also record how far every start is from another end, and draw contours."),
]
PointsFile = Annotated[
    Path | None,
    option(STARTS, "FILE",
           "The starts of a file: .csv with named columns, .npy, or a record (.nc).", "--points"),
]  # fmt: skip
Seed = Annotated[int, option(STARTS, "S", "Seed of everything random.", min=0, max=MAX_SEED)]
Dim = Annotated[int, option(FULL, "D", "Embedding dimension d.", min=1, max=10**6)]
Positions = Annotated[int, option(FULL, "N", "Context length N.", min=1, max=10**9)]
Batch = Annotated[
    int, option(TRAINING, "B", "Sequences in a sampled batch, for each model.", min=1, max=10**9)
]
Rate = Annotated[float | None, rate(TRAINING)]
Noise = Annotated[
    float,
    option(FULL, "STD", "Standard deviation of normal noise added to every weight.",
           min=0, max=1e3),
]  # fmt: skip
Device = Annotated[
    Literal["cpu", "cuda", "auto"],
    option(WORK, "DEVICE", "cpu, cuda (an error without a GPU) or auto."),
]
Resume = Annotated[bool, flag(WORK, "--resume", "Continue an unfinished run.")]
Json = Annotated[bool, flag(OUTPUT, "--json", "Print the summary as JSON.")]
Overwrite = Annotated[bool, flag(OUTPUT, "--overwrite", "Replace existing files.")]
Quiet = Annotated[bool, flag(OUTPUT, "--quiet", "Print nothing but errors.")]
