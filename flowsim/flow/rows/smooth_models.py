"""Rows of the models with a smooth field, from tensors to compiled loops and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.rows import attention, uniform
from flowsim.flow.rows.codes import ARRIVED, CRITICAL, MISSING, RANK_ONE_ATTENTION, UNIFORM
from flowsim.flow.rows.smooth import follow_all
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.models.uniform.table import LawTable, law_table

#: Rows between two looks at the keyboard.
_CHUNK = {UNIFORM: 1024, RANK_ONE_ATTENTION: 32}
#: Attempted steps of a row that is followed to times or to a loss.
_MANY_STEPS = 20_000
#: log|θᵢ| of a coordinate that is smaller still.
_SMALLEST = -700.0


@dataclass
class Followed:
    """What the compiled loop found, one entry per row.

    Attributes:
        theta: where the rows stopped, (n, k).
        why: a value of ``codes``, (n,).
        attempts: attempted steps, (n,).
        time: when, (n,).
        slowest, dip: the smallest speed met, and the smallest that was followed by one three times
            as large (the passage of a saddle), infinite without one; in the row's coordinates.
        loss: of what was followed at the end, in nats, (n,).
        speed: ‖G dθ/dt‖ = ‖∇L‖ there, (n,).
        path: θ at the requested times, (n, T, k).
    """

    theta: Tensor
    why: Tensor
    attempts: Tensor
    time: Tensor
    slowest: Tensor
    dip: Tensor
    loss: Tensor
    speed: Tensor
    path: Tensor


def is_smooth(model: ReducedModel) -> bool:
    """Whether rows of the model are followed here."""
    return isinstance(model, AttentionModel) or (
        isinstance(model, RankOneModel) and model.attention
    )


def follow_smooth(
    model: ReducedModel,
    theta: Tensor,
    rtol: float,
    atol: float,
    most: int,
    times: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Followed:
    """Follow every row to its end, to the last of the times, or to a loss.

    Args:
        model: for which ``is_smooth``.
        theta: starts, (n, k).
        rtol, atol: error allowed per step: rtol in log|e| and log|w| of uniform attention, else
            atol + rtol·|θᵢ|.
        most: attempted steps per row.
        times: not negative and increasing, the start being at 0, (T,).
        wanted: losses at which the rows stop, (n,).
    """
    start = theta.detach().cpu().numpy().astype(np.float64)
    n, k = start.shape
    chart = _Chart(start, 2 if isinstance(model, AttentionModel) else 0)
    absolute, relative = np.full(k, atol), np.full(k, rtol)
    absolute[: chart.count], relative[: chart.count] = rtol, 1e-15
    at = np.empty(0) if times is None else times.detach().cpu().numpy().astype(np.float64)
    loss = np.full(n, -np.inf) if wanted is None else wanted.detach().cpu().numpy()
    ends, paths = np.empty((n, k)), np.full((n, len(at), k), np.nan)
    why, records, slopes = np.zeros(n, dtype=np.int64), np.zeros((n, 5)), np.zeros((n, k))
    for rows in _chunks(model, n):
        while len(rows):
            kind, *arrays = _constants(model)
            found = [array[rows] for array in (ends, paths, why, np.zeros_like(records), slopes)]
            given = absolute, relative, at, loss[rows], most
            follow_all(kind, chart.y[rows], chart.signs[rows], *arrays, *given, *found)
            for array, values in zip((ends, paths, why, records, slopes), found, strict=True):
                array[rows] = values
            missing = found[2] >= MISSING
            if missing.any():
                _table(model).add(int(found[2].max()) - MISSING)
            rows = rows[missing]
    scale = chart.derivative(ends) * np.asarray(model.metric)
    speed = np.linalg.norm(slopes * scale, axis=1)
    columns = [records[:, 0].astype(np.int64), *records[:, 1:].T, speed]
    arrays = [chart.theta(ends), why, *columns, chart.theta(paths)]
    return Followed(*(torch.as_tensor(array, device=theta.device) for array in arrays))


def smooth_paths(
    model: ReducedModel, start: Tensor, times: Tensor, rtol: float, atol: float
) -> Tensor:
    """θ at ``times``, (T, n, k), from ``start`` (n, k) at times[0]; NaN where it is not known."""
    found = follow_smooth(model, start, rtol, atol, _MANY_STEPS, times - times[0])
    critical = found.why == CRITICAL
    found.path[critical] = start[critical].unsqueeze(1)
    found.path[:, 0] = start
    return found.path.transpose(0, 1)


def smooth_times(model: ReducedModel, start: Tensor, wanted: Tensor, rtol: float) -> Tensor:
    """The time until the loss is as wanted, (n,); NaN where that was not reached."""
    found = follow_smooth(model, start, rtol, 1e-2 * rtol, _MANY_STEPS, wanted=wanted)
    return torch.where(found.why == ARRIVED, found.time, torch.nan)


def loss_followed(model: ReducedModel, theta: Tensor) -> Tensor:
    """The loss whose gradient moves the rows, (n,): with attention in the rank-one model that of
    the rounded ReLU.
    """
    if not isinstance(model, RankOneModel):
        return model.loss(theta)
    _, reals, ints, room = _constants(model)
    memory, rows = np.zeros(room), theta.detach().cpu().numpy()
    values = [attention.loss(row, reals, ints, memory) for row in rows]
    return torch.tensor(values, dtype=torch.float64, device=theta.device)


class _Chart:
    """The rows' coordinates: logarithms of the first ``count`` of θ, and the rest as it is.

    A zero stays zero; its logarithm is not used.
    """

    def __init__(self, start: np.ndarray, count: int) -> None:
        self.count, self.signs, self.y = count, np.sign(start), start.copy()
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(start[:, :count]))
        self.y[:, :count] = np.maximum(logs, _SMALLEST)

    def theta(self, y: np.ndarray) -> np.ndarray:
        """θ(y) for y of shape (n, ..., k)."""
        theta, c = y.copy(), self.count
        signs = self.signs[:, :c].reshape(len(y), *[1] * (y.ndim - 2), c)
        theta[..., :c] = signs * np.exp(np.maximum(y[..., :c], _SMALLEST))
        return theta

    def derivative(self, y: np.ndarray) -> np.ndarray:
        """∂θᵢ/∂yᵢ, (n, k)."""
        theta = self.theta(y)
        theta[:, self.count :] = 1.0
        return theta


def _chunks(model: ReducedModel, n: int) -> list[np.ndarray]:
    size = _CHUNK[UNIFORM if isinstance(model, AttentionModel) else RANK_ONE_ATTENTION]
    return np.split(np.arange(n), range(size, n, size))


def _table(model: ReducedModel) -> LawTable:
    assert isinstance(model, AttentionModel)
    return law_table(model.chain, model.length, model.dynamic_bias, model.compress)


def _constants(model: ReducedModel) -> tuple[int, np.ndarray, np.ndarray, int]:
    """The kind, its constants, and the size of a row's memory."""
    if isinstance(model, AttentionModel):
        table = _table(model)
        return UNIFORM, table.reals, table.ints, uniform.MEMORY
    assert isinstance(model, RankOneModel)
    return RANK_ONE_ATTENTION, *_rank_one(model)


@lru_cache(maxsize=8)
def _rank_one(model: RankOneModel) -> tuple[np.ndarray, np.ndarray, int]:
    return attention.constants(model.chain, model.length, model.tied)
