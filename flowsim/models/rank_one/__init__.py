"""The arguments of the rank-one model."""

from dataclasses import dataclass
from typing import ClassVar

from flowsim.models.arguments import LENGTH, ReadsOneSymbol
from flowsim.spec import Parameter


@dataclass(frozen=True, kw_only=True)
class RankOne(ReadsOneSymbol):
    """rank-one, which full training from lifted starts follows"""

    home = "flowsim.models.rank_one.model:RankOneModel"
    title = "Rank-one: full training"
    lacks: ClassVar = {"bias": "always has its bias as a coordinate; omit bias"}

    length: int = LENGTH.field()
    attention: bool = Parameter(False, "its attention layer").field()
    tied: bool = Parameter(True, "reads with weights of its own", noun="untied weights").field()
