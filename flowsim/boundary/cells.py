"""Distances of all cells of a record to the edge of their basins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError, Interrupted
from flowsim.interface import Model, Range
from flowsim.labels import Label
from flowsim.landscape.ends import Ends
from flowsim.records.ends import NO_BASIN, with_ends
from flowsim.records.netcdf import read_record, write_record
from flowsim.running import quickly
from flowsim.scan.follow import to_model


def with_edge_distance(
    record: xr.Dataset, model: Model, window: Mapping[str, Range], fixed: Mapping[str, float],
    place: Callable[[Tensor], Tensor], ends: Ends, end_codes: np.ndarray | None = None,
) -> xr.Dataset:  # fmt: skip
    """The record with the distance of every cell to the nearest place with another end.

    Args:
        record: with labels over a grid, the centres of cells.
        model: the model.
        window: ranges of the grid's axes, by name.
        fixed: values of what else is held, by name.
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
    end_codes = _codes_of_basins(label) if end_codes is None else end_codes
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
    fixed = {str(name): float(v) for name, v in record.coords.items() if not v.dims}
    order = [*dims, *fixed]
    if not any({*order} == {*starts} for starts in model.plane.defaults.starts):
        raise InputError(f"edge distances need a scan of one model, not over {', '.join(dims)}")
    for name in dims:
        if len(record[name]) < 2:
            raise InputError(f"edge distances need two or more cells along {name}")

    def place(points: Tensor) -> Tensor:
        rest = points.new_tensor([*fixed.values()]).expand(len(points), -1)
        return to_model(model, order, torch.cat([points, rest], dim=1))

    ends = Ends(model)
    limits = np.stack([record[f"limit_{name}"].to_numpy().ravel() for name in names], axis=1)
    reached = _raw_labels(label).ravel(), limits, record["limit_loss"].to_numpy().ravel()
    end_codes = ends.basins(*map(torch.from_numpy, reached)).numpy()
    window = {}
    for name in dims:
        centres = record[name].to_numpy()
        half = (centres[1] - centres[0]) / 2
        window[name] = float(centres[0] - half), float(centres[-1] + half)
    end_codes = end_codes.reshape(label.shape)
    return with_ends(with_edge_distance(record, model, window, fixed, place, ends, end_codes))


def edge_of_scan(path: Path, model: Model) -> None:
    """Put the distances of ``add_edge_distance`` into a scan's record, unless they are there.

    Raises:
        InputError: no such record, a full disk, or what ``add_edge_distance`` raises.
        Interrupted: Ctrl-C; the record is that of the scan.
    """
    record = read_record(path)
    if "edge_distance" in record:
        return
    try:
        write_record(add_edge_distance(record, model), path)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted while distances were measured; the scan is whole in {str(path)!r}: "
            "give the same command with --resume to measure them again"
        ) from None


def _raw_labels(label: xr.DataArray) -> np.ndarray:
    """Labels of the codes of ends, by their names."""
    by_name = {code.name.lower(): code for code in Label}
    names = str(label.attrs["flag_meanings"]).split()
    kinds = [
        by_name.get("local_minimum" if (kind := name.rstrip("_0123456789")) == "minimum" else kind)
        for name in names
    ]
    found: np.ndarray = np.array(kinds, np.int8)[label.to_numpy()]
    return found


def edge_attributes(model: Model, names: list[str]) -> dict[str, Any]:
    """Attributes of distances in the coordinates ``names``."""
    whole, bound = {*names} == {*model.coordinates}, len(names) > 2
    where = "all coordinates" if whole else f"the slice ({', '.join(names)})"
    return {
        "long_name": f"{'upper bound of the ' if bound else ''}distance to the nearest place in "
        f"the window with another end, in {where}",
        "coordinates_varied": " ".join(names),
        "all_coordinates": int(whole),
        "is_bound": int(bound),
    }


def _codes_of_basins(label: xr.DataArray) -> np.ndarray:
    """The codes of ends, −1 of what is in no basin."""
    names = str(label.attrs["flag_meanings"]).split()
    none = [code for code, name in enumerate(names) if name.startswith(NO_BASIN)]
    code = label.to_numpy().astype(int)
    return np.where(np.isin(code, none), -1, code)
