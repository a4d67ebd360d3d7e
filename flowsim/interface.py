"""The interface of a model: all that the rest of flowsim may ask of it.

A model must say its coordinates and its loss. Everything else has a default, and whatever a model
says beyond the loss makes its results faster, sharper or better labelled. Only ``flowsim.models``
and ``full_model`` ask *which* model they have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, wraps
from inspect import isfunction
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from flowsim.arrays import Numbers, to_tensor
from flowsim.curves import Curve
from flowsim.errors import InputError
from flowsim.inheritance import Former, forget_outdated, unwritten

#: The smallest and the largest value of a coordinate.
Range = tuple[float, float]
_Method = TypeVar("_Method", bound=Callable[..., Any])


def accepts_theta(method: _Method) -> _Method:
    """Let a model's method of θ take tensors, arrays and lists, and check the number of columns.

    A method that overrides such a one in a subclass does so too. It raises InputError for θ with
    another number of columns than coordinates.
    """

    @wraps(method)
    def checked(model: Any, theta: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(theta, Tensor) and not hasattr(theta, "__torch_function__"):
            found = checked(model, to_tensor(theta, "theta"), *more, **named)
            if isinstance(found, Mapping):
                return {name: value.numpy() for name, value in found.items()}
            return found.numpy() if isinstance(found, Tensor) else found
        k = len(model.coordinates)
        if theta.ndim == 0 or theta.shape[-1] != k:
            names = ", ".join(model.coordinates)
            raise InputError(f"theta needs shape (..., {k}) = ({names}), not {tuple(theta.shape)}")
        return method(model, theta, *more, **named)

    checked.takes_arrays = True  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


class Integral(NamedTuple):
    """The probability that a Gaussian start of deviation σ reaches the best loss.

    Attributes:
        probability: σ ↦ probability.
        small, large: its limits as σ → 0 and as σ → ∞.
        energy: a function of starts (..., axes) that is conserved, and ``saddle_energy`` its value
            on the boundary, where the integral is of this very model; None where it is of a
            simpler model that is only compared.
        of: which model it is of, where it is another one.
    """

    probability: Callable[[float], float]
    small: float
    large: float
    energy: Callable[[Tensor], Tensor] | None = None
    saddle_energy: float = 0.0
    of: str = ""


@dataclass(frozen=True)
class EndLosses:
    """The losses at which orbits of a model can end, and closed forms about the ends.

    Attributes:
        best: the least loss, in nats.
        trap: the loss of the bad minima.
        difference: trap − best, correct to rounding where the two are close.
        speed: the slowest rate of relaxation near the bad minima, 0 if there are none. Rates below
            1e-4 of it are called slow.
        rate: a typical rate of the flow near its slowest critical points: the unit of time shown.
        excess: the loss above ``best`` at θ, where rounding hides less of it than a difference.
        basin: mask of starts θ that reach ``best``, by a closed form, or None.
        classify: labels of critical points (n, k), int8 (n,), or None to take their loss and
            curvature; with True the points are critical only within an integrator's error.
        label_of_point: labels that points (n, k) of orbits are sure to get, int8 (n,), or
            UNRESOLVED; without it an orbit is known by its loss alone, or where it rests.
        integral: the probability that Gaussian starts reach ``best``, or None.
        decided: labels that a theorem gives starts (n, k), int8 (n,), or UNRESOLVED; or None.

    >>> import flowsim
    >>> end_losses = flowsim.model("canonical", 0.5, 0.8).end_losses()
    >>> round(end_losses.best, 4), round(end_losses.trap, 4)
    (0.619, 0.6663)
    """

    best: float
    trap: float
    difference: float
    speed: float
    rate: float = field(default=1.0, compare=False)
    excess: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)
    basin: Callable[[Tensor], Tensor | None] | None = field(default=None, compare=False)
    classify: Callable[[Tensor, bool], Tensor | None] | None = field(default=None, compare=False)
    label_of_point: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)
    integral: Callable[[], Integral | None] | None = field(default=None, compare=False)
    decided: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)

    @property
    def degenerate(self) -> bool:
        """True if every end has the least loss, so that trap equals best."""
        return self.speed == 0

    def above(self, model: Model, theta: Tensor) -> Tensor:
        """Return the loss above the best, (...), in nats; 0 where rounding hides it."""
        if self.excess is not None:
            return self.excess(theta)
        return difference_above(model.loss(theta), self.best)

    def reached(self, excess: Tensor) -> Tensor:
        """Return the mask of losses that are the best, within the error of an integrator.

        ``excess`` is what ``above`` gives. Where all ends have one loss, an excess counts that
        float64 shows in the loss.
        """
        return excess <= (1e-15 if self.degenerate else max(1e-9 * self.difference, 1e-30))


def difference_above(loss: Tensor, best: float) -> Tensor:
    """Return loss − best, 0 where it is only rounding."""
    above = loss - best
    return torch.where(above <= 2e-15 * abs(best), 0.0, above)


def starts_of(model: Model, starts: Numbers) -> Tensor:
    """Return starts as a float64 tensor (n, k); InputError for another number of coordinates."""
    theta, k = to_tensor(starts, "starts"), len(model.coordinates)
    if theta.ndim != 2 or theta.shape[1] != k:
        names = ", ".join(model.coordinates)
        raise InputError(f"starts need shape (n, {k}) = ({names}), not {tuple(theta.shape)}")
    return theta


def conserved_values(model: Model, theta: Tensor) -> Tensor:
    """Return the conserved quantities, a column for each of ``conserved_names``, (..., count)."""
    found = model.conserved(theta)
    if not isinstance(found, Mapping):
        raise InputError(f"conserved of {model.name} must return a dict of names and tensors")
    return torch.stack([*found.values()], -1) if found else theta.new_zeros(*theta.shape[:-1], 0)


def conserved_names(model: Model) -> tuple[str, ...]:
    """Return the names of the conserved quantities of a model."""
    return tuple(model.conserved(torch.zeros(1, len(model.coordinates), dtype=torch.float64)))


def closed_basin(model: Model, theta: Tensor) -> Tensor | None:
    """Return the mask of starts that reach the best loss, by a closed form; None without one."""
    end_losses = model.end_losses()
    return None if end_losses is None or end_losses.basin is None else end_losses.basin(theta)


#: Places a little inside the four sides of the unit square.
_SIDE = (0.04, 0.224, 0.408, 0.592, 0.776, 0.96)
_AROUND = tuple((x, y) for y in _SIDE for x in _SIDE if {x, y} & {0.04, 0.96})


#: A lattice of starts in (−3, 3)³, no two of whose numbers have the same size: off the diagonals
#: and mirror planes, on which orbits of symmetric losses stay.
_FAR = tuple(product((-2.3, -0.4, 2.1), (-2.5, -0.9, 0.8, 2.4), (-2.2, 0.3, 2.6)))


#: Names in records of other things than coordinates, alone or behind the name of a thing.
RESERVED = frozenset({
    "basin", "cell", "count", "curve", "end", "evaluations", "fraction",
    "gradient_norm", "hitting_time", "kind", "kinks", "label", "largest", "learned_step", "limit",
    "limit_loss", "loss", "name", "node", "number", "of", "open_share", "orbit", "path", "period",
    "place", "plane", "rule", "settling_time", "share", "side", "sliding_time", "status", "step",
    "steps_taken", "time", "vertex", "width",
})  # fmt: skip
#: Things of whose places a record has a variable for every coordinate, as in limit_x.
_PLACED = ("arrow", "boundary", "cell", "cloud", "curve", "direction", "end", "fine", "limit",
           "node", "orbit", "path", "start", "trained", "vertex")  # fmt: skip


@dataclass(frozen=True)
class PlaneDefaults:
    """The defaults of scans and figures of a plane.

    Attributes:
        starts: sets of names in which starts of a scan may be given, the usual one first.
        no_cloud: why Gaussian starts make no sense, if they do not.
        orbits: where a portrait's orbits start, (x, y) in parts of the window's sides.
        third: the third axis of views in space, a name in ``fixable``; None without such a view.
        space: the ranges of all three axes in these views, by name.
        far, near: where their orbits start, (y, x, third), in the window ``space`` and in a second
            panel around the origin; () without such a view.
        never_crossed: names of axes whose zero no orbit crosses.
        baseline: a simpler model with these axes, whose basins the portrait compares with.
        fixed: values of names in ``fixable``.
    """

    starts: tuple[tuple[str, ...], ...]
    no_cloud: str = ""
    orbits: tuple[tuple[float, float], ...] = _AROUND
    third: str | None = None
    space: Mapping[str, Range] = field(default_factory=dict)
    far: tuple[tuple[float, ...], ...] = _FAR
    near: tuple[tuple[float, ...], ...] = ()
    never_crossed: tuple[str, ...] = ()
    baseline: Model | None = None
    fixed: Mapping[str, float] = field(default_factory=dict)


class _FormerPlane:
    """Names of former versions that a plane no longer has."""

    holds = Former("holds", "fixable")


class Plane(_FormerPlane):
    """Two axes on which starts are laid, and the way to the model's coordinates and back.

    By default two coordinates of the model, see ``with_axes``, the others held at 0. A model with
    more to say returns a subclass of its own; a window then chooses no other axes.

    Attributes:
        model: the model.
        x, y: names of the horizontal and the vertical axis; of one coordinate x alone.
        window: the usual range of either axis, by name.
        fixable: the names beside the axes that can be held at a value.
        defaults: what scans and figures take; by default views in space have the coordinate that is
            left of three.

    >>> import flowsim
    >>> from flowsim.interface import theta_on_grid
    >>> plane = flowsim.model("rank-one", 0.5, 0.8, length=4).plane
    >>> plane.x, plane.y, tuple(theta_on_grid(plane, [-0.5, 0.5], [1.0], {}).shape)
    ('w', 'e', (1, 2, 5))
    """

    x = ""

    @cached_property
    def y(self) -> str:
        """The vertical axis; InputError where the model has one coordinate."""
        _, *up = self.model._axes or self.model.coordinates[:2]
        if not up:
            raise InputError(f"the model {self.model.name} has one coordinate, and no plane")
        return up[0]

    def __init__(self, model: Model) -> None:
        if not hasattr(model, "coordinates"):
            raise InputError(f'{model.name} needs coordinates, such as coordinates = ("x", "y")')
        behind = {f"{thing}_{name}" for name in model.coordinates for thing in _PLACED}
        for name in (RESERVED | behind).intersection(model.coordinates):
            raise InputError(
                f"a record of {model.name} has a variable {name!r} already: call the coordinate "
                f"another name, such as {name}_"
            )
        self.model = model
        self.x = self.x or (model._axes or model.coordinates)[0]
        axes = (self.x, self.y) if len(model.coordinates) > 1 else (self.x,)
        self.window = dict.fromkeys(axes, (-3.0, 3.0))
        self.fixable = tuple(name for name in model.coordinates if name not in self.window)
        third = self.fixable[0] if len(model.coordinates) == 3 == len(self.fixable) + 2 else None
        keeps = zip(model.coordinates, model.keeps_sign, strict=True)
        self.defaults = PlaneDefaults(
            (model.coordinates,),
            third=third,
            space=dict.fromkeys(model.coordinates, (-3.0, 3.0)) if third else {},
            never_crossed=tuple(name for name, sign in keeps if sign),
        )

    def embed(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return θ (..., k) of starts: ``values``, each (...), of axes and held coordinates."""
        first = next(iter(values.values()))
        columns = [values.get(name, torch.zeros_like(first)) for name in self.model.coordinates]
        return torch.stack([column.expand_as(first) for column in columns], dim=-1)

    def project(self, theta: Tensor) -> Tensor:
        """Return (y, x), and the third axis if there is one, of points θ: shape (..., 2 or 3)."""
        return theta[..., [self.model.coordinates.index(name) for name in axes_of(self)]]

    def mirrored(self, fixed: Mapping[str, float]) -> bool:
        """Return whether trajectories from −y mirror those from y, with these held values."""
        return False

    def curves(
        self,
        window: Mapping[str, Range],
        fixed: Mapping[str, float],
        points: int = 1201,
        quick: bool = False,
    ) -> list[Curve]:
        """The curves and points that are known of the flow in a window, each of a kind.

        Figures draw every kind in its style and name it in the legend. Where none of them is of
        critical points, portraits search the window for isolated ones.

        Args:
            window: the ranges of both axes, by name.
            fixed: the values of other coordinates.
            points: places along a curve, about.
            quick: leave out what takes longer than a page that follows a slider can wait.
        """
        return []


def axes_of(plane: Plane) -> tuple[str, ...]:
    """Return the names of a plane's axes in the order of ``project``: y, x, then the third."""
    third = plane.defaults.third
    return (plane.y, plane.x) if third is None else (plane.y, plane.x, third)


def check_fixed(plane: Plane, values: Mapping[str, float] | None) -> dict[str, float]:
    """Return the values held beside a plane's axes, by name: the given ones, and the defaults.

    Raises:
        InputError: a name that is not in ``fixable``, or a value that is not finite.
    """
    for name, value in (values or {}).items():
        if name not in plane.fixable:
            only = f"only {' and '.join(plane.fixable)} can be fixed"
            raise InputError(
                f"the {plane.model.name} model's plane ({plane.x}, {plane.y}) takes no fixed "
                f"{name}: {only if plane.fixable else 'it has no other coordinate'}"
            )
        if not math.isfinite(value):
            raise InputError(f"the fixed value of {name} must be finite, not {value}")
    usual = dict.fromkeys(plane.fixable, 0.0) if type(plane).embed is Plane.embed else {}
    values = {**usual, **plane.defaults.fixed, **(values or {})}
    return {name: float(value) for name, value in values.items()}


def theta_at(plane: Plane, x: Tensor, y: Tensor, fixed: Mapping[str, float]) -> Tensor:
    """Return θ (..., k) at places (x, y), each (...), with the rest fixed or as usual."""
    values = {name: torch.full_like(x, value) for name, value in fixed.items()}
    return plane.embed({plane.x: x, plane.y: y, **values})


def theta_on_grid(plane: Plane, x: Numbers, y: Numbers, fixed: Mapping[str, float]) -> Tensor:
    """Return θ at every point of a grid, shape (len(y), len(x), k)."""
    rows, columns = torch.meshgrid(to_tensor(y), to_tensor(x), indexing="ij")
    return theta_at(plane, columns, rows, fixed)


def cloud_names(plane: Plane) -> tuple[str, ...]:
    """Return the names of what Gaussian starts draw; InputError where they make no sense."""
    if plane.defaults.no_cloud:
        raise InputError(plane.defaults.no_cloud)
    return plane.defaults.starts[0]


def differentiate(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return ∇f, shape of θ, of a function (..., k) ↦ (...) of each row alone."""
    if not theta.numel():
        return torch.zeros_like(theta)
    with torch.enable_grad():
        point = theta if theta.requires_grad else theta.detach().requires_grad_()
        total = function(point).sum()
        return torch.autograd.grad(total, point, create_graph=theta.requires_grad)[0]


def _derivative(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return ∂f/∂θ, (..., k, k), of a function (..., k) ↦ (..., k) of each row alone."""
    k = theta.shape[-1]
    if not theta.numel():
        return theta.new_zeros(*theta.shape, k)
    with torch.enable_grad():  # one copy of the rows for every component: one way back, not k
        point = theta.detach().expand(k, *theta.shape).clone().requires_grad_()
        values = function(point)
        if not values.requires_grad:  # constant
            return theta.new_zeros(*theta.shape, k)
        own = values.diagonal(dim1=0, dim2=-1).sum()
        derivative: Tensor = torch.autograd.grad(own, point)[0]
    return derivative.movedim(0, -2)


class _Each:
    """A default that is the same value for each of a model's coordinates, however many it has."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __get__(self, model: Any, kind: Any = None) -> tuple[float, ...]:
        return (self.value,) * len((kind if model is None else model).coordinates)


class _Title:
    """A default title: the name of a model without the file in which it is written."""

    def __get__(self, model: Any, kind: Any = None) -> str:
        return str((kind if model is None else model).name).rpartition(":")[2]


#: Members of former versions, and what is written in their place.
FORMER = {
    "levels": "end_losses()",
    "subtitle": "the second line of title",
    "conserved_names": "the names in the dict that conserved(theta) returns",
    "shown": "flowsim.interface.with_axes(model, x, y)",
    "with_axes": "flowsim.interface.with_axes(model, x, y)",
    "basin": "the basin of end_losses()",
    "classify": "the classify of end_losses()",
    "label_of_point": "the label_of_point of end_losses()",
    "integral": "the integral of end_losses()",
    "excess": "end_losses().above(model, theta)",
    "rate_scale": "the rate of end_losses()",
    "has_flow_of": "flowsim.inheritance.keeps_formulas_of(type(model), kind)",
    **dict.fromkeys(("fast", "slow", "kinked"), "flowsim.flow.solver.solver_of(model).defaults"),
}


class _FormerMembers:
    """Names of former versions that a model no longer has, each a ``Former``."""


for _name, _instead in FORMER.items():
    setattr(_FormerMembers, _name, Former(_name, _instead))


def _takes_arrays(method: object) -> bool:
    """Return whether ``accepts_theta`` has wrapped a method."""
    return isfunction(method) and hasattr(method, "takes_arrays")


class Model(_FormerMembers):
    """A loss of a few numbers, whose gradient flow is followed.

    Parameters θ have shape (..., k), one column per coordinate. Methods of θ take and return
    float64 tensors, any number of rows together. A subclass must set ``coordinates`` and write
    ``loss``; the rest may be said.

    Attributes:
        name: the name it has in records; by default that of the class.
        coordinates: names of the columns of θ.
        metric: the diagonal of G; the flow is −G⁻¹∇L. Ones by default.
        keeps_sign: coordinates whose zero the flow never crosses; they are followed as log|θᵢ|.
        title: what figures and the terminal call it; by default its name. A second line may give
            its arguments and its data, a third one a remark; a name between dollars is set as
            mathematics.
        long_names: what an axis calls a coordinate, and a legend an end, by the name of either.

    >>> import flowsim, torch
    >>> class Bowl(flowsim.Model):
    ...     coordinates = ("x", "y")
    ...     def loss(self, theta):
    ...         return (theta**2).sum(-1)
    ...
    >>> float(Bowl().loss(torch.tensor([1.0, 2.0])))
    5.0
    """

    name: str = "Model"
    title: str = cast(Any, _Title())
    long_names: Mapping[str, str] = MappingProxyType({})
    coordinates: tuple[str, ...]
    metric: tuple[float, ...] = cast(Any, _Each(1.0))
    keeps_sign: tuple[bool, ...] = cast(Any, _Each(False))
    _axes: tuple[str, ...] = ()  # the horizontal one first; () for the first two coordinates

    def __init_subclass__(cls, **more: Any) -> None:
        """Let the methods of θ take arrays, name the class, and reset what its formulas outdate."""
        super().__init_subclass__(**more)
        order = [vars(kind) for kind in cls.__mro__]
        for name in {name for kind in order for name in kind if _takes_arrays(kind[name])}:
            written = next(kind[name] for kind in order if name in kind)
            if isfunction(written) and not _takes_arrays(written):
                setattr(cls, name, accepts_theta(written))  # of a class beside the models, too
        if "name" not in vars(cls):
            cls.name = cls.__name__
        if Model in cls.__bases__ and not cls.__module__.startswith("flowsim."):
            for name in vars(cls).keys() & FORMER.keys():
                raise InputError(f"{cls.__name__} defines {name}: write {FORMER[name]} instead")
        forget_outdated(cls)

    @accepts_theta
    @unwritten
    def loss(self, theta: Tensor) -> Tensor:
        """Return L, shape (...) for θ of shape (..., k)."""
        raise NotImplementedError(f"{type(self).__name__} needs a method loss(theta)")

    @accepts_theta
    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, shape of θ; by automatic differentiation of ``loss`` unless written."""
        return differentiate(self.loss, theta)

    @accepts_theta
    def hessian(self, theta: Tensor) -> Tensor:
        """∂²L, shape (..., k, k); by automatic differentiation of ``gradient``."""
        return _derivative(self.gradient, theta)

    @accepts_theta
    def field(self, theta: Tensor) -> Tensor:
        """dθ/dt, shape of θ: −G⁻¹∇L unless written, for flows that are no gradient flow."""
        metric = torch.tensor(self.metric, dtype=theta.dtype, device=theta.device)
        return -self.gradient(theta) / metric

    @accepts_theta
    def jacobian(self, theta: Tensor) -> Tensor:
        """∂(dθ/dt)/∂θ, shape (..., k, k): −G⁻¹∂²L, or the derivative of a written ``field``."""
        if type(self).field is not Model.field:
            return _derivative(self.field, theta)
        metric = torch.tensor(self.metric, dtype=theta.dtype, device=theta.device)
        return -self.hessian(theta) / metric.unsqueeze(-1)

    @accepts_theta
    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Return conserved quantities by name, each (...); by default none is known."""
        return {}

    @property
    def plane(self) -> Plane:
        """The plane in which starts are laid and figures are drawn."""
        return Plane(self)

    def end_losses(self) -> EndLosses | None:
        """The losses at which orbits can end, and closed forms about the ends; None if ends are
        found by search."""
        return None

    def flow(self) -> Any:
        """Return the model's own ``flowsim.flow.solver.Solver``; None for the one for any loss."""
        return None

    def __repr__(self) -> str:
        own = {k: v for k, v in vars(self).items() if isinstance(v, (int, float, str, bool))}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in own.items())})"


class RecordedModel(Model):
    """A model that says with what it was made, for records."""

    def options(self) -> dict[str, Any]:
        """Return the arguments of the model other than its data, by name."""
        return {}

    def attributes(self) -> dict[str, Any]:
        """Return attributes of a record from which the model can be built again."""
        own = {k: int(v) if isinstance(v, bool) else v for k, v in self.options().items()}
        return {"model": self.name, "coordinates": self.coordinates, **own}


def with_axes(model: Model, *axes: str) -> Model:
    """The same model with two of its coordinates along the axes of its plane.

    Args:
        model: the model.
        axes: the horizontal one, then the vertical one. The same object is returned for none, for
            one axis that it has, and for the axes of a plane of its own.

    Raises:
        InputError: a coordinate that it has not, another number of them than two, one that is named
            twice, or a model that has a plane of its own.

    >>> import flowsim
    >>> from flowsim.interface import with_axes
    >>> well = flowsim.from_loss(lambda x, y, z: (x**2 - 1) ** 2 / 4 + y**2 + z**2, "well")
    >>> with_axes(well, "z", "x").plane.x
    'z'
    """
    plane, named = model.plane, ", ".join(axes)
    of_these, own = {*axes} <= {*plane.window}, type(model).plane is not Model.plane
    if own and not of_these:
        raise InputError(f"the {model.name} model's plane is ({plane.x}, {plane.y}), not ({named})")
    if (of_these and (own or len(axes) < 2)) or axes == (plane.x, plane.y):
        return model
    if len(axes) != 2 or len({*axes} & {*model.coordinates}) != 2:
        known = ", ".join(model.coordinates)
        raise InputError(f"a plane of {model.name} has two axes of {known}, not {named}")
    other = copy(model)
    other._axes = axes
    return other


def chosen_axes(model: Model) -> tuple[str, ...]:
    """Return the axes that ``with_axes`` chose; () for the usual ones of the model."""
    return vars(model).get("_axes", ())


@dataclass(frozen=True, kw_only=True)
class SolverDefaults:
    """The defaults of following starts: errors, steps and numbers.

    Attributes:
        rtol, time_rtol: error allowed per step, for ends and for times.
        max_steps, long: attempted steps from a start, to its end and to given times.
        cost: seconds of one start, about.
        resolution: cells along each axis of a portrait.
        confirm: starts of a portrait that torchdiffeq follows too.
        chunk: starts of a scan that are stored together; 0 to choose by the coordinates.
        count_kinks: whether kinks that orbits meet, and the time along them, are counted.
    """

    rtol: float = 1e-6
    time_rtol: float = 1e-8
    max_steps: int = 3000
    long: int = 20_000
    cost: float = 1e-3
    resolution: int = 64
    confirm: int = 16
    chunk: int = 0
    count_kinks: bool = False


@dataclass(frozen=True)
class CompiledModel(SolverDefaults):
    """Compiled functions and constants of a model that ``SwitchingSolver`` follows.

    Attributes:
        tag: the name under which its copy of the engine is kept on disk.
        hooks: compiled functions by the names of ``flow.rows.hooks``.
        constants: returns two arrays of numbers that the hooks read, ``reals`` and ``ints``, and
            the length of ``memory``, where they keep numbers of the start that is followed.
        extend: adds a level to the model's table, where it has one, by the level's number.
        own_steps: whether steps are taken in coordinates other than y, which the hook
            ``to_step_coordinates`` makes of y. y is θ − origin, or log|θᵢ| where θᵢ keeps its sign.
        origin: see above, (k,); 0 by default.
        at_once: number of starts that one call follows; Ctrl-C is seen after a call.
        finer, finest, more: a start whose label is in doubt is followed again with ``finer`` times
            the tolerances, rtol not below ``finest``, and ``more`` times the steps.
        near_saddles: function of what the hook ``saddle_distance`` wrote, (n, 2), and rtol; returns
            how near a saddle orbits passed, FAR, IF_CHANGED or NEAR of ``flow.return_codes``. By
            default those that passed slowly are near.
        scale: function of the losses at the ends, (n,); returns the speed of which a small part is
            slow beside a saddle. By default ``EndLosses.speed``.
        place_ends: function of a mask (n,) of starts that fell below the plateau, θ (n, k) and
            losses (n,); moves θ and losses of these to their ends, in place, and returns a mask of
            the moved ones.
    """

    tag: str
    hooks: Mapping[str, Callable[..., Any]]
    constants: Callable[[], tuple[Any, Any, int]]
    extend: Callable[[int], None] | None = None
    own_steps: bool = False
    origin: tuple[float, ...] = ()
    at_once: int = 1024
    finer: float = 0.1
    finest: float = 1e-12
    more: int = 1
    near_saddles: Callable[..., Any] | None = None
    scale: Callable[[Tensor], Tensor] | None = None
    place_ends: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class LogitGapSystem(SolverDefaults):
    """Compiled functions of a model with L = ℓ(Δ), which ``flow.gap`` follows in Δ.

    Attributes:
        of: the class of the model.
        hooks: compiled functions, named as the hooks in ``flow.gap.hooks`` that they replace.
        params: arguments of ℓ besides the gap; the first is Δ*.
        plane_attracts: whether orbits end in the plane where Δ = 0 and ∇Δ = 0 at minima, else at
            saddles.
        scale: the coordinates that the hooks have over the model's.
        time: the model's time over theirs.
    """

    of: type
    hooks: tuple[Callable[..., Any], ...]
    params: tuple[float, ...]
    plane_attracts: bool = True
    scale: tuple[float, ...] = ()
    time: float = 1.0
    rtol: float = field(default=1e-10, kw_only=True)
    time_rtol: float = field(default=1e-12, kw_only=True)
    long: int = field(default=3000, kw_only=True)
    cost: float = field(default=1e-5, kw_only=True)
    resolution: int = field(default=208, kw_only=True)
    confirm: int = field(default=256, kw_only=True)
    chunk: int = field(default=65_536, kw_only=True)
