"""The planes of S states by their name: without attention, and with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError
from flowsim.markov import SymmetricChain
from flowsim.models.family import LENGTH, PLANAR, Family, Option, located

if TYPE_CHECKING:
    from flowsim.interface import Model

#: m, the hidden units for each state, unless given.
HIDDEN_PER_STATE = 4


class _States(Family):
    """Two classes of models of symmetric chains, whose number of states is an option."""

    def chain(self, options: Mapping[str, Any], **chances: float) -> Any:
        return SymmetricChain(options["states"], **chances)

    def build(self, chain: Any, options: Mapping[str, Any]) -> Model:
        states = options["states"]
        if not isinstance(chain, SymmetricChain) or chain.states != states:
            raise InputError(f"the model of {states} states is not for {chain!r}")
        m = options["hidden_per_state"]
        if options["attention"]:
            attends = "flowsim.models.states.attention:StatesAttentionModel"
            return located(attends)(chain, options["length"], m)
        return located(self.home)(chain, m)


FAMILY = _States(
    "states",
    "states (e, w), exact for S logits, with --attention (e, w, v)",
    "More than two states",
    "flowsim.models.states.plane:StatesModel",
    {
        "states": Option(5, "the number of states", needed=True),
        "hidden_per_state": Option(HIDDEN_PER_STATE, "hidden units for each state"),
        "attention": Option(False, "uniform attention a = v|v|"),
        "length": replace(LENGTH, only_with="attention"),
    },
    data={"p": Option(0.9, "chance to leave a state")},
    lifts=(PLANAR,),
    without={
        "bias": "has a bias that is zero by symmetry; omit bias",
        "q": "takes no q: its chain stays with probability 1 - p",
    },
)
