"""Torch functions of a few numbers a row, replayed in numpy: a quarter of the time for few rows.

A call of the function is recorded twice, as operations of torch's ATen, automatic differentiation
included, with other values and another number of rows. If the recordings differ in the number of
rows alone, a numpy program with the same operations is written. A function that branches on values,
draws numbers, or uses an operation with no counterpart here, is called in torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flowsim.flow.batch import AT_ONCE

#: Rows of the two recordings, and numbers a row from which on torch is as quick.
_FEW, _MORE, _LARGE = AT_ONCE, 2 * AT_ONCE, 256
#: Distance between the rows of the two recordings, and the tolerance of their results.
_APART, _ALIKE = 1e-3, 1e-6
#: Axes of at most so many numbers are added up one by one.
_SHORT = 8

_aten = torch.ops.aten
_DTYPES = {torch.float64: "np.float64", torch.bool: "np.bool_", torch.int64: "np.int64",
           torch.float32: "np.float32", torch.int32: "np.int32", torch.int8: "np.int8"}  # fmt: skip


class _Unlike(Exception):
    """A function that cannot be replayed."""


class Replay:
    """A function of tensors that is called in numpy, once its operations have been recorded.

    The first axis of all that it is given and returns is that of the rows, each on its own.

    Args:
        function: (tensors) ↦ tensors. It depends on nothing that changes.
        checked: how many of its results are compared with those of the program once.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], checked: int = 0) -> None:
        self.function, self.checked = function, checked
        self.programs: dict[Any, Callable[..., Any] | None] = {}

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return the function's results: by its program on the CPU, where one could be written."""
        if given[0].device.type != "cpu" or not len(given[0]):
            return self.function(*given)
        shapes = tuple([x.shape[1:] for x in given])
        if shapes not in self.programs:
            self.programs[shapes] = self._written(given)
        program = self.programs[shapes]
        if program is None:
            return self.function(*given)
        with np.errstate(all="ignore"):
            found = program(len(given[0]), *[x.detach().numpy() for x in given])
        return tuple([torch.from_numpy(x) for x in found])

    def _written(self, given: Sequence[Tensor]) -> Callable[..., Any] | None:
        """Record the function near what is given, and write its program; None where it is wrong."""
        first, second = _sample(given, _FEW, 0.0), _sample(given, _MORE, _APART)
        try:
            self.function(*first)  # what it keeps is there from now on
            tapes = [_Tape(self.function, x) for x in (first, second)]
            program = _program(*tapes)
            with np.errstate(all="ignore"):
                found = program(_MORE, *[x.numpy() for x in second])
        except (_Unlike, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return None
        for own, other in zip(found, tapes[1].results, strict=True):
            if own.shape != tuple(other.shape) or own.dtype != other.numpy().dtype:
                return None
        for own, other in list(zip(found, tapes[1].results, strict=True))[: self.checked]:
            there = other.numpy()
            size = np.abs(there, where=np.isfinite(there), out=np.zeros_like(there)).max(initial=0)
            if not np.allclose(own, there, rtol=_ALIKE, atol=_ALIKE * size, equal_nan=True):
                return None
        return program


def _sample(given: Sequence[Tensor], rows: int, apart: float) -> list[Tensor]:
    """Make tensors of ``rows`` rows near those given, at a relative distance up to ``apart``."""
    found = []
    for x in given:
        many = x.detach().repeat(math.ceil(rows / len(x)), *(1,) * (x.ndim - 1))[:rows].clone()
        if x.is_floating_point():
            away = apart * np.sin(np.arange(many.numel())).reshape(many.shape)
            many = many * (1 + torch.from_numpy(away).to(many))
        found.append(many)
    return found


class _Tape(TorchDispatchMode):
    """Records the operations of a call: of each its function, arguments, named ones, and results.

    Tensors are numbered: those that are given, and results, from 0; others from −1 down.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would import what takes seconds

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], given: list[Tensor]) -> None:
        """Call the function with what is given, and record what it does."""
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, list[int]]] = []
        self.number: dict[int, int] = {}
        self.tensors: list[Tensor] = []
        self.constants: list[Tensor] = []
        for x in given:
            self._new(x)
        self.given, self.rows = len(given), len(given[0])
        with self:
            self.results = [x.detach() for x in function(*given)]
        self.returned = [self.number[id(x)] for x in self.results]

    def _new(self, x: Tensor) -> int:
        """Give a tensor the next number, and return it."""
        self.number[id(x)] = len(self.tensors)
        self.tensors.append(x)  # as long as it lives no other has its id
        return len(self.tensors) - 1

    def _slot(self, x: Any) -> Any:
        """Replace the tensors in an argument by their numbers, as ``_Slot``."""
        if isinstance(x, Tensor):
            if id(x) not in self.number:
                self.constants.append(x)
                self.number[id(x)] = -len(self.constants)
            return _Slot(self.number[id(x)])
        if isinstance(x, (list, tuple)):
            return [self._slot(y) for y in x]
        return x

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation of ATen, which torch calls this with, and record it."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name not in _WRITERS:
            raise _Unlike(name)
        out = func(*args, **kwargs)
        own = self._slot(args), {k: self._slot(v) for k, v in kwargs.items()}
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        if name.endswith("_") and not name.endswith("__"):  # changes its first argument
            if own[0][0] < 0:
                raise _Unlike(name)
            numbers = [own[0][0]]
        else:
            if any(x.numel() > _LARGE * self.rows for x in outs):
                raise _Unlike("large")
            numbers = [self._new(x) for x in outs]
        self.operations.append((func, *own, [int(i) for i in numbers]))
        return out


class _Slot(int):
    """The number of a tensor."""


class _Rows(str):
    """Text of a number that is a multiple of the number of rows."""


def _alike(a: Any, b: Any) -> Any:
    """Return the argument that both recordings have; the number of rows becomes an expression.

    Raises ``_Unlike`` where they differ otherwise.
    """
    if isinstance(a, list):
        if not isinstance(b, list) or len(a) != len(b):
            raise _Unlike
        return [_alike(x, y) for x, y in zip(a, b, strict=True)]
    if type(a) is not type(b):
        raise _Unlike
    if a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)):
        return a
    if type(a) is int and a % _FEW == 0 and a // _FEW * _MORE == b:
        return _Rows(f"{a // _FEW} * n")
    raise _Unlike


def _program(one: _Tape, other: _Tape) -> Callable[..., Any]:
    """Write and compile the numpy program of two recordings that differ in their rows alone.

    It takes the number of rows, then arrays, and returns arrays.
    """
    if len(one.operations) != len(other.operations) or one.returned != other.returned:
        raise _Unlike
    if len(one.constants) != len(other.constants):
        raise _Unlike
    for x, y in zip(one.constants, other.constants, strict=True):
        if x.shape != y.shape or not torch.equal(x.nan_to_num(), y.nan_to_num()):
            raise _Unlike
    operations = []
    a: Any
    b: Any
    for (func, *a), (same, *b) in zip(one.operations, other.operations, strict=True):
        if func is not same or a[1].keys() != b[1].keys() or a[2] != b[2]:
            raise _Unlike
        named = {key: _alike(value, b[1][key]) for key, value in a[1].items()}
        operations.append((func, _alike(a[0], b[0]), named, a[2]))
    needed, kept = {*one.returned}, []
    for func, args, named, outs in reversed(operations):
        if _name(func)[-1] == "_" or needed & {*outs}:
            if not _makes(func):
                needed |= {*_slots(args), *_slots(list(named.values()))}
            kept.append((func, args, named, outs))
    writer = _Writer(one, other, kept[::-1])
    space: dict[str, Any] = {"np": np, "F": _Functions}
    for i, x in enumerate(one.constants, 1):
        space[f"c{i}"] = x.detach().numpy()
    results = [writer.text(_Slot(i)) for i in one.returned]
    text = writer.functions([f"v{i}" for i in range(one.given)], results)
    exec(compile(text, "<replay>", "exec"), space)
    program: Callable[..., Any] = space["program"]
    return program


def _name(func: Any) -> str:
    """Return the name of an operation of ATen, without its overload."""
    return str(func.overloadpacket.__name__)


def _makes(func: Any) -> bool:
    """Return whether an operation only makes a tensor, by the shape of its argument."""
    name = _name(func)
    return name.endswith("_like") or name.startswith("new_")


def _slots(args: Any) -> list[int]:
    """Return the numbers of all tensors among nested arguments."""
    if isinstance(args, list):
        return [slot for x in args for slot in _slots(x)]
    return [int(args)] if isinstance(args, _Slot) else []


class _Functions:
    """Functions of ATen that numpy has no name for, as programs call them (``F``)."""

    @staticmethod
    def sign(x: Any) -> Any:
        """Return −1, 0 or 1; 0 of NaN, as torch."""
        return np.subtract(x > 0, x < 0, dtype=np.float64)

    @staticmethod
    def sigmoid(x: Any) -> Any:
        """Return 1/(1 + exp(−x))."""
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
        """Return log(1 + exp(βx))/β, or x where βx is above the threshold."""
        return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)

    @staticmethod
    def softplus_backward(slope: Any, x: Any, beta: float, threshold: float) -> Any:
        """Return ``slope`` times the derivative of ``softplus`` at x."""
        z = np.exp(x * beta)
        return np.where(x * beta > threshold, slope, slope * z / (z + 1))

    @staticmethod
    def log_sigmoid(x: Any) -> Any:
        """Return log(1/(1 + exp(−x)))."""
        return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))

    @staticmethod
    def inverse(x: Any) -> Any:
        """Return the inverses of matrices, by torch's own routine."""
        return torch.linalg.inv_ex(torch.from_numpy(x))[0].numpy()

    @staticmethod
    def columns(parts: Any) -> Any:
        """Stack arrays along a new last axis."""
        made = np.empty((*parts[0].shape, len(parts)), parts[0].dtype)
        for i, part in enumerate(parts):
            made[..., i] = part
        return made

    @staticmethod
    def diag_embed(x: Any) -> Any:
        """Return matrices with the last axis of x on their diagonals."""
        made = np.zeros((*x.shape, x.shape[-1]))
        made.reshape(*x.shape[:-1], -1)[..., :: x.shape[-1] + 1] = x
        return made

    @staticmethod
    def put(shape: Any, at: Any, value: Any) -> Any:
        """Return zeros of a shape, with ``value`` at an index."""
        made = np.zeros(shape)
        made[at] = value
        return made

    @staticmethod
    def put_diagonal(value: Any, shape: Any, offset: int, first: int, second: int) -> Any:
        """Return zeros of a shape, with ``value`` on a diagonal of two axes."""
        made = np.zeros(shape)
        _Functions.diagonal(made, offset, first, second)[...] = value
        return made

    @staticmethod
    def diagonal(x: Any, offset: int = 0, first: int = 0, second: int = 1) -> Any:
        """Return a diagonal of two axes, as a view that can be written where x can."""
        view = np.diagonal(x, offset, first, second)
        view.flags.writeable = x.flags.writeable
        return view


class _Writer:
    """Writes the lines of a program, one for each operation.

    ``once`` has the lines that depend on the number of rows alone, ``lines`` the others.
    """

    def __init__(self, tape: _Tape, other: _Tape, operations: list[Any]) -> None:
        """Write all the operations that two recordings have in common."""
        self.tape, self.other, self.lines, self.once = tape, other, list[str](), list[str]()
        self.same: dict[int, _Slot] = {}  # slots that are others
        self.uniform: dict[int, float] = {}  # of which all numbers are this one
        self.varies = set(range(tape.given))
        self.seen: dict[str, _Slot] = {}
        base: dict[int, int] = {}
        for func, args, _, outs in operations:
            if _name(func) in _VIEWS:
                base |= {i: base.get(args[0], args[0]) for i in outs}
        changed = {a[0] for f, a, _, _ in operations if _name(f)[-1] == "_"}
        changed = {base.get(i, i) for i in changed}
        self.changed = changed | {i for i, b in base.items() if b in changed}
        for operation in operations:
            self.write(*operation)

    def functions(self, names: list[str], results: list[str]) -> str:
        """Return the text of the program, of arguments ``names`` and these results."""
        once = [*self.once, "return {k: v for k, v in locals().items() if k[0] == 'v'}"]
        known = sorted({line.split(" = ")[0] for line in self.once if line.startswith("v")})
        rest = " ".join(self.lines) + " " + " ".join(results)
        used = [x for x in known if re.search(rf"\b{x}\b", rest)]
        lines = [
            "def once(n):", *(f"    {x}" for x in once), "", "kept = {}", "",
            f"def program(n, {', '.join(names)}):",
            "    if n not in kept:", "        if len(kept) > 8:", "            kept.clear()",
            "        kept[n] = once(n)", "    found = kept[n]",
            *(f"    {x} = found['{x}']" for x in used),
            *(f"    {x}" for x in self.lines),
            f"    return {', '.join(f'np.asarray({x})' for x in results)},",
        ]  # fmt: skip
        return "\n".join(lines)

    def text(self, x: Any) -> str:
        """Return an argument as text of Python: a tensor's name, a number, a list, a type."""
        if isinstance(x, _Slot):
            x = self.same.get(x, x)
            return f"v{int(x)}" if x >= 0 else f"c{-int(x)}"
        if isinstance(x, _Rows):
            return str(x)
        if isinstance(x, list):
            return "[" + ", ".join(map(self.text, x)) + "]"
        if isinstance(x, float) and not math.isfinite(x):
            return f"float('{x}')"
        if x is None or isinstance(x, (bool, int, float)):
            return repr(x)
        if x in _DTYPES:
            return _DTYPES[x]
        raise _Unlike(str(x))

    def tensor(self, x: Any) -> Tensor:
        """Return the tensor of a number, as it was in the first recording."""
        return self.tape.tensors[x] if x >= 0 else self.tape.constants[-x - 1]

    def shape(self, x: Any) -> list[Any]:
        """Return the sizes of the tensor of a number; the number of rows is an expression."""
        if x < 0:
            return list(self.tensor(x).shape)
        own, other = (list(tape.tensors[x].shape) for tape in (self.tape, self.other))
        found: list[Any] = _alike(own, other)
        return found

    def axis(self, x: Any, dim: int) -> int:
        """Return an axis of a tensor counted from 0, given one that may count from the end."""
        return dim % self.tensor(x).ndim

    def at(self, x: Any, dim: int, inside: str) -> str:
        """Return the text of x at an index, ``inside`` the brackets, along an axis."""
        before = ":, " * self.axis(x, dim)
        return f"{self.text(x)}[{before}{inside}]"

    def write(self, func: Any, args: Any, named: Any, outs: list[int]) -> None:
        """Add the line of an operation whose results have the numbers ``outs``, if it needs one."""
        name = _name(func)
        if name in _SAME and outs[0] not in self.changed:
            self._same_as(outs[0], args[0])
            return
        if name[-1] != "_" and self._is_argument(name, args, outs):
            return
        if self.tape.tensors[outs[0]]._is_zerotensor():  # whatever it is multiplied by
            made = f"np.zeros({self.text(self.shape(outs[0]))})"
        else:
            made = _WRITERS[name](self, *args, **named)
        slots = [] if _makes(func) else [*_slots(args), *_slots(list(named.values()))]
        varies = any(i in self.varies or i in self.changed for i in [*slots, *outs])
        lines = self.lines if varies else self.once
        if varies:
            self.varies |= {*outs}
        if name[-1] == "_":
            lines.append(made)
        elif isinstance(made, list):
            lines += [f"v{i} = {line}" for i, line in zip(outs, made, strict=True)]
        elif len(outs) > 1:
            lines.append(f"v{outs[0]}, *_ = {made}")
        elif made in self.seen:
            self._same_as(outs[0], self.seen[made])
        else:
            lines.append(f"v{outs[0]} = {made}")
            if not self.changed & {*slots, *outs}:
                self.seen[made] = _Slot(outs[0])

    def _same_as(self, out: int, other: Any) -> None:
        """Note that the tensor ``out`` is the tensor ``other``, so that it needs no line."""
        self.same[out] = self.same.get(other, other)
        if other in self.varies:
            self.varies.add(out)
        if other in self.uniform:
            self.uniform[out] = self.uniform[other]

    def _is_argument(self, operator: str, args: Any, outs: list[int]) -> bool:
        """Return whether a result is an argument, as x · 1 is; note results of one number."""
        out, free = outs[0], not self.changed & {*outs, *_slots(args)}
        numbers = [self.uniform.get(x) if isinstance(x, _Slot) else x for x in args[:2]]
        if operator in _ONES or (operator == "pow" and numbers[1] == 0):
            self.uniform[out] = 1.0
        elif operator in _VIEWS and numbers[0] is not None:
            self.uniform |= dict.fromkeys(outs, float(numbers[0]))
        elif operator == "pow" and numbers[1] == 1 and free:
            self._same_as(out, args[0])
            return True
        elif operator in ("mul", "div"):
            one, other = numbers
            if isinstance(one, (int, float)) and isinstance(other, (int, float)):
                if operator == "mul" or other != 0:
                    self.uniform[out] = one * other if operator == "mul" else one / other
                return False
            for x, factor in ((args[0], other), (args[1], one if operator == "mul" else None)):
                if factor == 1.0 and free and isinstance(x, _Slot) and self._same_kind(x, out):
                    self._same_as(out, x)
                    return True
        return False

    def _same_kind(self, x: int, other: int) -> bool:
        """Return whether two tensors have one shape and one type."""
        a, b = self.tensor(x), self.tensor(other)
        return a.shape == b.shape and a.dtype == b.dtype


#: (writer, arguments of an operation of ATen) ↦ the text of its result, or of each of several.
_Write = Callable[..., Any]


def _calls(form: str) -> _Write:
    """Return what writes an operation as ``form``, filled in with the texts of its arguments."""

    def write(w: _Writer, *args: Any) -> str:
        """Fill in the form."""
        texts = [w.text(x) for x in args]
        return form.format(*texts, args=", ".join(texts))

    return write


def _sum(w: _Writer, x: Any, y: Any, sign: str, alpha: Any = 1) -> str:
    """Write x ± alpha · y."""
    other = w.text(y) if alpha == 1 else f"{w.text(alpha)} * {w.text(y)}"
    return f"{w.text(x)} {sign} {other}"


def _reduces(function: str, pair: str) -> _Write:
    """Return what writes a reduction by numpy's ``function``.

    Along one short axis it is written out, as calls of the function ``pair`` of two arrays.
    """

    def write(
        w: _Writer, x: Any, dims: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> str:
        """Write the reduction of x over some axes, or all."""
        if dtype is not None:
            raise _Unlike
        shape = w.shape(x)
        dims = [dims] if isinstance(dims, int) else dims
        axes = tuple(w.axis(x, d) for d in dims) if dims else tuple(range(len(shape)))
        long = len(axes) != 1 or shape[axes[0]] not in range(1, _SHORT + 1)
        if long or (w.tensor(x).dtype == torch.bool and function == "sum"):
            return f"np.{function}({w.text(x)}, axis={axes}, keepdims={keepdim})"
        at = "{0}:{1}" if keepdim else "{0}"
        terms = [w.at(x, axes[0], at.format(i, i + 1)) for i in range(shape[axes[0]])]
        made = terms[0] if len(terms) > 1 else f"{terms[0]}.copy()"
        for term in terms[1:]:
            made = f"np.{pair}({made}, {term})"
        return made

    return write


def _mean(w: _Writer, x: Any, dims: Any, keepdim: bool = False, dtype: Any = None) -> str:
    """Write a mean over some axes."""
    axes = tuple(w.axis(x, d) for d in dims)
    return f"np.mean({w.text(x)}, axis={axes}, keepdims={keepdim})"


def _clamp(w: _Writer, x: Any, least: Any = None, most: Any = None) -> str:
    """Write x, no less than ``least`` and no more than ``most``, where they are given."""
    made = w.text(x)
    made = made if least is None else f"np.maximum({made}, {w.text(least)})"
    return made if most is None else f"np.minimum({made}, {w.text(most)})"


def _slice(
    w: _Writer, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str:
    """Write a slice along one axis; ATen gives 2⁶³ − 1 for its open end."""
    end = None if end is not None and end >= 2**62 else end
    return w.at(x, dim, ":".join("" if i is None else w.text(i) for i in (start, end, step)))


def _at_slice(shape: list[Any], dim: int, inside: str) -> str:
    """Write the index that is ``inside`` along one axis and all along those before it."""
    return "(" + "slice(None), " * (dim % len(shape)) + inside + ",)"


def _slice_back(w: _Writer, x: Any, shape: Any, dim: int, start: int, end: int, step: int) -> str:
    """Write the derivative of a slice: zeros of a shape, with x in their slice."""
    at = _at_slice(shape, dim, f"slice({start}, {None if end >= 2**62 else end}, {step})")
    return f"F.put({w.text(shape)}, {at}, {w.text(x)})"


def _unsqueezed(w: _Writer, x: Any, dim: int) -> str:
    """Write x with a new axis of length 1."""
    place = dim % (w.tensor(x).ndim + 1)
    return f"{w.text(x)}[{':, ' * place}None]"


def _squeezed(w: _Writer, x: Any, dims: Any) -> str:
    """Write x without those of some axes that have length 1."""
    dims = [dims] if isinstance(dims, int) else dims
    axes = tuple(w.axis(x, d) for d in dims if w.tensor(x).shape[d] == 1)
    return f"np.squeeze({w.text(x)}, {axes})"


def _expanded(w: _Writer, x: Any, shape: Any, implicit: bool = False) -> str:
    """Write x broadcast to a shape, in which −1 keeps the length of an axis."""
    own = w.tensor(x).shape
    missing = len(shape) - len(own)
    whole = [
        f"{w.text(x)}.shape[{i - missing}]" if size == -1 else w.text(size)
        for i, size in enumerate(shape)
    ]
    return f"np.broadcast_to({w.text(x)}, ({', '.join(whole)},))"


def _filled(value: str, shape_of: Callable[[_Writer, Any], Any] | None = None) -> _Write:
    """Return the writer of numpy source for operations that make an array of one number.

    These are zeros, full, ones_like and the like. ``value`` is the number's source text; if it is
    empty, the operation's second argument is taken. The shape is the operation's first argument, or
    ``shape_of`` (writer, that argument).
    """

    def write(w: _Writer, x: Any, number: Any = None, dtype: Any = None, **more: Any) -> str:
        """Write the array; ``x`` is a shape, or a tensor whose shape it has."""
        shape = x if shape_of is None else shape_of(w, x)
        kind = dtype or (w.tensor(x).dtype if isinstance(x, _Slot) else torch.float64)
        return f"np.full({w.text(shape)}, {value or w.text(number)}, {w.text(kind)})"

    return write


def _new(value: str) -> _Write:
    """Return what writes a new array of a shape and one value, of the type of another tensor."""

    def write(w: _Writer, x: Any, shape: Any, number: Any = None, **more: Any) -> str:
        """Write the array, of this shape and x's type."""
        return _filled(value)(w, shape, number, more.get("dtype") or w.tensor(x).dtype)

    return write


def _converted(w: _Writer, x: Any, dtype: Any = None, **more: Any) -> str:
    """Write a copy of x, of another type where one is given."""
    return f"np.array({w.text(x)}, {w.text(dtype or w.tensor(x).dtype)})"


def _unbound(w: _Writer, x: Any, dim: int = 0) -> list[str]:
    """Write the parts of x at each place along an axis."""
    return [w.at(x, dim, str(i)) for i in range(w.tensor(x).shape[dim])]


def _split(w: _Writer, x: Any, size: Any, dim: int = 0) -> list[str]:
    """Write the parts of x of one length, or of the lengths in a list, along an axis."""
    whole, found, start = w.tensor(x).shape[dim], [], 0
    if isinstance(size, int):
        size = [size] * -(-whole // size)
    for length in size:
        found.append(w.at(x, dim, f"{start}:{start + length}"))
        start += length
    return found


def _indexed(w: _Writer, x: Any, places: Any) -> str:
    """Write x indexed by constant tensors of integers along their axes."""
    known = all(p is None or (p < 0 and w.tensor(p).dtype == torch.int64) for p in places)
    if not known:
        raise _Unlike
    return f"{w.text(x)}[{', '.join(':' if p is None else w.text(p) for p in places)}]"


def _diagonal(w: _Writer, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> str:
    """Write a diagonal of two axes, a view."""
    return f"F.diagonal({w.text(x)}, {offset}, {dim1}, {dim2})"


def _diagonal_made(w: _Writer, x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> str:
    """Write matrices with the last axis of x on their main diagonals."""
    if (offset, dim1, dim2) != (0, -2, -1):
        raise _Unlike
    return f"F.diag_embed({w.text(x)})"


def _addcmul(w: _Writer, x: Any, a: Any, b: Any, value: Any = 1) -> str:
    """Write x + value · a · b."""
    product = f"{w.text(a)} * {w.text(b)}"
    return f"{w.text(x)} + " + (product if value == 1 else f"{w.text(value)} * ({product})")


def _power(w: _Writer, x: Any, n: Any) -> str:
    """Write xⁿ, small powers as products."""
    a = w.text(x)
    if isinstance(n, (int, float)) and isinstance(x, _Slot):
        if n in (1, 2, 3, 4):
            return " * ".join([a] * int(n)) if n < 4 else f"({a} * {a}) * ({a} * {a})"
        if n == 0.5:
            return f"np.sqrt({a})"
        if n == -1:
            return f"1 / {a}"
    return f"np.power({a}, {w.text(n)})"


def _stacked(w: _Writer, parts: Any, dim: int = 0) -> str:
    """Write tensors stacked along a new axis."""
    if dim % (w.tensor(parts[0]).ndim + 1) == w.tensor(parts[0]).ndim:
        return f"F.columns({w.text(parts)})"
    return f"np.stack({w.text(parts)}, {dim})"


def _divided(w: _Writer, x: Any, y: Any, rounding_mode: Any = None) -> str:
    """Write x / y, not rounded."""
    if rounding_mode is not None:
        raise _Unlike
    return f"np.true_divide({w.text(x)}, {w.text(y)})"


#: Operations whose results are views; those that return their argument; those that fill with ones.
_VIEWS = {"expand", "view", "unsqueeze", "squeeze", "select", "slice", "transpose", "permute", "t",
          "detach", "alias", "lift_fresh", "diagonal", "unbind", "split",
          "split_with_sizes"}  # fmt: skip
_SAME, _ONES = {"detach", "alias", "lift_fresh"}, {"ones", "ones_like", "new_ones"}
#: Operations of ATen that are one function of numpy, of the same arguments; under another name.
_NAMED = {
    **{name: name for name in (
        "abs", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan",
        "tanh", "sinh", "cosh", "hypot", "maximum", "minimum", "fmax", "fmin", "isnan", "isinf",
        "logical_and", "logical_or", "logical_not", "dot",
    )},
    "atan": "arctan", "asin": "arcsin", "acos": "arccos", "atan2": "arctan2", "eq": "equal",
    "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "clamp_min": "maximum", "clamp_max": "minimum", "bmm": "matmul", "mm": "matmul", "mv": "matmul",
    "cat": "concatenate", "permute": "transpose", "transpose": "swapaxes", "view": "reshape",
    "_unsafe_view": "reshape",
}  # fmt: skip
#: For each operation of ATen what writes its line.
_WRITERS: dict[str, _Write] = {
    **{name: _calls(f"np.{function}({{args}})") for name, function in _NAMED.items()},
    **{name: _calls(form) for name, form in {
        "neg": "-{}", "rsqrt": "1 / np.sqrt({})", "reciprocal": "1 / {}", "mul": "{} * {}",
        "sigmoid": "F.sigmoid({})", "softplus": "F.softplus({args})",
        "log_sigmoid_forward": "(F.log_sigmoid({0}), {0})", "relu": "np.maximum({}, 0.0)",
        "softplus_backward": "F.softplus_backward({}, {}, {}, {})", "sign": "F.sign({})",
        "sgn": "F.sign({})", "tanh_backward": "{0} * (1 - {1} * {1})",
        "sigmoid_backward": "{0} * (1 - {1}) * {1}", "where": "np.where({}, {}, {})",
        "threshold_backward": "np.where({1} <= {2}, 0.0, {0})",
        "bitwise_and": "{} & {}", "bitwise_or": "{} | {}", "bitwise_xor": "{} ^ {}",
        "bitwise_not": "~{}", "masked_fill": "np.where({1}, {2}, {0})",
        "addmm": "{} + np.matmul({}, {})", "linalg_inv_ex": "(F.inverse({}), None)",
        "alias": "{}", "lift_fresh": "{}",
        "diagonal_backward": "F.put_diagonal({}, {}, {}, {}, {})",
        "copy_": "np.copyto({}, {})", "add_": "np.add({0}, {1}, out={0})",
        "mul_": "np.multiply({0}, {1}, out={0})",
        "masked_fill_": "np.copyto({0}, {2}, where={1})",
    }.items()},
    "add": lambda w, x, y, alpha=1: _sum(w, x, y, "+", alpha),
    "sub": lambda w, x, y, alpha=1: _sum(w, x, y, "-", alpha),
    "rsub": lambda w, x, y, alpha=1: _sum(w, y, x, "-", alpha),
    "pow": _power, "stack": _stacked, "div": _divided, "addcmul": _addcmul,
    "clamp": _clamp, "mean": _mean,
    "sum": _reduces("sum", "add"), "amax": _reduces("max", "maximum"),
    "amin": _reduces("min", "minimum"), "any": _reduces("any", "logical_or"),
    "all": _reduces("all", "logical_and"),
    "select": lambda w, x, dim, place: w.at(x, dim, w.text(place)),
    "slice": _slice, "slice_backward": _slice_back,
    "select_backward": lambda w, x, shape, dim, place:
        f"F.put({w.text(shape)}, {_at_slice(shape, dim, w.text(place))}, {w.text(x)})",
    "unbind": _unbound, "split": _split, "split_with_sizes": _split, "index": _indexed,
    "unsqueeze": _unsqueezed, "squeeze": _squeezed, "expand": _expanded,
    "t": lambda w, x: f"{w.text(x)}.T", "diagonal": _diagonal, "diag_embed": _diagonal_made,
    "detach": lambda w, x: w.text(x), "clone": lambda w, x, **more: f"np.array({w.text(x)})",
    "lift_fresh_copy": lambda w, x: f"np.array({w.text(x)})", "_to_copy": _converted,
    "zeros": _filled("0"), "_efficientzerotensor": _filled("0"), "ones": _filled("1"),
    "empty": _filled("0"), "full": _filled(""),
    "zeros_like": _filled("0", _Writer.shape), "ones_like": _filled("1", _Writer.shape),
    "empty_like": _filled("0", _Writer.shape), "full_like": _filled("", _Writer.shape),
    "new_zeros": _new("0"), "new_ones": _new("1"), "new_empty": _new("0"), "new_full": _new(""),
    "scalar_tensor": lambda w, x, dtype=torch.float64, **more:
        f"np.asarray({w.text(x)}, {w.text(dtype)})",
}  # fmt: skip
