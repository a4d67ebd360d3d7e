"""Options of solvers, checks of arguments, and the limits that solvers return."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from flowsim.arrays import Numbers, resolve_device, to_tensor
from flowsim.errors import InputError, require_integer
from flowsim.interface import Model
from flowsim.labels import Label
from flowsim.own import check_coordinates, check_own
from flowsim.running import quickly
from flowsim.spec import is_own

#: Methods that decide ends: this package's engines, or torchdiffeq's odeint alone.
INTEGRATORS = ("flowsim", "torchdiffeq")
#: Called before a stage of the work with what is counted and how many; returns what counts them.
Stage = Callable[[str, int], Callable[[int], object]]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Steps(NamedTuple):
    """Bounds on the steps along an orbit.

    Attributes:
        rtol, atol: error per step, relative and absolute; which of them counts for a coordinate is
            the engine's.
        most: attempted steps.
    """

    rtol: float
    atol: float
    most: int

    def finer(self, part: float, least: float = 1e-12, more: int = 1) -> Steps:
        """Return finer steps: the tolerances times ``part``, and ``more`` times as many steps.

        rtol does not fall below ``least``, nor atol below 1e-13.
        """
        return Steps(max(self.rtol * part, least), max(self.atol * part, 1e-13), more * self.most)


@dataclass(frozen=True)
class SolverOptions:
    """Options of a solver, and a callback for progress.

    Attributes:
        rtol, atol, max_steps: as in ``find_limits``.
        integrator: one of ``INTEGRATORS``.
        optimizer: an ``OptimizerChoice``, whose steps are taken instead of following the flow.
        confirm: how many labels of a sample torchdiffeq decides again; None for the usual number.
        progress: called with the number of starts done, or of steps taken by an optimizer.
        next_stage: called before a further stage of the work; see ``Stage``.
        device: where the engine for any loss follows them: "cpu", or "cuda"; "auto" takes CUDA if
            there is one.
        solver, once: as in ``find_limits``.

    Raises:
        InputError: a tolerance that is not positive, an unknown integrator, a negative sample, a
            device that is not there, or CUDA for an optimizer or torchdiffeq.

    >>> import flowsim
    >>> flowsim.flow.SolverOptions(rtol=1e-6).rtol
    1e-06
    """

    rtol: float | None = None
    atol: float = 1e-12
    max_steps: int | None = None
    integrator: str = "flowsim"
    optimizer: Any = None
    confirm: int | None = None
    progress: Callable[[int], object] | None = None
    next_stage: Stage | None = None
    device: str = "cpu"
    solver: Any = None
    once: bool = False

    def __post_init__(self) -> None:
        _check_tolerances(self.rtol, self.atol)
        if self.max_steps is not None:
            require_integer("max_steps", self.max_steps, 1)
        if self.integrator not in INTEGRATORS:
            known = ", ".join(INTEGRATORS)
            raise InputError(f"integrator must be one of {known}, not {self.integrator!r}")
        if self.confirm is not None and self.confirm < 0:
            raise InputError(f"confirm must not be negative, not {self.confirm}")
        if self.confirm and self.optimizer is not None:
            raise InputError("confirm goes with the flow: torchdiffeq follows no optimizer")
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.device != "cpu" and (self.optimizer is not None or self.integrator != "flowsim"):
            raise InputError("optimizers and torchdiffeq run on the CPU: omit the device")

    def counted(self, what: str, count: int) -> Callable[[int], object] | None:
        """Announce a stage of work, ``count`` of ``what``; return what to call with those done."""
        return None if self.next_stage is None else self.next_stage(what, count)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a record: tolerances and device, or the optimizer's numbers."""
        if self.optimizer is not None:
            return dict(self.optimizer.attributes())
        usual = {"max_steps": None, "integrator": "flowsim", "device": "cpu"}
        other = {name: own for name, word in usual.items() if (own := getattr(self, name)) != word}
        return {"rtol": "default" if self.rtol is None else self.rtol, "atol": self.atol, **other}


_NONE = torch.zeros(0)
_Some = TypeVar("_Some", bound="Columns")


class Columns:
    """Tensors or arrays with one entry per start, as the fields of a dataclass."""

    def numpy(self: _Some) -> _Some:
        """Return the same columns as numpy arrays."""
        return self._each(Tensor.numpy)

    def tensors(self: _Some) -> _Some:
        """Return the same columns as tensors."""
        return self._each(torch.as_tensor)

    def on(self: _Some, device: str) -> _Some:
        """Return the same columns on another device."""
        return self._each(lambda column: column.to(device))

    def at(self: _Some, which: Tensor) -> _Some:
        """Return the entries of the starts in a mask of the leading shape."""
        return self._each(lambda column: column[which])

    def store(self: _Some, which: Tensor, other: _Some) -> None:
        """Replace, in place, the entries of a mask, or of numbers of rows, by ``other``'s."""
        for f in fields(cast(Any, self)):
            getattr(self, f.name)[which] = getattr(other, f.name)

    def _each(self: _Some, changed: Callable[[Any], Any]) -> _Some:
        """Return the same with every column changed by a function."""
        names = [f.name for f in fields(cast(Any, self))]
        return type(self)(**{name: changed(getattr(self, name)) for name in names})

    @classmethod
    def joined(cls: type[_Some], parts: list[_Some], lead: torch.Size) -> _Some:
        """Join all rows of the parts, in order, and give them the leading shape ``lead``."""
        names = [f.name for f in fields(cast(Any, cls))]
        columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls(**{name: c.reshape(lead + c.shape[1:]) for name, c in columns.items()})


@dataclass
class Limits(Columns):
    """Ends of trajectories, one entry per leading index of the starts: tensors or numpy arrays.

    Attributes:
        theta: end points, shape (..., k).
        label: ``Label`` values, int8; UNRESOLVED unless the flow itself decided.
        status: ``Status`` values, int8.
        rule: ``Rule`` values, int8.
        loss: loss at the end point, in nats.
        gradient_norm: ‖∇L‖ at the end point.
        evaluations: evaluations of the field, int64.
        kinks: how many times the orbit met a surface where its field jumps, such as a ReLU's kink,
            int32; 0 where the engine looks for none.
        sliding_time: time that it spent sliding along them, physical gradient-flow time.
        period: of a periodic end of a field the time after which it comes back; else NaN.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> limits = flowsim.find_limits(model, [[1.0, -1.2], [1.0, 1.2]])
    >>> limits.label, limits.loss.round(4)
    (array([1, 2], dtype=int8), array([0.619 , 0.6663]))
    """

    theta: Tensor
    label: Tensor
    status: Tensor
    rule: Tensor
    loss: Tensor
    gradient_norm: Tensor
    evaluations: Tensor
    kinks: Tensor = _NONE
    sliding_time: Tensor = _NONE
    period: Tensor = _NONE

    def __post_init__(self) -> None:
        if self.kinks is _NONE:
            self.kinks = torch.zeros_like(self.label, dtype=torch.int32)
            self.sliding_time = torch.zeros_like(self.loss)
        if self.period is _NONE:
            self.period = torch.full_like(self.loss, torch.nan)

    def __repr__(self) -> str:
        counts = Counter(str(Label(code)) for code in self.label.reshape(-1).tolist())
        words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        names = ", ".join(f.name for f in fields(self))
        return f"<Limits of {counts.total()} starts: {words or 'none'}; {names}>"


def accepts_starts(function: _Function) -> _Function:
    """Let a public function of a model and of starts take lists and arrays, and answer in kind.

    The function is given the starts as a tensor (..., k). What it returns, a tensor or ``Limits``
    of tensors, becomes numpy arrays unless it was called with a tensor. InputError is raised for
    starts of a wrong shape, for bad tolerances, and for a first argument that is no model.
    """
    names = tuple(signature(function).parameters)

    @quickly
    @wraps(function)
    def checked(model: Model, theta0: Numbers, *more: Any, **named: Any) -> Any:
        starts = to_tensor(theta0, "starts")
        check_coordinates(model.name, model.coordinates)
        k = len(model.coordinates)
        if starts.ndim == 0 or starts.shape[-1] != k or starts.numel() == 0:
            columns = ", ".join(model.coordinates)
            shape = tuple(starts.shape)
            lifts = hasattr(model, "from_canonical")
            hint = "; model.from_canonical(starts) lifts (e, w)" if lifts else ""
            raise InputError(f"starts need shape (..., {k}) = ({columns}), not {shape}{hint}")
        given = {**dict(zip(names[2:], more, strict=False)), **named}
        _check_tolerances(given.get("rtol"), given.get("atol", 0.0))
        if is_own(model):
            starts = check_own(model, starts.reshape(-1, k)).reshape(starts.shape)
        found = function(model, starts, *more, **named)
        return found if isinstance(theta0, Tensor) else found.numpy()

    return checked  # type: ignore[return-value]


def _check_tolerances(rtol: float | None, atol: float) -> None:
    """Raise InputError unless rtol is positive (or None), and atol is not negative, both finite."""
    if rtol is not None and not 0 < rtol < math.inf:
        raise InputError(f"rtol must be a positive number, not {rtol}")
    if not 0 <= atol < math.inf:
        raise InputError(f"atol must be a number that is not negative, not {atol}")


def check_times(t: Numbers, each: tuple[int, ...] = ()) -> Tensor:
    """Return ``t`` as a tensor; InputError unless it has at least two increasing, finite times.

    Its shape is (T,); starts of the shape ``each`` may have times of their own, (T, *each), too.
    """
    times = to_tensor(t, "t")
    shaped = times.ndim == 1 or (times.ndim > 1 and times.shape[1:] == each)
    increasing = shaped and len(times) > 1 and bool((times.diff(dim=0) > 0).all())
    if not (increasing and bool(times.isfinite().all())):
        shape = ", ".join(map(str, each))
        own = f", or as many for each start, of the shape (T, {shape})" if each else ""
        raise InputError(f"t must be a vector of at least two increasing, finite times{own}")
    return times
