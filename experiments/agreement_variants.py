"""Predictions of the canonical flow with one of its differences to the rank-one flow switched on.

The canonical model holds three things fixed that full training moves: the bias at its optimum, the
metric of w at dw² (it is 8 dw²), and the positions at −e/2 (they move N times slower than e).
"""

import numpy as np
import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.flow.orbits import find_limits
from flowsim.labels import Label
from flowsim.models.canonical.basins import reaches_global_minimum
from flowsim.models.canonical.model import CanonicalModel
from flowsim.models.rank_one.model import RankOneModel
from full_model import Architecture, Comparison, classify, lift_rank_one
from full_model.comparison.fields import FullField
from full_model.comparison.steps import step_until

#: Steps after which an orbit with slow positions is left open.
MOST_STEPS = 50_000
VARIANTS = ("canonical", "moving bias", "metric of w", "slow positions", "rank-one")


def canonical_labels(chain: BinaryChain, points: Tensor) -> np.ndarray:
    """The canonical flow's labels of points (n, 2)."""
    return find_limits(CanonicalModel(chain), points).label.numpy()


def variant_labels(chain: BinaryChain, length: int, points: Tensor, variant: str) -> np.ndarray:
    """Predictions of the flow with one difference switched on."""
    if variant == "canonical":
        return canonical_labels(chain, points)
    if variant == "moving bias":
        model = CanonicalModel(chain, "dynamic")
        bias = CanonicalModel(chain).optimal_bias(points)
        return find_limits(model, torch.cat([points, bias.unsqueeze(-1)], -1)).label.numpy()
    if variant == "metric of w":
        # w′ eightfold slower: e² − 8(w² + sign(w) log|w|)… is conserved, and the separatrix is
        # e² = 8(w² − log|w| + E_s), as without the factor (docs/derivations/03.md)
        scaled = points.clone()
        scaled[:, 0] /= np.sqrt(8)
        found = reaches_global_minimum(chain, scaled).numpy()
        return np.where(found, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM)
    if variant == "slow positions":
        return _slow_labels(chain, length, points)
    rank_one = RankOneModel(chain, length)
    return find_limits(rank_one, rank_one.from_canonical(points)).label.numpy()


class _SlowPositions:
    """The rank-one field with w's metric as in the canonical model and the bias at its optimum."""

    def __init__(self, model: RankOneModel) -> None:
        self.model = model
        self.metric = torch.tensor(model.metric, dtype=torch.float64)
        self.metric[2:4] = 0.5  # w₁ = ±w₂ together make dw²

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.cat([state[:, :4], self.model.optimal_bias(state).unsqueeze(-1)], -1)
        gradient = self.model.gradient(state)
        gradient[:, 4] = 0.0
        # w moves eight times faster than the model's stiffness says
        return gradient, 8 * self.model.stiffness(state)


def _slow_labels(chain: BinaryChain, length: int, points: Tensor) -> np.ndarray:
    """Labels with slow positions alone, by what lifts of the orbits show on their way."""
    model = RankOneModel(chain, length)
    field = _SlowPositions(model)
    full = FullField(Architecture(1, length, attention="none"), chain, shared=True)
    state = model.from_canonical(points)
    count = len(points)
    time, steps = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    label = torch.zeros(count, dtype=torch.int8)
    until, horizon = 0.25, Comparison(chain.p, chain.q, length=length).last_time
    while until < horizon and bool(((label == 0) & (steps < MOST_STEPS)).any()):
        step_until(field, state, time, steps, until, label == 0, most=MOST_STEPS)
        rows = (label == 0).nonzero()[:, 0]
        here = state[rows].clone()
        here[:, 4] = model.optimal_bias(here)
        weights = full.weights(full.state(lift_rank_one(model.point(here), full.arch)))
        found = classify(chain, model.loss(here), weights, full.gradient, full.metric_weights())
        label[rows] = found.label
        until *= 2**0.5
    return label.numpy()
