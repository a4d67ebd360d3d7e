"""The arguments of the model with linear attention."""

from dataclasses import dataclass

from flowsim.models.arguments import BIAS, OnBinaryChain


@dataclass(frozen=True, kw_only=True)
class Linear(OnBinaryChain):
    """linear attention (e, w, a)"""

    home = "flowsim.models.linear.model:LinearAttentionModel"
    title = "Linear attention, a slice"

    bias: str = BIAS.field()
