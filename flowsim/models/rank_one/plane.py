"""The plane of the rank-one model: canonical starts, lifted, and orbits, projected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from flowsim.labels import CriticalPoint
from flowsim.models.canonical.basins import separatrix
from flowsim.models.canonical.model import CanonicalModel
from flowsim.models.on_chain import AttentionPlane

#: Starts of orbits, in parts of the window's sides: where they move without being stiff.
_PLACES = tuple(x / 3.5 + 0.5 for x in (-1.6, -0.55, 0.55, 1.6))


class RankOnePlane(AttentionPlane):
    """Canonical (w, e), lifted to points with the same logits; b and, with attention, a are held.

    Without attention the separatrix drawn is that of the canonical model.
    """

    model: Any
    separatrix_of = CanonicalModel.heading

    def __init__(self, model: Any) -> None:
        canonical = ("e", "w", "a") if model.attention else ("e", "w")
        starts = (canonical, (*canonical, "b"), model.coordinates)
        super().__init__(model, starts, model.attention and model.tied)
        self.fixable = ("a", "b") if model.attention else ("b",)
        same = model.tied and not model.attention  # then it is a model of the same transformer
        self.defaults = replace(
            self.defaults,
            orbits=tuple((x, y) for y, x in product(_PLACES, _PLACES)),
            never_crossed=("e", "w"),
            baseline=CanonicalModel(model.chain) if same else None,
        )

    def embed(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the lift (..., k) of canonical coordinates, b being the best unless given."""
        zero = torch.zeros_like(values["e"])
        names = [*self.defaults.starts[0], *(["b"] if "b" in values else [])]
        columns = [values.get(name, zero).expand_as(zero) for name in names]
        return self.model.from_canonical(torch.stack(columns, dim=-1))

    def project(self, theta: Tensor) -> Tensor:
        """Return the canonical coordinates of θ, shape (..., 2 or 3)."""
        return self.model.to_canonical(theta)

    def separatrix(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of the canonical basin's boundary above each w; NaN where none is."""
        if self.model.attention or "b" in fixed:
            return super().separatrix(x, fixed)
        return separatrix(self.model.chain, x)

    def axis_kinds(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor | None:
        """Return the kinds of the lifts of (0, w) in the tied model without attention, else None.

        Near such a point, with e and ρ small and w₁w₂ = w|w| as lifted, the logit gap is
        Δ = e(e + 4w₂[ReLU(w₁(e + ρ)) − ReLU(w₁ρ)]): homogeneous, and over all ρ it takes every
        value between e² and e²(1 + 4w|w|). The loss falls where Δ has the sign of Δ*. So for
        p + q > 1 the point is a local minimum iff 1 + 4w|w| ≥ 0, that is w ≥ −1/2, and a saddle
        below; for p + q < 1 there is none: it is a maximum for w ≥ −1/2 and a saddle below.
        Source: own derivation.
        """
        if self.model.attention or not self.model.tied or "b" in fixed:
            return None
        sign = self.model.chain.second_eigenvalue
        if sign == 0:
            return torch.full_like(x, CriticalPoint.GLOBAL_MINIMUM, dtype=torch.int8)
        other = CriticalPoint.LOCAL_MINIMUM if sign < 0 else CriticalPoint.LOCAL_MAXIMUM
        return torch.where(x > -0.5, other, CriticalPoint.SADDLE).to(torch.int8)

    def saddles(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the w of the saddle on e = 0, −1/2, if it is inside the window of x; else none."""
        inside = bool(x[0] < -0.5 < x[-1]) and self.model.chain.second_eigenvalue != 0
        return x.new_tensor([-0.5]) if inside else x[:0]
