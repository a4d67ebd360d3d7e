"""A search for critical points beside the known ones, from many starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from flowsim.interface import Model
from flowsim.landscape.curvature import curvatures


@dataclass
class CriticalSearch:
    """What a search of ∇L = 0 found.

    Attributes:
        starts: how many starts there were, and ``half_width`` of the box they filled.
        on_plane, global_minima: how many ended in the critical plane e = 0, if there is one, and
            at a global minimum: the lowest point found, if the model knows no
            levels.
        not_found: how many ended where ‖∇L‖ is not below 1e-10.
        theta: the points that are neither, one of each kind, shape (m, k); see ``loss`` (nats)
            and ``curvature`` (eigenvalues, ascending, shape (m, k)).
    """

    starts: int
    half_width: tuple[float, ...]
    on_plane: int
    global_minima: int
    not_found: int
    theta: Tensor
    loss: Tensor
    curvature: Tensor


def search_critical_points(
    model: Model,
    generator: torch.Generator,
    starts: int = 100,
    half_width: tuple[float, ...] = (2.0, 2.0, 0.95),
) -> CriticalSearch:
    """Minimise ‖∇L‖² by least squares from uniform starts in a box around the origin.

    Args:
        model: any reduced model.
        generator: draws the starts.
        starts: how many.
        half_width: of the box, one per coordinate.

    Returns:
        CriticalSearch; points closer than 1e-4 to one another are listed once.
    """
    k = len(model.coordinates)
    box = torch.tensor(half_width, dtype=torch.float64)
    points = box * (2 * torch.rand(starts, k, dtype=torch.float64, generator=generator) - 1)

    def gradient(x: np.ndarray) -> np.ndarray:
        return model.gradient(torch.from_numpy(x)).numpy()

    def jacobian(x: np.ndarray) -> np.ndarray:
        return model.hessian(torch.from_numpy(x)).numpy()

    ends = []
    for point in points:
        fit = least_squares(gradient, point.numpy(), jac=jacobian, method="lm", xtol=1e-14,
                            ftol=1e-15, gtol=1e-15, max_nfev=100)  # fmt: skip
        ends.append(torch.from_numpy(fit.x))
    theta = torch.stack(ends)
    still = model.gradient(theta).norm(dim=1) < 1e-10
    height, across = model.plane.project(theta)[:, :2].unbind(-1)
    on_plane = still & (height.abs() < 1e-3)
    if model.plane.line(across[:1], {}) is None:  # it is no line of critical points
        on_plane &= False
    loss, levels = model.loss(theta), model.levels()
    best = (float(loss[still].min()) if still.any() else 0.0) if levels is None else levels.best
    scale = 1 + (0.0 if levels is None else levels.difference)
    is_global = still & ~on_plane & (loss - best < 1e-9 * scale)
    others = theta[still & ~on_plane & ~is_global]
    distinct: list[Tensor] = []
    for candidate in others:
        if all((candidate - seen).abs().max() > 1e-4 for seen in distinct):
            distinct.append(candidate)
    listed = torch.stack(distinct) if distinct else theta[:0]
    return CriticalSearch(
        starts,
        half_width,
        int(on_plane.sum()),
        int(is_global.sum()),
        int((~still).sum()),
        listed,
        model.loss(listed),
        curvatures(model, listed) if len(listed) else listed,
    )
