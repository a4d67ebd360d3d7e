"""Sources of initializations: a grid, a Gaussian cloud, or a list, also in a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.records.netcdf import open_sealed
from flowsim.records.tables import read_columns

#: Rows of a cloud that share one random stream.
STREAM = 65_536


class Grid:
    """All combinations of values along some coordinates, the others being fixed.

    Args:
        axes: values of each varied coordinate; their order is the order of the dimensions.
        fixed: value of every other coordinate.

    Raises:
        InputError: an axis that is empty, not one-dimensional or not increasing, a value that is
            not finite, or a coordinate that is both varied and fixed.

    >>> import flowsim
    >>> import numpy as np
    >>> axes = {"w": np.linspace(-1, 1, 4), "e": np.linspace(-1, 1, 3)}
    >>> grid = flowsim.Grid(axes, fixed={"a": 0.2})
    >>> grid.shape, grid.names
    ((4, 3), ('w', 'e', 'a'))
    """

    scattered = False
    is_random = False

    def __init__(self, axes: dict[str, np.ndarray], fixed: dict[str, float] | None = None) -> None:
        if not isinstance(axes, Mapping):
            raise InputError(f'axes are values by name, such as {{"e": [0.5, 1.0]}}, not {axes!r}')
        self.axes = {name: _values(name, values) for name, values in axes.items()}
        self.fixed = _fixed(fixed, self.axes)
        if not axes:
            raise InputError("a grid needs at least one coordinate that varies")
        for name, values in self.axes.items():
            if values.ndim != 1 or not values.size:
                raise InputError(f"a grid needs at least one value of {name} in one dimension")
            if not np.isfinite(values).all():
                raise InputError(f"the grid's values of {name} must all be finite numbers")
            if (np.diff(values) <= 0).any():
                raise InputError(f"the grid's values of {name} must increase")
        self.names = (*self.axes, *self.fixed)
        self.dims = tuple(self.axes)
        self.shape = tuple(len(values) for values in self.axes.values())

    def __repr__(self) -> str:
        axes = [f"{name} {v[0]:g} to {v[-1]:g}" for name, v in self.axes.items()]
        fixed = [f"{name} = {value:g}" for name, value in self.fixed.items()]
        return f"<Grid of {'x'.join(map(str, self.shape))} starts: {', '.join([*axes, *fixed])}>"

    def block(self, low: int, high: int, chain: int = 0) -> np.ndarray:
        """Starts number ``low`` to ``high`` − 1 in C order, float64, shape (high − low, k)."""
        rows = np.empty((high - low, len(self.names)))
        index = np.unravel_index(np.arange(low, high), self.shape)
        for i, (values, at) in enumerate(zip(self.axes.values(), index, strict=True)):
            rows[:, i] = values[at]
        rows[:, len(self.axes) :] = list(self.fixed.values())
        return rows

    def coords(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """The coordinates of a record of these starts: (dimensions, values) by name."""
        axes = {name: ((name,), values) for name, values in self.axes.items()}
        return {**axes, **{name: ((), value) for name, value in self.fixed.items()}}

    def settings(self) -> dict[str, str]:
        """Texts that together identify the starts."""
        return {
            "starts": f"grid {'x'.join(map(str, self.shape))}",
            **{name: values_text(values) for name, values in self.axes.items()},
            **{name: repr(value) for name, value in self.fixed.items()},
        }

    def attributes(self) -> dict[str, object]:
        """The attributes of a record of these starts."""
        return {"starts": "grid"}


class Cloud:
    """Independent normal starts around zero, at one σ, at several, or with a σ per coordinate.

    Sample i is σ zᵢ with the same zᵢ at every σ, so that shares at neighbouring σ differ by little
    noise; z is drawn anew for every chain (p, q) of a scan, so that their errors are independent.
    It comes from the stream (seed, i // 65536, number of the chain): no part of a scan changes
    another's draws, and more samples or more σ keep the present ones unchanged.

    Args:
        names: the coordinates that vary; ignored if ``sigma`` names them.
        count: samples per σ.
        sigma: the standard deviation of every coordinate; or several, which then become the first
            dimension; or one for each named coordinate.
        fixed: value of every other coordinate.
        seed: an integer of at least 0.

    Raises:
        InputError: a σ or a count that is not positive, a bad seed, or a coordinate that is both
            varied and fixed.

    >>> import flowsim
    >>> starts = flowsim.Cloud(("e", "w"), count=100, sigma=0.5)
    >>> record = flowsim.scan(flowsim.model("canonical", 0.5, 0.8), starts)
    >>> int(record["count"].sum())
    100
    """

    scattered = True
    is_random = True

    def __init__(
        self,
        names: Sequence[str],
        count: int,
        sigma: float | Sequence[float] | dict[str, float],
        fixed: dict[str, float] | None = None,
        seed: int = 0,
    ) -> None:
        several = not isinstance(sigma, dict) and np.ndim(sigma) > 0
        if isinstance(sigma, dict):
            names, scales = tuple(sigma), np.array([list(sigma.values())], dtype=float)
        else:
            scales = np.atleast_1d(np.asarray(sigma, dtype=float))[:, None]
        if not scales.size or not ((scales > 0) & np.isfinite(scales)).all():
            raise InputError(f"sigma must be positive and finite, not {sigma}")
        if several and (np.diff(scales[:, 0]) <= 0).any():
            raise InputError("several values of sigma must increase")
        if count < 1:
            raise InputError(f"a cloud needs at least one sample, not {count}")
        if seed < 0:
            raise InputError(f"a seed is an integer of at least 0, not {seed}")
        self._varied, self.count, self.sigma, self.seed = _names(names), int(count), sigma, seed
        self._scales = scales
        self.fixed = _fixed(fixed, self._varied)
        self.names = (*self._varied, *self.fixed)
        self.dims = ("sigma", "sample") if several else ("sample",)
        self.shape = (len(scales), self.count) if several else (self.count,)

    def __repr__(self) -> str:
        fixed = [f"{name} = {value:g}" for name, value in self.fixed.items()]
        about = ", ".join([f"sigma {self.sigma}", f"seed {self.seed}", *fixed])
        return f"<Cloud of {self.count} starts ({', '.join(self._varied)}): {about}>"

    def block(self, low: int, high: int, chain: int = 0) -> np.ndarray:
        """Starts number ``low`` to ``high`` − 1, shape (high − low, k).

        Every number ``chain`` of a scan's chain has draws of its own.
        """
        rows = np.empty((high - low, len(self.names)))
        rows[:, len(self._varied) :] = list(self.fixed.values())
        at = low
        while at < high:
            level, sample = divmod(at, self.count)
            stream, first = divmod(sample, STREAM)
            take = min(high - at, self.count - sample, STREAM - first)
            key = (stream, chain) if chain else (stream,)
            source = np.random.SeedSequence(self.seed, spawn_key=key)
            z = np.random.default_rng(source).standard_normal((first + take, len(self._varied)))
            rows[at - low : at - low + take, : len(self._varied)] = z[first:] * self._scales[level]
            at += take
        return rows

    def coords(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """As of a ``Grid``: several σ, and fixed values."""
        fixed: dict[str, tuple[tuple[str, ...], Any]] = {
            name: ((), value) for name, value in self.fixed.items()
        }
        return {"sigma": (("sigma",), self._scales[:, 0]), **fixed} if len(self.dims) > 1 else fixed

    def settings(self) -> dict[str, str]:
        """Texts that together identify the starts."""
        if isinstance(self.sigma, dict):
            sigma = ", ".join(f"{name} {value!r}" for name, value in self.sigma.items())
        else:
            sigma = values_text(self._scales[:, 0])
        return {
            "starts": f"cloud of {self.count} over {', '.join(self._varied)}",
            "sigma": sigma,
            "seed": str(self.seed),
            **{name: repr(value) for name, value in self.fixed.items()},
        }

    def attributes(self) -> dict[str, object]:
        """The attributes of a record of these starts."""
        draws = "anew for every p and q, the same for every sigma"
        return {"starts": "cloud", "seed": self.seed, "draws": draws}


def values_text(values: np.ndarray) -> str:
    """A short text that identifies an array: the value, or count, ends and digest."""
    if len(values) == 1:
        return repr(float(values[0]))
    digest = hashlib.sha256(np.ascontiguousarray(values, dtype=float).data).hexdigest()[:8]
    return f"{len(values)} values {values[0]:.15g} to {values[-1]:.15g} (sha256 {digest})"


def cell_centres(low: float, high: float, cells: int) -> np.ndarray:
    """Centres of ``cells`` equal cells that fill [low, high], float64, shape (cells,).

    Right to three units in the last place of the larger end; those of [−x, x] are mirror images to
    the last bit. A centre that rounding alone keeps from 0 is 0: the flow never leaves e = 0 or
    w = 0, but it leaves what lies beside them.

    >>> import flowsim
    >>> flowsim.scan.cell_centres(-1, 1, 4)
    array([-0.75, -0.25,  0.25,  0.75])
    """
    if not isinstance(cells, Integral) or cells < 1:
        raise InputError(f"cells must be a whole number of at least 1, not {cells!r}")
    i = np.arange(cells)
    centres = (low * (2 * (cells - i) - 1) + high * (2 * i + 1)) / (2 * cells)
    centres[np.abs(centres) < 4 * np.spacing(max(abs(low), abs(high)))] = 0.0
    return centres


def _values(axis: str, values: Any) -> np.ndarray:
    """A grid's values of an axis as floats; InputError if they are no numbers."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"the grid's values of {axis} must be numbers, not {values!r}") from None


def _names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of coordinates as a tuple; InputError if they are no list or tuple of texts."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InputError(f'names of coordinates are such as ("e", "w"), not {names!r}')
    return tuple(names)


def _fixed(fixed: dict[str, float] | None, varied: Any) -> dict[str, float]:
    """Fixed values as floats; InputError for one that is not finite or is ``varied`` too."""
    kept = {name: float(value) for name, value in (fixed or {}).items()}
    for name, value in kept.items():
        if name in varied:
            raise InputError(f"{name} is both varied and fixed")
        if not math.isfinite(value):
            raise InputError(f"the fixed value of {name} must be finite, not {value}")
    return kept


class Points:
    """A list of starts; ``Points.read`` takes it from a file.

    Args:
        names: the coordinate of every column.
        rows: shape (n, k).
        source: what to call the list in messages.

    Raises:
        InputError: no rows, another number of columns than names, or a value that is not finite.

    >>> import flowsim
    >>> points = flowsim.Points(("e", "w"), [[1.0, -1.2], [1.0, 1.2]])
    >>> flowsim.scan(flowsim.model("canonical", 0.5, 0.8), points).label.values
    array([1, 2], dtype=int8)
    """

    scattered = True
    is_random = False
    dims = ("point",)

    def __init__(self, names: Sequence[str], rows: np.ndarray, source: str = "the list") -> None:
        self.names = _names(names)
        self._rows = np.ascontiguousarray(rows, dtype=float)
        columns = ", ".join(self.names)
        if self._rows.ndim != 2 or self._rows.shape[1] != len(self.names):
            raise InputError(
                f"{source} needs rows of {len(self.names)} columns ({columns}), "
                f"not an array of shape {self._rows.shape}"
            )
        if not len(self._rows):
            raise InputError(f"{source} holds no points")
        bad = ~np.isfinite(self._rows).all(axis=1)
        if bad.any():
            raise InputError(
                f"point {int(bad.argmax()) + 1} of {source} is not finite "
                f"({int(bad.sum())} of {len(bad)} points)"
            )
        self.shape = (len(self._rows),)

    @classmethod
    def read(cls, path: Path | str, coordinates: Sequence[str]) -> Points:
        """Read points from a file.

        Args:
            path: .csv with a header that names the columns, of which others than the coordinates
                are left out; .npy with one row per point and the columns in the order of
                ``coordinates``; .nc that flowsim wrote, with one variable per coordinate.
            coordinates: the coordinates that must be there, each exactly once.

        Raises:
            InputError: no such file, another format, no valid digest, or a missing coordinate.
        """
        path, wanted = Path(path), ", ".join(coordinates)
        readers = {".csv": _read_csv, ".npy": _read_npy, ".nc": _read_netcdf}
        if not path.exists():
            raise InputError(f"no such file: {str(path)!r}")
        if not path.is_file():
            raise InputError(f"{str(path)!r} is not a file of points")
        if path.suffix.lower() not in readers:
            raise InputError(f"points come from .csv, .npy or .nc, not {path.name!r}")
        try:
            names, rows = readers[path.suffix.lower()](path, tuple(coordinates))
        except InputError:
            raise
        except Exception as error:  # numpy raises many kinds for damaged files
            words = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{str(path)!r} cannot be read as points: {words[:200]}") from None
        if sorted(names) != sorted(coordinates):
            there = f"the columns {', '.join(names)}"[:200] if any(names) else "no columns"
            raise InputError(f"{str(path)!r} has {there}; wanted are {wanted}")
        if rows.dtype.kind not in "fiu":
            raise InputError(f"{str(path)!r} holds {rows.dtype}, not numbers")
        return cls(names, rows, repr(str(path)))

    def __repr__(self) -> str:
        return f"<Points: {len(self._rows)} starts ({', '.join(self.names)})>"

    def block(self, low: int, high: int, chain: int = 0) -> np.ndarray:
        """Starts number ``low`` to ``high`` − 1, shape (high − low, k), alike for every chain."""
        return self._rows[low:high]

    def coords(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """As of a ``Grid``; the starts themselves are none."""
        return {}

    def settings(self) -> dict[str, str]:
        """Texts that together identify the starts."""
        digest = hashlib.sha256(self._rows.data).hexdigest()[:16]
        return {"starts": f"{len(self._rows)} points {', '.join(self.names)} (sha256 {digest})"}

    def attributes(self) -> dict[str, object]:
        """The attributes of a record of these starts."""
        return {"starts": "points"}


#: Initializations of a scan. Those that are ``scattered`` are all stored in its record, since
#: ``coords`` do not determine them; those that are ``is_random`` are drawn anew for every chain.
#: ``settings`` are texts that together identify them, ``attributes`` are those of a record.
Starts = Grid | Cloud | Points


def as_starts(
    model: Model, starts: Starts | dict[str, np.ndarray], fixed: dict[str, float] | None = None
) -> Starts:
    """Return starts of a model unchanged; values by axis, and fixed ones, become a ``Grid``."""
    if isinstance(starts, dict):
        return Grid(starts, fixed)
    if not hasattr(starts, "block"):
        names = ", ".join(map(repr, model.coordinates))
        raise InputError(
            f"starts must be a Grid, a Cloud or Points, or a dict of axes, not "
            f"{type(starts).__name__}: Points([{names}], rows) takes rows of an array"
        )
    return starts


def _read_csv(path: Path, wanted: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Read the wanted columns of a table: their names, and rows (n, k).

    If one of them is missing, the names are all that there are, and there are no rows.
    """
    table = read_columns(path, wanted)
    if not {*wanted} <= table.keys():
        return tuple(table), np.empty((0, len(table)))
    return wanted, np.stack([table[name] for name in wanted], axis=-1)


def _read_npy(path: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Read an array of rows: the given names of its columns, and the array."""
    with path.open("rb") as file:
        return names, np.lib.format.read_array(file, allow_pickle=False)


def _read_netcdf(path: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Read variables of a file that flowsim wrote: their names, and rows (n, k)."""
    with open_sealed(path) as data:
        if missing := [name for name in names if name not in data.variables]:
            raise InputError(f"{str(path)!r} has no variable {', '.join(missing)}")
        columns = [data[name] for name in names]
        if any(a.ndim != 1 or a.shape != b.shape for a, b in pairwise([*columns, columns[0]])):
            raise InputError(f"{str(path)!r}: the coordinates must be lists of one length")
        return names, np.stack([column.to_numpy() for column in columns], axis=-1)
