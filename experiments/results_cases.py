"""What the tables of docs/results share: their shape, and which entries of a json are cases."""

from __future__ import annotations

from typing import Any

#: Head and rows of a table.
Rows = tuple[list[str], list[list[Any]]]


def cases(found: dict[str, Any]) -> dict[str, Any]:
    """The entries of a record of numbers without how it was made, and from what sizes."""
    return {case: line for case, line in found.items() if case not in ("made", "sizes")}
