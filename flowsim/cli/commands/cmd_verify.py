"""The command ``verify``: the papers' theorems on the full transformer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flowsim.cli import options, sizes
from flowsim.cli.groups import OneChain, Printed
from flowsim.cli.options import FULL, option
from flowsim.cli.output import DISAGREES, echo, progress
from flowsim.errors import InputError

if TYPE_CHECKING:
    from full_model.theorems.verify import Claim

#: d of the theorems' transformer; a construction has its own.
_DIMENSION = 4


@dataclass(frozen=True)
class Verify(OneChain, Printed):
    """The options of ``verify``."""

    d: options.Dim = _DIMENSION
    length: options.Positions = options.DEFAULT_LENGTH
    seeds: Annotated[
        int,
        option(FULL, "M",
               "Number of draws of the weights that a statement leaves free, or of sequences.",
               min=1, max=10**6),
    ] = 8  # fmt: skip
    construction: Annotated[
        Literal["constant-depth", "log-depth"] | None,
        option(FULL, "NAME", "A transformer that counts in context, built weight by weight: "
               "constant-depth (three layers) or log-depth (attention alone)."),
    ] = None  # fmt: skip
    order: Annotated[
        int | None, option(FULL, "K", "With --construction: symbols of a context.", min=1, max=64)
    ] = None
    states: Annotated[
        int | None,
        option(FULL, "S", "With --construction: symbols of the alphabet.", min=2, max=1000),
    ] = None


def verify(given: Verify) -> None:
    """Check the papers' theorems on the full transformer, by enumeration of all sequences.

    With --construction a transformer that was built to count is compared with counting, at every
    position whose context has been seen. Prints a table of claim, expected, found and error; exit
    code 4 when one fails.

    \b
    Examples:
      flowsim verify --p 0.5 --q 0.8 --d 4 --length 6
      flowsim verify --construction log-depth --order 3 --states 2 --length 99
    """
    claims = _theorems(given) if given.construction is None else _counting(given)
    from full_model.theorems.verify import format_claims

    if given.as_json:
        echo(json.dumps([claim.as_dict() for claim in claims], indent=2))
    elif not given.quiet:
        echo(format_claims(claims))
    if not all(claim.passed for claim in claims):
        raise typer.Exit(DISAGREES)


def _theorems(given: Verify) -> list[Claim]:
    if (given.order, given.states) != (None, None):
        raise InputError("--order and --states go with --construction")
    chain = given.chain()
    sizes.check_verify(given.d, given.length)
    from full_model.theorems.verify import GROUPS
    from full_model.theorems.verify import verify as check

    with progress(GROUPS, "groups of claims", given.quiet) as meter:
        return check(chain, given.d, given.length, range(given.seeds), meter.advance)


def _counting(given: Verify) -> list[Claim]:
    if (given.p, given.q, given.d) != (None, None, _DIMENSION):
        raise InputError("--construction has its own d and draws its chains: omit --p, --q and --d")
    if given.order is None or given.states is None:
        raise InputError("--construction needs --order and --states")
    if given.length <= given.order:
        raise InputError(f"--length must be above --order {given.order}, not {given.length}")
    assert given.construction is not None
    sizes.check_counting(given.construction, given.order, given.states, given.length)
    from full_model.theorems.counting import sequences, verify_counting

    count = sequences(given.order, given.length, given.seeds)
    with progress(count, "sequences", given.quiet) as meter:
        return verify_counting(
            given.construction, given.order, given.states, given.length, range(given.seeds),
            meter.advance,
        )  # fmt: skip
