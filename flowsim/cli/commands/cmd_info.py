"""The command ``info``: what a file that flowsim wrote holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from flowsim.cli import options
from flowsim.cli.output import echo
from flowsim.cli.printer import Summary, as_text
from flowsim.errors import InputError
from flowsim.records.attributes import as_json

#: Attributes of a record printed first, and those printed last; all others come between.
_FIRST = ("kind", "model", "p", "q", "regime")
_LAST = ("command", "commit", "versions", "schema", "digest")
#: Attributes that are printed in a format of their own.
_HIDDEN = ("settings", "end_names")


@dataclass(frozen=True)
class Info:
    file: Annotated[
        Path,
        typer.Argument(metavar="RECORD", help="A record (.nc) or a checkpoint (.safetensors)."),
    ]
    table: Annotated[
        Path | None,
        typer.Option(
            "--table", metavar="FILE",
            help="Write the record's numbers for other tools: .csv, .parquet or .json.",
        ),
    ] = None  # fmt: skip
    as_json: options.Json = False


def info(given: Info) -> None:
    """Say what a record or a checkpoint holds: kind, model, settings, sizes, counts, versions.

    \b
    Example:
      flowsim info portrait_p0.5_q0.8.nc
      flowsim info portrait_p0.5_q0.8.nc --table portrait.csv
    """
    path = given.file
    if given.table is not None:
        from flowsim.exchange.tables import write_table
        from flowsim.records.netcdf import read_record

        if given.table.exists():
            raise InputError(f"{str(given.table)!r} exists: choose another name")
        write_table(read_record(path), given.table)
    content: Summary = {"file": str(path)}
    if path.suffix == ".safetensors":
        from full_model.training.checkpoints import load_checkpoint

        tensors, state = load_checkpoint(path)
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        kept = {name: value for name, value in state.items() if name != "sha256"}
        content |= {"kind": "checkpoint", **kept, "tensors": shapes}
    else:
        from flowsim.records.netcdf import open_record

        with open_record(path) as record:  # whose large arrays are not read
            attributes = as_json(record.attrs)
            sizes = {str(name): int(size) for name, size in record.sizes.items()}
            variables = {str(name): list(map(str, v.dims)) for name, v in record.variables.items()}
        middle = [name for name in attributes if name not in (*_FIRST, *_LAST, *_HIDDEN)]
        order = [name for name in (*_FIRST, *middle, *_LAST) if name in attributes]
        content |= {name: attributes[name] for name in order}
        content |= {name: json.loads(attributes[name]) for name in _HIDDEN if name in attributes}
        content |= {"dimensions": sizes, "variables": variables}
    echo(json.dumps(content, indent=2) if given.as_json else as_text(content))
