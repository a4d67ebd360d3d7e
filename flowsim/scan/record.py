"""The NetCDF record of a scan, written slice by slice so that no scan has to fit in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import numpy as np
import torch
import xarray as xr

from flowsim.flow.confirm import Stage, confirm
from flowsim.records.atomic import SafeFile, write_atomically
from flowsim.records.describe import CONVENTIONS, attributes_of
from flowsim.records.netcdf import write_sealed
from flowsim.records.provenance import provenance
from flowsim.records.seal import unseal
from flowsim.scan.follow import point_attributes, to_model
from flowsim.scan.plan import Scan
from flowsim.scan.slabs import BLOCK, create, store
from flowsim.scan.statistics import (
    BASINS,
    count_labels,
    largest_drifts,
    result_attributes,
    share_variables,
)


def write_scan_record(
    scan: Scan,
    read: Callable[[int], np.ndarray],
    path: Path,
    settings: dict[str, str],
    stage: Stage | None = None,
) -> None:
    """Write what ``flowsim.read_record`` reads: variables as ``scan_basins`` describes them.

    Args:
        scan: what was computed.
        read: the points of a chunk.
        path: the file.
        settings: stored as JSON, to compare with those of another run.
        stage: as of ``write_scan``.
    """
    write_sealed(path, lambda sink: _fill(sink, scan, read, settings, stage))


def extend_record(path: Path, longer: xr.Dataset) -> None:
    """Put variables and attributes into a record that it does not have; nothing else is read.

    Args:
        path: the record, which is replaced at once or stays as it is.
        longer: the record as it shall be; the dimensions of the new variables are new too.

    Raises:
        InputError: the disk is full or the folder went away.
    """

    def fill(sink: SafeFile) -> None:
        with h5netcdf.File(sink, "r+") as file:
            append_variables(file, longer)

    def write(name: Path) -> None:
        shutil.copyfile(path, name)
        unseal(name)
        write_sealed(name, fill, "r+b")

    write_atomically(path, write)


def append_variables(file: Any, longer: xr.Dataset) -> None:
    """Write the variables of ``longer`` that the open file lacks, and their dimensions."""
    for name, variable in longer.variables.items():
        if name in file.variables:
            continue
        dims = tuple(map(str, variable.dims))
        for dim, size in zip(dims, variable.shape, strict=True):
            if dim not in file.dimensions:
                file.dimensions[dim] = size
        if variable.size:
            made = create(file, str(name), dims, variable.shape, variable.dtype)
        else:  # HDF5 has no compressed blocks of nothing
            made = file.create_variable(str(name), dims, dtype=variable.dtype)
        made[...] = variable.to_numpy()
        _set(made, variable.attrs)
    new = {k: v for k, v in longer.attrs.items() if k not in file.attrs}
    _set(file, {**new, "variables": " ".join(file.variables)})


def _fill(
    sink: SafeFile,
    scan: Scan,
    read: Callable[[int], np.ndarray],
    settings: dict[str, str],
    stage: Stage | None,
) -> None:
    """Everything that the record holds."""
    with h5netcdf.File(sink, "w") as file:
        _lay_out(file, scan)
        counts, drifts = _store_points(file, scan, read, sink)
        if scan.starts.scattered:
            _store_starts(file, scan)
        families = scan.shape[: scan.families]
        counts = counts.reshape(*families, -1)
        for name, (dims, values) in share_variables(counts, scan.dims, scan.starts.drawn).items():
            made = file.create_variable(name, dims, data=values)
            _set(made, attributes_of(name, values.dtype.kind))
        attributes = {
            **provenance(scan.attributes()),
            **result_attributes(counts, drifts),
            **_confirmed(scan, read, stage),
            "command": settings["command"],
            "threads": 1,
            "settings": json.dumps(settings),
            "Conventions": CONVENTIONS,
            "variables": " ".join(file.variables),
        }
        _set(file, attributes)


def _lay_out(file: Any, scan: Scan) -> None:
    """Dimensions, coordinates and the variables that ``_store_points`` fills."""
    file.dimensions = {**dict(zip(scan.dims, scan.shape, strict=True)), "basin": len(BASINS)}
    coords = {
        **{
            n: ((n,), np.array(v))
            for n, v in (("p", scan.p), ("q", scan.q))
            if isinstance(v, tuple)
        },
        **scan.starts.coords(),
    }
    for name, (dims, values) in coords.items():
        made = file.create_variable(name, dims, data=np.asarray(values, dtype=float))
        _set(made, attributes_of(name, "f"))
    names = np.array(BASINS, dtype=object)
    made = file.create_variable("basin", ("basin",), dtype=h5py.string_dtype(), data=names)
    _set(made, attributes_of("basin", "U"))
    attributes = point_attributes(scan.dtype, scan.fraction)
    scalar = " ".join(name for name, (dims, _) in coords.items() if not dims)
    for name in scan.dtype.names or ():
        made = create(file, name, scan.dims, scan.shape, scan.dtype[name])
        _set(made, {**attributes[name], **({"coordinates": scalar} if scalar else {})})


def _store_points(
    file: Any, scan: Scan, read: Callable[[int], np.ndarray], sink: SafeFile
) -> tuple[np.ndarray, dict[str, float]]:
    """Fill the variables; counts by family and label, and the largest drifts."""
    counts = np.zeros((prod(scan.shape[: scan.families]), len(BASINS)), np.int64)
    per_family = prod(scan.shape[scan.families :])
    drifts: dict[str, float] = {}
    for chunk in range(scan.chunks):
        low, high = scan.bounds(chunk)
        points = read(chunk)
        sink.check()
        for name in scan.dtype.names or ():
            store(file.variables[name], scan.shape, low, points[name])
        for family in range(low // per_family, (high - 1) // per_family + 1):
            first = max(family * per_family - low, 0)
            last = min((family + 1) * per_family, high) - low
            counts[family] += count_labels(points["label"][first:last])
        for name, value in largest_drifts(points).items():
            drifts[name] = max(drifts.get(name, 0.0), value)
    return counts, drifts


def _confirmed(
    scan: Scan, read: Callable[[int], np.ndarray], stage: Stage | None
) -> dict[str, int]:
    """How many labels of a sample torchdiffeq finds again: attributes ``confirm_…``."""
    count = min(scan.confirm, scan.size)
    drawn = np.sort(np.random.default_rng(0).choice(scan.size, count, replace=False))
    found: dict[str, int] = {}
    by_chain: dict[Any, list[int]] = {}
    for point in drawn.tolist():
        by_chain.setdefault(scan.model_at(point).chain, []).append(point)
    labels: dict[int, int] = {}
    for chunk in np.unique(drawn // scan.chunk).tolist():
        low, high = scan.bounds(chunk)
        part = read(chunk)["label"]
        labels |= {i: int(part[i - low]) for i in drawn.tolist() if low <= i < high}
    counted = stage("points checked by torchdiffeq", count) if stage and count else None
    for points in by_chain.values():
        model = scan.model_at(points[0])
        rows = np.concatenate([scan.starts_of(i, i + 1) for i in points])
        theta = to_model(model, scan.starts.names, torch.from_numpy(rows))
        counts = confirm(model, theta, [labels[i] for i in points], len(points), progress=counted)
        found = {name: found.get(name, 0) + n for name, n in counts.items()}
    return found


def _store_starts(file: Any, scan: Scan) -> None:
    """The starts that no axis tells, for every chain where they were drawn for each."""
    each = scan if scan.starts.drawn else scan.starts
    size = prod(each.shape)
    for name in scan.starts.names:
        made = create(file, f"start_{name}", each.dims, each.shape, np.dtype("<f8"))
        _set(made, attributes_of(f"start_{name}", "f"))
    for low in range(0, size, BLOCK):
        rows = scan.starts_of(low, min(low + BLOCK, size))
        for i, name in enumerate(scan.starts.names):
            store(file.variables[f"start_{name}"], each.shape, low, rows[:, i])


def _set(target: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        target.attrs[name] = value
