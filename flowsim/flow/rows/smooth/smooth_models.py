"""Rows of the models with a smooth field, from tensors to compiled loops and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.rows import induction_rows
from flowsim.flow.rows.codes import (
    ARRIVED,
    CRITICAL,
    DYNAMIC_BIAS,
    INDUCTION,
    MISSING,
    RANK_ONE_ATTENTION,
    STATES_ATTENTION,
    UNIFORM,
)
from flowsim.flow.rows.corners import ROOM
from flowsim.flow.rows.smooth import attention as attention
from flowsim.flow.rows.smooth import dynamic_bias, states_rows
from flowsim.flow.rows.smooth import uniform_rows as uniform
from flowsim.flow.rows.smooth.smooth_orbit import follow_all
from flowsim.models.base import BinaryGapModel, ReducedModel
from flowsim.models.in_context.induction import InductionModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.states.states_attention import StatesAttentionModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.models.uniform.table import LawTable, law_table

#: One of ``codes``.
Kind = tuple[int | None, ...]
#: Rows between two looks at the keyboard.
_CHUNK, _SMALL_CHUNK = 1024, 32
#: The gap models, by name.
_DYNAMIC = {
    "canonical": dynamic_bias.CANONICAL,
    "linear": dynamic_bias.LINEAR,
    "untied": dynamic_bias.UNTIED,
}
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
    if isinstance(model, BinaryGapModel):
        return model.dynamic_bias
    return isinstance(model, (AttentionModel, InductionModel, StatesAttentionModel)) or (
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
    chart = _Chart(start, model)
    absolute = np.where(chart.logarithmic, rtol, atol)
    relative = np.where(chart.logarithmic, 1e-15, rtol)
    at = np.empty(0) if times is None else times.detach().cpu().numpy().astype(np.float64)
    loss = np.full(n, -np.inf) if wanted is None else wanted.detach().cpu().numpy()
    ends, paths = np.empty((n, k)), np.full((n, len(at), k), np.nan)
    why, records, slopes = np.zeros(n, dtype=np.int64), np.zeros((n, 5)), np.zeros((n, k))
    for rows in _chunks(model, n):
        while len(rows):
            kind, *arrays = _constants(model)
            found = [array[rows] for array in (ends, paths, why, np.zeros_like(records), slopes)]
            given = absolute, relative, at, loss[rows], most
            begun = chart.y[rows], chart.held[rows], chart.signs[rows]
            follow_all(kind, *begun, *arrays, *given, *found)
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
    """The rows' coordinates: log|θᵢ| for coordinates that keep their sign, and the rest as it is.

    A zero stays zero; its logarithm is not used. ``held`` says where e is such a zero.
    """

    def __init__(self, start: np.ndarray, model: ReducedModel) -> None:
        self.logarithmic, self.signs = np.array(model.keeps_sign), np.sign(start)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(np.abs(start)), _SMALLEST)
        self.y = np.where(self.logarithmic, logs, start)
        self.held = np.zeros(len(start), dtype=bool)
        if model.keeps_sign[0]:
            self.held = start[:, 0] == 0

    def theta(self, y: np.ndarray) -> np.ndarray:
        """θ(y) for y of shape (n, ..., k)."""
        signs = self.signs.reshape(len(y), *[1] * (y.ndim - 2), y.shape[-1])
        size = np.exp(np.clip(np.where(self.logarithmic, y, 0.0), _SMALLEST, -_SMALLEST))
        return np.where(self.logarithmic, signs * size, y)

    def derivative(self, y: np.ndarray) -> np.ndarray:
        """∂θᵢ/∂yᵢ, (n, k)."""
        return np.where(self.logarithmic, self.theta(y), 1.0)


def _chunks(model: ReducedModel, n: int) -> list[np.ndarray]:
    size = _SMALL_CHUNK if isinstance(model, RankOneModel) else _CHUNK
    return np.split(np.arange(n), range(size, n, size))


def _table(model: ReducedModel) -> LawTable:
    assert isinstance(model, AttentionModel)
    return law_table(model.chain, model.length, model.dynamic_bias, model.compress)


def _constants(model: ReducedModel) -> tuple[Kind, np.ndarray, np.ndarray, int]:
    """The kind, its constants, and the size of a row's memory."""
    if isinstance(model, AttentionModel):
        table = _table(model)
        return UNIFORM, table.reals, table.ints, uniform.MEMORY
    if isinstance(model, BinaryGapModel):
        return DYNAMIC_BIAS, *dynamic_bias.constants(model.chain, _DYNAMIC[model.name])
    kind: Kind
    if isinstance(model, InductionModel):
        kind, (reals, ints, room) = INDUCTION, induction_rows.constants(model)
    elif isinstance(model, StatesAttentionModel):
        kind, (reals, ints, room) = STATES_ATTENTION, states_rows.constants(model)
    else:
        assert isinstance(model, RankOneModel)
        kind, (reals, ints, room) = RANK_ONE_ATTENTION, rank_one_constants(model)
    return kind, reals, ints, room + ROOM  # without corners


@lru_cache(maxsize=8)
def rank_one_constants(model: RankOneModel) -> tuple[np.ndarray, np.ndarray, int]:
    """``attention.constants`` of the model, computed once."""
    return attention.constants(model.chain, model.length, model.tied)
