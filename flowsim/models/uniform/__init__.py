"""The arguments of the model with uniform attention."""

from dataclasses import dataclass

from flowsim.models.arguments import BIAS, LENGTH, OnBinaryChain


@dataclass(frozen=True, kw_only=True)
class Uniform(OnBinaryChain):
    """uniform attention (e, w, a)"""

    home = "flowsim.models.uniform.model:UniformAttentionModel"
    title = "Uniform attention, a slice"

    length: int = LENGTH.field()
    bias: str = BIAS.field()
