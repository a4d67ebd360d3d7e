"""The printer of every command: a dictionary as aligned lines, under the names that JSON has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

from flowsim.records.attributes import most_frequent, plain_mathematics

#: A summary, ready for JSON; its keys depend on the kind of record.
Summary = dict[str, Any]
#: Entries of a list and numbers of a dictionary that are printed, before the rest is summed up.
_MOST, _MANY = 10, 20
#: Lists of one length that make a table.
_COLUMNS = 3


def as_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as aligned lines, one for each entry that holds something.

    Nested dictionaries are indented; several with the same keys, and columns, are tables.

    >>> print(as_text({"cells": 64, "fraction": {"minimum_1": 0.75, "minimum_2": 0.25}}))
    cells        64
    fraction
      minimum_1  0.75
      minimum_2  0.25
    """
    lines = _lines(summary)
    width = max((len(name) for name, text in lines if text), default=0)
    return "\n".join(f"{name:<{width}}  {text}" if text else name for name, text in lines)


def _lines(entries: Mapping[str, Any], indent: str = "") -> list[tuple[str, str]]:
    """Return the lines of a dictionary as pairs (name, text), nested ones indented.

    The text of a heading or of a table's line is "", its name the whole line. Of more than 20
    numbers the largest are named, and the rest is summed up.
    """
    lines: list[tuple[str, str]] = []
    columns = _columns(entries, 1 if indent else _COLUMNS)
    if len(entries) > _MANY and all(isinstance(x, (int, float)) for x in entries.values()):
        named, others = most_frequent(entries)
        rest = {f"{len(others)} more": sum(entries[name] for name in others)}
        entries = {name: entries[name] for name in named} | rest
    for name, value in entries.items():
        if value in ({}, ""):
            continue
        if name in columns:
            if name == next(iter(columns)):
                rows = zip(*columns.values(), strict=True)
                lines += _table([list(columns), *rows], indent)
        elif isinstance(value, Mapping):
            lines.append((f"{indent}{name}", ""))
            flow = [key for key in value if name == "fraction" and key.startswith("flow_")]
            if flow:  # each share beside that of gradient flow
                beside = {key: f", by gradient flow {value[f'flow_{key}']:.2%}"
                          for key in value if f"flow_{key}" in flow}  # fmt: skip
                value = {key: f"{share:.2%}{beside.get(key, '')}"
                         for key, share in value.items() if key not in flow}  # fmt: skip
            parts = list(value.values())
            if all(isinstance(part, Mapping) for part in parts):
                lines += _records(parts[:_MANY], indent + "  ", list(value)[:_MANY])
                if len(parts) > _MANY:
                    lines.append((f"{indent}  {len(parts) - _MANY} more", ""))
            else:
                lines += _lines(value, indent + "  ")
        elif isinstance(value, list) and value and all(isinstance(x, Mapping) for x in value):
            lines += [(f"{indent}{name}", ""), *_records(value, indent + "  ")]
        else:
            lines.append((f"{indent}{name}", _text(value)))
    return lines


def _columns(entries: Mapping[str, Any], least: int) -> dict[str, list[Any]]:
    """Return the lists of numbers that make a table, by name: those of the commonest length.

    There are none if they are fewer than ``least``.
    """
    lists = {name: value for name, value in entries.items()
             if isinstance(value, list) and value
             and all(x is None or isinstance(x, Number) for x in value)}  # fmt: skip
    lengths = [len(value) for value in lists.values()]
    found = {name: value for name, value in lists.items()
             if len(value) == max(lengths, key=lengths.count)}  # fmt: skip
    return found if len(found) >= least else {}


def _records(
    rows: Sequence[Mapping[str, Any]], indent: str, names: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return a table with a row for each dictionary, with its name before it if it has one."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    head = [*([""] if names else []), *keys]
    beside = zip(names, rows, strict=True) if names else ((None, row) for row in rows)
    body = [[*([name] if names else []), *(row.get(key, "") for key in keys)]
            for name, row in beside]  # fmt: skip
    return _table([head, *body], indent)


def _table(rows: Sequence[Sequence[Any]], indent: str) -> list[tuple[str, str]]:
    """Return rows of cells as lines (line, ""), with all columns aligned to the right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        (indent + "  ".join(f"{text:>{wide}}" for text, wide in zip(row, widths, strict=True)), "")
        for row in texts
    ]


def _text(value: Any) -> str:
    """Return a value in words: "unknown" for None, 8 digits of a float, 10 entries of a list."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, (list, tuple)):
        more = [f"... ({len(value)} in all)"] if len(value) > _MOST else []
        between = "; " if value and isinstance(value[0], (list, tuple)) else ", "
        return between.join([*map(_text, value[:_MOST]), *more])
    return plain_mathematics(str(value))
