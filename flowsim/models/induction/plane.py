"""The plane (α, β) of the induction model: its plateau, valleys, saddles and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from contourpy import contour_generator

from flowsim.curves import Curve
from flowsim.interface import Model, Plane, Range, theta_on_grid
from flowsim.models.induction.ends import induction_landscape, valley

#: Values of α along valleys, and of both along a side of the grid whose levels are drawn.
_POINTS = 121


class InductionPlane(Plane):
    """(α, β); the line β = 0 is a plateau, the in-context unigram."""

    model: Any

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.window = {"alpha": (-6.0, 6.0), "beta": (-4.0, 6.0)}
        sides = ((x, y) for y in (0.04, 0.96) for x in (0.1, 0.3, 0.5, 0.7, 0.9))
        orbits = (*sides, (0.03, 0.45), (0.35, 0.45), (0.45, 0.38))
        self.defaults = replace(self.defaults, orbits=orbits)

    def curves(
        self,
        window: Mapping[str, Range],
        fixed: Mapping[str, float],
        points: int = 1201,
        quick: bool = False,
    ) -> list[Curve]:
        """The plateau with its saddles and, unless quick, levels of the loss, valleys and ends.

        A valley is the β of least loss above each α, on either side of the plateau.
        """
        model, found = self.model, induction_landscape(self.model)
        alpha = torch.linspace(*window["alpha"], _POINTS, dtype=torch.float64)
        low, high = window["alpha"]
        plateau = Curve("plateau", np.array([low, high]), np.zeros(2))
        saddles = [Curve("saddle", np.array([x]), np.zeros(1))
                   for x in found.saddles if low < x < high]  # fmt: skip
        if quick:
            return [plateau, *saddles]
        beta = torch.linspace(*window["beta"], _POINTS, dtype=torch.float64)
        loss = model.loss(theta_on_grid(self, alpha, beta, {})).numpy()
        contours = contour_generator(alpha.numpy(), beta.numpy(), loss)
        levels = np.unique(np.quantile(loss, np.linspace(0.02, 0.9, 14)))
        lines = [line for level in levels for line in contours.lines(level)]
        between = np.full((1, 2), np.nan)
        level = np.concatenate([part for line in lines for part in (line, between)] or [between])
        valleys = [valley(model, side, alpha.sigmoid().numpy()) for side in (-1, 1)]
        lower_first = sorted(found.ends.values(), key=lambda end: end.loss)
        ends = zip(("global minimum", "local minimum"), lower_first, strict=False)
        return [
            Curve("level of the loss", *level.T),
            plateau,
            *(Curve("valley", alpha.numpy(), line) for line in valleys if line is not None),
            *(Curve(kind, np.array([end.alpha]), np.array([end.beta])) for kind, end in ends),
            *saddles,
        ]
