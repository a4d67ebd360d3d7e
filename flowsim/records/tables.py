"""Tables of numbers as people and spreadsheets save them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from flowsim.errors import InputError, number


def read_columns(path: Path, numeric: Collection[str]) -> dict[str, np.ndarray]:
    """The columns of a .csv by name: numbers where ``numeric``, NaN of empty cells, else texts.

    Commas, semicolons or tabs are between them, and but for commas numbers may have decimal commas.
    InputError for no table, a column without a name of its own, or a cell that is no number.
    """
    source = repr(str(path))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next((line for line in file if line.strip(' ,;\t"\r\n')), "")
            file.seek(0)
            between = max(",;\t", key=first.count)
            lines = csv.reader(file, delimiter=between, skipinitialspace=True)
            found = [(lines.line_num, [cell.strip() for cell in line]) for line in lines]
    except (OSError, UnicodeError, csv.Error) as error:
        raise InputError(f"{source} is no table of numbers: {error}") from None
    rows = [(at, cells) for at, cells in found if any(cells)]
    if not rows:
        raise InputError(f"{source} is no table of numbers: it is empty")
    head = rows.pop(0)[1]
    while not head[-1]:
        head.pop()
    if len(set(head)) < len(head):
        said = ", ".join(head)[:200]
        raise InputError(f"{source} needs columns with names, each once, not {said}")
    for at, cells in rows:
        if len(cells) < len(head) or any(cells[len(head) :]):
            raise InputError(f"line {at} of {source} has {len(cells)} cells, not {len(head)}")
    columns: dict[str, Any] = {
        name: np.array([cells[i] for _, cells in rows], str) for i, name in enumerate(head)
    }
    for name in (x for x in head if x in numeric):
        cells = columns[name].tolist()
        plain = [cell.replace("\N{MINUS SIGN}", "-") for cell in cells]
        values = [number(x if between == "," else x.replace(",", ".")) for x in plain]
        for cell, value in zip(cells, values, strict=True):
            if math.isnan(value) and cell.lower() not in ("", "nan"):
                raise InputError(f"the column {name} of {source} has no number in {cell[:60]!r}")
        columns[name] = np.array(values, float)
    return columns
