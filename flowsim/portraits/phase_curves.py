"""Nullclines, and stable manifolds of saddles, as curves of a portrait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from flowsim.boundary.geometry import Lattice, march
from flowsim.boundary.manifolds import stable_manifolds
from flowsim.curves import Curve
from flowsim.errors import InputError
from flowsim.interface import Plane, Range, theta_on_grid

#: Nodes a side between which nullclines are sought.
_NODES = 301


def further_curves(
    plane: Plane, window: Mapping[str, Range], fixed: Mapping[str, float], names: Sequence[str]
) -> list[Curve]:
    """Find the curves of these ``names``, "nullclines" and "manifolds", in a window."""
    found: list[Curve] = []
    for name in names:
        if name == "nullclines":
            found += nullclines(plane, window, fixed)
        elif name == "manifolds":
            model = plane.model
            if {*model.coordinates} != {plane.x, plane.y}:
                raise InputError("stable manifolds are curves only in a model of two coordinates")
            at = [model.coordinates.index(name) for name in (plane.x, plane.y)]
            found += [Curve("stable manifold", *curve.points[:, at].T)
                      for curve in stable_manifolds(model, window)]  # fmt: skip
        else:
            raise InputError(f"further curves are nullclines and manifolds, not {name}")
    return found


def nullclines(
    plane: Plane, window: Mapping[str, Range], fixed: Mapping[str, float]
) -> list[Curve]:
    """Find the curves on which one component of the flow changes its sign, between 301² nodes."""
    x, y = (np.linspace(*window[name], _NODES) for name in (plane.x, plane.y))
    velocity = plane_velocity(plane, theta_on_grid(plane, x, y, fixed)).detach().numpy()
    lattice, found = Lattice((_NODES, _NODES), 0), []
    cells = lattice.cells(0)
    corners = lattice.corners(cells, 0)
    for axis, kind in ((1, "nullcline, flow vertical"), (0, "nullcline, flow horizontal")):
        value = velocity[..., axis].ravel()
        inside = value[corners] > 0
        whole = np.isfinite(value[corners]).all(axis=1)
        mixed = whole & inside.any(axis=1) & ~inside.all(axis=1)
        lines = march(lattice, cells[mixed], inside[mixed])
        assert lines.curve is not None
        one, other = value[lines.inner], value[lines.outer]
        part = (one / (one - other))[:, None]
        places = [np.stack([y[at[:, 0]], x[at[:, 1]]], axis=1)
                  for at in map(lattice.places, (lines.inner, lines.outer))]  # fmt: skip
        points = places[0] + part * (places[1] - places[0])
        for number in np.unique(lines.curve):
            up, across = points[lines.curve == number].T
            found.append(Curve(kind, across, up))
    return found


def plane_velocity(plane: Plane, theta: Tensor) -> Tensor:
    """The components of the flow along (y, x), shape (..., 2), at θ (..., k)."""
    start = theta.detach().requires_grad_()
    place = plane.project(start)[..., :2]
    # J v is the derivative of v·Jᵀu in u; torch's other ways import a quarter of a second of it
    u = torch.zeros_like(place, requires_grad=True)
    (back,) = torch.autograd.grad((place * u).sum(), start, create_graph=True)
    (along,) = torch.autograd.grad((back * plane.model.field(theta)).sum(), u)
    return along
