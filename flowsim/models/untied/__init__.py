"""The arguments of the untied model."""

from dataclasses import dataclass

from flowsim.models.arguments import BIAS, OnBinaryChain


@dataclass(frozen=True, kw_only=True)
class Untied(OnBinaryChain):
    """untied (e, u, w)"""

    home = "flowsim.models.untied.model:UntiedModel"
    title = "Untied, from u = e"

    bias: str = BIAS.field()
