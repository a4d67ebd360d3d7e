"""The command ``chain``: what is known of a Markov chain before anything is trained."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowsim.cli import options
from flowsim.cli.commands.kernel_files import (
    AnyChain,
    prior_lines,
    prior_summary,
)
from flowsim.cli.output import say
from flowsim.cli.texts import Summary
from flowsim.errors import InputError
from flowsim.markov import MarkovChain, SymmetricChain

if TYPE_CHECKING:
    from flowsim.chains.higher_order import OrderChain


@dataclass(frozen=True)
class Chain(AnyChain):
    """The options of ``chain``."""

    length: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**6, metavar="N", rich_help_panel=options.CHAIN, show_default=False,
            help=f"Symbols of a sequence, of --prior.  [default: {options.DEFAULT_LENGTH}]",
        ),
    ] = None  # fmt: skip
    as_json: options.Json = False


def chain(given: Chain) -> None:
    """Say what is known of a chain: entropies, second eigenvalue, threshold, expected regime.

    The chain is binary (--p and --q); or has S states and moves to any other state alike with
    probability p (--states and --p); or is the one of a transition matrix (--kernel), of order K
    with --order. With --prior every sequence has a kernel of its own: then the exact losses are
    said of counting in context, of Bayes's predictor, and of who knows the kernel.

    \b
    Examples:
      flowsim chain --p 0.5 --q 0.8
      flowsim chain --states 5 --p 0.9
      flowsim chain --prior dirichlet --states 2 --order 2 --length 16
    """
    if given.prior is not None:
        found, lines = _prior_summary(given), prior_lines
    elif given.length is not None:
        raise InputError("--length goes with --prior, of whose sequences it is the length")
    else:
        found, lines = _summary(given.any_chain()), _lines
    say(json.dumps(found, indent=2) if given.as_json else "\n".join(lines(found)))


def _prior_summary(given: Chain) -> Summary:
    length = options.DEFAULT_LENGTH if given.length is None else given.length
    assert given.prior is not None
    return prior_summary(given.any_prior(), given.prior, length)


def _summary(chain: MarkovChain | OrderChain) -> Summary:
    """The numbers of a chain, ready for JSON."""
    own: dict[str, Any] = {n: getattr(chain, n) for n in ("p", "q", "order") if hasattr(chain, n)}
    longest = max(3, own.get("order", 1) + 2)
    second = chain.second_eigenvalue
    return {
        "states": chain.states,
        **own,
        "structure": chain.structure,
        "stationary": list(chain.stationary),
        "stationary_entropy": chain.stationary_entropy,
        "entropy_rate": chain.entropy_rate,
        "mutual_information": chain.mutual_information,
        "ngram_losses": {str(n): chain.ngram_loss(n) for n in range(1, longest + 1)},
        "second_eigenvalue": [second.real, second.imag] if isinstance(second, complex) else second,
        "covariance_eigenvalue": chain.covariance_eigenvalue,
        "threshold": _threshold(chain),
        "regime": chain.regime,
        "unigram": chain.unigram,
    }


def _threshold(chain: MarkovChain | OrderChain) -> str | None:
    """Where the unigram changes what it is, of a family that has one parameter for it."""
    if isinstance(chain, SymmetricChain):
        return f"p = {chain.states - 1}/{chain.states}"
    return "p + q = 1" if hasattr(chain, "q") else None


def _lines(s: Summary) -> list[str]:
    own = [f"{name} = {s[name]:g}" for name in ("p", "q", "order") if name in s]
    longer = [
        f"best from the last {n - 1} symbol{'s' * (n > 2)}".ljust(37)
        + f"{s['ngram_losses'][str(n)]:.6f} nats"
        for n in range(2, s.get("order", 1) + 1)
    ]
    second = s["second_eigenvalue"]
    if isinstance(second, list):
        second = f"{second[0]:.6g} ± {abs(second[1]):.6g} i"
    else:
        second = f"{second:.6g}"
    law = ", ".join(f"{x:.6g}" for x in s["stationary"][:10])
    order = s.get("order", 1)
    rate = (
        "entropy rate (bigram, and longer)"
        if order == 1
        else f"entropy rate (last {order} symbols)"
    )
    regime = f"expected regime                      {s['regime']} (threshold {s['threshold']})"
    return [
        ", ".join([f"{s['states']} states", *own, s["structure"]]),
        f"stationary law                       {law}{' ...' * (s['states'] > 10)}",
        f"stationary entropy (unigram)         {s['stationary_entropy']:.6f} nats",
        *longer,
        f"{rate:<37}{s['entropy_rate']:.6f} nats",
        f"mutual information                   {s['mutual_information']:.6f} nats",
        f"second eigenvalue                    {second}",
        f"largest covariance of neighbours     {s['covariance_eigenvalue']:.6g}",
        *([regime] if s["threshold"] is not None else []),
        f"unigram point of a tied model        {s['unigram']}",
    ]
