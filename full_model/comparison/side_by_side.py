"""Full models and reduced orbits, moved side by side from saved time to saved time."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.landscape.labels import Label
from flowsim.models.base import ReducedModel
from flowsim.records.netcdf import flags
from full_model.comparison.choices import Comparison, Progress
from full_model.comparison.full_side import FullSide
from full_model.comparison.history import History
from full_model.comparison.reduced_side import FACTOR, FIRST_TIME, ReducedSide
from full_model.training.checkpoints import load_checkpoint, refuse_other_settings, save_checkpoint

#: Seconds between two checkpoints.
_SAVE_EVERY = 5.0


class SideBySide:
    """A comparison under gradient descent or gradient flow, in progress.

    Args:
        settings: what to compare.
        points: (n, 2 or 3).
        model: the model that predicts.
    """

    def __init__(self, settings: Comparison, points: Tensor, model: ReducedModel) -> None:
        self.settings, self.points = settings, points
        self.full = FullSide(settings, points)
        self.reduced = ReducedSide(model, points, self.full.field)
        self.history = History()
        self.saved_at = time.monotonic()

    def run(self, checkpoint: Path | None = None, progress: Progress | None = None) -> None:
        """Go on until every run and every prediction is decided, or to the horizon."""
        full, reduced, times = self.full, self.reduced, self.history.times
        horizon = self.settings.last_time

        def pause() -> None:
            if checkpoint is not None and time.monotonic() - self.saved_at > _SAVE_EVERY:
                self.save(checkpoint)

        if not times:
            self.measure(0.0)
        while True:
            moving = full.undecided()
            active = moving | reduced.undecided()
            if progress is not None:
                done = len(moving) - int(moving.sum())
                progress(done, len(moving), f"time {times[-1]:.3g} of {horizon:.3g}")
            if times[-1] >= horizon or not bool(active.any()):
                break
            until = min(FIRST_TIME * FACTOR ** (len(times) - 1), horizon)
            full.move(until, pause)
            # a run that has used up its steps on the way still has its orbit moved to this time
            reduced.move(until, active, full.method, pause)
            self.measure(until)
            pause()
        if checkpoint is not None:
            self.save(checkpoint)

    def measure(self, at: float) -> None:
        """Append one line of history, and decide what can be decided."""
        active = self.full.undecided() | self.reduced.undecided()
        line = self.full.measure(at) | self.reduced.measure(active)
        line["distance"] = (line["trained"] - line["orbit"]).square().sum(-1).sqrt()
        self.history.append(at, line)

    def record(self) -> xr.Dataset:
        """Everything found, as a dataset."""
        extra = {"trained": ("coordinate",), "orbit": ("coordinate",)}
        data: dict[str, Any] = {
            name: (("time", "point", *extra.get(name, ())), column.numpy())
            for name, column in self.history.columns().items()
        }
        full = self.full
        data["predicted"] = ("point", self.reduced.predicted.numpy(), flags(Label))
        data["outcome"] = ("point", full.outcome.numpy(), flags(Label))
        for name in ("end", "open_share", "curvature", "gradient_norm"):
            data[name] = ("point", getattr(full, name).numpy())
        data["steps"] = ("point", full.steps.cpu().numpy())
        names = ["e", "w", "a"][: self.points.shape[1]]
        return xr.Dataset(data, {"time": np.array(self.history.times), "coordinate": names})

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must share to be resumed: the settings, and a digest of the points."""
        digest = hashlib.sha256(self.points.contiguous().numpy().tobytes()).hexdigest()[:16]
        return json.loads(json.dumps(asdict(self.settings))) | {"points": digest}

    def _sides(self) -> dict[str, FullSide | ReducedSide]:
        return {"full": self.full, "reduced": self.reduced}

    def save(self, path: Path) -> None:
        """Write a checkpoint; between two saved times it holds rows at different times."""
        tensors = self.history.tensors()
        for prefix, side in self._sides().items():
            tensors |= {f"{prefix}/{name}": getattr(side, name) for name in side.KEPT}
        state = {"settings": self.identity(), "times": self.history.times}
        save_checkpoint(path, tensors, state)
        self.saved_at = time.monotonic()

    def restore(self, path: Path) -> None:
        """Take over a checkpoint's state.

        Raises:
            InputError: it is unusable, or of other settings or points.
        """
        tensors, state = load_checkpoint(path)
        refuse_other_settings(path, self.identity(), state.get("settings"))
        for prefix, side in self._sides().items():
            for name in side.KEPT:
                like, found = getattr(side, name), tensors.get(f"{prefix}/{name}")
                if found is None or found.shape != like.shape or found.dtype != like.dtype:
                    raise InputError(
                        f"{path} is not a usable checkpoint: {name} is missing or misshaped"
                    )
                setattr(side, name, found.to(like.device))
        self.history.restore(path, tensors, state.get("times"))
