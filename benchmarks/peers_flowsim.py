"""What flowsim enters into the benchmarks, and the closed form that its rivals are checked with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from flowsim import BinaryChain, find_limits
from flowsim import trajectories as many_trajectories
from flowsim.labels import Label
from flowsim.models import CanonicalModel, RankOneModel, UniformAttentionModel
from flowsim.models.canonical.basins import reaches_global_minimum
from flowsim.reference import integrate

torch.set_num_threads(1)
CHAIN = BinaryChain(0.5, 0.8)


def limits(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Labels by ``find_limits``."""
    model, theta = CanonicalModel(CHAIN), torch.from_numpy(starts)
    return lambda: find_limits(model, theta).label.numpy()


def closed_form(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Labels by the energy of the start; nothing is integrated."""
    theta = torch.from_numpy(starts)

    def run() -> np.ndarray:
        above = reaches_global_minimum(CHAIN, theta)
        return torch.where(above, Label.GLOBAL_MINIMUM, Label.LOCAL_MINIMUM).numpy()

    return run


def trajectories(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Paths, shape (times, starts, 2), by ``trajectories`` or, with "shared", by ``integrate``."""
    model, theta = CanonicalModel(CHAIN), torch.from_numpy(starts)
    t = torch.tensor(task["times"], dtype=torch.float64)
    solve = integrate if task.get("shared") else many_trajectories
    return lambda: solve(model, theta, t, task["rtol"], task["atol"]).numpy()


def attention(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Labels with uniform attention, by ``find_limits``."""
    model, theta = UniformAttentionModel(CHAIN, task["length"]), torch.from_numpy(starts)
    model.gradient(theta)  # compresses the law
    return lambda: find_limits(model, theta).label.numpy()


def rank_one(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Label and limit of the rank-one model without attention, by ``find_limits``."""
    model, theta = RankOneModel(CHAIN, task["length"]), torch.from_numpy(starts)

    def run() -> np.ndarray:
        found = find_limits(model, theta, task["rtol"])
        return torch.cat([found.label[:, None], found.theta], dim=1).numpy()

    return run


CONTENDERS = {
    "limits": limits,
    "closed form": closed_form,
    "trajectories": trajectories,
    "attention": attention,
    "rank-one": rank_one,
}
