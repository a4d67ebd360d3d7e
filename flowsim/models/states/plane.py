"""The planar model of S states that full training never leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from flowsim.errors import require_integer
from flowsim.interface import Integral
from flowsim.markov import SymmetricChain
from flowsim.models.canonical.basins import (
    SADDLE_ENERGY,
    energy,
    minima_curve,
    reaches_global_minimum,
    separatrix,
)
from flowsim.models.gap_family.base import GapModel, relative_entropy
from flowsim.models.on_chain import ChainPlane, OnChain, canonical_integral
from flowsim.models.states import HIDDEN_PER_STATE


class StatesPlane(ChainPlane):
    """(w, e); E = per_e e and W = per_w w are canonical, with ``gap_factor`` times the gap.

    With attention no separatrix is known, and the minima only where v, which is held, is 0.
    """

    model: Any

    def __init__(self, model: OnChain, per_e: float, per_w: float, gap_factor: float) -> None:
        super().__init__(model)
        self.per_e, self.per_w, self.gap_factor = per_e, per_w, gap_factor

    def separatrix(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of the basins' boundary above each w; NaN where none is known."""
        if self.model.attention:
            return super().separatrix(x, fixed)
        return separatrix(self.model.chain, self.per_w * x) / self.per_e

    def minima(self, x: Tensor, fixed: Mapping[str, float]) -> Tensor:
        """Return the e ≥ 0 of the global minima above each w; NaN where none is known."""
        if fixed.get("v"):
            return torch.full_like(x, torch.nan)
        found = minima_curve(self.model.chain, self.per_w * x)
        return found / (self.per_e * math.sqrt(self.gap_factor))


class StatesModel(GapModel):
    """θ = (e, w): the tied transformer with S logits on a simplex of embeddings.

    It extends the canonical model from two states to S: full training with S logits never leaves
    this plane. Embeddings e v_s, rows of W_1 |w| v_t, columns of W_2 w v_t, m units for each state
    t, with unit vectors v_s of sum zero; positions, bias and the attention's values are zero. The
    logit of the current state is above every other by Δ = (S/(S − 1)) e² (1 + m w|w|), and
    L = log(e^Δ + S − 1) − (1 − p) Δ. In E = e/2 and W = √(m/2) w the orbits are those of the
    canonical model: Δ = (4S/(S − 1)) E² (1 + 2W|W|), and the metric is 4S (dE² + dW²).
    Every orbit conserves e² − 4 sign(ω) log|ω| − 2ω², ω = √m w; the saddle is at ω = −1, with −2.
    Source: own derivation, docs/derivations/13.md.

    Args:
        chain: the data, symmetric on S states.
        hidden_per_state: m, at least 1.

    Raises:
        InputError: m is not an integer of at least 1.

    >>> import flowsim
    >>> chains = [flowsim.chains.SymmetricChain(3, p) for p in (0.2, 0.8)]
    >>> models = [flowsim.models.StatesModel(chain) for chain in chains]
    >>> [int(flowsim.find_limits(model, [1.0, 0.8]).label) for model in models]
    [1, 2]
    """

    name = "states"
    long_names = MappingProxyType({**GapModel.long_names, "p": "p = P(another state)"})
    heading = "plane of $S$ states"
    attention = False

    coordinates = ("e", "w")
    keeps_sign = (True, True)
    chain: SymmetricChain

    def __init__(self, chain: SymmetricChain, hidden_per_state: int = HIDDEN_PER_STATE) -> None:
        m = hidden_per_state
        require_integer("hidden_per_state", m, 1)
        self.chain, self.hidden_per_state = chain, m
        self.metric = (float(chain.states), 2.0 * chain.states * m)

    def __repr__(self) -> str:
        chain = self.chain
        return f"StatesModel({chain!r}, hidden_per_state={self.hidden_per_state})"

    def options(self) -> dict[str, Any]:
        """Return S, m and that there is no attention, by name."""
        m = self.hidden_per_state
        return {"states": self.chain.states, "hidden_per_state": m, "attention": False}

    def _remark(self) -> str:
        """Return the remark that the plane is exact; with a trap, also that noise opens it."""
        exact = "(exact: full training with $S$ logits never leaves this plane)"
        opens = f"\n(at $p$ = {self.chain.p:g} any noise off the plane frees the trapped starts)"
        return exact + opens * (self.chain.second_eigenvalue > 0)

    @property
    def params(self) -> tuple[float, ...]:
        """The arguments of the compiled ℓ: Δ* over ``gap_factor``, p, S."""
        target = self.chain.target_logit_gap / self.gap_factor
        return target, self.chain.p, float(self.chain.states)

    @property
    def gap_factor(self) -> float:
        """4S/(S − 1): Δ over the canonical model's, at the canonical coordinates."""
        return 4 * self.chain.states / (self.chain.states - 1)

    @property
    def to_canonical(self) -> tuple[float, float]:
        """E/e and W/w, of the plane in which the orbits are the canonical model's."""
        return 0.5, math.sqrt(self.hidden_per_state / 2)

    @property
    def plane(self) -> StatesPlane:
        """The plane (w, e)."""
        return StatesPlane(self, *self.to_canonical, self.gap_factor)

    def basin(self, theta: Tensor) -> Tensor:
        """Return whether starts reach the global minima, by the canonical basin, bool (...)."""
        return reaches_global_minimum(self.chain, self.canonical(theta))

    def integral(self) -> Integral:
        """Return the basin's integral over Gaussian starts, and the energy that decides it."""
        per_e, per_w = self.to_canonical
        found = canonical_integral(self.chain, per_e, per_w / per_e)
        return found._replace(
            energy=lambda theta: energy(self.canonical(theta)), saddle_energy=SADDLE_ENERGY
        )

    def logit_gap(self, theta: Tensor) -> Tensor:
        """Return Δ = (S/(S − 1)) e² (1 + m w|w|), shape (...)."""
        return self.gap_factor / 4 * theta[..., 0].square() * self._gain(theta)

    def logit_gap_gradient(self, theta: Tensor) -> Tensor:
        """Return ∇Δ by (e, w), shape (..., 2)."""
        e, w = theta[..., 0], theta[..., 1]
        along_w = self.hidden_per_state * w.abs() * e * e
        return self.gap_factor / 2 * torch.stack([e * self._gain(theta), along_w], dim=-1)

    def loss_at(self, gap: Tensor) -> Tensor:
        """Return ℓ(Δ) in nats, shape of Δ, as a sum of terms that are not negative."""
        others = math.log(self.chain.states - 1)
        stays, moves = -logsigmoid(gap - others), others - logsigmoid(others - gap)
        return (1 - self.chain.p) * stays + self.chain.p * moves

    def excess(self, theta: Tensor) -> Tensor:
        """Return the loss above the entropy rate, (...), a relative entropy of two chances."""
        beyond = self.logit_gap(theta) - self.chain.target_logit_gap
        return relative_entropy(beyond, 1 - self.chain.p, self.chain.p)

    def slope_at(self, gap: Tensor) -> Tensor:
        """Return ℓ′(Δ) = σ(Δ − log(S − 1)) − (1 − p), shape of Δ.

        As p(1 − p)(x − 1)/((1 − p)x + p), log x = Δ − Δ*.
        """
        p, beyond = self.chain.p, (gap - self.chain.target_logit_gap).clamp(-600.0, 600.0)
        return p * (1 - p) * beyond.expm1() / ((1 - p) * beyond.exp() + p)

    def canonical(self, theta: Tensor) -> Tensor:
        """Return the canonical coordinates (E, W) of θ, shape of θ."""
        return theta * torch.tensor(self.to_canonical, dtype=theta.dtype, device=theta.device)

    def _gain(self, theta: Tensor) -> Tensor:
        """Return 1 + m w|w|, by which the hidden units multiply the logit gap, shape (...)."""
        w = theta[..., 1]
        return 1 + self.hidden_per_state * w * w.abs()

    def flow(self) -> Any:
        """Return the solver in the logit gap, in canonical coordinates and their slower time."""
        from flowsim.models.states.compiled import HOOKS

        slower = 4.0 * self.chain.states
        return self._solver(StatesModel, HOOKS, scale=self.to_canonical, time=slower)

    def conserved(self, theta: Tensor) -> Mapping[str, Tensor]:
        """Return the energy of θ by name, shape (...)."""
        w = theta[..., 1]
        constant = 2 * math.log(2) * torch.sign(w)  # log|W| = log|ω| − ½ log 2
        return {"energy": 4 * energy(self.canonical(theta)) - constant}
