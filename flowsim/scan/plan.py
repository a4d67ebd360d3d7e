"""A scan as a whole: models, starts and tolerances, cut into chunks that stand alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flowsim.errors import InputError
from flowsim.flow.options import SolverOptions
from flowsim.flow.solver import solver_of
from flowsim.interface import RESERVED, Model, SolverDefaults
from flowsim.own import source_digest
from flowsim.records.attributes import source_versions
from flowsim.records.model_attributes import model_attributes
from flowsim.running import threads
from flowsim.scan.follow import (
    follow,
    point_dtype,
    resolve_optimizer,
    starting_coordinates,
    to_model,
    training_dtype,
)
from flowsim.scan.starts import Starts, as_starts, values_text
from flowsim.spec import ModelSpec, attributes_of, is_own, kept_arguments
from flowsim.training.optimizer_choice import OptimizerChoice


class Task(NamedTuple):
    """One chunk: plain data, so that any process on any machine can follow it.

    ``pieces`` are models, each with its number of consecutive rows; ``versions`` must be the same
    everywhere.
    """

    pieces: tuple[tuple[ModelSpec | Model, int], ...]
    names: tuple[str, ...]
    rows: np.ndarray
    fraction: float | None
    options: SolverOptions
    versions: str


def run_task(task: Task) -> np.ndarray:
    """Follow the starts of a task on one thread: a structured array, alike in every process.

    Raises:
        InputError: this process runs other versions than the one that made the task.
    """
    if (here := source_versions()) != task.versions:
        raise InputError(f"a worker runs {here}, but the scan was started with {task.versions}")
    with threads(1):
        parts, low = [], 0
        for spec, count in task.pieces:
            rows = task.rows[low : low + count]
            model = _built(spec)
            theta = to_model(model, task.names, rows)
            parts.append(follow(model, theta, task.options, task.fraction))
            low += count
    # joining structured arrays is slow, and most chunks lie on one chain
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass
class Scan:
    """Every start of ``starts`` in one model, or in several that differ in numeric arguments.

    Args:
        model: a ``ModelSpec``; or a model itself, such as an object of your own class.
        starts: a ``Grid``, ``Points`` or ``Cloud``.
        over: increasing values of numeric arguments of a ``ModelSpec``, such as p, q, length or
            one of your own class, by name; each becomes a dimension, in the order in which the
            model takes them.
        fraction, rtol, atol, integrator, optimizer, device, max_steps: as in ``scan_basins``.
        chunk: rows computed, stored and possibly lost at once; by default 65 536 where orbits
            are fast, 1024 with an optimizer, else 2048, or 256 with more than
            four coordinates, for which an orbit takes a third of a second. The last bits of a
            result of the flow depend on it.
        confirm: points, drawn at random by a fixed seed, that torchdiffeq decides again; none with
            an optimizer.

    Attributes:
        how: the options of how starts are followed, as one value.
        several: the values of the varied arguments.
        dims, shape: dimensions of the record, those of varied arguments first, and their lengths.
        families: how many leading dimensions, of varied arguments and sigma, have basin shares of
            their own.
        size, chunks: points in all, and tasks.
        cost: seconds of one point, about.

    Raises:
        InputError: values of an argument that the model does not have or refuses, or that do not
            increase; starts with
            other coordinates than the model, a fraction outside (0, 1), an unknown integrator, an
            optimizer with options of the flow, or with batches of a model that has none.

    >>> import flowsim, numpy as np
    >>> spec = flowsim.ModelSpec("canonical", {"p": 0.5, "q": 0.8})
    >>> axis = np.linspace(-2, 2, 8)
    >>> grid = flowsim.Grid({"e": axis, "w": axis})
    >>> scan = flowsim.scan.Scan(spec, grid, over={"p": (0.2, 0.5)})
    >>> scan.dims, scan.shape
    (('p', 'e', 'w'), (2, 8, 8))
    """

    model: ModelSpec | Model
    starts: Starts
    over: Mapping[str, Sequence[float]] = field(default_factory=dict)
    fraction: float | None = None
    rtol: float | None = None
    atol: float = 1e-12
    chunk: int = 0
    integrator: str = "flowsim"
    confirm: int = 0
    optimizer: OptimizerChoice | None = None
    device: str = "cpu"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments, and set the attributes."""
        if not isinstance(self.model, (ModelSpec, Model)):
            usual = 'ModelSpec("canonical", {"p": 0.5, "q": 0.8})'
            raise InputError(f"Scan takes a model or a {usual}, not {self.model!r}")
        self.several: dict[str, tuple[Any, ...]] = {}
        if isinstance(self.model, ModelSpec):
            found = {name: self.model.values(name, x) for name, x in self.over.items()}
            self.several = {name: found[name] for name in self.model.parameters if name in found}
        elif self.over:
            names = ", ".join(self.over)
            raise InputError(f"{self.model!r} is one model: give a ModelSpec to vary {names}")
        model = self.model_for(0)
        self.starts = as_starts(model, self.starts)
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise InputError(f"fraction must lie strictly between 0 and 1, not {self.fraction}")
        starting_coordinates(model, self.starts.names)
        options = SolverOptions(
            self.rtol, self.atol, self.max_steps, self.integrator, self.optimizer, self.confirm,
            device=self.device,
        )  # fmt: skip
        self.options = resolve_optimizer(model, options, self.fraction)
        several = self.several
        for name in {*several} & {*RESERVED, *self.starts.dims, *self.starts.names, "sigma"}:
            raise InputError(
                f"a record of this scan has a variable {name!r} already: call the argument of "
                f"{model.name} another name"
            )
        for case in range(1, self.cases):
            self.model_for(case)
        self.dims = (*several, *self.starts.dims)
        self.shape = (*map(len, several.values()), *self.starts.shape)
        self.families = sum(name in (*several, "sigma") for name in self.dims)
        self.size = int(np.prod(self.shape, dtype=object))
        if self.optimizer is not None:
            self.dtype, defaults, usual = training_dtype(model), SolverDefaults(), 1024
        else:
            self.dtype, defaults = point_dtype(model, self.fraction), solver_of(model).defaults
            usual = 2048 if len(model.coordinates) <= 4 else 256
        self.chunk = self.chunk if self.chunk >= 1 else defaults.chunk or usual
        self.chunks, self.cost = -(-self.size // self.chunk), defaults.cost

    def bounds(self, index: int) -> tuple[int, int]:
        """First point of a chunk, and the one after its last, in C order."""
        return index * self.chunk, min((index + 1) * self.chunk, self.size)

    def task(self, index: int) -> Task:
        """The task of a chunk by its number, with everything that a process needs to follow it."""
        low, high = self.bounds(index)
        pieces, rows = [], []
        for case, first, last in self._stretches(low, high):
            pieces.append((self._case(case), last - first))
            rows.append(self.starts.block(first, last, case))
        return Task(
            tuple(pieces), self.starts.names, np.concatenate(rows), self.fraction,
            self.options, source_versions(),
        )  # fmt: skip

    def starts_of(self, low: int, high: int) -> np.ndarray:
        """The starts (n, k) of points ``low`` to ``high`` − 1; every model has its own cloud."""
        stretches = self._stretches(low, high)
        return np.concatenate([self.starts.block(a, b, case) for case, a, b in stretches])

    def case_of(self, point: int) -> int:
        """The number of the model in which a point lies."""
        return point // int(np.prod(self.starts.shape, dtype=object))

    @property
    def cases(self) -> int:
        """The number of models: of combinations of the varied arguments."""
        return prod(map(len, self.several.values()))

    def model_for(self, case: int) -> Model:
        """Build a model by its number, the last argument running fastest."""
        return _built(self._case(case))

    def model_at(self, point: int) -> Model:
        """Build the model in which a point lies."""
        return self.model_for(self.case_of(point))

    def _case(self, case: int) -> ModelSpec | Model:
        """The model, or its specification, with the varied arguments of that number."""
        if not isinstance(self.model, ModelSpec) or not self.several:
            return self.model
        at = np.unravel_index(case, tuple(map(len, self.several.values())))
        chosen = zip(self.several.items(), at, strict=True)
        return self.model.replace(**{name: values[i] for (name, values), i in chosen})

    def _stretches(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the model, first start, one after the last) of each model's points.

        They cover the points ``low`` to ``high`` − 1.
        """
        each = int(np.prod(self.starts.shape, dtype=object))
        while low < high:
            case, first = divmod(low, each)
            last = min(each, first + high - low)
            yield case, first, last
            low += last - first

    def settings(self) -> dict[str, str]:
        """Texts that together determine every value of the record, for comparison and for show."""
        over = {name: values_text(np.array(x, float)) for name, x in self.several.items()}
        own = {"confirm": str(self.confirm)} if self.confirm else {}
        own |= {"chunk": str(self.chunk), "versions": source_versions()}
        if isinstance(self.model, Model):
            known = {**attributes_of(self.model)}
            if is_own(self.model):
                known |= kept_arguments(self.model)
                known["source_digest"] = source_digest(type(self.model))
            of_model = {name: str(value) for name, value in known.items()}
        else:
            of_model = self.model.settings()
        settings = {**of_model, **self.starts.settings(), **over}
        if self.options.optimizer is not None:
            return {**settings, **self.options.optimizer.settings(), **own}
        return {
            **settings,
            "fraction": "none" if self.fraction is None else repr(self.fraction),
            "rtol": "default" if self.rtol is None else repr(self.rtol),
            "atol": repr(self.atol),
            **({} if self.max_steps is None else {"max_steps": str(self.max_steps)}),
            **({} if self.integrator == "flowsim" else {"integrator": self.integrator}),
            **({} if self.options.device == "cpu" else {"device": self.options.device}),
            **own,
        }

    def attributes(self) -> dict[str, Any]:
        """The attributes of the scan's record."""
        return {
            "kind": "scan",
            **model_attributes(self.model_at(0), [*self.several], self.model_for(self.cases - 1)),
            **self.options.attributes(),
            **self.starts.attributes(),
            "chunk": self.chunk,
        }


def _built(model: ModelSpec | Model) -> Model:
    """Return a model unchanged, or build it from its specification."""
    return model if isinstance(model, Model) else model.build()
