"""The refined boundary, and distances of all starts to another end, in a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.boundary.refine import count_crossed, expected_starts, refine_boundary
from flowsim.errors import InputError, Interrupted
from flowsim.interface import Model, Range
from flowsim.labels import Label
from flowsim.landscape.ends import Ends
from flowsim.memory import require_memory
from flowsim.records.attributes import meanings
from flowsim.records.ends import NO_BASIN, with_ends
from flowsim.records.netcdf import open_record, read_record, write_record
from flowsim.running import quickly
from flowsim.scan.follow import to_model

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
    label = record["label"].to_numpy()
    found = refine_boundary(model, axes, _fixed(record), levels, rtol, atol, progress, label)
    attributes = {k: v for k, v in found.attrs.items() if k.startswith("refine_")}
    return record.merge(
        found, compat="equals", join="exact", combine_attrs="override"
    ).assign_attrs(attributes)


def _fixed(record: xr.Dataset) -> dict[str, float]:
    """Values of the coordinates that do not vary in a scan, by name."""
    return {str(name): float(value) for name, value in record.coords.items() if not value.dims}


@contextmanager
def _scan_stays(path: Path, doing: str, again: str) -> Iterator[None]:
    """Turn Ctrl-C in a block into ``Interrupted``, which says how to go on with the whole scan."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted while {doing}; the scan is whole in {str(path)!r}: give the same command "
            f"with --resume to {again} again"
        ) from None


def refine_scan(
    path: Path, model: Model, levels: int, rtol: float | None, atol: float,
    progress: Callable[[int], AbstractContextManager[Callable[[int], object]]],
) -> None:  # fmt: skip
    """Put the boundary of ``add_boundary`` into a scan's record, unless it is there already.

    ``progress`` takes about how many starts will be followed, and returns a context whose value is
    called with how many have been. The record is replaced at the end or stays unchanged, also by
    Ctrl-C.
    """
    with open_record(path, "scan") as record:
        if record.attrs.get("refine_levels") == levels:
            return
        label = record["label"].to_numpy()
        more = check_memory(label.shape, levels, count_crossed(label))
        with _scan_stays(path, "the boundary was refined", "refine it"), progress(more) as advance:
            longer = add_boundary(record, model, levels, rtol, atol, advance)
        write_record(longer, path)


def check_memory(shape: tuple[int, ...], halvings: int, crossed: int | None = None) -> int:
    """Estimate how many starts refining a grid adds; InputError if memory is too small for them.

    ``crossed`` cells are halved, by default as many as one plane through the grid crosses.
    """
    starts = prod(shape)
    crossed = starts // max(shape) if crossed is None else crossed
    more = expected_starts(crossed, len(shape), halvings)
    what = f"refining a grid of {'x'.join(map(str, shape))} cells {halvings} times"
    require_memory(what, float(_BYTES_SCAN * starts + _BYTES_NEW * more), "grid")
    return more


def with_edge_distance(
    record: xr.Dataset, model: Model, window: Mapping[str, Range], fixed: Mapping[str, float],
    place: Callable[[Tensor], Tensor], ends: Ends, end_codes: np.ndarray | None = None,
) -> xr.Dataset:  # fmt: skip
    """The record with the distance of every cell to the nearest place with another end.

    Args:
        record: with labels over a grid, the centres of cells.
        model: the model.
        window: ranges of the grid's axes, by name.
        fixed: values of the other coordinates, by name.
        place: the model's coordinates (m, k) of values (m, d) along the axes, in their order in the
            record.
        ends, end_codes: the ends that were met and the codes of the cells by them, −1 of none; by
            default the record's labels.

    Returns:
        The record with ``edge_distance``, in the coordinates that vary and within the window:
        infinite where all ends are one, NaN of a cell without one.
    """
    from flowsim.boundary.distance import Search  # loads scipy.interpolate

    label = record["label"]
    names = [str(name) for name in label.dims]
    axes = [record[name].to_numpy() for name in names]
    if end_codes is None:
        none = [code for code, end in enumerate(meanings(label)) if end.startswith(NO_BASIN)]
        code = label.to_numpy().astype(int)
        end_codes = np.where(np.isin(code, none), -1, code)
    search = Search(
        model, {name: window[name] for name in names}, fixed, place, ends, axes, end_codes
    )
    mesh = np.meshgrid(*axes, indexing="ij")
    search.nearest(np.stack([side.ravel() for side in mesh], axis=1), end_codes.ravel())
    away = search.distances.reshape(label.shape)
    return record.assign(edge_distance=(names, away, edge_attributes(model, names)))


@quickly
def add_edge_distance(record: xr.Dataset, model: Model) -> xr.Dataset:
    """A scan's record with the distance of every start to the nearest place with another end.

    Args:
        record: of a scan of ``model`` by its flow, without further arguments that vary. Over a grid
            distances are in the coordinates that vary, within the grid's window; of a cloud or a
            list of points in all coordinates, within the usual window and as far as starts lie.
        model: the model.

    Returns:
        The record with ``edge_distance`` and what ``per_end`` gives, over ``basin``.

    Raises:
        InputError: the record is none of such a scan.

    >>> import flowsim
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), flowsim.scan.cell_centres(-2, 2, 8)
    >>> record = flowsim.scan(model, {"e": axis, "w": axis})
    >>> record = flowsim.boundary.add_edge_distance(record, model)
    >>> round(float(record.edge_distance.sel(e=0.75, w=-0.25)), 6)
    0.010646
    """
    label = record["label"]
    dims, names = [str(name) for name in label.dims], [*model.coordinates]
    if "optimizer" in record.attrs or f"limit_{names[0]}" not in record:
        raise InputError("edge distances are of scans by the flow")
    scattered = [name for name in map(str, record) if name.startswith("start_")]
    if scattered:
        columns = [record[name].broadcast_like(label).to_numpy().ravel() for name in scattered]
        known = [name.removeprefix("start_") for name in scattered]
        from flowsim.boundary.distance import edge_distance, usual_window

        theta = to_model(model, known, np.stack(columns, axis=1))
        window = {
            name: (min(low, float(column.min())), max(high, float(column.max())))
            for (name, (low, high)), column in zip(
                usual_window(model).items(), theta.T, strict=True
            )
        }
        away = edge_distance(model, theta, window).distance.numpy().reshape(label.shape)
        found = record.assign(edge_distance=(dims, away, edge_attributes(model, names)))
        return with_ends(found)
    fixed = _fixed(record)
    order = [*dims, *fixed]
    if not any({*order} == {*starts} for starts in model.plane.defaults.starts):
        raise InputError(f"edge distances need a scan of one model, not over {', '.join(dims)}")
    window = {}
    for name in dims:
        centres = record[name].to_numpy()
        if len(centres) < 2:
            raise InputError(f"edge distances need two or more cells along {name}")
        half = (centres[1] - centres[0]) / 2
        window[name] = float(centres[0] - half), float(centres[-1] + half)

    def place(points: Tensor) -> Tensor:
        """The model's coordinates (m, k) of points (m, d) along the grid's axes."""
        rest = points.new_tensor([*fixed.values()]).expand(len(points), -1)
        return to_model(model, order, torch.cat([points, rest], dim=1))

    ends, by_name = Ends(model), {code.name.lower(): code for code in Label}
    by_name["minimum"] = Label.LOCAL_MINIMUM
    labels = np.array([by_name[end.rstrip("_0123456789")] for end in meanings(label)], np.int8)
    limits = np.stack([record[f"limit_{name}"].to_numpy().ravel() for name in names], axis=1)
    loss = record["limit_loss"].to_numpy().ravel()
    rows = labels[label.to_numpy().ravel()], limits, loss
    end_codes = ends.basins(*map(torch.from_numpy, rows)).numpy().reshape(label.shape)
    return with_ends(with_edge_distance(record, model, window, fixed, place, ends, end_codes))


def edge_of_scan(path: Path, model: Model) -> None:
    """Put the distances of ``add_edge_distance`` into a scan's record, unless they are there."""
    record = read_record(path)
    if "edge_distance" in record:
        return
    with _scan_stays(path, "distances were measured", "measure them"):
        write_record(add_edge_distance(record, model), path)


def edge_attributes(model: Model, names: list[str]) -> dict[str, Any]:
    """Attributes of distances in the coordinates ``names``."""
    whole, bound = {*names} == {*model.coordinates}, len(names) > 2
    where = "all coordinates" if whole else f"the slice ({', '.join(names)})"
    kind = "upper bound of the distance" if bound else "distance"
    return {
        "long_name": f"{kind} to the nearest place in the window with another end, in {where}",
        "drawn_as": "distance",
        "legend": f"{kind} to another end{'' if whole else ', in this plane'}",
        "coordinates_varied": " ".join(names),
        "all_coordinates": int(whole),
        "is_bound": int(bound),
    }
