"""The plane of the memory: its decay α and its weight v."""

from __future__ import annotations

from collections.abc import Mapping

from flowsim.interface import Model, Plane

#: e, and w where own units read on (p + q > 1) and where they do not, outside the unigram's trap.
EMBEDDING, ABOVE, BELOW = 0.6, -1.2, 0.5


class MemoryPlane(Plane):
    """(α, v), with e and w held, unless told, where the unigram does not trap: v keeps its sign."""

    x, y = "alpha", "v"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.window = {"alpha": (-2.0, 2.0), "v": (-1.5, 1.5)}

    def hold(self, values: Mapping[str, float] | None) -> dict[str, float]:
        eigenvalue: float = self.model.eigenvalue  # type: ignore[attr-defined]
        usual = {"e": EMBEDDING, "w": ABOVE if eigenvalue < 0 else BELOW}
        return super().hold({**usual, **(values or {})})
