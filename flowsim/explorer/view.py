"""The view of a page of the explorer: model, window, starts, cloud; validated, immutable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from flowsim.errors import InputError
from flowsim.flow.solver import solver_of
from flowsim.interface import Model, check_fixed, with_axes
from flowsim.models.arguments import LENGTH
from flowsim.spec import ModelSpec, built_in, has_parameter, parameters

#: Bounds that keep every page quick, whatever a link asks for.
MOST_STARTS, FARTHEST, NARROWEST = 12, 1000.0, 1e-6
#: Coordinates that may be fixed in the plane of a model that has a full transformer.
HELD = ("a", "u", "b")
#: Draws of a cloud where labels come quickly, and elsewhere.
DRAWS, FEWER_DRAWS = 1000, 200
#: Cells a side that the flow labels while a slider moves, if a start takes microseconds.
CELLS_AT_ONCE = 40
#: Axes that may be logarithmic.
LOGS = ("time", "loss")


#: Tells a computation in a thread whether something newer replaces it.
Stop = Callable[[], bool]


class Stopped(Exception):
    """A computation was cancelled: a newer request replaced it."""


class Window(NamedTuple):
    """The part of the plane that is shown: of planes (w, e), x is w and y is e."""

    x_low: float = -3.0
    x_high: float = 3.0
    y_low: float = -3.0
    y_high: float = 3.0

    @property
    def middle(self) -> tuple[float, float]:
        """y and x of its middle."""
        return (self.y_low + self.y_high) / 2, (self.x_low + self.x_high) / 2


class Start(NamedTuple):
    """A start of an orbit; of planes (w, e), y is e and x is w."""

    y: float
    x: float


class GaussianCloud(NamedTuple):
    """A cloud of normal starts around a point, of the same deviation along both axes."""

    y: float
    x: float
    sigma: float


@dataclass(frozen=True)
class View:
    """The state of a page: a model, a window of its plane, starts and a cloud; checked when made.

    ``fixed`` are coordinates beside the plane with their values, ``axes`` those of the plane of a
    user's model where they were chosen. ``logs`` are names from ``LOGS`` with logarithmic axes;
    None for the default of the view.
    """

    spec: ModelSpec = field(default_factory=lambda: ModelSpec.first("canonical"))
    fixed: tuple[tuple[str, float], ...] = ()
    axes: tuple[str, ...] = ()
    window: Window = field(default_factory=Window)
    starts: tuple[Start, ...] = ()
    backward: bool = False
    nullclines: bool = False
    cloud: GaussianCloud | None = None
    logs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, value in self.spec.options.items():
            if (shown := self.spec.parameters[name].slider) is not None:
                within(name, value, *shown)
        plane = self.model.plane
        for other in plane.fixable if self.trainable else ():
            if other not in HELD:  # where no full training can begin
                raise InputError(
                    f"the explorer holds {', '.join(HELD)} beside its planes, and the "
                    f"{self.spec.name} model, as chosen, has {other}"
                )
        check_fixed(plane, self.fixed_values)
        y, x, (x_low, x_high, y_low, y_high) = plane.y, plane.x, self.window
        numbers = [*self.fixed, *(("the window", side) for side in self.window)]
        for start in self.starts:
            numbers += [(f"{y} of a start", start.y), (f"{x} of a start", start.x)]
        if self.cloud is not None:
            numbers += [(f"{y} of the cloud", self.cloud.y), (f"{x} of the cloud", self.cloud.x)]
            within("the cloud's spread", self.cloud.sigma, NARROWEST, FARTHEST)
        for name, value in numbers:
            within(name, value, -FARTHEST, FARTHEST)
        if min(x_high - x_low, y_high - y_low) < NARROWEST:
            raise InputError(f"the window must be at least {NARROWEST:g} wide and high")
        if len(self.starts) > MOST_STARTS:
            raise InputError(f"at most {MOST_STARTS} orbits are shown at once")
        if not set(self.logs or ()) <= set(LOGS):
            raise InputError(f"only {' and '.join(LOGS)} can have logarithmic axes")

    @property
    def chain(self) -> Any:
        """The model's data, a Markov chain or a prior over kernels; None if it has none."""
        return getattr(self.model, "chain", None)

    @property
    def model(self) -> Model:
        """The model, its plane along ``axes`` where they were chosen."""
        return _showing(self.spec.build(), self.axes)

    @property
    def flow_key(self) -> tuple[object, ...]:
        """The model and its held coordinates: views that agree in them have the same flow."""
        return self.spec, self.fixed

    @property
    def but_chain(self) -> tuple[object, ...]:
        """The model and its arguments without p and q."""
        return self.spec.name, *(x for x in self.spec.options.items() if x[0] not in ("p", "q"))

    @property
    def x(self) -> str:
        """The name of the horizontal axis."""
        return self.model.plane.x

    @property
    def y(self) -> str:
        """The name of the vertical axis."""
        return self.model.plane.y

    @property
    def usual_window(self) -> Window:
        """The window that the model's plane has by default."""
        window = self.model.plane.window
        return Window(*window[self.x], *window[self.y])

    @property
    def at_once(self) -> bool:
        """Return whether the flow is quick enough to label a picture while a slider moves."""
        return CELLS_AT_ONCE**2 * solver_of(self.model).defaults.cost < 0.1

    @property
    def trainable(self) -> bool:
        """Return whether a full transformer can be trained: the model is of a Markov chain."""
        return not self.spec.is_own and hasattr(self.spec.kind, "chain")

    @property
    def numbers(self) -> dict[str, float]:
        """The numeric arguments of the model, by name."""
        return {k: v for k, v in self.spec.options.items() if type(v) in (int, float)}

    @property
    def written(self) -> dict[str, Any]:
        """Arguments that links and commands have to say, by name.

        These are numbers, all others that differ from their defaults, and all of a user's model.
        """
        usual = self.spec.parameters
        return {k: v for k, v in self.spec.options.items()
                if self.spec.is_own or k in self.numbers or v != usual[k].default}  # fmt: skip

    @property
    def fixed_values(self) -> dict[str, float]:
        """The values of the coordinates that are held beside the plane, by name."""
        return dict(self.fixed)

    @property
    def has_slice(self) -> bool:
        """Return whether the plane is a slice of a model with an attention coordinate a."""
        return "a" in self.model.plane.fixable

    @property
    def slice_name(self) -> str | None:
        """The coordinate beside the plane that the page has a slider for: a, or a user's first."""
        if self.has_slice:
            return "a"
        fixable = self.model.plane.fixable
        return fixable[0] if fixable and not self.trainable else None

    def with_arguments(self, **arguments: float) -> View:
        """Return the view with these arguments of its model changed."""
        return replace(self, spec=self.spec.replace(**arguments))

    def with_model(self, model: str, **options: object) -> View:
        """Return the view with another model, or with other options of the same one.

        A new model keeps former arguments that it has too, but for switches and what its slider
        does not reach; and starts and cloud, if its axes have the same names.
        """
        same = model == self.spec.name
        kind = self.spec.kind if same else built_in(model)
        shown = {name: about.slider for name, about in parameters(kind).items() if about.slider}
        wanted = dict(options)
        for name, value in self.spec.options.items():
            low, high = shown.get(name, (value, value))
            if same or (not isinstance(value, bool) and low <= value <= high):
                wanted.setdefault(name, value)
        chosen = {key: value for key, value in wanted.items() if has_parameter(kind, key, wanted)}
        spec = (
            ModelSpec(self.spec.target, chosen, kind) if same else ModelSpec.first(model, **chosen)
        )
        if same and not self.trainable:
            return replace(self, spec=spec)
        view = replace(self, spec=spec, fixed=(), axes=(), starts=(), cloud=None)
        if (view.x, view.y) == (self.x, self.y):
            view = replace(view, starts=self.starts, cloud=self.cloud)
        else:
            view = replace(view, window=view.usual_window)
        if view.has_slice and "a" in self.fixed_values:
            view = replace(view, fixed=(("a", self.fixed_values["a"]),))
        return view

    def with_slice(self, value: float) -> View:
        """Return the view with another value of the coordinate ``slice_name``."""
        name = self.slice_name or "a"
        fixed_values = {**self.fixed_values, name: value}
        return replace(self, fixed=tuple((k, v) for k, v in fixed_values.items() if v or k != name))

    def with_start(self, y: float, x: float, number: int | None = None) -> View:
        """Return the view with a start added at (y, x), or with start ``number`` moved there.

        The place is rounded, to a thousandth of the window or finer.
        """
        x_low, x_high, y_low, y_high = self.window
        digits = max(0, 3 - math.floor(math.log10(min(x_high - x_low, y_high - y_low))))
        at = len(self.starts) if number is None else number
        start = Start(round(y, digits), round(x, digits))
        return replace(self, starts=(*self.starts[:at], start, *self.starts[at + 1 :]))


@lru_cache(maxsize=64)
def _showing(model: Model, axes: tuple[str, ...]) -> Model:
    """Return the model with these axes, one object for both, since it caches its results."""
    return with_axes(model, *axes)


def full_length(view: View, wanted: int | None = None) -> int:
    """Return N of the full transformer: ``wanted``, else that of the view's model, or the usual."""
    return wanted or view.spec.get("length") or LENGTH.default


def within(argument: str, value: float, low: float, high: float) -> None:
    """Raise InputError unless the argument's value is a number from ``low`` to ``high``."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= value <= high):
        raise InputError(f"{argument} must lie between {low:g} and {high:g}, not {value!r}")
