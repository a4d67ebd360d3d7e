"""Records as tables for other tools: CSV, parquet, and JSON of all numbers."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from flowsim.errors import InputError
from flowsim.records.attributes import as_json
from flowsim.records.netcdf import write_atomically

SUFFIXES = (".csv", ".parquet", ".json")


def write_table(record: xr.Dataset, path: str | Path) -> None:
    """Write a record for another tool: .csv, .parquet or .json by the suffix.

    A table has a row for each start, and for each further dimension that numbers of starts have,
    such as the ends that noise leads to. A record without starts has a row for each place of each
    kind, such as branches, events and shares of ends. Labels are given by name. JSON has every
    variable with its dimensions.

    Args:
        record: any record, such as ``read_record`` returns.
        path: where to write; an existing file is replaced.

    Raises:
        InputError: another suffix, or parquet without pyarrow.

    >>> import flowsim
    >>> from flowsim.exchange.tables import write_table
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), flowsim.scan.cell_centres(-2, 2, 4)
    >>> write_table(flowsim.scan(model, {"e": axis, "w": axis}), "/tmp/scan.csv")
    >>> open("/tmp/scan.csv").readline().split(",")[:3]
    ['e', 'w', 'label']
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"a table ends in {', '.join(SUFFIXES)}, not {path.name!r}")
    if path.suffix == ".json":
        variables = {
            name: {"dims": variable.dims, "values": _named(variable).values}
            for name, variable in {**record.coords, **record.data_vars}.items()
        }
        numbers = as_json({"attributes": record.attrs, "variables": variables})
        text = json.dumps(numbers, ensure_ascii=False)
        write_atomically(path, lambda place: Path(place).write_text(text + "\n"))
        return
    import pandas

    frames = []
    for dims in _places(record):
        kept = [name for name in record.data_vars if set(record[name].dims) <= set(dims)]
        frame = record[kept].map(_named).to_dataframe(dim_order=list(dims))
        frames.append(frame.reset_index())
    table = pandas.concat(frames, ignore_index=True)
    if path.suffix == ".csv":
        write_atomically(path, partial(table.to_csv, index=False))
        return
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError("parquet needs pyarrow: pip install 'flowsim-lab[parquet]'") from None
    write_atomically(path, partial(table.to_parquet, index=False))


def _named(variable: xr.DataArray) -> xr.DataArray:
    """Return a variable with its codes replaced by their names; one without names unchanged."""
    names = str(variable.attrs.get("flag_meanings", "")).split()
    if not names:
        return variable
    return variable.copy(data=np.array(names, dtype=object)[variable.to_numpy()])


def _places(record: xr.Dataset) -> list[tuple[Any, ...]]:
    """Return the dimensions that the rows of a table run over, for each kind of row."""
    given = dict.fromkeys(record[name].dims for name in record.data_vars)
    if "label" in record:  # the largest that share its dimensions
        starts = set(record["label"].dims)
        widest = [dims for dims in given if starts <= set(dims)]
        return [max(widest, key=lambda dims: math.prod(record.sizes[name] for name in dims))]
    return [dims for dims in given if not any(set(dims) < set(other) for other in given)]
