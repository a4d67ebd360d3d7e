"""Interval bounds of a loss and its first two derivatives, with outward rounding."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from torch import Tensor

from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.own import first_line_of

#: A unit in the last place, the least number, and units by which functions may be off.
_UNIT, _TINY, _FUNCTION = 2.0**-52, 5e-324, 8.0


class Interval:
    """Arrays of lower and upper bounds of numbers.

    Bounds of sums, products and quotients are rounded outwards, so that no result lies outside.
    """

    def __init__(self, lo: Any, hi: Any, units: float = 0.0) -> None:
        """Take bounds; ``units`` widen them by so many 2⁻⁵² of their size, and NaN to infinity."""
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
        """The largest absolute value of the numbers within."""
        found: np.ndarray = np.maximum(abs(self.lo), abs(self.hi))
        return found

    def sum(self, axis: int) -> Interval:
        """Sums, widened by what their rounding may be."""
        off = self.lo.shape[axis] * _UNIT * self.size().sum(axis)
        return Interval(self.lo.sum(axis) - off, self.hi.sum(axis) + off)

    def hull(self, other: Any) -> Interval:
        """The smallest interval that holds both."""
        other = interval(other)
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def within(self, other: Interval) -> Interval:
        """The intersection of two enclosures of the same numbers."""
        return Interval(np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi))


def interval(value: Any) -> Interval:
    """Return an interval unchanged, and numbers as one without width."""
    return value if isinstance(value, Interval) else Interval(value, value)


def _rising(function: Callable[[np.ndarray], np.ndarray], x: Interval) -> Interval:
    """Bounds of an increasing function of x."""
    return Interval(function(x.lo), function(x.hi), _FUNCTION)


def power(x: Interval, n: float) -> Interval:
    """Bounds of xⁿ, rounded outward.

    For n < 0 both are infinite if x may be 0; for a root, that of an end of x that is not positive.
    """
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
    """Bounds of 1/(1 + e⁻ˣ)."""
    return _rising(lambda a: np.exp(-np.logaddexp(0, -a)), x)


def _wave(x: Interval, shift: float) -> Interval:
    """Bounds of sin(x + shift π/2)."""
    ends = [np.sin(end + shift * np.pi / 2) for end in (x.lo, x.hi)]
    turns = [(np.stack([x.lo, x.hi]) / np.pi * 2 + shift - top) / 4 for top in (1, 3)]
    passed = [np.floor(t[1] + 1e-9) > np.floor(t[0] - 1e-9) for t in turns]
    off = 1e-15 * (1 + x.size())
    return Interval(np.where(passed[1], -1, np.minimum(*ends)) - off,
                    np.where(passed[0], 1, np.maximum(*ends)) + off)  # fmt: skip


def _sigmoids(x: Interval) -> tuple[Interval, ...]:
    """Bounds of 1/(1 + e⁻ˣ), its derivative and its second derivative."""
    here, back = _sigmoid(x), _sigmoid(-x)
    slope = here * back
    return here, slope, slope * (back - here)


def _absolute(x: Interval) -> tuple[Interval, ...]:
    """Bounds of |x|, its derivative and its second derivative, which is unbounded at the kink."""
    bent = (x.lo <= 0) & (x.hi >= 0)
    size = Interval(np.where(bent, 0, np.minimum(abs(x.lo), abs(x.hi))), x.size())
    sign = Interval(np.where(x.lo > 0, 1, -1), np.where(x.hi < 0, -1, 1))
    kink = np.where(bent, np.inf, 0.0)
    return size, sign, Interval(-kink, kink)


def _powers(x: Interval, n: float) -> tuple[Interval, ...]:
    """Bounds of xⁿ, its derivative and its second derivative."""
    value, slope = power(x, n), power(x, n - 1) if n else interval(np.zeros_like(x.lo))
    bend = power(x, n - 2) if n not in (0, 1) else interval(np.zeros_like(x.lo))
    return value, slope * n, bend * (n * (n - 1))


def _logarithm(x: Interval) -> tuple[Interval, ...]:
    """Bounds of log x, its derivative and its second derivative."""
    slope = power(x, -1)
    return _rising(np.log, x), slope, -(slope * slope)


def _softplus(x: Interval) -> tuple[Interval, ...]:
    """Bounds of log(1 + eˣ), its derivative and its second derivative."""
    return _rising(lambda a: np.logaddexp(0, a), x), *_sigmoids(x)[:2]


def _sine(x: Interval) -> tuple[Interval, ...]:
    """Bounds of sin x, its derivative and its second derivative."""
    wave = _wave(x, 0)
    return wave, _wave(x, 1), -wave


class Jet:
    """Bounds of numbers (…), of their gradients (…, k) and of their Hessians (…, k, k).

    It stands for a tensor in a loss that is written in torch.
    """

    __array_ufunc__ = None  # an array on the left leaves the operation to the jet

    def __init__(self, value: Interval, slope: Interval, bend: Interval) -> None:
        """Take bounds of the numbers, of their gradients (slope) and of their Hessians (bend)."""
        self.parts = value, slope, bend
        self.shape, self.ndim = value.lo.shape, value.lo.ndim

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Apply a function of torch: stack, arithmetic, or the method of the same name."""
        name = getattr(function, "__name__", str(function)).strip("_")
        if name == "stack":
            return _stacked(*args, **(kwargs or {}))
        name = {"div": "truediv", "true_divide": "truediv", "multiply": "mul"}.get(name, name)
        if name in ("add", "sub", "mul", "truediv"):
            return getattr(operator, name)(*map(_constant, args[:2]))
        return getattr(args[0], name)(*args[1:], **(kwargs or {}))

    def __getattr__(self, method: str) -> Any:
        """The method of a function in ``_FUNCTIONS``; InputError for one without known bounds."""
        if method not in _FUNCTIONS:
            if method.startswith("__"):
                raise AttributeError(method)
            raise InputError(f"none are known of {method}, which it uses")
        return lambda: _FUNCTIONS[method](self)

    def __add__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            return Jet(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))
        return Jet(self.parts[0] + _constant(other), *self.parts[1:])

    def __mul__(self, other: Any) -> Jet:
        u, du, ddu = self.parts
        if not isinstance(other, Jet):
            by = interval(_constant(other))
            return Jet(u * by, du * _wide(by, 1), ddu * _wide(by, 2))
        v, dv, ddv = other.parts
        cross = du[..., :, None] * dv[..., None, :]
        both = cross + Interval(cross.lo.swapaxes(-1, -2), cross.hi.swapaxes(-1, -2))
        bend = ddu * _wide(v, 2) + ddv * _wide(u, 2) + both
        return Jet(u * v, du * _wide(v, 1) + dv * _wide(u, 1), bend)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Jet:
        return self * -1.0

    def __sub__(self, other: Any) -> Jet:
        return self + -_constant(other)

    def __rsub__(self, other: Any) -> Jet:
        return -self + other

    def __truediv__(self, other: Any) -> Jet:
        other = _constant(other)
        return self * (other**-1.0 if isinstance(other, Jet) else power(interval(other), -1))

    def __rtruediv__(self, other: Any) -> Jet:
        return self**-1.0 * other

    def __pow__(self, n: float) -> Jet:
        return self.through(lambda x: _powers(x, float(n)))

    pow, neg = __pow__, __neg__

    def through(self, function: Callable[[Interval], tuple[Interval, ...]]) -> Jet:
        """Apply a function, given by bounds of its value and its first two derivatives."""
        value, slope, bend = self.parts
        f, df, ddf = function(value)
        square = slope[..., :, None] * slope[..., None, :]
        return Jet(f, slope * _wide(df, 1), square * _wide(ddf, 2) + bend * _wide(df, 2))

    def __getitem__(self, at: Any) -> Jet:
        """Index the numbers, as of a tensor; gradients and Hessians go with them."""
        index = at if isinstance(at, tuple) else (at,)
        if Ellipsis in index:
            dots = index.index(Ellipsis)
            fill = (slice(None),) * (self.ndim - len(index) + 1)
            index = (*index[:dots], *fill, *index[dots + 1 :])
        return Jet(*(part[index] for part in self.parts))

    def unbind(self, dim: int = 0) -> list[Jet]:
        """Split along a dimension, as torch does."""
        axis = dim % self.ndim
        return [self[(slice(None),) * axis + (i,)] for i in range(self.shape[axis])]

    def sum(self, dim: int) -> Jet:
        """Sum along a dimension, as torch does."""
        axis = dim % self.ndim
        return Jet(*(part.sum(axis) for part in self.parts))


#: Functions by the names that torch gives them.
_FUNCTIONS: dict[str, Callable[[Jet], Jet]] = {
    "exp": lambda x: x.through(lambda v: (_rising(np.exp, v),) * 3),
    "log": lambda x: x.through(_logarithm),
    "log1p": lambda x: (x + 1.0).log(),
    "sqrt": lambda x: x**0.5,
    "square": lambda x: x**2,
    "reciprocal": lambda x: x**-1,
    "abs": lambda x: x.through(_absolute),
    "tanh": lambda x: (x * 2.0).sigmoid() * 2.0 - 1.0,
    "sigmoid": lambda x: x.through(_sigmoids),
    "softplus": lambda x: x.through(_softplus),
    "log_sigmoid": lambda x: -(-x).softplus(),
    "sin": lambda x: x.through(_sine),
    "cos": lambda x: (x + np.pi / 2).sin(),
}


def _constant(value: Any) -> Any:
    """Return a tensor as an array, and anything else unchanged."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _stacked(jets: Any, dim: int = 0) -> Jet:
    """Stack jets along a new dimension, as torch does."""
    axis = dim % (jets[0].ndim + 1)

    def stacked(part: tuple[Interval, ...]) -> Interval:
        """Stack values, gradients or Hessians of the jets."""
        return Interval(np.stack([p.lo for p in part], axis), np.stack([p.hi for p in part], axis))

    return Jet(*map(stacked, zip(*(jet.parts for jet in jets), strict=True)))


def _wide(value: Interval, axes: int) -> Interval:
    """The same bounds with so many new axes of length 1 at the end."""
    return value[(..., *[None] * axes)]


def bounds(model: Model, low: np.ndarray, high: np.ndarray) -> tuple[Interval, ...]:
    """Bounds of L (…), ∇L (…, k) and ∂²L (…, k, k) in boxes whose corners are (…, k).

    Derivatives are in the coordinates √Gᵢ θᵢ, in which the flow is −∇L.

    Raises:
        InputError: the loss uses a function of torch whose bounds are not known.
    """
    k = low.shape[-1]
    root = power(interval(np.array(model.metric, float)), -0.5)
    unit = Interval(np.diag(root.lo), np.diag(root.hi))
    whole = (*low.shape, k)
    slope = Interval(np.broadcast_to(unit.lo, whole), np.broadcast_to(unit.hi, whole))
    theta = Jet(Interval(low, high), slope, interval(np.zeros((*low.shape, k, k))))
    with np.errstate(all="ignore"):
        try:
            found = model.loss(theta)
        except (AttributeError, IndexError, NotImplementedError, TypeError, ValueError) as error:
            why = error if isinstance(error, InputError) else first_line_of(error)
            raise InputError(f"no interval bounds of the loss of {model.name}: {why}") from None
    if not isinstance(found, Jet):
        raise InputError(f"the loss of {model.name} has no interval bounds")
    return found.parts
