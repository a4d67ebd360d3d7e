"""The plane (α, β) of the induction model: its plateau, valleys, saddles and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.interface import Model, Plane
from flowsim.models.induction.ends import induction_landscape, valley


class InductionPlane(Plane):
    """(α, β); the line β = 0 is a plateau."""

    model: Any
    orbits = (
        *((x, y) for y in (0.04, 0.96) for x in (0.1, 0.3, 0.5, 0.7, 0.9)),
        *((0.03, 0.45), (0.35, 0.45), (0.45, 0.38)),
    )
    reach = 6.0
    isolated = False

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.window = {"alpha": (-6.0, 6.0), "beta": (-4.0, 6.0)}
        self.resolution = 48

    def saddles(self, x: Tensor, held: Mapping[str, float]) -> Tensor:
        found = induction_landscape(self.model).saddles
        return x.new_tensor([at for at in found if float(x[0]) < at < float(x[-1])])

    def extras(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Levels of the loss, ∂L/∂β on the plateau, the valleys, and the ends of both sides.

        The sign of ``plateau_slope`` says which way the plateau is left. An end at s = 0 or 1 has
        α = ∓∞.
        """
        model, found, shares = self.model, induction_landscape(self.model), x.sigmoid()
        slope = model.by_share(shares, torch.zeros_like(shares))[2]
        lines = [valley(model, side, shares.numpy()) for side in (-1, 1)]
        nowhere = np.full(len(x), np.nan)
        labels = ("global_minimum", "local_minimum")[: len(found.ends)]
        ends = {
            f"minimum_{name}": ("minimum", [float(getattr(end, name)) for end in found.by_loss])
            for name in ("alpha", "beta", "share", "loss")
        }
        return {
            "level": (("beta", "alpha"), model.loss(self.grid(x, y, {})).numpy()),
            "plateau_slope": ("alpha", slope.numpy(), {"long_name": "∂L/∂β on the plateau β = 0"}),
            "valley_beta": (
                ("side", "alpha"), np.stack([nowhere if v is None else v for v in lines]),
            ),
            "loss_plateau": ((), found.plateau),
            "loss_bayes": ((), model.bayes),
            "minimum": ("minimum", np.array(labels, dtype=str)),
            **ends,
        }  # fmt: skip
