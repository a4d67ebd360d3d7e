"""A comparison in progress: full models and reduced orbits, moved from saved time to saved time."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.limits import find_limits
from flowsim.flow.rows.descent import ReducedField, advance
from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel
from flowsim.records.netcdf import flags
from full_model.comparison.fields import AttentionFreeField, EnumeratedField, FullField
from full_model.comparison.outcome import classify
from full_model.lift.initial import initial_weights
from full_model.lift.lifting import lift_rank_one
from full_model.lift.projection import project
from full_model.model.transformer import Architecture, Weights
from full_model.training.checkpoints import load_checkpoint, refuse_other_settings, save_checkpoint

if TYPE_CHECKING:
    from full_model.comparison.compare import Comparison

#: Saved times: the first, and each next one by this factor.
FIRST_TIME, FACTOR = 0.25, math.sqrt(2)
#: Steps of a run with attention, unless the settings say otherwise: see ``Comparison``.
_ATTENTION_STEPS = 20_000
#: Seconds between two checkpoints.
_SAVE_EVERY = 5.0

#: Told runs decided, runs in all, and where they are.
Progress = Callable[[int, int, str], None]


class Session:
    """All full models and all reduced orbits, moved from saved time to saved time."""

    def __init__(self, settings: Comparison, points: Tensor, model: ReducedModel) -> None:
        self.settings, self.points, self.model = settings, points, model
        chain, device, count = settings.chain, settings.device, len(points)
        attention = "softmax" if points.shape[1] == 3 else "none"
        self.arch = Architecture(settings.d, settings.length, attention=attention)
        bounded = settings.steps or (_ATTENTION_STEPS if attention == "softmax" else None)
        self.most_steps = bounded or sys.maxsize
        self.method = "flow" if settings.trainer == "flow" else "descent"
        self.field: FullField
        if attention == "none":
            self.field = AttentionFreeField(self.arch, chain, settings.noise == 0, device)
        else:
            self.field = EnumeratedField(self.arch, chain, device)
        weights = lifted_weights(settings, self.arch, points)
        self.full = self.field.state({k: w.to(device) for k, w in weights.items()})
        self.reduced_field = ReducedField(model)
        self.reduced = points.clone()
        if isinstance(model, RankOneModel):
            self.reduced = model.from_canonical(points)

        self.clock, self.reduced_clock = (torch.zeros(count, dtype=torch.float64) for _ in "xx")
        self.steps, self.reduced_steps = (torch.zeros(count, dtype=torch.int64) for _ in "xx")
        self.clock, self.steps = self.clock.to(device), self.steps.to(device)
        unresolved = torch.full((count,), Label.UNRESOLVED, dtype=torch.int8)
        self.outcome, self.predicted = unresolved.clone(), unresolved.clone()
        self.curvature = torch.full((count,), torch.nan, dtype=torch.float64)
        self.end = torch.full((count,), torch.nan, dtype=torch.float64)
        self.open_share = torch.full((count,), torch.nan, dtype=torch.float64)
        self.norm = torch.full((count,), torch.nan, dtype=torch.float64)
        self.times: list[float] = []
        self.history: dict[str, list[Tensor]] = {}
        self.saved_at = time.monotonic()
        if not isinstance(model, RankOneModel):
            self.predicted = find_limits(model, points).label.clone()

    def run(self, checkpoint: Path | None, progress: Progress | None) -> None:
        """Go on until every run and every prediction is decided, or the horizon."""
        horizon = self.settings.horizon
        assert horizon is not None
        if not self.times:
            self.measure(0.0)
        while True:
            moving, wanted = self.undecided()
            if progress is not None:
                done = len(moving) - int(moving.sum())
                progress(done, len(moving), f"time {self.times[-1]:.3g} of {horizon:.3g}")
            if self.times[-1] >= horizon or not bool((moving | wanted).any()):
                break
            until = min(FIRST_TIME * FACTOR ** (len(self.times) - 1), horizon)

            def beat() -> None:
                if checkpoint is not None and time.monotonic() - self.saved_at > _SAVE_EVERY:
                    self.save(checkpoint)

            advance(
                self.field, self.full, self.clock, self.steps, until,
                moving.to(self.full.device), self.method, beat=beat, most=self.most_steps,
            )  # fmt: skip
            advance(
                self.reduced_field, self.reduced, self.reduced_clock, self.reduced_steps, until,
                moving | wanted, self.method, beat=beat,
            )  # fmt: skip
            self.measure(until)
            if checkpoint is not None and time.monotonic() - self.saved_at > _SAVE_EVERY:
                self.save(checkpoint)
        if checkpoint is not None:
            self.save(checkpoint)

    def follow(self, times: list[float] | None) -> None:
        """The reduced side alone: its orbits at ``times``, and every prediction it needs."""
        self.outcome[:] = Label.UNRESOLVED
        horizon = self.settings.horizon
        assert horizon is not None
        orbit: dict[str, list[Tensor]] = {"orbit": [], "reduced_loss": []}
        everything = torch.ones(len(self.points), dtype=torch.bool)
        if isinstance(self.model, RankOneModel):
            start = self.reduced.clone()
            at = 0.0
            while bool((wanted := self.undecided()[1]).any()):
                self.predicted[wanted] = self._predict(self.reduced[wanted])
                if at >= horizon:
                    break
                at = min(max(at * FACTOR, FIRST_TIME), horizon)
                advance(
                    self.reduced_field, self.reduced, self.reduced_clock, self.reduced_steps, at,
                    self.undecided()[1], "flow",
                )  # fmt: skip
            self.reduced = start
            self.reduced_clock.zero_()
        for at in times or []:
            advance(
                self.reduced_field, self.reduced, self.reduced_clock, self.reduced_steps, at,
                everything, "flow",
            )  # fmt: skip
            orbit["orbit"].append(self._canonical(self.reduced))
            orbit["reduced_loss"].append(self.model.loss(self.reduced))
        self.history = orbit

    def undecided(self) -> tuple[Tensor, Tensor]:
        """Which runs still move, and which predictions are still to be found by moving."""
        wanted = torch.zeros_like(self.outcome, dtype=torch.bool)
        if isinstance(self.model, RankOneModel):
            wanted = self.predicted == Label.UNRESOLVED
        in_budget = (self.steps < self.most_steps).cpu()
        return (self.outcome == Label.UNRESOLVED) & in_budget, wanted

    @torch.no_grad()
    def measure(self, at: float) -> None:
        """Append one line of history, and decide what can be decided."""
        settings, chain = self.settings, self.settings.chain
        moving, wanted = self.undecided()
        rows = moving.nonzero()[:, 0]
        k, count = self.points.shape[1], len(self.points)
        line = {
            name: torch.full(shape, torch.nan, dtype=torch.float64)
            for name, shape in {
                "loss": (count,), "reduced_loss": (count,), "distance": (count,),
                "drift": (count,), "trained": (count, k), "orbit": (count, k),
            }.items()
        }  # fmt: skip
        on = moving | wanted
        line["reduced_loss"][on] = self.model.loss(self.reduced[on])
        line["orbit"][on] = self._canonical(self.reduced[on])
        if len(rows):
            state = self.full[rows.to(self.full.device)]
            weights, loss = self.field.whole(state), self.field.loss(state)
            line["loss"][rows] = loss.cpu()
            alpha = state.new_full((self.arch.d,), self.arch.d**-0.5)
            trained = project(self.arch, weights, alpha)
            nearest = project(self.arch, weights, rounds=8) if settings.noise else trained
            line["trained"][rows] = trained.canonical[:, :k].cpu()
            line["drift"][rows] = nearest.relative_distance.cpu()
            gap = line["trained"][rows] - line["orbit"][rows]
            line["distance"][rows] = gap.square().sum(-1).sqrt()
            found = classify(
                chain, loss, self.field.weights(state), self.field.gradient,
                self.field.metric_weights(),
            )  # fmt: skip
            self.outcome[rows] = found.label.cpu()
            self.open_share[rows], self.curvature[rows] = (
                found.open_share.cpu(),
                found.curvature.cpu(),
            )
            self.end[rows] = at
            gradient = self.field(state)[0]
            self.norm[rows] = (gradient.square() / self.field.metric).sum(1).sqrt().cpu()
        if bool(wanted.any()):
            self.predicted[wanted] = self._predict(self.reduced[wanted])
        self.times.append(at)
        for name, values in line.items():
            self.history.setdefault(name, []).append(values)

    def _canonical(self, theta: Tensor) -> Tensor:
        return self.model.to_canonical(theta) if isinstance(self.model, RankOneModel) else theta

    def _predict(self, theta: Tensor) -> Tensor:
        """Labels of rank-one orbits: those that their lifts would have."""
        model, field = self.model, self.field
        assert isinstance(model, RankOneModel)
        weights = lift_rank_one(model.point(theta), self.arch)
        weights = field.weights(field.state({k: w.to(self.full) for k, w in weights.items()}))
        loss = model.loss(theta).to(self.full)
        found = classify(model.chain, loss, weights, field.gradient, field.metric_weights())
        return found.label.cpu()

    def record(self) -> xr.Dataset:
        """Everything found, as a dataset."""
        shapes = {"trained": ("coordinate",), "orbit": ("coordinate",)}
        data: dict[str, Any] = {
            name: (("time", "point", *shapes.get(name, ())), torch.stack(lines).numpy())
            for name, lines in self.history.items()
        }
        for name in ("predicted", "outcome"):
            data[name] = ("point", getattr(self, name).numpy(), flags(Label))
        for name in ("end", "open_share", "curvature", "norm"):
            data["gradient_norm" if name == "norm" else name] = (
                "point",
                getattr(self, name).numpy(),
            )
        data["steps"] = ("point", self.steps.cpu().numpy())
        names = ["e", "w", "a"][: self.points.shape[1]]
        return xr.Dataset(data, {"time": np.array(self.times), "coordinate": names})

    def identity(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.points.contiguous().numpy().tobytes()).hexdigest()[:16]
        return json.loads(json.dumps(asdict(self.settings))) | {"points": digest}

    def _tensors(self) -> dict[str, Tensor]:
        names = ("full", "reduced", "clock", "reduced_clock", "steps", "reduced_steps", "outcome",
                 "predicted", "curvature", "end", "open_share", "norm")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def save(self, path: Path) -> None:
        """Write a checkpoint; between two saved times it holds rows at different clocks."""
        tensors = self._tensors() | {
            f"history/{name}": torch.stack(lines) for name, lines in self.history.items()
        }
        save_checkpoint(path, tensors, {"settings": self.identity(), "times": self.times})
        self.saved_at = time.monotonic()

    def restore(self, path: Path) -> None:
        """Take over a checkpoint's state.

        Raises:
            InputError: it is unusable, or of other settings or points.
        """
        tensors, state = load_checkpoint(path)
        refuse_other_settings(path, self.identity(), state.get("settings"))
        for name, like in self._tensors().items():
            found = tensors.get(name)
            if found is None or found.shape != like.shape or found.dtype != like.dtype:
                raise InputError(
                    f"{path} is not a usable checkpoint: {name} is missing or misshaped"
                )
            setattr(self, name, found.to(like.device))
        history = {k.removeprefix("history/"): v for k, v in tensors.items() if "history/" in k}
        times = state.get("times")
        whole = (
            isinstance(times, list) and times and {len(v) for v in history.values()} == {len(times)}
        )
        if not whole:
            raise InputError(f"{path} is not a usable checkpoint: its history is incomplete")
        self.times = [float(t) for t in times]  # type: ignore[union-attr]
        self.history = {name: list(lines.unbind(0)) for name, lines in history.items()}


def lifted_weights(settings: Comparison, arch: Architecture, points: Tensor) -> Weights:
    """The full models' first weights: the lifts with the optimal bias, plus the noise."""
    rank_one = RankOneModel(settings.chain, settings.length, points.shape[1] == 3)
    bias = rank_one.optimal_bias(rank_one.from_canonical(points))
    seeds = range(settings.seed, settings.seed + len(points))
    return initial_weights(arch, "lifted", seeds, theta=points, bias=bias, noise=settings.noise)
