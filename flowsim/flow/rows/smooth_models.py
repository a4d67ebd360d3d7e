"""Rows of the models with a smooth field, from tensors to compiled loops and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from flowsim.flow.rows import attention, uniform
from flowsim.flow.rows.codes import MISSING, RANK_ONE_ATTENTION, UNIFORM
from flowsim.flow.rows.smooth import follow_all
from flowsim.models.base import ReducedModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.models.uniform.table import law_table

#: Rows between two looks at the keyboard.
_CHUNK = {UNIFORM: 1024, RANK_ONE_ATTENTION: 32}
#: log|θᵢ| of a coordinate that is smaller still.
_SMALLEST = -700.0


@dataclass(frozen=True)
class Followed:
    """What the compiled loop found, one entry per row.

    Attributes:
        theta: where the rows stopped, (n, k).
        why: a value of ``codes``, (n,).
        attempts: attempted steps, (n,).
        time: when, (n,).
        slowest, dip: the smallest speed met, and the smallest that was followed by one three times
            as large (the passage of a saddle), infinite without one; in the row's coordinates.
        loss: at the end, in nats, (n,).
        path: θ at the requested times, (n, T, k).
    """

    theta: np.ndarray
    why: np.ndarray
    attempts: np.ndarray
    time: np.ndarray
    slowest: np.ndarray
    dip: np.ndarray
    loss: np.ndarray
    path: np.ndarray


def is_smooth(model: ReducedModel) -> bool:
    """Whether rows of the model are followed here."""
    return isinstance(model, AttentionModel) or (
        isinstance(model, RankOneModel) and model.attention
    )


@lru_cache(maxsize=8)
def _rank_one_constants(model: RankOneModel) -> tuple[np.ndarray, np.ndarray, int]:
    return attention.constants(model.chain, model.length, model.tied)


def follow_smooth(
    model: ReducedModel,
    theta: Tensor,
    rtol: float,
    atol: float,
    most: int,
    times: Tensor | None = None,
    wanted: Tensor | None = None,
    progress: Callable[[int], object] | None = None,
) -> Followed:
    """Follow every row to its end, to the last of the times, or to a loss.

    Args:
        model: for which ``is_smooth``.
        theta: starts, (n, k).
        rtol, atol: error allowed per step: rtol in log|e| and log|w| of uniform attention, else
            atol + rtol·|θᵢ|.
        most: attempted steps per row.
        times: increasing, from the start at 0, (T,).
        wanted: losses at which the rows stop, (n,).
        progress: called with the number of rows done, after each chunk.
    """
    start = theta.detach().cpu().numpy().astype(np.float64)
    n, k = start.shape
    at = np.empty(0) if times is None else times.detach().cpu().numpy().astype(np.float64)
    loss = np.full(n, -np.inf) if wanted is None else wanted.detach().cpu().numpy()
    kind = UNIFORM if isinstance(model, AttentionModel) else RANK_ONE_ATTENTION
    logarithmic = 2 if kind == UNIFORM else 0
    absolute, relative = np.full(k, atol), np.full(k, rtol)
    absolute[:logarithmic], relative[:logarithmic] = rtol, 1e-15
    y, signs = start.copy(), np.ones((n, k))
    signs[:, :logarithmic] = np.sign(start[:, :logarithmic])
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(np.abs(start[:, :logarithmic])), _SMALLEST)
    y[:, :logarithmic] = np.where(start[:, :logarithmic] == 0, 0.0, logs)
    ends, paths = np.empty((n, k)), np.full((n, len(at), k), np.nan)
    why, records = np.zeros(n, dtype=np.int64), np.zeros((n, 5))
    size = _CHUNK[kind]
    for first in range(0, n, size):
        rows = np.arange(first, min(n, first + size))
        _follow_chunk(
            model,
            kind,
            rows,
            y,
            signs[:, 1],
            absolute,
            relative,
            at,
            loss,
            most,
            ends,
            paths,
            why,
            records,
        )
        if progress is not None:
            progress(len(rows))

    def back(values: np.ndarray, sign: np.ndarray) -> np.ndarray:
        logs = values[..., :logarithmic]
        values[..., :logarithmic] = sign[..., :logarithmic] * np.exp(np.maximum(logs, _SMALLEST))
        return values

    columns = records.T
    return Followed(
        back(ends, signs),
        why,
        columns[0].astype(np.int64),
        columns[1],
        columns[2],
        columns[3],
        columns[4],
        back(paths, signs[:, None]),
    )


def _follow_chunk(
    model: ReducedModel,
    kind: int,
    rows: np.ndarray,
    y: np.ndarray,
    sign: np.ndarray,
    absolute: np.ndarray,
    relative: np.ndarray,
    times: np.ndarray,
    wanted: np.ndarray,
    most: int,
    ends: np.ndarray,
    paths: np.ndarray,
    why: np.ndarray,
    records: np.ndarray,
) -> None:
    """Follow some rows; those that meet a level their table lacks begin again with it."""
    while len(rows):
        if isinstance(model, AttentionModel):
            table = law_table(model.chain, model.length, model.dynamic_bias, model.compress)
            reals, ints, room = table.reals, table.ints, uniform.MEMORY
        else:
            assert isinstance(model, RankOneModel)
            reals, ints, room = _rank_one_constants(model)
        found = ends[rows], paths[rows], why[rows], np.zeros((len(rows), 5))
        follow_all(
            kind,
            y[rows],
            sign[rows],
            reals,
            ints,
            room,
            absolute,
            relative,
            times,
            wanted[rows],
            most,
            *found,
        )
        ends[rows], paths[rows], why[rows], records[rows] = found
        missing = found[2] >= MISSING
        if missing.any():
            table.add(int(found[2].max()) - MISSING)
        rows = rows[missing]


def to_tensor(values: np.ndarray, like: Tensor) -> Tensor:
    """``values`` on the device of ``like``."""
    return torch.as_tensor(values, device=like.device)
