"""A scan as a whole: models, chains, starts and tolerances, cut into chunks that stand alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.catalogue import ModelChoice, model_attributes
from flowsim.records.provenance import source_versions
from flowsim.scan.follow import check_integrator, follow, point_dtype, starting_coordinates
from flowsim.scan.starts import Starts, values_text
from flowsim.scan.trained_points import check_training, training_dtype
from flowsim.training.optimizer_choice import OptimizerChoice


class Task(NamedTuple):
    """One chunk: plain data, so that any process on any machine can follow it.

    Attributes:
        model: the reduced model by name.
        pieces: (p, q, number of rows) of consecutive rows; None where the model has no p or no q.
        names: the coordinates of the columns.
        rows: starts, float64, shape (n, k).
        fraction, rtol, atol, integrator, optimizer: as in ``scan_basins``.
        versions: of flowsim and what computes, which must be the same everywhere.
    """

    model: ModelChoice
    pieces: tuple[tuple[float | None, float | None, int], ...]
    names: tuple[str, ...]
    rows: np.ndarray
    fraction: float | None
    rtol: float | None
    atol: float
    integrator: str
    versions: str
    optimizer: OptimizerChoice | None = None


def run_task(task: Task) -> np.ndarray:
    """What a scan records of the task's rows, a structured array of shape (n,).

    A pure function, on one thread: the same bytes in every process on the same kind of processor.

    Raises:
        InputError: this process runs other versions than the one that made the task.
    """
    if (here := source_versions()) != task.versions:
        raise InputError(f"a worker runs {here}, but the scan was started with {task.versions}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        parts, low = [], 0
        for p, q, count in task.pieces:
            rows = task.rows[low : low + count]
            model = task.model.on(task.model.chain(p, q))
            numbers = task.rtol, task.atol, task.fraction
            by = task.integrator, task.optimizer
            parts.append(follow(model, task.names, rows, *numbers, None, *by))
            low += count
    finally:
        torch.set_num_threads(threads)
    # joining structured arrays is slow, and most chunks lie on one chain
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class Scan:
    """Every start of ``starts`` on every chain (p, q).

    Args:
        model: which reduced model.
        p, q: P(0→1) and P(1→0), each one number or several; several become a dimension. Of the
            states model p is the probability to leave a state, and q is None; of the induction
            model both are.
        starts: a ``Grid``, ``Points`` or ``Cloud``.
        fraction, rtol, atol, integrator, optimizer: as in ``scan_basins``.
        chunk: rows computed, stored and possibly lost at once; by default 65 536 where the loss is
            a function of the logit gap, 1024 with an optimizer, else 2048, or 256 with more than
            four coordinates, for which an orbit takes a third of a second. The last bits of a
            result of the flow depend on it.
        confirm: points, drawn at random by a fixed seed, that torchdiffeq decides again; none with
            an optimizer.

    Raises:
        InputError: p or q outside (0, 1) or not increasing, starts with other coordinates than the
            model, a fraction outside (0, 1), an unknown integrator, an optimizer with options of
            the flow, or for another model than the rank-one.
    """

    model: ModelChoice
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
    dtype: np.dtype = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in "pq":
            value = getattr(self, name)
            if np.ndim(value) and (not len(value) or (np.diff(value) <= 0).any()):
                raise InputError(f"several values of {name} must increase")
        chains = [self.model.chain(p, q) for p in _several(self.p) for q in _several(self.q)]
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise InputError(f"fraction must lie strictly between 0 and 1, not {self.fraction}")
        check_integrator(self.integrator)
        if self.confirm < 0:
            raise InputError(f"confirm must not be negative, not {self.confirm}")
        if self.confirm and self.optimizer is not None:
            raise InputError("confirm goes with the flow: torchdiffeq follows no optimizer")
        model = self.model.on(chains[0])
        starting_coordinates(model, self.starts.names)
        check_training(model, self.optimizer, self.fraction, self.rtol, self.integrator)
        trained = training_dtype(model) if self.optimizer is not None else None
        object.__setattr__(self, "dtype", trained or point_dtype(model, self.fraction))
        if self.chunk < 1:
            size = 1024 if trained else 2048 if len(model.coordinates) <= 4 else 256
            object.__setattr__(self, "chunk", 65_536 if model.loss_of_gap else size)

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions of the record, those of the chains first."""
        return (*(n for n in "pq" if np.ndim(getattr(self, n))), *self.starts.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of ``dims``."""
        chains = (len(v) for v in (self.p, self.q) if isinstance(v, tuple))
        return (*chains, *self.starts.shape)

    @property
    def families(self) -> int:
        """How many leading dimensions, of p, q and sigma, have basin shares of their own."""
        return sum(name in ("p", "q", "sigma") for name in self.dims)

    @property
    def size(self) -> int:
        """Points in all."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def chunks(self) -> int:
        """How many tasks there are."""
        return -(-self.size // self.chunk)

    def bounds(self, index: int) -> tuple[int, int]:
        """First point of a chunk, and the one after its last, in C order."""
        return index * self.chunk, min((index + 1) * self.chunk, self.size)

    def task(self, index: int) -> Task:
        """The work of one chunk."""
        low, high = self.bounds(index)
        pieces, rows = [], []
        for chain, first, last in self._stretches(low, high):
            pieces.append((*self._chances(chain), last - first))
            rows.append(self.starts.block(first, last, chain))
        return Task(
            self.model, tuple(pieces), self.starts.names, np.concatenate(rows), self.fraction,
            self.rtol, self.atol, self.integrator, source_versions(), self.optimizer,
        )  # fmt: skip

    def starts_of(self, low: int, high: int) -> np.ndarray:
        """The starts of points ``low`` to ``high`` − 1, drawn ones those of their own chain."""
        stretches = self._stretches(low, high)
        return np.concatenate([self.starts.block(a, b, chain) for chain, a, b in stretches])

    def model_at(self, point: int) -> ReducedModel:
        """The model of a point, on its chain."""
        ((chain, _, _),) = self._stretches(point, point + 1)
        return self.model.on(self.model.chain(*self._chances(chain)))

    def _chances(self, chain: int) -> tuple[float | None, float | None]:
        """(p, q) of a chain, q running fastest."""
        p, q = _several(self.p), _several(self.q)
        i, j = divmod(chain, len(q))
        return p[i], q[j]

    def _stretches(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """(chain, first, last) of the starts that the points ``low`` to ``high`` − 1 cover."""
        each = int(np.prod(self.starts.shape, dtype=object))
        while low < high:
            chain, first = divmod(low, each)
            last = min(each, first + high - low)
            yield chain, first, last
            low += last - first

    def settings(self) -> dict[str, str]:
        """Texts that together determine every byte of the record, for comparison and for show."""
        given = {name: getattr(self, name) for name in "pq" if getattr(self, name) is not None}
        chains = {name: values_text(np.array(_several(v))) for name, v in given.items()}
        numbers = self.fraction, self.rtol, self.atol
        settings = scan_settings(self.model, self.starts, *numbers, self.integrator, self.optimizer)
        chains |= {"confirm": str(self.confirm)} if self.confirm else {}
        own = {"chunk": str(self.chunk), "versions": source_versions()}
        return {**settings, **chains, **own}

    def attributes(self) -> dict[str, Any]:
        """What a record says of its scan."""
        model = self.model_at(0)
        several = [name for name in "pq" if isinstance(getattr(self, name), tuple)]
        known = model_attributes(model)
        return {
            "kind": "scan",
            **{k: v for k, v in known.items() if not several or k not in (*several, "regime")},
            **how_attributes(self.rtol, self.atol, self.integrator, self.optimizer),
            **self.starts.attributes(),
            "chunk": self.chunk,
        }


def scan_settings(
    model: ModelChoice,
    starts: Starts,
    fraction: float | None,
    rtol: float | None,
    atol: float,
    integrator: str,
    optimizer: OptimizerChoice | None = None,
) -> dict[str, str]:
    """Texts that identify a scan's model and starts, and how these are followed."""
    if optimizer is not None:
        return {**model.settings(), **starts.settings(), **optimizer.settings()}
    return {
        **model.settings(),
        **starts.settings(),
        "fraction": "none" if fraction is None else repr(fraction),
        "rtol": "default" if rtol is None else repr(rtol),
        "atol": repr(atol),
        **({} if integrator == "flowsim" else {"integrator": integrator}),
    }


def how_attributes(
    rtol: float | None, atol: float, integrator: str, optimizer: OptimizerChoice | None
) -> dict[str, Any]:
    """What a record says of how its starts were followed: by the flow, or by an optimizer."""
    if optimizer is not None:
        return optimizer.attributes()
    other = {} if integrator == "flowsim" else {"integrator": integrator}
    return {"rtol": "default" if rtol is None else rtol, "atol": atol, **other}


def _several(values: float | tuple[float, ...] | None) -> tuple[float | None, ...]:
    if values is None:
        return (None,)
    return tuple(map(float, values)) if isinstance(values, tuple) else (float(values),)
