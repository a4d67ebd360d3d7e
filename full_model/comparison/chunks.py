"""A comparison cut into chunks of starts that stand alone, and put together again.

A start (−e, w) has the weights of (e, w) with another sign of α; every sum and product then keeps
its size to the last bit, so that without noise one of the two is trained and stands for both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.records.attributes import source_versions
from flowsim.running import threads
from full_model.comparison.choices import Comparison
from full_model.comparison.side_by_side import CURVES, ENDS, SideBySide, attention_stays_zero
from full_model.training.checkpoints import load_checkpoint, refuse_other_settings, save_checkpoint

#: Starts computed and possibly lost at once: as many as make good use of array operations, and
#: fewer where each of them takes long. A GPU takes all.
CHUNK, CHUNK_WITH_ATTENTION = 50, 10

#: Results at a chunk's starts, by name.
Part = dict[str, np.ndarray]


class Task(NamedTuple):
    """The settings of one chunk of a comparison as plain data: any machine can compute it.

    The seeds are those of the noise, one for each point (n, 2 or 3); ``versions`` of flowsim and of
    what computes must be the same everywhere.
    """

    settings: Comparison
    points: np.ndarray
    seeds: tuple[int, ...]
    versions: str


def set_up(task: Task) -> SideBySide:
    """Make the task's full models, not yet moved; InputError if other versions made the task."""
    if (here := source_versions()) != task.versions:
        raise InputError(
            f"a worker runs {here}, but the comparison was started with {task.versions}"
        )
    return SideBySide(task.settings, torch.from_numpy(task.points), task.seeds)


def run_task(task: Task) -> Part:
    """Run a task to its end on one thread; results at its starts, as ``SideBySide.found``."""
    with threads(1):
        work = set_up(task)
        work.run()
        return work.found()


class Chunks:
    """The different starts of a comparison, and which points each of them stands for.

    Starts are dealt to the chunks in turn, so that all of the ``count`` chunks take about as long;
    ``different`` starts are trained.
    """

    def __init__(self, settings: Comparison, points: Tensor) -> None:
        self.settings, self.points = settings, points.numpy()
        which = np.arange(len(self.points))
        self.first, self.stands_for = which, which
        if not settings.noise:
            folded = self.points + 0.0  # −0 is 0
            folded[:, 0] = np.abs(folded[:, 0])
            _, first, stands_for = np.unique(folded, axis=0, return_index=True, return_inverse=True)
            order = np.argsort(first)  # in the order of the points
            self.first, self.stands_for = first[order], np.argsort(order)[stands_for.reshape(-1)]
        self.different = len(self.first)
        plain = attention_stays_zero(settings, self.points.shape[1])
        self.size = CHUNK if plain else CHUNK_WITH_ATTENTION
        if settings.device != "cpu":
            self.size = self.different
        self.count = -(-self.different // self.size)

    def members(self, chunk: int) -> np.ndarray:
        """Numbers of a chunk's starts among the different ones."""
        return np.arange(chunk, self.different, self.count)

    def task(self, chunk: int) -> Task:
        """The task of a chunk: its points and the seeds of their noise."""
        which = self.first[self.members(chunk)]
        seeds = tuple(int(i) + self.settings.seed for i in which)
        return Task(self.settings, self.points[which], seeds, source_versions())

    def joined(self, parts: dict[int, Part]) -> Part:
        """Join the results of all chunks to those at all points; (−e, w) has −e of (e, w)."""
        times = max((part["time"] for part in parts.values()), key=len)
        found: Part = {"time": times}
        trained = np.concatenate([self.members(chunk) for chunk in parts])
        order = np.argsort(trained)[self.stands_for]
        turned = np.sign(self.points[:, 0]) != np.sign(self.points[self.first, 0])[self.stands_for]
        for name in CURVES:
            columns = [part[name] for part in parts.values()]
            missing = [np.full((len(times) - len(c), *c.shape[1:]), np.nan) for c in columns]
            filled = [np.concatenate(pair) for pair in zip(columns, missing, strict=True)]
            found[name] = np.concatenate(filled, axis=1)[:, order]
            if name in ("trained", "orbit"):
                found[name][:, turned, 0] *= -1
        for name in ENDS:
            found[name] = np.concatenate([part[name] for part in parts.values()])[order]
        return found

    def identity(self) -> dict[str, Any]:
        """Settings that a checkpoint must share to be resumed."""
        digest = hashlib.sha256(np.ascontiguousarray(self.points).tobytes()).hexdigest()[:16]
        own = {"points": digest, "chunk": self.size, "architecture": "softmax attention",
               "versions": source_versions()}  # fmt: skip
        return json.loads(json.dumps(asdict(self.settings))) | own

    def save(self, path: Path, parts: dict[int, Part]) -> None:
        """Write the results of the finished chunks to a checkpoint."""
        tensors = {
            f"{chunk}/{name}": torch.from_numpy(column)
            for chunk, part in parts.items()
            for name, column in part.items()
        }
        save_checkpoint(path, tensors, {"settings": self.identity(), "chunks": sorted(parts)})

    def restore(self, path: Path) -> dict[int, Part]:
        """Read the finished chunks' results, by chunk; InputError if of other settings."""
        tensors, state = load_checkpoint(path)
        refuse_other_settings(path, self.identity(), state.get("settings"))
        names = ("time", *CURVES, *ENDS)
        try:
            return {
                chunk: {name: tensors[f"{chunk}/{name}"].numpy() for name in names}
                for chunk in state["chunks"]
            }
        except KeyError:
            raise InputError(f"{path} is not a usable checkpoint: a chunk is incomplete") from None
