"""The scan and the trajectories with scipy and with plain torchdiffeq, as one writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor
from torchdiffeq import odeint
from worker import GLOBAL_MINIMUM, LOCAL_MINIMUM, UNRESOLVED

from flowsim import BinaryChain
from flowsim.models import CanonicalModel

torch.set_num_threads(1)
CHAIN = BinaryChain(0.5, 0.8)
MODEL = CanonicalModel(CHAIN)
#: Starts in one batch of torchdiffeq: larger ones leave the processor's cache.
BATCH = 8192
#: The horizon of the scans; a longer one costs in proportion and resolves a few more starts.
HORIZON = 500.0


def labels(theta: Tensor) -> Tensor:
    """Labels of the ends by their loss; those still on the move are unresolved."""
    middle = (CHAIN.entropy_rate + CHAIN.stationary_entropy) / 2
    label = torch.where(MODEL.loss(theta) < middle, GLOBAL_MINIMUM, LOCAL_MINIMUM)
    still = MODEL.gradient(theta).abs().amax(dim=-1) < 1e-5
    return torch.where(still, label, UNRESOLVED)


def point_by_point(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """scipy's solve_ivp in physical time, up to a small gradient; numpy's own field."""
    p, q = CHAIN.p, CHAIN.q
    pi0, pi1 = CHAIN.stationary
    constant, difference = np.log(4 * pi0 * pi1), abs(pi0 - pi1)

    def field(t: float, y: np.ndarray) -> np.ndarray:
        e, w = y
        gain = 1 + 2 * w * abs(w)
        gap = e * e * gain
        root = np.logaddexp(2 * np.log(difference), gap + constant) / 2
        f1 = gap + np.log(2 * pi1) - np.logaddexp(np.log(difference), root)
        slope = pi1 * (0.5 * (1 + np.tanh(0.5 * f1)) - (1 - q))
        return np.array([-2 * slope * e * gain, -4 * slope * abs(w) * e * e])

    def rest(t: float, y: np.ndarray) -> float:
        return float(np.abs(field(t, y)).max()) - 1e-7

    assert p < q
    rest.terminal = True  # type: ignore[attr-defined]
    ends = np.empty_like(starts)

    def run() -> np.ndarray:
        for i, start in enumerate(starts):
            found = solve_ivp(field, (0, 1e7), start, "LSODA", events=rest, rtol=1e-6, atol=1e-8)
            ends[i] = found.y[:, -1]
        return labels(torch.from_numpy(ends)).numpy()

    return run


def in_batches(starts: np.ndarray, ends: Callable[[Tensor], Tensor]) -> Callable[[], np.ndarray]:
    theta = torch.from_numpy(starts)
    return lambda: torch.cat([labels(ends(part)) for part in theta.split(BATCH)]).numpy()


def physical(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """torchdiffeq in physical time, up to a fixed horizon."""
    t = torch.tensor([0.0, HORIZON], dtype=torch.float64)

    def ends(start: Tensor) -> Tensor:
        return odeint(lambda _, y: -MODEL.gradient(y), start, t, rtol=1e-6, atol=1e-8)[-1]

    return in_batches(starts, ends)


def heading(start: Tensor) -> Tensor:
    """The sign with which Δ moves, shape (n, 1)."""
    return torch.sign(CHAIN.target_logit_gap - MODEL.logit_gap(start)).unsqueeze(1)


def rescaled(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """torchdiffeq on the rescaled field, slowed down smoothly at the minima; a fixed horizon."""
    t = torch.tensor([0.0, 60.0], dtype=torch.float64)

    def ends(start: Tensor) -> Tensor:
        def field(_: Tensor, y: Tensor) -> Tensor:
            e, w = y.unbind(-1)
            gain = 1 + 2 * w * w.abs()
            excess = CHAIN.target_logit_gap - e * e * gain
            # near Δ = Δ* like Δ* − Δ per unit of Δ's rate, far from it with bounded speed
            rate = 2 * (e * gain).square() + 8 * (w * e).square() * e.square()
            speed = excess / (rate + excess.abs())
            return speed.unsqueeze(-1) * torch.stack([e * gain, 2 * w.abs() * e * e], -1)

        return odeint(field, start, t, rtol=1e-6, atol=1e-8)[-1]

    return in_batches(starts, ends)


def trajectories(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Paths, shape (times, starts, 2), in batches that share their steps."""
    t = torch.tensor(task["times"]).double()
    tolerance = {"rtol": task["rtol"], "atol": task["atol"], "method": task["method"]}
    parts = torch.from_numpy(starts).split(task["batch"])

    def run() -> np.ndarray:
        paths = [odeint(lambda _, y: -MODEL.gradient(y), y0, t, **tolerance) for y0 in parts]
        return torch.cat(paths, dim=1).numpy()

    return run


CONTENDERS = {
    "point by point": point_by_point,
    "physical": physical,
    "rescaled": rescaled,
    "trajectories": trajectories,
}
