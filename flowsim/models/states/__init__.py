"""The arguments of the planes of S states, without attention and with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from flowsim.markov import SymmetricChain
from flowsim.models.arguments import LENGTH, Arguments
from flowsim.spec import Parameter, import_object

if TYPE_CHECKING:
    from flowsim.interface import Model

#: m, the hidden units for each state, unless given.
HIDDEN_PER_STATE = 4
LEAVES = Parameter(0.9, "chance to leave a state", required=True, slider=(0.001, 0.999))
HIDDEN = Parameter(HIDDEN_PER_STATE, "hidden units for each state", slider=(1, 50))
#: Why a symmetric chain takes no bias.
NO_BIAS = "has a bias that is zero by symmetry; omit bias"


@dataclass(frozen=True, kw_only=True)
class States(Arguments):
    """states (e, w), exact for S logits, with --attention (e, w, v)"""

    home = "flowsim.models.states.plane:StatesModel"
    title = "More than two states"
    lacks: ClassVar = {
        "bias": NO_BIAS,
        "q": "takes no q: its chain stays with probability 1 - p",
    }

    states: int = Parameter(5, "the number of states", required=True, slider=(2, 50)).field()
    p: float = LEAVES.field()
    hidden_per_state: int = HIDDEN.field()
    attention: bool = Parameter(False, "uniform attention a = v|v|").field()
    length: int = replace(LENGTH, requires="attention").field()

    def chain(self) -> SymmetricChain:
        """Return the symmetric chain."""
        return SymmetricChain(self.states, self.p)

    def build(self) -> Model:
        """Return the model of the plane, or with attention the one of (e, w, v)."""
        chain, m = self.chain(), self.hidden_per_state
        attends = "flowsim.models.states.attention:StatesAttentionModel"
        model: Model = (
            import_object(attends)(chain, self.length, m)
            if self.attention
            else import_object(self.home)(chain, m)
        )
        return model
