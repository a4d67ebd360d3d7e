"""The full models of a comparison: where they start, how they move, what became of them."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.landscape.labels import Label
from flowsim.models.rank_one import RankOneModel
from full_model.comparison.choices import Comparison
from full_model.comparison.fields import AttentionFreeField, EnumeratedField, FullField
from full_model.comparison.outcome import classify
from full_model.comparison.steps import step_until
from full_model.lift.initial import initial_weights
from full_model.lift.projection import project
from full_model.model.architecture import Architecture, Weights

#: Steps of a run with attention, unless the settings say otherwise: see ``Comparison``.
_ATTENTION_STEPS = 20_000


def lifted_weights(settings: Comparison, arch: Architecture, points: Tensor) -> Weights:
    """The full models' first weights: the lifts with the optimal bias, plus the noise."""
    rank_one = RankOneModel(settings.chain, settings.length, points.shape[1] == 3)
    bias = rank_one.optimal_bias(rank_one.from_canonical(points))
    seeds = range(settings.seed, settings.seed + len(points))
    return initial_weights(arch, "lifted", seeds, theta=points, bias=bias, noise=settings.noise)


def full_field(settings: Comparison, dimensions: int) -> FullField:
    """The field of the full models for points of that many coordinates.

    Points (e, w) have no attention: a closed form, with one position for all N where no noise
    parts them. Points (e, w, a) have softmax attention, by enumeration.
    """
    attention = "softmax" if dimensions == 3 else "none"
    arch = Architecture(settings.d, settings.length, attention=attention)
    if attention == "none":
        shared = settings.noise == 0
        return AttentionFreeField(arch, settings.chain, shared, settings.device)
    return EnumeratedField(arch, settings.chain, settings.device)


class FullSide:
    """M full models under gradient descent or gradient flow of the exact loss.

    Attributes:
        state, time, steps: weights (M, K) flattened by ``field``, physical times and steps taken.
        outcome: (M,) int8 labels, unresolved while undecided.
        end: (M,) the last time at which a run was measured.
        open_share, curvature, gradient_norm: (M,) as measured then, see ``outcome.Outcome``.
    """

    #: What a checkpoint holds.
    KEPT = ("state", "time", "steps", "outcome", "end", "open_share", "curvature", "gradient_norm")

    def __init__(self, settings: Comparison, points: Tensor) -> None:
        count, device = len(points), settings.device
        self.settings, self.dimensions = settings, points.shape[1]
        self.field = full_field(settings, self.dimensions)
        self.arch = self.field.arch
        bound = _ATTENTION_STEPS if self.arch.attention == "softmax" else None
        self.most_steps = settings.steps or bound or sys.maxsize
        self.method = "flow" if settings.trainer == "flow" else "descent"
        weights = lifted_weights(settings, self.arch, points)
        self.state = self.field.state({k: w.to(device) for k, w in weights.items()})
        self.time = torch.zeros(count, dtype=torch.float64, device=device)
        self.steps = torch.zeros(count, dtype=torch.int64, device=device)
        self.outcome = torch.full((count,), Label.UNRESOLVED, dtype=torch.int8)
        nan = torch.full((count,), torch.nan, dtype=torch.float64)
        self.end, self.open_share = nan.clone(), nan.clone()
        self.curvature, self.gradient_norm = nan.clone(), nan.clone()

    def undecided(self) -> Tensor:
        """Which runs are to be moved on, (M,) bool."""
        return (self.outcome == Label.UNRESOLVED) & (self.steps < self.most_steps).cpu()

    def move(self, until: float, pause: Callable[[], object] | None = None) -> None:
        """Move the undecided runs to that time; ``pause`` as in ``step_until``."""
        step_until(
            self.field, self.state, self.time, self.steps, until,
            self.undecided().to(self.state.device), self.method, pause=pause, most=self.most_steps,
        )  # fmt: skip

    @torch.no_grad()
    def measure(self, at: float) -> dict[str, Tensor]:
        """Measure the undecided runs at that time, and decide what can be decided.

        Returns:
            "loss" and "drift", (M,), and "trained", (M, 2 or 3), the projected coordinates; NaN
            for runs that were decided before.
        """
        count, k = len(self.outcome), self.dimensions
        line = {
            name: torch.full(shape, torch.nan, dtype=torch.float64)
            for name, shape in (("loss", (count,)), ("drift", (count,)), ("trained", (count, k)))
        }
        rows = self.undecided().nonzero()[:, 0]
        if not len(rows):
            return line
        field, state = self.field, self.state[rows.to(self.state.device)]
        whole, weights, loss = field.whole(state), field.weights(state), field.loss(state)
        alpha = state.new_full((self.arch.d,), self.arch.d**-0.5)
        trained = project(self.arch, whole, alpha)
        nearest = project(self.arch, whole, rounds=8) if self.settings.noise else trained
        line["loss"][rows] = loss.cpu()
        line["trained"][rows] = trained.canonical[:, :k].cpu()
        line["drift"][rows] = nearest.relative_distance.cpu()
        found = classify(self.settings.chain, loss, weights, field.gradient, field.metric_weights())
        self.outcome[rows] = found.label.cpu()
        self.open_share[rows] = found.open_share.cpu()
        self.curvature[rows] = found.curvature.cpu()
        self.end[rows] = at
        square = field(state)[0].square() / field.metric
        self.gradient_norm[rows] = square.sum(1).sqrt().cpu()
        return line
