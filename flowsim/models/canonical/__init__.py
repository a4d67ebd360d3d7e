"""The arguments of the canonical model."""

from dataclasses import dataclass

from flowsim.models.arguments import BIAS, OnBinaryChain


@dataclass(frozen=True, kw_only=True)
class Canonical(OnBinaryChain):
    """canonical (e, w)"""

    home = "flowsim.models.canonical.model:CanonicalModel"
    title = "Canonical: weights e and w"

    bias: str = BIAS.field()
