"""What a run trains on, beside binary chains: chains on more states or of order k, and priors."""

from __future__ import annotations

from typing import Any

from flowsim.chains.higher_order import OrderChain
from flowsim.chains.priors import Prior
from flowsim.errors import InputError
from flowsim.markov import MarkovChain, SymmetricChain
from full_model.model.architecture import Architecture
from full_model.model.chain_source import ChainSource
from full_model.model.population import check_enumeration
from full_model.model.prior_source import PriorSource
from full_model.model.sequence_source import SequenceSource
from full_model.model.source import MarkovSource
from full_model.training.recipe import Recipe

Data = MarkovChain | OrderChain | Prior


def source_of(data: Data, members: int = 1) -> SequenceSource:
    """The sequences of a chain or a prior, the same for every model.

    Raises:
        InputError: a chain with no one stationary law, or more than 256 states.
    """
    if isinstance(data, Prior):
        return PriorSource(data, members)
    if isinstance(data, MarkovChain):
        if (data.kernel > 0).all() and data.states <= 256:
            return MarkovSource.of(data).repeat(members)
        data = OrderChain(data.kernel)
    return ChainSource(data, members)


def settings_of(data: Data) -> dict[str, Any]:
    """What was chosen, ready for JSON; data with the same settings is the same."""
    if isinstance(data, Prior):
        return data.settings()
    own = {"prior": "fixed", "states": data.states, "order": data.order}
    if isinstance(data, SymmetricChain):
        return {**own, "p": data.p}
    return {**own, "kernel": data.kernel.tolist()}


def words_of(data: Data) -> str:
    """The law of kernels in a few words: "fixed", or the prior's name, parts with weights."""
    if not isinstance(data, Prior):
        return "fixed"
    return _prior_words(data.settings())


def _prior_words(settings: dict[str, Any]) -> str:
    if settings["prior"] == "mixture":
        parts = zip(settings["parts"], settings["weights"], strict=True)
        return ",".join(f"{_prior_words(part)}:{weight:g}" for part, weight in parts)
    if settings["prior"] == "finite":
        count = len(settings["kernels"])
        return "one kernel" if count == 1 else f"{count} kernels"
    beta = settings.get("beta", 1.0)
    return str(settings["prior"]) + (f"({beta:g})" if beta != 1 else "")


def require_one(p: object, q: object, data: object) -> None:
    """InputError unless either p and q or data is given."""
    if (p is None) != (q is None) or (p is None) == (data is None):
        raise InputError("a run trains on p and q, or on data: give the one or the other")


def check_data(arch: Architecture, recipe: Recipe, data: Data | None, init: str) -> None:
    """InputError, in one sentence, for data that does not fit the transformer or its trainer."""
    states = 2 if data is None else data.states
    if arch.states != states:
        raise InputError(f"a model on {arch.states} states cannot train on {states}")
    if data is not None:
        if arch.length <= data.order:
            raise InputError(
                f"length must be above the order {data.order}, of which kernels predict, "
                f"not {arch.length}"
            )
        if arch.states > arch.d + 1:
            raise InputError(
                f"{arch.states} states need d of at least {arch.states - 1} to be told apart from "
                f"one another alike, not {arch.d}"
            )
        if init not in ("gaussian", "given"):
            raise InputError(f"a {init} start is one of binary chains, with p and q")
    if recipe.loss == "population":
        _check_exact(arch, data)


def _check_exact(arch: Architecture, data: Data | None) -> None:
    """InputError where there is no exact loss, or too large a one."""
    if isinstance(data, Prior) and not data.has_bayes:
        raise InputError(
            f"the exact loss of {words_of(data)} kernels on {data.states} states needs Bayes's "
            "predictor, which is not known; train on sampled batches, by sgd or adamw"
        )
    first_order = data is None or (isinstance(data, MarkovChain) and bool((data.kernel > 0).all()))
    if arch.attention != "none" or not first_order:
        check_enumeration(arch, arch.length)
