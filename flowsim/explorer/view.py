"""What a page of the explorer shows: model, chain, window, starts, cloud; validated, immutable.

Nothing here knows of a browser. Every change makes a new ``View``; one that is out of bounds raises
``InputError`` and leaves the old one as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.catalogue import DEFAULT_LENGTH, ModelChoice
from flowsim.models.rank_one import RankOneModel
from flowsim.portraits.starts_in_plane import check_fixed

#: Bounds that keep every page quick, whatever a link asks for.
MOST_STARTS, MOST_POSITIONS, MOST_STATES = 12, 64, 50
SMALLEST_CHANCE, FARTHEST, NARROWEST = 0.001, 20.0, 1e-6
#: Draws of a cloud where labels come quickly, and elsewhere.
DRAWS, FEWER_DRAWS = 1000, 200


class Window(NamedTuple):
    """The part of the (w, e) plane that is shown."""

    w_low: float = -3.0
    w_high: float = 3.0
    e_low: float = -3.0
    e_high: float = 3.0


class Start(NamedTuple):
    """A start of an orbit."""

    e: float
    w: float


class Puff(NamedTuple):
    """A cloud of normal starts around a point, of the same deviation along e and along w."""

    e: float
    w: float
    sigma: float


@dataclass(frozen=True)
class View:
    """What is shown, beside what is computed of it.

    Args:
        choice: the reduced model without its chain.
        p, q: the chain; of S states p alone counts.
        fixed: values of coordinates beside e and w, by name; without an entry as ``plane_starts``.
        window: what is seen of the plane.
        starts: of the orbits, in the order in which they were chosen.
        backward: whether the orbits are drawn backward too.
        puff: the cloud, if there is one.

    Raises:
        InputError: a number out of its bounds, or a coordinate that the model does not have.
    """

    choice: ModelChoice = field(default_factory=ModelChoice)
    p: float = 0.5
    q: float = 0.8
    fixed: tuple[tuple[str, float], ...] = ()
    window: Window = field(default_factory=Window)
    starts: tuple[Start, ...] = ()
    backward: bool = False
    puff: Puff | None = None

    def __post_init__(self) -> None:
        if self.choice.name == "induction":
            raise InputError("the explorer shows planes (w, e); the induction model's is another")
        if self.choice.name == "states" and self.choice.attention:
            raise InputError("the explorer shows S states without attention")
        for name in ("p", "q"):
            _within(name, getattr(self, name), SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)
        if (self.choice.length or 1) > MOST_POSITIONS:
            raise InputError(f"the explorer shows at most N = {MOST_POSITIONS} positions")
        if (self.choice.states or 2) > MOST_STATES:
            raise InputError(f"the explorer shows at most S = {MOST_STATES} states")
        if (self.choice.hidden_per_state or 1) > MOST_STATES:
            raise InputError(f"the explorer shows at most m = {MOST_STATES} units for each state")
        for name, value in self.fixed:
            _within(name, value, -FARTHEST, FARTHEST)
        check_fixed(self.model, self.held)
        for low, high in (self.window[:2], self.window[2:]):
            _within("the window", low, -FARTHEST, FARTHEST)
            _within("the window", high, -FARTHEST, FARTHEST)
            if high - low < NARROWEST:
                raise InputError(f"the window must be at least {NARROWEST:g} wide and high")
        if len(self.starts) > MOST_STARTS:
            raise InputError(f"at most {MOST_STARTS} orbits are shown at once")
        for start in self.starts:
            for name, value in zip("ew", start, strict=True):
                _within(f"{name} of a start", value, -FARTHEST, FARTHEST)
        if self.puff is not None:
            _within("e of the cloud", self.puff.e, -FARTHEST, FARTHEST)
            _within("w of the cloud", self.puff.w, -FARTHEST, FARTHEST)
            _within("the cloud's spread", self.puff.sigma, NARROWEST, FARTHEST)

    @property
    def model(self) -> ReducedModel:
        """The reduced model on its chain."""
        q = None if self.choice.name == "states" else self.q
        return self.choice.on(self.choice.chain(self.p, q))

    @property
    def held(self) -> dict[str, float]:
        """The fixed coordinates by name."""
        return dict(self.fixed)

    @property
    def has_slice(self) -> bool:
        """Whether the model has an attention coordinate a, of which the plane is a slice."""
        model = self.model
        return "a" in model.coordinates or (isinstance(model, RankOneModel) and model.attention)

    def on_chain(self, p: float, q: float) -> View:
        """The same on another chain."""
        return replace(self, p=p, q=q)

    def with_model(self, name: str, **options: object) -> View:
        """Another model, with those of the options and held values that it has."""
        has = {
            "length": name in ("uniform", "rank-one"),
            "attention": name == "rank-one",
            "tied": name == "rank-one",
            "bias": name not in ("rank-one", "states"),
            "states": name == "states",
            "hidden_per_state": name == "states",
        }
        kept: dict[str, object] = {
            key: getattr(self.choice, key)
            for key in has
            if self.choice.name == name or key in ("length", "bias")
        }
        kept |= options
        chosen = {key: value for key, value in kept.items() if has[key] and value is not None}
        if name == "states":
            chosen.setdefault("states", 5)
        choice = ModelChoice(name, **chosen)  # type: ignore[arg-type]
        view = replace(self, choice=choice, fixed=())
        if view.has_slice and "a" in self.held:
            view = replace(view, fixed=(("a", self.held["a"]),))
        return view

    def with_slice(self, a: float) -> View:
        """The slice at another a, of a model that has it."""
        held = {**self.held, "a": a}
        return replace(self, fixed=tuple(held.items()) if a else _without(held, "a"))

    def with_start(self, e: float, w: float) -> View:
        """One more orbit; its start is rounded to what a click can mean in the window."""
        side = min(self.window.w_high - self.window.w_low, self.window.e_high - self.window.e_low)
        digits = max(0, 3 - math.floor(math.log10(side)))
        return replace(self, starts=(*self.starts, Start(round(e, digits), round(w, digits))))

    def without_last(self) -> View:
        """One orbit less: the last that was started."""
        return replace(self, starts=self.starts[:-1])

    def zoomed(self, factor: float) -> View:
        """The window's middle, so many times smaller along both axes, as far as bounds allow."""
        w_low, w_high, e_low, e_high = self.window
        sides = []
        for low, high in ((w_low, w_high), (e_low, e_high)):
            middle, half = (low + high) / 2, (high - low) / 2 / factor
            sides += [max(middle - half, -FARTHEST), min(middle + half, FARTHEST)]
        return replace(self, window=Window(*sides))


def full_length(view: View, wanted: int | None = None) -> int:
    """N of the full transformer: what is wanted, else the view's model's own, else the usual."""
    return wanted or view.choice.length or DEFAULT_LENGTH


def _within(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= value <= high):
        raise InputError(f"{name} must lie between {low:g} and {high:g}, not {value!r}")


def _without(held: dict[str, float], name: str) -> tuple[tuple[str, float], ...]:
    return tuple((key, value) for key, value in held.items() if key != name)
