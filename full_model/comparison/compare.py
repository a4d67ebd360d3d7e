"""From matching starts: what the reduced flow predicts, and what the full transformer does.

Every point is lifted into a full transformer. Gradient flow and gradient descent move all of them
on the exact population loss until their own loss and curvature decide where they went, beside the
reduced orbits from the same points; ``comparison_sampled`` does the same for SGD and AdamW.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import xarray as xr
from torch import Tensor

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.uniform.model import AttentionModel
from full_model.comparison.agreement import add_agreement
from full_model.comparison.points import check_points
from full_model.comparison.side_by_side import Progress, Session
from full_model.training.checkpoints import check_checkpoint
from full_model.training.recipe import TRAINERS
from full_model.training.settings import resolve_device

MODELS = ("canonical", "attention", "rank-one")


@dataclass(frozen=True)
class Comparison:
    """Everything but the points that decides a comparison's numbers, validated.

    Args:
        p, q: the chain.
        model: "canonical" (e, w), "attention" (e, w, a) or "rank-one" (from points of either).
        trainer: "flow", "gd", "sgd" or "adamw".
        d, length: of the full transformer.
        noise: deviation of Gaussian noise on every weight.
        seed: of the noise (point i has seed + i) and of the sampled batches.
        horizon: the time after which undecided runs of flow and descent are unresolved; by default
            40 (N + 10)/(π₀π₁|λ|), the slowest scale of the rank-one flow, whose positions move N
            times slower than the embedding.
        steps: of sgd and adamw (8 000 by default); for flow and descent the most that a run may
            take before it is unresolved, by default as many as it needs without attention and
            20 000 with it, where some starts creep along ever steeper valleys.
        batch, learning_rate: of sgd and adamw, see ``Recipe``.
        device: "cpu", "cuda" or "auto".
        dtype: the arithmetic of sgd and adamw, "float64" or "float32", in less than half the time;
            flow and descent are float64.

    Raises:
        InputError: a value out of range.
    """

    p: float
    q: float
    model: str = "canonical"
    trainer: str = "gd"
    d: int = 8
    length: int = 8
    noise: float = 0.0
    seed: int = 0
    horizon: float | None = None
    steps: int | None = None
    batch: int = 16
    learning_rate: float | None = None
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        chain = self.chain
        for name, value, names in (
            ("model", self.model, MODELS),
            ("trainer", self.trainer, TRAINERS),
        ):
            if value not in names:
                raise InputError(f"{name} must be one of {', '.join(names)}, not {value!r}")
        if self.dtype != "float64" and not (self.dtype == "float32" and self.stochastic):
            raise InputError(
                f"dtype must be float64, or float32 for sgd and adamw, not {self.dtype!r}"
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"noise must be a number of at least 0, not {self.noise!r}")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps!r}")
        if self.steps is None and self.stochastic:
            object.__setattr__(self, "steps", 8000)
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.horizon is None:
            pi0, pi1 = chain.stationary
            rate = pi0 * pi1 * max(abs(chain.second_eigenvalue), 0.05)
            object.__setattr__(self, "horizon", 40 * (self.length + 10) / rate)
        elif not (math.isfinite(self.horizon) and self.horizon > 0):
            raise InputError(f"horizon must be a positive number, not {self.horizon!r}")

    @property
    def chain(self) -> BinaryChain:
        return BinaryChain(self.p, self.q)

    @property
    def stochastic(self) -> bool:
        """Does the trainer draw batches."""
        return self.trainer in ("sgd", "adamw")


def reduced_model(settings: Comparison, dimensions: int) -> ReducedModel:
    """The model that predicts, for points of that many coordinates.

    Raises:
        InputError: points (e, w) for the attention model, or (e, w, a) for the canonical one.
    """
    chain, attention = settings.chain, dimensions == 3
    if settings.model == "rank-one":
        return RankOneModel(chain, settings.length, attention)
    if attention != (settings.model == "attention"):
        wanted = "(e, w, a)" if settings.model == "attention" else "(e, w)"
        raise InputError(f"the {settings.model} model takes points {wanted}")
    return AttentionModel(chain, settings.length) if attention else CanonicalModel(chain)


def compare(
    settings: Comparison,
    points: Tensor,
    checkpoint: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Predict, train and compare at every point.

    Args:
        settings: what to compare.
        points: (n, 2), (e, w), or (n, 3), (e, w, a).
        checkpoint: where to keep the state; None keeps none.
        resume: continue from ``checkpoint``, which must exist and hold the same settings.
        overwrite: start anew although ``checkpoint`` exists.
        progress: called with runs decided, runs in all and a line about where they are.

    Returns:
        Dataset over (point,) and (time, point[, coordinate]): predicted, outcome, losses, the
        projected coordinates of training and of the reduced orbit, their distance, the relative
        distance from the rank-one manifold, confusion table and agreement with Wilson intervals.
        Curves end (NaN) where the run was decided.

    Raises:
        InputError: settings and points that do not fit; a checkpoint that exists and is neither to
            be resumed nor overwritten, is unusable or was made with other settings.
    """
    points = check_points(points)
    model = reduced_model(settings, points.shape[1])
    check_checkpoint(checkpoint, resume, overwrite)
    if settings.stochastic:
        from full_model.comparison.sampled import compare_sampled

        record = compare_sampled(settings, points, model, checkpoint, resume, overwrite, progress)
    else:
        session = Session(settings, points, model)
        if resume:
            assert checkpoint is not None
            session.restore(checkpoint)
        session.run(checkpoint, progress)
        record = session.record()
    for i, name in enumerate(("e", "w", "a")[: points.shape[1]]):
        record = record.assign_coords({name: ("point", points[:, i].numpy())})
    kept = {name: value for name, value in asdict(settings).items() if value is not None}
    record.attrs = {
        "kind": "comparison",
        **kept,
        "regime": settings.chain.regime,
        "attention": int(points.shape[1] == 3),
        **record.attrs,
    }
    return add_agreement(record)
