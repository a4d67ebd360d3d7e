"""A vector field or a step map that depends on parameters, whose zeros are continued."""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.spec import ModelSpec

#: Numbers of an optimizer's step that can be the parameter.
STEP_NUMBERS = ("learning_rate", "momentum")
#: Half the width of a difference quotient, in parts of the range, and of coordinates.
_SMALL = 6e-6
#: F jumps where it changes within that by this part of what the coordinates change it by.
_JUMP = 1e-3


def with_decay(spec: ModelSpec) -> ModelSpec:
    """Give a user's model one more argument, weight_decay, λ of L + ½λθᵀGθ, if it has none.

    Gradient descent on it is that of torch's SGD with weight_decay λ.
    """
    if "weight_decay" in spec.parameters:
        return spec
    kind: Any = spec.kind
    written = [getattr(kind, name, None) is not getattr(Model, name)
               for name in ("gradient", "hessian", "field", "jacobian")]  # fmt: skip
    if not spec.is_own or any(written):
        raise InputError("weight_decay is of a model of your own that writes its loss alone")

    class Decayed(kind):
        def __init__(self, *given: Any, weight_decay: float = 0.0, **named: Any) -> None:
            super().__init__(*given, **named)
            self.weight_decay = weight_decay

        def loss(self, theta: Tensor) -> Tensor:
            size = (theta.square() * torch.tensor(self.metric).to(theta)).sum(-1)
            found: Tensor = super().loss(theta) + self.weight_decay * size / 2
            return found

        def conserved(self, theta: Tensor) -> dict[str, Tensor]:
            return {}

    own = inspect.signature(kind.__init__)
    last = inspect.Parameter("weight_decay", inspect.Parameter.KEYWORD_ONLY, default=0.0)
    named = [about for about in own.parameters.values() if about.kind is not about.VAR_KEYWORD
             and about.kind is not about.VAR_POSITIONAL]  # fmt: skip
    Decayed.__init__.__signature__ = own.replace(parameters=[*named, last])  # type: ignore[attr-defined]
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Decayed, name, getattr(kind, name))
    return ModelSpec(Decayed, spec.options)


@dataclass(frozen=True)
class StepMap:
    """The map of one step of gradient descent with momentum: u ← βu − F(θ), θ ← θ − ηu.

    F is the field −G⁻¹∇L of a model. Without momentum the map acts on θ alone.

    Attributes:
        learning_rate, momentum: η and β.
        period: how many steps are one application; fixed points of 2, 4, … are periodic points.
        has_memory: whether the velocity u is part of the state.
    """

    learning_rate: float = 0.1
    momentum: float = 0.0
    period: int = 1
    has_memory: bool = False


class System:
    """F(θ; p), (n, k), whose zeros are critical points, or fixed points of a step map.

    Rows have parameters of their own. Where a model keeps the argument as an attribute and
    computes with a tensor in its place as with numbers, all rows are computed together; else
    the model is built for every value.

    Args:
        spec: the model.
        parameter: a numeric argument of it, one of ``STEP_NUMBERS`` of the step map, or a number
            of the starts, on which F does not depend.
        low, high: the range of the parameter, at least that of a difference quotient.
        step: the step map, whose F is G(z) − z; None for the flow.
        second: a second parameter with its range; values are then rows (n, 2).

    Attributes:
        ranges: of the parameters, by name.
        own: the parameters that are arguments of the model.
        coordinates: of the model.
        vectorized: a copy of the model for all rows at once; None if it is built for every value.

    Raises:
        InputError: a step map of a model that writes its field.
    """

    def __init__(
        self, spec: ModelSpec, parameter: str, low: float, high: float,
        step: StepMap | None = None, second: tuple[str, float, float] | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.parameter, self.low, self.high = spec, parameter, low, high
        self.ranges = {parameter: (low, high), **({second[0]: second[1:]} if second else {})}
        self.own = [name for name in self.ranges if name in spec.parameters and
                    (step is None or name not in STEP_NUMBERS)]  # fmt: skip
        self.step = step
        model = self.model(*(side[0] for side in self.ranges.values()))
        self.coordinates = model.coordinates
        if step is not None and type(model).field is not Model.field:
            raise InputError("steps of an optimizer descend a loss: this model has a field of its "
                             "own")  # fmt: skip
        if step is not None and (step.momentum or "momentum" in self.ranges):
            self.step = replace(step, has_memory=True)
        self.vectorized = self._vectorized(model) if self.own else None

    def model(self, *value: float) -> Model:
        """The model with that value of each parameter."""
        given = dict(zip(self.ranges, value, strict=True))
        known = self.spec.parameters
        return self.spec.replace(**{
            name: (int if isinstance(known[name].default, int) else float)(given[name])
            for name in self.own
        }).build()  # fmt: skip

    def with_period(self, period: int) -> System:
        """The same system, whose zeros are the states that come back after so many steps."""
        other = copy(self)
        assert self.step is not None
        other.step = replace(self.step, period=period)
        return other

    @property
    def size(self) -> int:
        """The number of numbers in a state: coordinates, and as many velocities with momentum."""
        return len(self.coordinates) * (1 + bool(self.step and self.step.has_memory))

    def lift(self, theta: Tensor) -> Tensor:
        """States (n, size) with coordinates (n, k) and zero velocities."""
        return torch.nn.functional.pad(theta, (0, self.size - theta.shape[1]))

    def _vectorized(self, model: Model) -> Model | None:
        """A copy of the model whose parameters may be tensors, one value a row.

        None if its results differ from those of models built for each value.
        """
        numbers = [getattr(model, name, None) for name in self.own]
        if not self.spec.is_own or not all(isinstance(x, (int, float)) for x in numbers):
            return None
        probe = torch.linspace(-1.3, 1.7, 3 * len(model.coordinates), dtype=torch.float64)
        probe = probe.reshape(3, -1)
        sides = torch.tensor([*self.ranges.values()]).double()
        values = sides @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]]).double()
        trial = copy(model)
        try:
            self._give(trial, values.mT)
            found = trial.field(probe), trial.jacobian(probe)
            for i, value in enumerate(values.mT.tolist()):
                alone = self.model(*value)
                right = alone.field(probe[i : i + 1]), alone.jacobian(probe[i : i + 1])
                for one, other in zip(found, right, strict=True):
                    torch.testing.assert_close(one[i : i + 1], other, rtol=1e-12, atol=1e-12)
        except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError, InputError):
            return None
        return trial

    def _numbers(self, value: Tensor) -> dict[str, Tensor]:
        """Values (n,) or (n, m) of the m parameters, by the name of each, (n,)."""
        columns = value.reshape(len(value), len(self.ranges)).unbind(1)
        return dict(zip(self.ranges, columns, strict=True))

    def _give(self, model: Model, value: Tensor) -> None:
        """Set the model's attributes that are parameters to values (n,) or (n, m), as tensors."""
        for name, numbers in self._numbers(value).items():
            if name in self.own:
                setattr(model, name, numbers)

    def _each(self, method: str, theta: Tensor, value: Tensor) -> Tensor:
        """Call the model's loss, field or jacobian at rows (n, k), each with its own value.

        The result is detached.
        """
        if not len(theta):
            shape = {"loss": (), "jacobian": (theta.shape[1],) * 2}.get(method, theta.shape[1:])
            return theta.new_zeros(0, *shape)
        if not self.own:
            found = getattr(self.spec.build(), method)(theta)
        elif self.vectorized is not None:
            self._give(self.vectorized, value)
            found = getattr(self.vectorized, method)(theta)
        else:
            values, which = value.reshape(len(value), -1).unique(dim=0, return_inverse=True)
            parts = [(which == i).nonzero()[:, 0] for i in range(len(values))]
            found = torch.cat([
                getattr(self.model(*v), method)(theta[rows])
                for v, rows in zip(values.tolist(), parts, strict=True)
            ])[torch.cat(parts).argsort()]  # fmt: skip
        return found.detach()

    def loss(self, state: Tensor, value: Tensor) -> Tensor:
        """The model's loss at states (n, size), (n,)."""
        return self._each("loss", state[:, : len(self.coordinates)], value)

    def field(self, state: Tensor, value: Tensor) -> Tensor:
        """F, (n, size)."""
        if self.step is None:
            return self._each("field", state, value)
        return self._iterate(state, value, slope=False)[0] - state

    def jacobian(self, state: Tensor, value: Tensor) -> Tensor:
        """∂F/∂θ, (n, size, size)."""
        if self.step is None:
            return self._each("jacobian", state, value)
        found = self._iterate(state, value, slope=True)[1]
        return found - torch.eye(self.size, dtype=state.dtype)

    def linearised(
        self, state: Tensor, value: Tensor, size: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """F (n, size), its derivative by the state in units of ``size``, and ∂F/∂p (n, size).

        The second is (n, size, size). The last is a central difference, or one-sided where F jumps
        on the other side.
        """
        part, n = _SMALL * (self.high - self.low), len(state)
        up, down = (value + part).clamp(max=self.high), (value - part).clamp(min=self.low)
        here, more, less = self.field(state.repeat(3, 1), torch.cat([value, up, down])).split(n)
        slope = self.jacobian(state, value) * size
        above, below = (more - here).norm(dim=1), (here - less).norm(dim=1)
        jumps = torch.maximum(above, below) > _JUMP * slope.flatten(1).norm(dim=1)
        jumps &= (value > down) & (value < up)
        over, under = jumps & (above > 100 * below), jumps & (below > 100 * above)
        more, less = torch.where(over[:, None], here, more), torch.where(under[:, None], here, less)
        up, down = torch.where(over, value, up), torch.where(under, value, down)
        return here, slope, (more - less) / (up - down).unsqueeze(1)

    def _iterate(self, state: Tensor, value: Tensor, slope: bool) -> tuple[Tensor, Any]:
        """States (n, size) after ``period`` steps, and their derivative by the first states.

        The derivative is (n, size, size), and computed with ``slope`` alone.
        """
        assert self.step is not None
        k, step = len(self.coordinates), self.step
        n = (len(value),)
        numbers = {name: value.new_full(n, getattr(step, name)) for name in STEP_NUMBERS}
        numbers |= {name: x for name, x in self._numbers(value).items() if name in STEP_NUMBERS}
        eta, beta = (numbers[name].unsqueeze(1) for name in STEP_NUMBERS)
        theta, velocity = state[:, :k], state[:, k:] if step.has_memory else 0 * state[:, :k]
        unit = torch.eye(k, dtype=state.dtype)
        total = torch.eye(self.size, dtype=state.dtype).expand(len(state), -1, -1)
        for _ in range(step.period):
            if slope:
                inner = -self._each("jacobian", theta, value)
                one = unit - eta.unsqueeze(2) * inner
                if step.has_memory:
                    kept = beta.unsqueeze(2) * unit
                    above = torch.cat([one, -eta.unsqueeze(2) * kept], 2)
                    one = torch.cat([above, torch.cat([inner, kept.expand_as(inner)], 2)], 1)
                total = one @ total
            velocity = beta * velocity - self._each("field", theta, value)
            theta = theta - eta * velocity
        return torch.cat([theta, velocity], 1) if step.has_memory else theta, total

    def rates(self, slopes: Tensor) -> Tensor:
        """Rates of growth, (n, m), largest first, from derivatives of F (n, m, m).

        Re λ for the flow, |multiplier| − 1 for a step map.
        """
        found = torch.linalg.eigvals(slopes)
        sizes = found.real if self.step is None else (1 + found).abs() - 1
        return sizes.sort(1, descending=True).values
