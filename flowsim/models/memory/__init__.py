"""The arguments of the state-space layer on a hidden symmetric chain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from flowsim.models.arguments import LENGTH, Arguments
from flowsim.models.states import HIDDEN, LEAVES, NO_BIAS
from flowsim.spec import Parameter


@dataclass(frozen=True, kw_only=True)
class Memory(Arguments):
    """memory (e, w, v, alpha), a state-space layer on a hidden chain"""

    home = "flowsim.models.memory.model:MemoryModel"
    title = "State-space layer, hidden chain"
    lacks: ClassVar = {
        "bias": NO_BIAS,
        "q": "takes no q: its hidden chain stays with probability 1 - p",
    }

    p: float = LEAVES.field()
    flip: float = Parameter(
        0.2, "chance of another symbol than its own", slider=(0.0, 0.49)
    ).field()
    states: int = Parameter(2, "the number of states", slider=(2, 3)).field()
    length: int = replace(LENGTH, default=2, slider=(1, 8)).field()
    hidden_per_state: int = HIDDEN.field()
    decay: str = Parameter("signed", "signed, in (-1, 1), or positive, in (0, 1)").field()
