"""A scan as a whole: models, chains, starts and tolerances, cut into chunks that stand alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from flowsim.errors import InputError
from flowsim.flow.how import How
from flowsim.interface import Model
from flowsim.models.catalogue import ModelChoice, model_attributes
from flowsim.records.attributes import source_versions
from flowsim.running import threads
from flowsim.scan.follow import (
    follow,
    point_dtype,
    starting_coordinates,
    to_model,
    training_dtype,
    trains,
)
from flowsim.scan.starts import Starts, values_text
from flowsim.training.optimizer_choice import OptimizerChoice

#: p, q and N of a model, each None where the model as it was chosen says all.
Case = tuple[float | None, float | None, int | None]

#: What several chains or models of a scan differ in, in the order of its dimensions.
VARIED = ("p", "q", "length")


class Task(NamedTuple):
    """One chunk: plain data, so that any process on any machine can follow it.

    Attributes:
        model: the reduced model without its chain, or a model as it is.
        pieces: (p, q, N) and the number of consecutive rows; None for what the model has not, or
            has of its own.
        names: the coordinates of the columns.
        rows: starts, float64, shape (n, k).
        fraction, how: as in ``scan_basins``.
        versions: of flowsim and what computes, which must be the same everywhere.
    """

    model: ModelChoice | Model
    pieces: tuple[tuple[Case, int], ...]
    names: tuple[str, ...]
    rows: np.ndarray
    fraction: float | None
    how: How
    versions: str


def run_task(task: Task) -> np.ndarray:
    """What a scan records of the task's rows, a structured array of shape (n,).

    A pure function, on one thread: the same bytes in every process on the same kind of processor.

    Raises:
        InputError: this process runs other versions than the one that made the task.
    """
    if (here := source_versions()) != task.versions:
        raise InputError(f"a worker runs {here}, but the scan was started with {task.versions}")
    with threads(1):
        parts, low = [], 0
        for case, count in task.pieces:
            rows = task.rows[low : low + count]
            model = _on(task.model, case)
            theta = to_model(model, task.names, rows)
            parts.append(follow(model, theta, task.how, task.fraction))
            low += count
    # joining structured arrays is slow, and most chunks lie on one chain
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class Scan:
    """Every start of ``starts`` on every chain (p, q), with every N.

    Args:
        model: which reduced model; or a model as it is, such as an object of your own class.
        p, q: P(0→1) and P(1→0), each one number or several; several become a dimension. Of the
            states model p is the probability to leave a state, and q is None; of the induction
            model, and of a model as it is, both are.
        length: N, one number or several, which become a dimension; by default that of ``model``.
        starts: a ``Grid``, ``Points`` or ``Cloud``.
        fraction, rtol, atol, integrator, optimizer, device, max_steps: as in ``scan_basins``.
        chunk: rows computed, stored and possibly lost at once; by default 65 536 where orbits
            are fast, 1024 with an optimizer, else 2048, or 256 with more than
            four coordinates, for which an orbit takes a third of a second. The last bits of a
            result of the flow depend on it.
        confirm: points, drawn at random by a fixed seed, that torchdiffeq decides again; none with
            an optimizer.

    Attributes:
        how: the options of how starts are followed, as one value.
        dims, shape: dimensions of the record, those of the chains first, and their lengths.
        families: how many leading dimensions, of p, q, length and sigma, have basin shares of
            their own.
        size, chunks: points in all, and tasks.
        fast: whether a point costs microseconds.

    Raises:
        InputError: p or q outside (0, 1); p, q or lengths that do not increase, or beside a model
            as it is; lengths of a model that has none; starts with
            other coordinates than the model, a fraction outside (0, 1), an unknown integrator, an
            optimizer with options of the flow, or with batches of a model that has none.

    >>> import flowsim, numpy as np
    >>> choice, axis = flowsim.ModelChoice("canonical"), np.linspace(-2, 2, 8)
    >>> scan = flowsim.Scan(choice, (0.2, 0.5), 0.8, flowsim.Grid({"e": axis, "w": axis}))
    >>> scan.dims, scan.shape
    (('p', 'e', 'w'), (2, 8, 8))
    """

    model: ModelChoice | Model
    p: float | tuple[float, ...] | None
    q: float | tuple[float, ...] | None
    starts: Starts
    fraction: float | None = None
    rtol: float | None = None
    atol: float = 1e-12
    chunk: int = 0
    integrator: str = "flowsim"
    confirm: int = 0
    optimizer: OptimizerChoice | None = None
    device: str = "cpu"
    length: int | tuple[int, ...] | None = None
    max_steps: int | None = None
    how: How = field(init=False, repr=False)
    dtype: np.dtype = field(init=False, repr=False)
    dims: tuple[str, ...] = field(init=False, repr=False)
    shape: tuple[int, ...] = field(init=False, repr=False)
    families: int = field(init=False, repr=False)
    size: int = field(init=False, repr=False)
    chunks: int = field(init=False, repr=False)
    fast: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in VARIED:
            value = getattr(self, name)
            if np.ndim(value) and (not len(value) or (np.diff(value) <= 0).any()):
                raise InputError(f"several values of {name} must increase")
        if isinstance(self.model, Model):
            if (self.p, self.q, self.length) != (None, None, None):
                raise InputError(f"{self.model!r} takes no p, q or length: it is as it is")
        elif not isinstance(self.model, ModelChoice):
            usual = 'ModelChoice("canonical")'
            raise InputError(f"Scan takes a choice of a model, such as {usual}, not {self.model!r}")
        else:
            for case in product(*self._cases()):
                _on(self.model, case)
        model = _on(self.model, next(product(*self._cases())))
        if not hasattr(self.starts, "block"):
            names = ", ".join(map(repr, model.plane.starts[0]))
            raise InputError(
                f"starts must be a Grid, a Cloud or Points, or a dict of axes, not "
                f"{type(self.starts).__name__}: Points([{names}], rows) takes rows of an array"
            )
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise InputError(f"fraction must lie strictly between 0 and 1, not {self.fraction}")
        starting_coordinates(model, self.starts.names)
        how = How(
            self.rtol, self.atol, self.max_steps, self.integrator, self.optimizer, self.confirm,
            device=self.device,
        )  # fmt: skip
        how = trains(model, how, self.fraction)
        trained = training_dtype(model) if self.optimizer is not None else None
        several = self.several()
        shape = (*map(len, several.values()), *self.starts.shape)
        size = int(np.prod(shape, dtype=object))
        usual = 1024 if trained else 2048 if len(model.coordinates) <= 4 else 256
        fast = model.fast and trained is None
        chunk = self.chunk if self.chunk >= 1 else 65_536 if fast else usual
        dims = (*several, *self.starts.dims)
        found = {
            "how": how,
            "dtype": trained or point_dtype(model, self.fraction),
            "dims": dims,
            "shape": shape,
            "families": sum(name in (*VARIED, "sigma") for name in dims),
            "size": size,
            "chunk": chunk,
            "chunks": -(-size // chunk),
            "fast": fast,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def bounds(self, index: int) -> tuple[int, int]:
        """First point of a chunk, and the one after its last, in C order."""
        return index * self.chunk, min((index + 1) * self.chunk, self.size)

    def task(self, index: int) -> Task:
        """The work of one chunk."""
        low, high = self.bounds(index)
        pieces, rows = [], []
        for chain, first, last in self._stretches(low, high):
            pieces.append((self._case(chain), last - first))
            rows.append(self.starts.block(first, last, chain))
        return Task(
            self.model, tuple(pieces), self.starts.names, np.concatenate(rows), self.fraction,
            self.how, source_versions(),
        )  # fmt: skip

    def starts_of(self, low: int, high: int) -> np.ndarray:
        """The starts of points ``low`` to ``high`` − 1, drawn ones those of their own chain."""
        stretches = self._stretches(low, high)
        return np.concatenate([self.starts.block(a, b, chain) for chain, a, b in stretches])

    def chain_of(self, point: int) -> int:
        """The number of a point's chain."""
        return point // int(np.prod(self.starts.shape, dtype=object))

    def model_at(self, point: int) -> Model:
        """The model of a point, on its chain."""
        return _on(self.model, self._case(self.chain_of(point)))

    def several(self) -> dict[str, tuple[float, ...]]:
        """The values of those of p, q and length that are dimensions."""
        return {n: v for n in VARIED if isinstance(v := getattr(self, n), tuple)}

    def _cases(self) -> tuple[Sequence[float | None], Sequence[float | None], Sequence[int | None]]:
        """All values of p, of q and of N."""
        lengths = self.length if isinstance(self.length, tuple) else (self.length,)
        return _several(self.p), _several(self.q), lengths

    def _case(self, chain: int) -> Case:
        """(p, q, N) of a chain by its number, N running fastest and q next."""
        p, q, lengths = self._cases()
        rest, k = divmod(chain, len(lengths))
        i, j = divmod(rest, len(q))
        return p[i], q[j], lengths[k]

    def _stretches(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """(chain, first, last) of the starts that the points ``low`` to ``high`` − 1 cover."""
        each = int(np.prod(self.starts.shape, dtype=object))
        while low < high:
            chain, first = divmod(low, each)
            last = min(each, first + high - low)
            yield chain, first, last
            low += last - first

    def settings(self) -> dict[str, str]:
        """Texts that together determine every value of the record, for comparison and for show."""
        given = {name: getattr(self, name) for name in VARIED if getattr(self, name) is not None}
        chains = {name: values_text(np.array(_several(v))) for name, v in given.items()}
        own = {"confirm": str(self.confirm)} if self.confirm else {}
        own |= {"chunk": str(self.chunk), "versions": source_versions()}
        settings = {**_model_settings(self.model), **self.starts.settings()}
        if self.how.optimizer is not None:
            return {**settings, **self.how.optimizer.settings(), **chains, **own}
        return {
            **settings,
            "fraction": "none" if self.fraction is None else repr(self.fraction),
            "rtol": "default" if self.rtol is None else repr(self.rtol),
            "atol": repr(self.atol),
            **({} if self.max_steps is None else {"max_steps": str(self.max_steps)}),
            **({} if self.integrator == "flowsim" else {"integrator": self.integrator}),
            **({} if self.how.device == "cpu" else {"device": self.how.device}),
            **chains,
            **own,
        }

    def attributes(self) -> dict[str, Any]:
        """What a record says of its scan."""
        return {
            "kind": "scan",
            **model_attributes(self.model_at(0), list(self.several())),
            **self.how.attributes(),
            **self.starts.attributes(),
            "chunk": self.chunk,
        }


def _on(model: ModelChoice | Model, case: Case) -> Model:
    """The model with that N on the chain of p and q; a model that is on its chain as it is."""
    if isinstance(model, Model):
        return model
    p, q, length = case
    choice = model if length is None else model.replace(length=length)
    return choice.on(choice.chain(p, q))


def _model_settings(model: ModelChoice | Model) -> dict[str, str]:
    """Texts that identify the model; one that is none of flowsim's by the digest of its source."""
    if not isinstance(model, Model):
        return model.settings()
    told = {name: str(value) for name, value in model.attributes().items()}
    return told | ModelChoice.of(model).settings()


def _several(values: float | tuple[float, ...] | None) -> tuple[float | None, ...]:
    if values is None:
        return (None,)
    return tuple(map(float, values)) if isinstance(values, tuple) else (float(values),)
