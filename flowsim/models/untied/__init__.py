"""The arguments of the untied model."""

from dataclasses import dataclass

from flowsim.models.arguments import BIAS, ReadsOneSymbol


@dataclass(frozen=True, kw_only=True)
class Untied(ReadsOneSymbol):
    """untied (e, u, w)"""

    home = "flowsim.models.untied.model:UntiedModel"
    title = "Untied, from u = e"

    bias: str = BIAS.field()
