"""Kernels from files, and priors by the words of --prior: what ``chain`` reads and says of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from flowsim.cli.output import require_file
from flowsim.cli.texts import Summary
from flowsim.cli.values import MAX_STATES, number, shown
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.chains.higher_order import OrderChain
    from flowsim.chains.priors import Prior

#: S^k contexts are at most 2000.
MAX_ORDER = 10


def read_kernel(path: Path) -> list[list[float]]:
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


def chain_of_order(rows: list[list[float]], order: int) -> OrderChain:
    """The chain of that order with these rows; InputError if they are of another."""
    from flowsim.chains.higher_order import OrderChain

    chain = OrderChain(rows)
    if chain.order != order:
        raise InputError(
            f"a kernel of order {order} on {chain.states} states has {chain.states**order} rows, "
            f"not {len(rows)}"
        )
    return chain


def prior_of(words: str, states: int | None, order: int | None) -> Prior:
    """The prior that --prior, --states and --order describe together.

    Raises:
        InputError: an unknown name, weights that are none, or options that do not fit.
    """
    from flowsim.chains.priors import MixturePrior

    names, given = [], []
    for part in words.split(","):
        name, colon, weight = part.strip().rpartition(":")
        names.append(name if colon else weight)
        given += [number(weight)] * bool(colon)
    spelled = all(map(math.isfinite, given)) and len(given) in (0, len(names))
    if not spelled or (len(names) == 1 and given not in ([], [1.0])):
        raise InputError(
            "--prior is NAME, or NAME:WEIGHT,NAME:WEIGHT with a weight for every name, not "
            f"{shown(words)}"
        )
    parts = [_part(name, states, order) for name in names]
    for found in parts:
        if states is not None and found.states != states:
            raise InputError(f"--states is {states}, and a kernel of --prior has {found.states}")
    return parts[0] if len(parts) == 1 else MixturePrior(parts, given or None)


def _part(name: str, states: int | None, order: int | None) -> Prior:
    from flowsim.chains.priors import DirichletPrior, DoublyStochasticPrior, FinitePrior

    if name not in ("dirichlet", "doubly-stochastic"):
        if not Path(name).suffix:
            raise InputError(
                "--prior knows dirichlet, doubly-stochastic and files of kernels, not "
                f"{shown(name)}"
            )
        return FinitePrior([chain_of_order(read_kernel(Path(name)), order or 1)])
    if states is None:
        raise InputError(f"--prior {name} needs --states, their number")
    if name == "dirichlet":
        return DirichletPrior(states, order or 1)
    if order not in (None, 1):
        raise InputError(f"doubly stochastic kernels are of order 1: omit --order {order}")
    return DoublyStochasticPrior(states)


def prior_summary(words: str, states: int | None, order: int | None, length: int) -> Summary:
    """The exact losses under a prior, ready for JSON."""
    from flowsim.chains.exact_losses import prior_losses

    prior = prior_of(words, states, order)
    found = prior_losses(prior, length)
    return {
        "prior": words,
        "states": prior.states,
        "order": prior.order,
        "length": length,
        "uniform": found.uniform,
        "counting": {str(j): loss for j, loss in found.counting.items()},
        "bayes": found.bayes,
        "kernel": found.kernel,
    }


def prior_lines(s: Summary) -> list[str]:
    """The same in words."""
    rows = [("uniform", s["uniform"])]
    names = {"0": " (unigram)", "1": " (bigram)"}
    for order, loss in s["counting"].items():
        rows.append((f"counting in context, order {order}{names.get(order, '')}", loss))
    rows += [("Bayes, who knows the prior", s["bayes"]), ("who knows the kernel", s["kernel"])]
    return [
        f"prior {s['prior']}, {s['states']} states, order {s['order']}",
        f"exact mean losses after {s['order']} to {s['length']} symbols; counting adds one",
        *(f"{name:<41}{loss:.6f} nats" for name, loss in rows),
    ]
