"""One Dormand-Prince step of many rows with the logit gap as clock, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor

from flowsim.flow.rows.stepping import ERROR_WEIGHTS, STAGE_WEIGHTS
from flowsim.models.base import GapModel

#: y and dy/dΔ, shape (k, n), the error over what is allowed and the size of ``clock_rates``, (n,),
#: all at the step's end.
Attempted = tuple[Tensor, Tensor, Tensor, Tensor]

# Stage 1 serves the next one alone: stored before stage 0, it is left out of later sums.
_PLACE = [1, 0, *range(2, len(STAGE_WEIGHTS) + 1)]


@cache
def _sums() -> list[tuple[slice, Tensor]]:
    """For every stage, and for the error: the stored stages that enter and their weights."""
    sums = []
    for weights in [*STAGE_WEIGHTS, ERROR_WEIGHTS]:
        stored = torch.zeros(len(STAGE_WEIGHTS) + 1, dtype=torch.float64)
        stored[_PLACE[: len(weights)]] = weights
        used = stored.nonzero()[:, 0]
        part = slice(int(used[0]), int(used[-1]) + 1)
        sums.append((part, stored[part].contiguous()))
    return sums


def eager_attempt(model: GapModel, like: Tensor) -> Callable[..., Attempted]:
    """The attempt for pools of rows as many as ``like``, shape (k, n), has, or fewer.

    It takes y, rates, signs, step and the absolute and relative tolerances.
    """
    return partial(_attempt, model, like.new_empty(len(STAGE_WEIGHTS) + 1, like.numel()))


def _attempt(
    model: GapModel,
    scratch: Tensor,
    y: Tensor,
    rates: Tensor,
    signs: Tensor,
    step: Tensor,
    absolute: Tensor,
    relative: Tensor,
) -> Attempted:
    """One step of every row: y, dy/dΔ, error over what is allowed, and size, all at its end."""
    flat = scratch[:, : y.numel()]
    moves = flat.view(-1, *y.shape)  # stages times step
    torch.mul(rates, step, out=moves[_PLACE[0]])
    *sums, (part, weights) = _sums()
    for place, (used, each) in zip(_PLACE[1:], sums, strict=True):
        y_new = torch.addmv(y.reshape(-1), flat[used].T, each).view_as(y)
        numerators, size = model.clock_rates(y_new, signs)
        scale = step / size
        for row, numerator in zip(moves[place], numerators, strict=True):
            torch.mul(numerator, scale, out=row)
    error = torch.mv(flat[part].T, weights).view_as(y).abs_()
    allowed = torch.addcmul(absolute, relative, torch.maximum(y.abs(), y_new.abs()))
    ratio = error.div_(allowed).amax(dim=0)
    return y_new, torch.stack(numerators).div_(size), ratio, size


@cache
def compiled_attempt(model: GapModel) -> Callable[..., Attempted]:
    """The same with its sums written out, compiled into one loop over the rows."""
    table = [weights.tolist() for weights in [*STAGE_WEIGHTS, ERROR_WEIGHTS]]

    def attempt(
        y: Tensor,
        rates: Tensor,
        signs: Tensor,
        step: Tensor,
        absolute: Tensor,
        relative: Tensor,
    ) -> Attempted:
        stages = [list(rates)]
        for weights in table[:-1]:
            y_new = [
                start + step * sum(w * k for w, k in zip(weights, slopes, strict=True) if w)
                for start, slopes in zip(y, zip(*stages, strict=True), strict=True)
            ]
            numerators, size = model.clock_rates(y_new, signs)
            inverse = 1.0 / size
            stages.append([numerator * inverse for numerator in numerators])
        ratio = torch.zeros_like(step)
        for i, slopes in enumerate(zip(*stages, strict=True)):
            error = step * sum(w * k for w, k in zip(table[-1], slopes, strict=True) if w)
            allowed = absolute[i] + relative[i] * torch.maximum(y[i].abs(), y_new[i].abs())
            ratio = torch.maximum(ratio, error.abs() / allowed)
        return torch.stack(y_new), torch.stack(stages[-1]), ratio, size

    compiled: Callable[..., Attempted] = torch.compile(attempt)

    def call(
        y: Tensor, rates: Tensor, signs: Tensor, step: Tensor, absolute: Tensor, relative: Tensor
    ) -> Attempted:
        columns = [y, rates, signs, step]
        if len(step) == 1:  # a single row would be compiled apart
            columns = [torch.cat([column, column], dim=-1) for column in columns]
        for column in columns:  # one code for all numbers of rows, with the weights written in
            torch._dynamo.maybe_mark_dynamic(column, column.ndim - 1)
        y, rates, ratio, size = compiled(*columns, absolute, relative)
        n = len(step)
        return y[:, :n], rates[:, :n], ratio[:n], size[:n]

    return call
