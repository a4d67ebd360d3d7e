"""What is right of a start, how an answer is scored, and references that scipy computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import flowsim
from flowsim import Label, Model

MINIMA = (Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM)
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Outcome:
    """The end of one start.

    Attributes:
        labels: those that are right; others but UNRESOLVED are wrong.
        place: where it ends; NaN for a coordinate that is not known, ±∞ for one that grows.
        near: how far from ``place`` an answer may be.
        loss: at the end; NaN where it is not known.
        key: starts with one key have one end, starts with two keys two; "" where it is not known.
        period: of an optimizer's steps.
    """

    labels: tuple[Label, ...]
    place: tuple[float, ...] = ()
    near: float = 1e-4
    loss: float = NAN
    key: str = ""
    period: int = 0

    def score(self, label: int, theta: np.ndarray, loss: float) -> str:
        """ "right", "unresolved", or what is wrong."""
        if label not in self.labels:
            wanted = "/".join(map(str, self.labels))
            return "unresolved" if label == Label.UNRESOLVED else f"{Label(label)}, not {wanted}"
        for found, wanted in zip(theta.tolist(), self.place, strict=False):
            if math.isinf(wanted) and found != wanted and label == Label.INFINITY:
                return f"to infinity as {theta}, not {self.place}"
            if math.isfinite(wanted) and not abs(found - wanted) <= self.near:
                return f"ends at {theta}, not {self.place}"
        near = loss == self.loss or abs(loss - self.loss) <= 1e-6 + 1e-2 * abs(self.loss)
        if not (near or math.isnan(self.loss)):
            return f"loss {loss}, not {self.loss}"
        return "right"


def minimum(place: Sequence[float], near: float = 1e-4, key: str = "", **more: Any) -> Outcome:
    """A minimum, or a sink of a field."""
    place = tuple(map(float, place))
    key = key or f"minimum at {[round(x / near / 10) for x in place]} times {10 * near:g}"
    return Outcome(MINIMA, place, near, key=key, **more)


def saddle(place: Sequence[float], near: float = 1e-4) -> Outcome:
    return Outcome((Label.SADDLE,), tuple(map(float, place)), near, key=f"saddle at {place}")


def infinity(place: Sequence[float], loss: float = NAN, near: float = 1e-2) -> Outcome:
    key = "" if all(map(math.isnan, place)) else f"infinity {np.sign(place)} {loss:.3g}"
    return Outcome((Label.INFINITY,), tuple(map(float, place)), near, loss, key)


def stays(periodic: bool = True) -> Outcome:
    """No end: it goes round, or stays near."""
    labels = (Label.BOUNDED, Label.UNRESOLVED, *([Label.PERIODIC] if periodic else []))
    return Outcome(labels)


def follow(
    model: Model,
    starts: np.ndarray,
    times: Sequence[float],
    logs: bool = False,
    rtol: float = 1e-10,
) -> np.ndarray:
    """Where starts (n, k) are at the times, (T, n, k), by scipy's LSODA; all starts together.

    With ``logs`` the logarithms of positive coordinates are followed.
    """
    n, k = starts.shape
    pick = np.arange(n)

    def theta_of(y: np.ndarray) -> torch.Tensor:
        return torch.from_numpy((np.exp(y) if logs else y).reshape(n, k).copy())

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        theta = theta_of(y)
        found = model.field(theta).detach()
        return (found / theta if logs else found).numpy().ravel()

    def jacobian(t: float, y: np.ndarray) -> np.ndarray:
        theta = theta_of(y)
        block = model.jacobian(theta).detach()
        if logs:
            speed = (model.field(theta) / theta).detach()
            block = block * theta[:, None] / theta[:, :, None] - torch.diag_embed(speed)
        whole = np.zeros((n, k, n, k))
        whole[pick, :, pick, :] = block.numpy()
        return whole.reshape(n * k, n * k)

    first = np.log(starts) if logs else starts
    atol = rtol if logs else np.maximum(1e-3 * rtol * np.abs(starts).max(), 1e-290)
    with np.errstate(all="ignore"):
        found = solve_ivp(
            rate, (0.0, times[-1]), first.ravel(), "LSODA", jac=jacobian, rtol=rtol, atol=atol,
            t_eval=times,
        )  # fmt: skip
    assert found.success, found.message
    path = found.y.T.reshape(-1, n, k)
    return np.exp(path) if logs else path


def followed(
    until: float, near: float = 1e-4, logs: bool = False
) -> Callable[[Model, np.ndarray], list[Outcome]]:
    """The minima, or sinks, that LSODA reaches by that time; Newton's method polishes them."""

    def outcomes(model: Model, starts: np.ndarray) -> list[Outcome]:
        last = torch.from_numpy(follow(model, starts, [until], logs, rtol=1e-8)[-1].copy())
        theta = last
        for _ in range(20):
            step = torch.linalg.lstsq(model.jacobian(theta), model.field(theta).unsqueeze(2))
            theta = theta - step.solution.squeeze(2)
        rates = torch.linalg.eigvals(model.jacobian(theta)).real.amax(1)
        assert bool(((theta - last).abs().amax(1) < 0.01 * (1 + last.abs().amax(1))).all()), last
        assert bool((rates < 0).all()), theta
        return [minimum(place, near) for place in theta.tolist()]

    return outcomes


def closed(
    end: Callable[..., Outcome],
) -> Callable[[Model, np.ndarray], list[Outcome]]:
    """The outcome of every start is ``end`` of its coordinates."""
    return lambda model, starts: [end(*start) for start in starts.tolist()]


def when(loss: Callable[[float], float], level: float, low: float, high: float) -> float:
    """The time in (low, high) at which a falling loss is at the level."""
    return math.exp(brentq(lambda s: loss(math.exp(s)) - level, math.log(low), math.log(high),
                           xtol=1e-13))  # fmt: skip


def box(*ranges: tuple[float, float], count: int = 24, seed: int = 0) -> np.ndarray:
    """Starts (count, k) drawn evenly from a box."""
    low, high = np.array(ranges, dtype=float).T
    return np.random.default_rng(seed).uniform(low, high, (count, len(ranges)))


def system(name: str, coordinates: str, field: Callable[..., Any], loss: Any = None) -> Model:
    """The model of a vector field; its loss is |θ|² unless given."""

    def own_field(self: Model, theta: torch.Tensor) -> torch.Tensor:
        columns = theta.unbind(-1)
        return torch.stack([c + 0 * columns[0] for c in field(*columns)], -1)

    def own_loss(self: Model, theta: torch.Tensor) -> torch.Tensor:
        return (theta**2).sum(-1) if loss is None else loss(*theta.unbind(-1))

    parts = {"coordinates": tuple(coordinates.split()), "field": own_field, "loss": own_loss}
    return type(name, (Model,), {**parts, "__module__": __name__})()


def of_loss(name: str, coordinates: str, loss: Callable[..., Any], metric: Any = ()) -> Model:
    """The model of a loss of so many coordinates."""

    def own_loss(self: Model, theta: torch.Tensor) -> torch.Tensor:
        return loss(*theta.unbind(-1))

    parts = {"coordinates": tuple(coordinates.split()), "loss": own_loss, "__module__": __name__}
    return type(name, (Model,), {**parts, **({"metric": metric} if metric else {})})()


@dataclass(frozen=True)
class Problem:
    """A system with known ends.

    Attributes:
        model: the system.
        starts: (n, k), of which the first ``few`` are tried by default, and all when there is time.
        outcomes: of the model and of starts.
        window: of a portrait; None where none is drawn. ``fixed``: the other coordinates there.
        hits: of a start, the time until its excess loss has fallen to a thousandth.
        at: a time at which trajectories are compared with LSODA's; 0 where they are not. ``logs``:
            LSODA follows logarithms there.
        optimizer: of a step map, what ``descend`` takes.
    """

    model: Model
    starts: np.ndarray
    outcomes: Callable[[Model, np.ndarray], list[Outcome]]
    window: Mapping[str, tuple[float, float]] | None = None
    fixed: Mapping[str, float] = field(default_factory=dict)
    hits: Callable[..., float] | None = None
    at: float = 0.0
    logs: bool = False
    optimizer: Mapping[str, Any] | None = None
    few: int = 4

    @property
    def name(self) -> str:
        return self.model.name

    def answers(self, starts: np.ndarray) -> Any:
        """What flowsim says of the starts."""
        if self.optimizer is None:
            return flowsim.find_limits(self.model, starts)
        return flowsim.descend(self.model, starts, **self.optimizer)
