"""The command ``verify``: the papers' theorems on the full transformer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from flowsim.cli import options
from flowsim.cli.groups import OneChain, Printed, check_enumeration
from flowsim.cli.options import FULL, option
from flowsim.cli.output import DISAGREES, echo, progress
from flowsim.memory import require_memory


@dataclass(frozen=True)
class Verify(OneChain, Printed):
    d: options.Dim = 4
    length: options.Positions = options.DEFAULT_LENGTH
    seeds: Annotated[
        int,
        option(FULL, "M", "Number of draws of the weights that a statement leaves free.",
               min=1, max=10**6),
    ] = 8  # fmt: skip


def verify(given: Verify) -> None:
    """Check the papers' theorems on the full transformer, by enumeration of all sequences.

    Prints a table of claim, expected, found and error; exit code 4 when one fails.

    \b
    Example:
      flowsim verify --p 0.5 --q 0.8 --d 4 --length 6
    """
    chain = given.chain()
    check_enumeration(given.length)
    weights = 8 * given.d**2 + 4 * given.d**2  # of width 4d, with their gradient
    require_memory(f"a transformer of d = {given.d}", 8.0 * 4 * weights, "--d")
    from full_model.theorems.verify import GROUPS, format_claims
    from full_model.theorems.verify import verify as check

    with progress(GROUPS, "groups of claims", given.quiet) as meter:
        claims = check(chain, given.d, given.length, range(given.seeds), meter.advance)
    if given.as_json:
        echo(json.dumps([claim.as_dict() for claim in claims], indent=2))
    elif not given.quiet:
        echo(format_claims(claims))
    if not all(claim.passed for claim in claims):
        raise typer.Exit(DISAGREES)
