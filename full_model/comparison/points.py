"""The initial points of a comparison: a grid, a Gaussian cloud, or those of a stored record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.markov import GapChain
from flowsim.records.netcdf import read_record
from flowsim.scan.starts import cell_centres
from flowsim.spec import chain_of

#: Records whose points can be compared: those with coordinates e, w and perhaps a.
KINDS = ("portrait", "scan", "gaussian", "comparison")
#: Most points of one comparison.
MAX_POINTS = 2**20


def grid_points(
    w_cells: int,
    e_cells: int,
    window: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    a: float | None = None,
) -> Tensor:
    """Centres of a grid of cells, (e_cells·w_cells, 2 or 3), w running fastest.

    Args:
        w_cells, e_cells: numbers of cells along w and e.
        window: the ranges of w and e, by name; −2 to 2 where none is given, since full models train
            for long from further out.
        a: the third coordinate of all points, if there is one.

    Raises:
        InputError: more than ``MAX_POINTS`` cells, or a range of another coordinate.

    >>> import full_model
    >>> full_model.grid_points(2, 1, {"w": (-1, 1), "e": (0, 1)}).tolist()
    [[0.5, -0.5], [0.5, 0.5]]
    """
    _require_few(w_cells * e_cells)
    if others := window.keys() - {"e", "w"}:
        raise InputError(f"the window of a grid is of e and w, not of {min(others)}")
    cells = {"e": e_cells, "w": w_cells}
    axes = [cell_centres(*window.get(name, (-2.0, 2.0)), cells[name]) for name in cells]
    axes += [] if a is None else [np.array([a])]
    return check_points(torch.tensor(list(product(*axes)), dtype=torch.float64))


def cloud_points(count: int, sigma: float, seed: int, dimensions: int = 2) -> Tensor:
    """Draws from N(0, σ²) in every coordinate, (count, dimensions).

    Raises:
        InputError: σ is not positive, or more than ``MAX_POINTS`` draws.

    >>> import full_model
    >>> tuple(full_model.cloud_points(count=5, sigma=0.5, seed=0).shape)
    (5, 2)
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma must be a positive number, not {sigma!r}")
    _require_few(count)
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(count, dimensions, dtype=torch.float64, generator=generator)
    return check_points(sigma * draws)


def stored_points(
    path: Path | str,
    chain: GapChain | None,
    length: int,
    d: int,
    dimensions: int = 2,
    hidden_per_state: int | None = None,
) -> tuple[Tensor, GapChain]:
    """The points of a record and its chain.

    Coordinates e, w and a are read wherever the record has them: as axes of a grid, as one number
    per point, or as one number for all.

    Args:
        path: a record with a chain and labelled points.
        chain: that of the comparison; None to take the record's.
        length, d: N and d of the comparison; a record with its own must have the same.
        dimensions: 2 for (e, w), 3 for (e, w, a).
        hidden_per_state: m of a comparison of S states, of which a record must have the same.

    Raises:
        InputError: no record, one of another chain, N, d or m, one without such points, or with
            further coordinates.

    >>> import flowsim, full_model, tempfile
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.scan(model, {"e": [0.5], "w": [-1.0]})
    >>> flowsim.write_record(record, path := tempfile.mkdtemp() + "/scan.nc")
    >>> full_model.stored_points(path, None, length=4, d=4)
    (tensor([[ 0.5000, -1.0000]], dtype=torch.float64), BinaryChain(p=0.5, q=0.8))
    """
    record = read_record(path, *KINDS)
    try:
        found = chain_of(record.attrs)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{str(path)!r} does not say of which one chain it is") from None
    if chain is None and not isinstance(found, BinaryChain):
        raise InputError(f"{str(path)!r} is of {found.states} states; compare the states model")
    if chain is not None and chain != found:
        raise InputError(f"{str(path)!r} is of the chain {_text(found)}, not of {_text(chain)}")
    for name, wanted, option in (
        ("length", length, "--length"),
        ("d", d, "--d"),
        ("hidden_per_state", hidden_per_state, "--hidden-per-state"),
    ):
        has = record.attrs.get(name)
        if has is not None and wanted is not None and int(has) != wanted:
            raise InputError(f"{str(path)!r} has {name} = {int(has)}, and {option} is {wanted}")
    # a scan of a cloud stores its starts as start_e, …
    found_as = {name: stored for name in "ewa" for stored in (f"start_{name}", name)
                if stored in record.variables}  # fmt: skip
    others = [
        name
        for name in map(str, np.atleast_1d(record.attrs.get("coordinates", ())))
        if name not in "ewa" and (name in record.coords or f"start_{name}" in record.variables)
    ]
    if others:
        raise InputError(
            f"the points of {str(path)!r} also have the coordinate {', '.join(others)}; "
            "a comparison starts from e and w, or from e, w and a"
        )
    names = ("e", "w", "a")[:dimensions]
    missing = [name for name in names if name not in found_as]
    if missing:
        raise InputError(f"{str(path)!r} has no coordinate {', '.join(missing)} of its points")
    if dimensions == 2 and "a" in found_as and bool((record[found_as["a"]] != 0).any()):
        raise InputError(f"the points of {str(path)!r} have attention; compare the attention model")
    columns = xr.broadcast(*(record[found_as[name]] for name in names))
    rows = np.stack([column.to_numpy().reshape(-1) for column in columns], axis=-1)
    return check_points(torch.from_numpy(rows.astype(np.float64))), found


def _text(chain: GapChain) -> str:
    """Words for a chain in a message: its p and q, or its states and p."""
    if isinstance(chain, BinaryChain):
        return f"p = {chain.p:g}, q = {chain.q:g}"
    return f"{chain.states} states and p = {chain.p:g}"


def _require_few(count: int) -> None:
    """InputError for more points than ``MAX_POINTS``."""
    if count > MAX_POINTS:
        raise InputError(f"a comparison takes at most {MAX_POINTS} points, not {count}")


def check_points(points: Tensor) -> Tensor:
    """The points themselves; InputError for none, too many, or other than finite (n, 2 or 3)."""
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise InputError(f"points must have shape (n, 2) or (n, 3), not {tuple(points.shape)}")
    if len(points) == 0:
        raise InputError("there is no point to compare at")
    _require_few(len(points))
    if not bool(points.isfinite().all()):
        raise InputError("a point to compare at is not finite")
    return points
