"""The refined boundary in the record of a scan on disk, of which it reads only the labels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from math import prod
from pathlib import Path

import xarray as xr

from flowsim.boundary.refine import count_crossed, expected_starts, refine_boundary
from flowsim.errors import InputError, Interrupted
from flowsim.interface import Model
from flowsim.memory import require_memory
from flowsim.records.netcdf import open_record, write_record
from flowsim.running import quickly

#: Bytes of memory for every start of the scan, and for every further one (measured: 54 and 420).
_BYTES_SCAN, _BYTES_NEW = 64, 450


@quickly
def add_boundary(
    record: xr.Dataset,
    model: Model,
    levels: int,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """A scan's record with the refined boundary in it; the scan's own starts are the nodes.

    Args:
        record: of a scan of ``model`` over a grid in two or three coordinates of its starts; of
            what is read from a file only when it is used, that is labels and coordinates.
        model, levels, rtol, atol, progress: as in ``refine_boundary``.

    Returns:
        The record with the variables of ``refine_boundary`` and its attributes, ``refine_…``.

    Raises:
        InputError: the record is no such grid or has its boundary already, or what
            ``refine_boundary`` raises.

    >>> import flowsim, numpy as np
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), np.linspace(-2, 2, 9)
    >>> record = flowsim.scan(model, {"e": axis, "w": axis})
    >>> record = flowsim.boundary.add_boundary(record, model, 2)
    >>> record.attrs["refine_evaluated"] < record.attrs["refine_full"]
    True
    """
    if "refine_levels" in record.attrs:
        times = record.attrs["refine_levels"]
        raise InputError(f"the record has its boundary already, refined {times} times")
    dims = [str(name) for name in record["label"].dims]
    known = {name for names in model.plane.defaults.starts for name in names}
    if not set(dims) <= known & set(map(str, record.coords)):
        raise InputError(f"a boundary needs a scan over a grid, not over {', '.join(dims)}")
    axes = {name: record[name].to_numpy() for name in dims}
    fixed = {str(name): float(v) for name, v in record.coords.items() if not v.dims}
    label = record["label"].to_numpy()
    found = refine_boundary(model, axes, fixed, levels, rtol, atol, progress, label)
    attributes = {k: v for k, v in found.attrs.items() if k.startswith("refine_")}
    return record.merge(
        found, compat="equals", join="exact", combine_attrs="override"
    ).assign_attrs(attributes)


def refine_scan(
    path: Path,
    model: Model,
    levels: int,
    rtol: float | None,
    atol: float,
    progress: Callable[[int], AbstractContextManager[Callable[[int], object]]],
) -> None:
    """Put the boundary of ``add_boundary`` into a scan's record, unless it is there already.

    Args:
        path: the record, which is replaced at the end or stays unchanged.
        model, levels, rtol, atol: as in ``refine_boundary``.
        progress: given about how many starts will be followed, opens what takes how many have been.

    Raises:
        InputError: no such record, too little memory, a full disk, or what ``refine_boundary``
            refuses.
        Interrupted: Ctrl-C; the record is that of the scan.
    """
    with open_record(path, "scan") as record:
        if record.attrs.get("refine_levels") == levels:
            return
        label = record["label"].to_numpy()
        more = check_memory(label.shape, levels, count_crossed(label))
        try:
            with progress(more) as advance:
                longer = add_boundary(record, model, levels, rtol, atol, advance)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted while the boundary was refined; the scan is whole in {str(path)!r}: "
                "give the same command with --resume to refine it again"
            ) from None
        write_record(longer, path)


def check_memory(shape: tuple[int, ...], halvings: int, crossed: int | None = None) -> int:
    """About how many further starts there will be, if that fits in this machine's memory.

    Args:
        shape: of the scan's grid.
        halvings: how many times its crossed cells are halved.
        crossed: how many cells are crossed; by default those of one plane through the grid.

    Raises:
        InputError: it needs more memory than there is.
    """
    starts = prod(shape)
    crossed = starts // max(shape) if crossed is None else crossed
    more = expected_starts(crossed, len(shape), halvings)
    what = f"refining a grid of {'x'.join(map(str, shape))} cells {halvings} times"
    require_memory(what, float(_BYTES_SCAN * starts + _BYTES_NEW * more), "grid")
    return more
