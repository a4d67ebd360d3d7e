"""Values that one word of the command line spells: LOW:HIGH, LOW:HIGH:COUNT, NAME=VALUE, 64x64."""

from __future__ import annotations

import math
from typing import NamedTuple

import typer

from flowsim.models.catalogue import MODELS
from flowsim.models.own import argument

MAX_CELLS = 10_000_000
#: States of a chain: the eigenvalues of a kernel take the third power of their number.
MAX_STATES = 2000
MAX_RANGE = 1000
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
