"""The arguments of the canonical model."""

from dataclasses import dataclass

from flowsim.models.arguments import BIAS, ReadsOneSymbol


@dataclass(frozen=True, kw_only=True)
class Canonical(ReadsOneSymbol):
    """canonical (e, w)"""

    home = "flowsim.models.canonical.model:CanonicalModel"
    title = "Canonical: weights e and w"

    bias: str = BIAS.field()
