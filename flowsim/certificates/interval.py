"""Interval bounds of a loss and its first two derivatives, with outward rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.sources import first_line_of

#: A unit in the last place, the least number, and units by which functions may be off.
_UNIT, _TINY, _FUNCTION = 2.0**-52, 5e-324, 8.0


class Interval:
    """Arrays of lower and upper bounds."""

    def __init__(self, lo: Any, hi: Any, units: float = 0.0) -> None:
        self.lo, self.hi = np.asarray(lo, float), np.asarray(hi, float)
        if units:
            self.lo = self.lo - units * _UNIT * abs(self.lo)
            self.hi = self.hi + units * _UNIT * abs(self.hi)
            if np.isnan(self.lo).any() or np.isnan(self.hi).any():
                self.lo = np.where(np.isnan(self.lo), -np.inf, self.lo)
                self.hi = np.where(np.isnan(self.hi), np.inf, self.hi)

    def __add__(self, other: Any) -> Interval:
        other = interval(other)
        return Interval(self.lo + other.lo, self.hi + other.hi, 1)

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __sub__(self, other: Any) -> Interval:
        return self + -interval(other)

    def __mul__(self, other: Any) -> Interval:
        other = interval(other)
        nothing = ((self.lo == 0) & (self.hi == 0)) | ((other.lo == 0) & (other.hi == 0))
        products = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        least, most = reduce(np.minimum, products), reduce(np.maximum, products)
        if np.isnan(least).any():  # 0 times infinity is 0
            products = [np.where(np.isnan(product), 0.0, product) for product in products]
            least, most = reduce(np.minimum, products), reduce(np.maximum, products)
        found = Interval(least, most, 1)
        alike = ((self.lo >= 0) & (other.lo >= 0)) | ((self.hi <= 0) & (other.hi <= 0))
        found.lo = np.where(nothing | (alike & (least == 0)), 0.0, found.lo - _TINY)
        found.hi = np.where(nothing, 0.0, found.hi + _TINY)
        return found

    def __truediv__(self, other: Any) -> Interval:
        return self * power(interval(other), -1)

    def __getitem__(self, at: Any) -> Interval:
        return Interval(self.lo[at], self.hi[at])

    def size(self) -> np.ndarray:
        """The largest absolute value."""
        found: np.ndarray = np.maximum(abs(self.lo), abs(self.hi))
        return found

    def sum(self, axis: int) -> Interval:
        """Sums, widened by what their rounding may be."""
        off = self.lo.shape[axis] * _UNIT * self.size().sum(axis)
        return Interval(self.lo.sum(axis) - off, self.hi.sum(axis) + off)

    def hull(self, other: Any) -> Interval:
        other = interval(other)
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def within(self, other: Interval) -> Interval:
        """The intersection of two enclosures of the same numbers."""
        return Interval(np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi))


def interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)


def _rising(function: Callable[[np.ndarray], np.ndarray], x: Interval) -> Interval:
    return Interval(function(x.lo), function(x.hi), _FUNCTION)


def power(x: Interval, n: float) -> Interval:
    """xⁿ, NaN where it is not defined."""
    if n == 0:
        return interval(np.ones_like(x.lo))
    if n != int(n):
        return _rising(lambda a: np.where(a > 0, a, np.nan) ** n, x) if n > 0 else power(
            power(x, -n), -1)  # fmt: skip
    if n < 0:
        away = (x.lo > 0) | (x.hi < 0)
        one, other = 1 / power(x, -n).hi, 1 / power(x, -n).lo
        return Interval(np.where(away, one, np.nan), np.where(away, other, np.nan), 2)
    low, high = x.lo**n, x.hi**n
    if n % 2:
        return Interval(low, high, _FUNCTION)
    inside = (x.lo <= 0) & (x.hi >= 0)
    return Interval(np.where(inside, 0, np.minimum(low, high)), np.maximum(low, high), _FUNCTION)


def _sigmoid(x: Interval) -> Interval:
    return _rising(lambda a: np.exp(-np.logaddexp(0, -a)), x)


def _wave(x: Interval, shift: float) -> Interval:
    """sin(x + shift π/2)."""
    ends = [np.sin(end + shift * np.pi / 2) for end in (x.lo, x.hi)]
    turns = [(np.stack([x.lo, x.hi]) / np.pi * 2 + shift - top) / 4 for top in (1, 3)]
    passed = [np.floor(t[1] + 1e-9) > np.floor(t[0] - 1e-9) for t in turns]
    off = 1e-15 * (1 + x.size())
    return Interval(np.where(passed[1], -1, np.minimum(*ends)) - off,
                    np.where(passed[0], 1, np.maximum(*ends)) + off)  # fmt: skip


def _sigmoids(x: Interval) -> tuple[Interval, Interval, Interval]:
    here, back = _sigmoid(x), _sigmoid(-x)
    slope = here * back
    return here, slope, slope * (back - here)


def _tanh(x: Interval) -> tuple[Interval, Interval, Interval]:
    value = _rising(np.tanh, x)
    slope = interval(1.0) - power(value, 2)
    return value, slope, value * slope * -2.0


def _absolute(x: Interval) -> tuple[Interval, Interval, Interval]:
    """|x| and its first two derivatives."""
    bent = (x.lo <= 0) & (x.hi >= 0)
    size = Interval(np.where(bent, 0, np.minimum(abs(x.lo), abs(x.hi))), x.size())
    kink = np.where(bent, np.inf, 0.0)
    return (
        size,
        Interval(np.where(x.lo > 0, 1, -1), np.where(x.hi < 0, -1, 1)),
        Interval(-kink, kink),
    )


def _powers(x: Interval, n: float) -> tuple[Interval, Interval, Interval]:
    value, slope = power(x, n), power(x, n - 1) if n else interval(np.zeros_like(x.lo))
    bend = power(x, n - 2) if n not in (0, 1) else interval(np.zeros_like(x.lo))
    return value, slope * n, bend * (n * (n - 1))


def _exponential(x: Interval) -> tuple[Interval, Interval, Interval]:
    value = _rising(np.exp, x)
    return value, value, value


def _logarithm(x: Interval, of: Callable[..., Any], plus: float) -> tuple[Interval, ...]:
    slope = power(x + plus, -1)
    return _rising(of, x), slope, -(slope * slope)


#: Value, slope and bend of functions, by the names that torch gives them.
_FUNCTIONS: dict[str, Callable[[Interval], tuple[Interval, ...]]] = {
    "exp": _exponential,
    "log": lambda x: _logarithm(x, np.log, 0.0),
    "log1p": lambda x: _logarithm(x, np.log1p, 1.0),
    "sqrt": lambda x: _powers(x, 0.5),
    "square": lambda x: _powers(x, 2),
    "reciprocal": lambda x: _powers(x, -1),
    "abs": _absolute,
    "tanh": _tanh,
    "sigmoid": _sigmoids,
    "softplus": lambda x: (_rising(lambda a: np.logaddexp(0, a), x), *_sigmoids(x)[:2]),
    "log_sigmoid": lambda x: (_rising(lambda a: -np.logaddexp(0, -a), x), _sigmoid(-x),
                              -_sigmoids(x)[1]),
    "sin": lambda x: (_wave(x, 0), _wave(x, 1), -_wave(x, 0)),
    "cos": lambda x: (_wave(x, 1), -_wave(x, 0), -_wave(x, 1)),
}  # fmt: skip


class Jet:
    """Bounds of numbers (…), of their gradients (…, k) and of their Hessians (…, k, k).

    It stands for a tensor in a loss that is written in torch.
    """

    def __init__(self, value: Interval, slope: Interval, bend: Interval) -> None:
        self.parts = value, slope, bend
        self.shape, self.ndim = value.lo.shape, value.lo.ndim

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", str(function)).strip("_")
        if name in ("stack", "cat"):
            return _stacked(args[0])
        given = [a if isinstance(a, Jet) else _constant(a) for a in args]
        reverse = {"rsub": "sub", "rmul": "mul", "radd": "add", "rtruediv": "div"}
        if name in reverse:
            given, name = given[::-1], reverse[name]
        name = {"truediv": "div", "true_divide": "div", "multiply": "mul"}.get(name, name)
        binary = {"add": _sum, "sub": lambda a, b: _sum(a, _scaled(b, -1.0)), "mul": _product,
                  "div": lambda a, b: _product(a, _power_of(b, -1.0))}  # fmt: skip
        if name in binary:
            return binary[name](*given[:2])
        return getattr(args[0], name)(*args[1:], **(kwargs or {}))

    def __getattr__(self, method: str) -> Any:
        if method not in _FUNCTIONS:
            if method.startswith("__"):
                raise AttributeError(method)
            raise InputError(f"none are known of {method}, which it uses")
        return lambda: _of(self, _FUNCTIONS[method])

    def __add__(self, other: Any) -> Jet:
        return _sum(self, other)

    def __mul__(self, other: Any) -> Jet:
        return _product(self, other)

    def __sub__(self, other: Any) -> Jet:
        return _sum(self, _scaled(other, -1.0))

    def __rsub__(self, other: Any) -> Jet:
        return _sum(_scaled(self, -1.0), other)

    def __neg__(self) -> Jet:
        return _product(self, -1.0)

    def __truediv__(self, other: Any) -> Jet:
        return _product(self, _power_of(other, -1.0))

    def __rtruediv__(self, other: Any) -> Jet:
        return _product(_power_of(self, -1.0), other)

    def __pow__(self, n: float) -> Jet:
        return _of(self, lambda x: _powers(x, float(n)))

    __radd__, __rmul__, pow = __add__, __mul__, __pow__

    def neg(self) -> Jet:
        return -self

    def __getitem__(self, at: Any) -> Jet:
        index = at if isinstance(at, tuple) else (at,)
        return Jet(*(part[_whole(index, self.ndim)] for part in self.parts))

    def unbind(self, dim: int = 0) -> list[Jet]:
        axis = dim % self.ndim
        return [self[(slice(None),) * axis + (i,)] for i in range(self.shape[axis])]

    def sum(self, dim: int = -1) -> Jet:
        axis = dim % self.ndim
        return Jet(*(part.sum(axis) for part in self.parts))


def _whole(index: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    if Ellipsis in index:
        at = index.index(Ellipsis)
        fill = (slice(None),) * (ndim - len(index) + 1)
        return (*index[:at], *fill, *index[at + 1 :])
    return index


def _constant(value: Any) -> Any:
    return value.detach().numpy() if hasattr(value, "detach") else value


def _scaled(value: Any, by: float) -> Any:
    return _product(value, by) if isinstance(value, Jet) else by * _constant(value)


def _power_of(value: Any, n: float) -> Any:
    return value**n if isinstance(value, Jet) else power(interval(_constant(value)), n)


def _stacked(jets: Any) -> Jet:
    axis = jets[0].ndim

    def stacked(part: tuple[Interval, ...]) -> Interval:
        return Interval(np.stack([p.lo for p in part], axis), np.stack([p.hi for p in part], axis))

    return Jet(*map(stacked, zip(*(jet.parts for jet in jets), strict=True)))


def _sum(one: Any, other: Any) -> Jet:
    if not isinstance(one, Jet):
        one, other = other, one
    if not isinstance(other, Jet):
        return Jet(one.parts[0] + _constant(other), *one.parts[1:])
    return Jet(*(a + b for a, b in zip(one.parts, other.parts, strict=True)))


def _wide(value: Interval, axes: int) -> Interval:
    return value[(..., *[None] * axes)]


def _product(one: Any, other: Any) -> Jet:
    """The product of a jet and another jet or a constant."""
    if not isinstance(one, Jet):
        one, other = other, one
    (u, du, ddu), by = one.parts, interval(_constant(other)) if not isinstance(other, Jet) else None
    if by is not None:
        return Jet(u * by, du * _wide(by, 1), ddu * _wide(by, 2))
    v, dv, ddv = other.parts
    cross = du[..., :, None] * dv[..., None, :]
    both = cross + Interval(cross.lo.swapaxes(-1, -2), cross.hi.swapaxes(-1, -2))
    return Jet(u * v, du * _wide(v, 1) + dv * _wide(u, 1),
               ddu * _wide(v, 2) + ddv * _wide(u, 2) + both)  # fmt: skip


def _of(x: Jet, function: Callable[[Interval], tuple[Interval, ...]]) -> Jet:
    value, slope, bend = x.parts
    f, df, ddf = function(value)
    square = slope[..., :, None] * slope[..., None, :]
    return Jet(f, slope * _wide(df, 1), square * _wide(ddf, 2) + bend * _wide(df, 2))


def bounds(
    model: Model, low: np.ndarray, high: np.ndarray, of: Callable[..., Any] | None = None
) -> tuple[Interval, ...]:
    """Bounds of L (n,), ∇L (n, k) and ∂²L (n, k, k) in boxes whose corners are (n, k).

    Derivatives are in the coordinates √Gᵢ θᵢ, in which the flow is −∇L. ``of`` is another function
    of θ to take in place of L.

    Raises:
        InputError: the loss uses a function of torch whose bounds are not known.
    """
    k = low.shape[1]
    root = power(interval(np.array(model.metric, float)), -0.5)
    unit = Interval(np.diag(root.lo), np.diag(root.hi))
    whole = (*low.shape, k)
    slope = Interval(np.broadcast_to(unit.lo, whole), np.broadcast_to(unit.hi, whole))
    theta = Jet(Interval(low, high), slope, interval(np.zeros((*low.shape, k, k))))
    with np.errstate(all="ignore"):
        try:
            found = (of or model.loss)(theta)
        except (AttributeError, IndexError, NotImplementedError, TypeError, ValueError) as error:
            why = error if isinstance(error, InputError) else first_line_of(error)
            raise InputError(f"no interval bounds of the loss of {model.name}: {why}") from None
    if not isinstance(found, Jet):
        raise InputError(f"the loss of {model.name} has no interval bounds")
    return found.parts
