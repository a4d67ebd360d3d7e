"""How commands end: the summary in words or as JSON, the files beside it, and the exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

FIGURES = (".png", ".pdf", ".svg")

#: Exit codes beside 0 (done) and 1 (a fault in flowsim itself).
BAD_INPUT, UNRESOLVED, DISAGREES, INTERRUPTED = 2, 3, 4, 130


def report(
    numbers: dict[str, Any],
    files: dict[str, Path],
    began: float,
    text: Callable[[dict[str, Any]], str],
    as_json: bool,
    quiet: bool,
) -> None:
    """Print a command's numbers, its files and the seconds since ``began``, unless quiet."""
    summary = {
        **numbers,
        "seconds": round(time.perf_counter() - began, 3),
        **{kind: str(path) for kind, path in files.items()},
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    elif not quiet:
        typer.echo(text(summary))


def judge(wrong: int | None, unresolved: int | None) -> None:
    """End with an exit code of their own where labels contradict a closed form, or are unknown."""
    if wrong:
        print("flowsim: some labels disagree with the closed form of the basins", file=sys.stderr)
        raise typer.Exit(DISAGREES)
    if unresolved:
        raise typer.Exit(UNRESOLVED)
