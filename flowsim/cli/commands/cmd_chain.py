"""The command ``chain``: what is known of a Markov chain before anything is trained."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowsim.cli import options
from flowsim.cli.groups import OneChain
from flowsim.cli.output import require_file, say
from flowsim.cli.texts import Summary
from flowsim.cli.values import MAX_STATES, number, shown
from flowsim.errors import InputError
from flowsim.markov import MarkovChain, SymmetricChain

if TYPE_CHECKING:
    from flowsim.chain import BinaryChain


@dataclass(frozen=True)
class Chain(OneChain):
    """The options of ``chain``."""

    states: options.States = None
    kernel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=options.CHAIN,
            help="A transition matrix: a row a line, numbers with commas between them.",
        ),
    ] = None  # fmt: skip
    as_json: options.Json = False


def chain(given: Chain) -> None:
    """Say what is known of a chain: entropies, second eigenvalue, threshold, expected regime.

    The chain is binary (--p and --q); or has S states and moves to any other state alike with
    probability p (--states and --p); or is the one of a transition matrix (--kernel).

    \b
    Examples:
      flowsim chain --p 0.5 --q 0.8
      flowsim chain --states 5 --p 0.9
    """
    found = _summary(_chain(given))
    say(json.dumps(found, indent=2) if given.as_json else "\n".join(_lines(found)))


def _chain(given: Chain) -> MarkovChain:
    """The chain that the options describe; InputError unless they describe one."""
    if given.kernel is not None:
        if (given.states, given.p, given.q) != (None, None, None):
            raise InputError("--kernel says the whole chain: omit --states, --p and --q")
        return MarkovChain(_read(given.kernel))
    if given.states is None:
        return given.chain()
    if given.q is not None:
        raise InputError("--states goes with --p, the probability to leave a state: omit --q")
    if given.p is None:
        raise InputError("--states needs --p, the probability to leave a state")
    return SymmetricChain(given.states, given.p)


def _read(path: Path) -> list[list[float]]:
    """The numbers of a text file, line by line."""
    require_file(path)
    if not path.is_file():
        raise InputError(f"{str(path)!r} is no file")
    rows: list[list[float]] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for place, line in enumerate(lines, 1):
                words = line.strip().split(",") if line.strip() else []
                if len(rows) >= MAX_STATES or len(words) > MAX_STATES:
                    raise InputError(f"{str(path)!r} has more than {MAX_STATES} states")
                row = [number(word) for word in words]
                if any(value != value for value in row):
                    raise InputError(f"line {place} of {str(path)!r} is {shown(line.strip())}, "
                                     "not numbers with commas between them")  # fmt: skip
                rows += [row] if row else []
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is no text file") from None
    return rows


def _summary(chain: MarkovChain) -> Summary:
    """The numbers of a chain, ready for JSON."""
    own: dict[str, Any] = {n: getattr(chain, n) for n in ("p", "q") if hasattr(chain, n)}
    second = chain.second_eigenvalue
    return {
        "states": chain.states,
        **own,
        "structure": chain.structure,
        "stationary": list(chain.stationary),
        "stationary_entropy": chain.stationary_entropy,
        "entropy_rate": chain.entropy_rate,
        "mutual_information": chain.mutual_information,
        "ngram_losses": {str(n): chain.ngram_loss(n) for n in (1, 2, 3)},
        "second_eigenvalue": [second.real, second.imag] if isinstance(second, complex) else second,
        "covariance_eigenvalue": chain.covariance_eigenvalue,
        "threshold": _threshold(chain),
        "regime": chain.regime,
        "unigram": chain.unigram,
    }


def _threshold(chain: MarkovChain | BinaryChain) -> str | None:
    """Where the unigram changes what it is, of a family that has one parameter for it."""
    if isinstance(chain, SymmetricChain):
        return f"p = {chain.states - 1}/{chain.states}"
    return "p + q = 1" if hasattr(chain, "q") else None


def _lines(s: Summary) -> list[str]:
    own = [f"{name} = {s[name]:g}" for name in ("p", "q") if name in s]
    second = s["second_eigenvalue"]
    if isinstance(second, list):
        second = f"{second[0]:.6g} ± {abs(second[1]):.6g} i"
    else:
        second = f"{second:.6g}"
    law = ", ".join(f"{x:.6g}" for x in s["stationary"][:10])
    regime = f"expected regime                      {s['regime']} (threshold {s['threshold']})"
    return [
        ", ".join([f"{s['states']} states", *own, s["structure"]]),
        f"stationary law                       {law}{' ...' * (s['states'] > 10)}",
        f"stationary entropy (unigram)         {s['stationary_entropy']:.6f} nats",
        f"entropy rate (bigram, and longer)    {s['entropy_rate']:.6f} nats",
        f"mutual information                   {s['mutual_information']:.6f} nats",
        f"second eigenvalue                    {second}",
        f"largest covariance of neighbours     {s['covariance_eigenvalue']:.6g}",
        *([regime] if s["threshold"] is not None else []),
        f"unigram point of a tied model        {s['unigram']}",
    ]
