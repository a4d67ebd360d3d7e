"""Docstrings as they are: |w| and w* are text, and a colon in a sentence makes no type of it."""

import re
from typing import Any

from sphinx.application import Sphinx


def escaped(line: str) -> str:
    """The line with | and * escaped, except in ``literals``."""
    parts = re.split(r"(``.*?``)", line)
    return "".join(
        part if part.startswith("``") else re.sub(r"(?<!\\)([|*])", r"\\\1", part) for part in parts
    )


def with_returns_as_field(lines: list[str]) -> list[str]:
    """The lines with every ``Returns:`` section as one field, whose text napoleon leaves alone."""
    found: list[str] = []
    inside: int | None = None  # the indentation of the section's head
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() == "Returns:":
            inside = indent
            found.append(" " * indent + ":returns:")
            continue
        if inside is not None and line.strip() and indent <= inside:
            inside = None
        found.append(line)
    return found


#: What is not a list of arguments has its text kept: by kind and name, while napoleon is at work.
_KEPT: dict[tuple[str, str], list[str]] = {}


def _prepare(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = with_returns_as_field([escaped(line) for line in lines])
    if what in ("attribute", "property", "data"):
        _KEPT[what, name] = list(lines)


def _restore(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes the words before a colon for the type of a property; they are its text."""
    lines[:] = _KEPT.pop((what, name), lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _prepare, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _restore, priority=600)  # and after it
    return {"parallel_read_safe": True}
