"""Full models moved from saved time to saved time, beside the reduced orbits of their points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from flowsim.interface import Model
from full_model.comparison.choices import Comparison
from full_model.comparison.full_side import FullSide
from full_model.comparison.reduced_side import ReducedSide

#: Between the times at which runs are looked at: the first, and each next one by this factor.
FIRST_TIME, FACTOR = 0.25, 2**0.5
#: What is measured at the saved times, and what of each run in the end.
CURVES = ("loss", "drift", "trained", "reduced_loss", "orbit", "distance")
ENDS = ("predicted", "outcome", "end_reason", "steps", "end", "open_share", "curvature",
        "gradient_norm")  # fmt: skip


class SideBySide:
    """Some starts of a comparison under gradient descent or gradient flow.

    Args:
        settings: what to compare.
        points: (n, 2 or 3).
        model: the model that predicts.
        seeds: see ``full_side.lifted_weights``.
    """

    def __init__(
        self,
        settings: Comparison,
        points: Tensor,
        model: Model,
        seeds: Sequence[int] | None = None,
    ) -> None:
        self.settings = settings
        self.full = FullSide(settings, points, seeds)
        self.reduced = ReducedSide(model, points)
        self.times: list[float] = []
        self.lines: list[dict[str, Tensor]] = []

    def run(self, pause: Callable[[], object] | None = None) -> None:
        """Go on until every run is decided or its steps are used up, or to the horizon.

        Args:
            pause: called every few steps, and once at every saved time.
        """
        horizon = self.settings.last_time
        if not self.times:
            self._measure(0.0)
        while bool(self.full.undecided().any()) and self.times[-1] < horizon:
            until = min(FIRST_TIME * FACTOR ** (len(self.times) - 1), horizon)
            self.full.move(until, pause)
            self._measure(until)
            if pause is not None:
                pause()

    def _measure(self, at: float) -> None:
        self.times.append(at)
        self.lines.append(self.full.measure(at))

    def found(self) -> dict[str, np.ndarray]:
        """All that was found: "time" (T,), ``CURVES`` (T, n[, 2 or 3]) and ``ENDS`` (n,).

        Curves end (NaN) where the run was decided. "distance" is that of the projected weights from
        the reduced flow's orbit at the same time: what finite steps do to descent is part of it.
        """
        full = self.full
        columns = {name: torch.stack([line[name] for line in self.lines]) for name in self.lines[0]}
        orbit, loss = self.reduced.orbit_at(self.times)
        measured = columns["loss"].isfinite()
        columns["orbit"] = torch.where(measured.unsqueeze(-1), orbit, torch.nan)
        columns["reduced_loss"] = torch.where(measured, loss, torch.nan)
        columns["distance"] = (columns["trained"] - orbit).norm(dim=-1)
        columns |= {"predicted": self.reduced.predicted, "end_reason": full.end_reasons()}
        for name in ("outcome", "steps", "end", "open_share", "curvature", "gradient_norm"):
            columns[name] = getattr(full, name)
        found = {name: columns[name].cpu().numpy() for name in (*CURVES, *ENDS)}
        return found | {"time": np.array(self.times)}
