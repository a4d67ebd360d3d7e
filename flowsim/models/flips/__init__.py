"""The arguments of the canonical model of a hidden chain whose symbols are flipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowsim.chain import BinaryChain
from flowsim.models.arguments import BIAS, OnBinaryChain
from flowsim.spec import Parameter

if TYPE_CHECKING:
    from flowsim.models.flips.chain import FlippedChain


@dataclass(frozen=True, kw_only=True)
class Flips(OnBinaryChain):
    """flips (e, w), the canonical model of a hidden chain"""

    home = "flowsim.models.flips.model:FlipsModel"
    title = "Hidden chain with flips"
    of_chain = ("p", "q", "flip")

    flip: float = Parameter(0.1, "chance that a symbol is flipped", slider=(0.0, 0.49)).field()
    bias: str = BIAS.field()

    def chain(self) -> FlippedChain:
        from flowsim.models.flips.chain import FlippedChain

        return FlippedChain.of(BinaryChain(self.p, self.q), self.flip)
