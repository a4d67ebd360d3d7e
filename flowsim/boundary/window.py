"""The part of a model's starts in which a boundary is looked for: two or three varied axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flowsim.boundary.distance import Oracle
from flowsim.boundary.lattice import Lattice
from flowsim.errors import InputError
from flowsim.flow.how import How
from flowsim.flow.orbits import limits_by
from flowsim.interface import Model
from flowsim.landscape.ends import Ends
from flowsim.scan.follow import starting_coordinates, to_model

MAX_LEVELS = 20
#: Starts followed at once, which bounds the memory that their orbits need.
_AT_ONCE = 2**16


@dataclass(frozen=True)
class Window:
    """Starts of a model over a lattice, and what they are labelled.

    Attributes:
        model: the reduced model.
        lattice: of the nodes; places in it are whole at nodes and anything between them.
        fine: values of each varied coordinate at the nodes of the finest grid.
        fixed: value of every other coordinate.
        ends: of the model.
    """

    model: Model
    lattice: Lattice
    fine: dict[str, np.ndarray]
    fixed: dict[str, float]
    ends: Ends

    @classmethod
    def over(
        cls,
        model: Model,
        axes: dict[str, np.ndarray],
        fixed: dict[str, float],
        levels: int,
    ) -> Window:
        """The window with the nodes ``axes`` and cells halved ``levels`` times; or InputError."""
        starting_coordinates(model, [*axes, *fixed])
        if len(axes) not in (2, 3):
            raise InputError(f"a boundary is refined along two or three axes, not {len(axes)}")
        values = {name: np.asarray(v, dtype=np.float64) for name, v in axes.items()}
        for name, v in values.items():
            rising = v.ndim == 1 and len(v) > 1 and bool((np.diff(v) > 0).all())
            if not (rising and np.isfinite(v).all()):
                raise InputError(f"the axis {name} needs at least two finite, increasing values")
        if not 0 <= levels <= MAX_LEVELS:
            raise InputError(f"levels must be an integer from 0 to {MAX_LEVELS}, not {levels}")
        lattice = Lattice(tuple(len(v) for v in values.values()), levels)
        if float(np.prod(np.array(lattice.shape, dtype=float))) > 2.0**62:
            raise InputError(f"{levels} levels on this grid are more nodes than can be numbered")
        fine = {n: subdivide(v, levels) for n, v in values.items()}
        return cls(model, lattice, fine, fixed, Ends(model))

    def values(self, places: np.ndarray) -> np.ndarray:
        """The varied coordinates at places, shape (..., axes)."""
        columns = [
            np.interp(places[..., i], np.arange(len(v)), v)
            for i, v in enumerate(self.fine.values())
        ]
        return np.stack(columns, axis=-1)

    def theta(self, places: np.ndarray) -> Tensor:
        """Starts at places, in the model's coordinates, shape (..., k)."""
        varied = self.values(places).reshape(-1, len(self.fine))
        held = np.broadcast_to(list(self.fixed.values()), (len(varied), len(self.fixed)))
        rows = torch.from_numpy(np.concatenate([varied, held], axis=1))
        theta = to_model(self.model, [*self.fine, *self.fixed], rows)
        return theta.reshape(*places.shape[:-1], theta.shape[-1])

    def labels(self, places: np.ndarray, how: How) -> np.ndarray:
        """The ends of the starts at places, (n, axes): labels of ``find_limits`` or codes of ends
        that were found, int8, (n,)."""
        label = np.empty(len(places), dtype=np.int8)
        for low in range(0, len(places), _AT_ONCE):
            start = self.theta(places[low : low + _AT_ONCE])
            found = limits_by(self.model, start, how)
            codes = self.ends.codes(found.label, found.theta, found.loss)
            label[low : low + _AT_ONCE] = codes.numpy()
        return label

    def held(self) -> dict[int, int]:
        """Axis ↦ place of the plane at zero that the flow never crosses, where nodes lie on it.

        Of starts given in other names than the coordinates the plane knows.
        """
        order = starting_coordinates(self.model, [*self.fine, *self.fixed])
        if order == self.model.coordinates:
            never = {n for n, keeps in zip(order, self.model.keeps_sign, strict=True) if keeps}
        else:
            never = set(self.model.plane.never_crossed)
        return {
            i: int(place)
            for i, (name, values) in enumerate(self.fine.items())
            if name in never
            for place in np.flatnonzero(values == 0)
        }

    def closed_form(self) -> Oracle | None:
        """The closed form of the basin as a function of places, where there is one."""
        if self.model.basin(self.theta(np.zeros((1, len(self.fine))))) is None:
            return None
        return lambda places: self.model.basin(self.theta(places)).numpy()  # type: ignore[union-attr]


def subdivide(values: np.ndarray, levels: int) -> np.ndarray:
    """The values with 2^levels − 1 more between neighbours, of which rounding beside 0 is 0."""
    place = np.arange(((len(values) - 1) << levels) + 1) / (1 << levels)
    fine = np.interp(place, np.arange(len(values)), values)
    fine[np.abs(fine) < 1e-9 * np.diff(fine).min()] = 0.0
    fine[:: 1 << levels] = values  # the given ones stay what they are
    return fine
