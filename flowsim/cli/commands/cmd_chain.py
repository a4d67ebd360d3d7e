"""The command ``chain``: properties of a Markov chain, given by options or by a file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flowsim.cli import options
from flowsim.cli.groups import OneChain, ProcessOptions, refuse
from flowsim.cli.options import CHAIN, option, quoted, read_kernel
from flowsim.cli.output import echo
from flowsim.cli.printer import as_text
from flowsim.errors import InputError, number
from flowsim.markov import MarkovChain, SymmetricChain

if TYPE_CHECKING:
    from flowsim.chains.hidden import HiddenMarkovProcess
    from flowsim.chains.higher_order import OrderChain
    from flowsim.chains.priors import Prior

#: S^k contexts are at most 2000.
MAX_ORDER = 10


@dataclass(frozen=True)
class AnyChain(ProcessOptions, OneChain):
    """Options of a chain on any number of states and of any order, or of a prior over kernels."""

    states: options.States = None
    order: Annotated[
        int | None,
        option(CHAIN, "K", "The next symbol depends on the last K; --kernel then has S^K rows, "
               "the oldest symbol varying slowest.", min=1, max=MAX_ORDER),
    ] = None  # fmt: skip
    prior: Annotated[
        str | None,
        option(CHAIN, "PRIOR", "Law from which each sequence draws its kernel: dirichlet, "
               "doubly-stochastic, a FILE like that of --kernel, or a weighted mixture such as "
               "doubly-stochastic:0.75,dirichlet:0.25."),
    ] = None  # fmt: skip

    def hidden_process(self) -> HiddenMarkovProcess | None:
        """Return the hidden process, or None; InputError if options of a chain are given too."""
        found = super().hidden_process()
        if found is not None:
            alone = "--process gives the whole process"
            alone = alone if self.process else "--emission goes with --kernel alone"
            refuse(self, ("p", "q", "states", "order", "prior"), alone)
        return found

    def any_chain(self) -> MarkovChain | OrderChain:
        """Return the chain that the options describe; InputError unless they describe one."""
        if self.kernel is not None:
            refuse(self, ("states", "p", "q"), "--kernel says the whole chain")
            rows = read_kernel(self.kernel)
            return MarkovChain(rows) if self.order is None else chain_of_order(rows, self.order)
        if self.order is not None:
            raise InputError("--order needs --kernel, a row for every context, or --prior")
        if self.states is None:
            return self.chain()
        refuse(self, ("q",), "--states goes with --p, the probability to leave a state")
        if self.p is None:
            raise InputError("--states needs --p, the probability to leave a state")
        return SymmetricChain(self.states, self.p)

    def any_prior(self) -> Prior:
        """Return the distribution of kernels that --prior describes, with --states and --order."""
        from flowsim.chains.priors import MixturePrior

        refuse(self, ("p", "q", "kernel"), "--prior draws the kernel of every sequence")
        assert self.prior is not None
        names, given = [], []
        for part in self.prior.split(","):
            name, colon, weight = part.strip().rpartition(":")
            names.append(name if colon else weight)
            given += [number(weight)] * bool(colon)
        spelled = all(map(math.isfinite, given)) and len(given) in (0, len(names))
        if not spelled or (len(names) == 1 and given not in ([], [1.0])):
            raise InputError(
                "--prior is NAME, or NAME:WEIGHT,NAME:WEIGHT with a weight for every name, not "
                f"{quoted(self.prior)}"
            )
        parts = [_part(name, self.states, self.order) for name in names]
        for found in parts:
            if self.states is not None and found.states != self.states:
                raise InputError(
                    f"--states is {self.states}, and a kernel of --prior has {found.states}"
                )
        return parts[0] if len(parts) == 1 else MixturePrior(parts, given or None)


def chain_of_order(rows: list[list[float]], order: int) -> OrderChain:
    """Return the chain of that order with these rows; InputError if they are of another."""
    from flowsim.chains.higher_order import OrderChain

    chain = OrderChain(rows)
    if chain.order != order:
        raise InputError(
            f"a kernel of order {order} on {chain.states} states has {chain.states**order} rows, "
            f"not {len(rows)}"
        )
    return chain


def _part(prior: str, states: int | None, order: int | None) -> Prior:
    """Return one component of --prior: a named distribution, or the one kernel of a file."""
    from flowsim.chains.priors import DirichletPrior, DoublyStochasticPrior, FinitePrior

    if prior not in ("dirichlet", "doubly-stochastic"):
        if not Path(prior).suffix:
            raise InputError(
                "--prior knows dirichlet, doubly-stochastic and files of kernels, not "
                f"{quoted(prior)}"
            )
        return FinitePrior([chain_of_order(read_kernel(Path(prior)), order or 1)])
    if states is None:
        raise InputError(f"--prior {prior} needs --states, their number")
    if prior == "dirichlet":
        return DirichletPrior(states, order or 1)
    if order not in (None, 1):
        raise InputError(f"doubly stochastic kernels are of order 1: omit --order {order}")
    return DoublyStochasticPrior(states)


@dataclass(frozen=True)
class Chain(AnyChain):
    length: Annotated[
        int | None,
        option(CHAIN, "N",
               f"Length of the sequences of --prior.  [default: {options.DEFAULT_LENGTH}]",
               min=1, max=10**6, show_default=False),
    ] = None  # fmt: skip
    as_json: options.Json = False


def chain(given: Chain) -> None:
    """Print properties of a chain: entropies, second eigenvalue, threshold, expected regime.

    The chain is binary (--p and --q); or has S states and leaves a state with probability p,
    uniformly to the others (--states and --p); or has a transition matrix (--kernel), of
    order K with --order. With --prior every sequence has its own transition matrix: then the losses
    are those of counting in context, of Bayes's predictor, and of an oracle that knows the matrix.

    A hidden process has a name (--process), or is the chain of --kernel with --emission. Its losses
    are exact for the last n symbols, with bounds on its entropy rate.

    \b
    Examples:
      flowsim chain --p 0.5 --q 0.8
      flowsim chain --process mess3:x=0.05,a=0.85
      flowsim chain --states 5 --p 0.9
      flowsim chain --prior dirichlet --states 2 --order 2 --length 16
    """
    process = given.hidden_process()
    if process is not None and given.length is None:
        from flowsim.chains.hidden import MAX_WORDS

        longest = 16 if process.symbols == 2 else int(math.log(MAX_WORDS, process.symbols) + 1e-9)
        ngrams = process.ngram_losses(longest)
        filtered = process.emission is not None and process.emission.shape == (2, 2)
        found = {
            "process": given.process or f"{given.kernel} with {given.emission}",
            "symbols": process.symbols,
            "hidden_states": process.states,
            "structure": process.hidden.structure,
            "stationary": list(process.stationary),
            "ngram_losses": {str(n): loss for n, loss in enumerate(ngrams, 1)},
            "entropy_rate_bounds": list(process.entropy_bounds(longest)),
            "neighbours": process.neighbours.kernel.tolist(),
            "covariance_eigenvalue": process.neighbours.covariance_eigenvalue,
            "unigram": process.neighbours.unigram,
            "linear_filter": process.linear_filter._asdict() if filtered else None,
        }
    elif given.prior is not None:
        from flowsim.chains.exact_losses import prior_losses

        prior, length = given.any_prior(), given.length or options.DEFAULT_LENGTH
        losses = prior_losses(prior, length)
        found = {
            "prior": given.prior,
            "states": prior.states,
            "order": prior.order,
            "length": length,
            "uniform": losses.uniform,
            "counting": {str(j): loss for j, loss in losses.counting.items()},
            "bayes": losses.bayes,
            "kernel": losses.kernel,
        }
    elif given.length is not None:
        raise InputError("--length goes with --prior, of whose sequences it is the length")
    else:
        chain, known = given.any_chain(), ("p", "q", "order")
        own = {name: getattr(chain, name) for name in known if hasattr(chain, name)}
        second, threshold = chain.second_eigenvalue, "p + q = 1" if "q" in own else None
        if isinstance(chain, SymmetricChain):
            threshold = f"p = {chain.states - 1}/{chain.states}"
        longest = max(3, own.get("order", 1) + 2)
        pair = [second.real, second.imag] if isinstance(second, complex) else second
        found = {
            "states": chain.states,
            **own,
            "structure": chain.structure,
            "stationary": list(chain.stationary),
            "stationary_entropy": chain.stationary_entropy,
            "entropy_rate": chain.entropy_rate,
            "mutual_information": chain.mutual_information,
            "ngram_losses": {str(n): chain.ngram_loss(n) for n in range(1, longest + 1)},
            "second_eigenvalue": pair,
            "covariance_eigenvalue": chain.covariance_eigenvalue,
            "threshold": threshold,
            "regime": chain.regime,
            "unigram": chain.unigram,
        }
    echo(json.dumps(found, indent=2) if given.as_json else as_text(found))
