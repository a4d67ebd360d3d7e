"""The plane of the memory: its decay α and its weight v."""

from __future__ import annotations

from dataclasses import replace

from flowsim.interface import Model, Plane

#: e, and w where own units read on (p + q > 1) and where they do not, outside the unigram's trap.
EMBEDDING, ABOVE, BELOW = 0.6, -1.2, 0.5


class MemoryPlane(Plane):
    """(α, v), e and w fixed by default where the unigram does not trap: v keeps its sign."""

    x, y = "alpha", "v"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.window = {"alpha": (-2.0, 2.0), "v": (-1.5, 1.5)}
        eigenvalue: float = model.eigenvalue  # type: ignore[attr-defined]
        fixed = {"e": EMBEDDING, "w": ABOVE if eigenvalue < 0 else BELOW}
        self.defaults = replace(self.defaults, fixed=fixed)
