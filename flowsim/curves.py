"""Curves that are known in a plane, and the table of them that a record has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray as xr


#: Kinds that consist of critical points.
CRITICAL = {
    "global minima", "local minima", "local maxima", "saddles", "global minimum", "local minimum",
    "minimum", "saddle", "maximum", "centre",
}  # fmt: skip


class Curve(NamedTuple):
    """A curve, or points, in the plane of a model.

    Attributes:
        kind: by which it is drawn and named, such as "separatrix", "global minima" or "saddle".
        x, y: places along the horizontal and the vertical axis, (n,), NaN between parts.
        of: the title of another model, where the curve is of that one.

    >>> Curve("valley", [0.0, 1.0], [0.5, 0.7]).of
    ''
    """

    kind: str
    x: Any
    y: Any
    of: str = ""

    @property
    def points(self) -> list[tuple[float, float]]:
        """The isolated places (x, y): their neighbours along the curve, if any, are NaN."""
        there = np.isfinite(self.x) & np.isfinite(self.y)
        alone = there & ~np.append(False, there[:-1]) & ~np.append(there[1:], False)
        return list(zip(np.asarray(self.x)[alone].tolist(), np.asarray(self.y)[alone].tolist(),
                        strict=True))  # fmt: skip


def with_curves(record: xr.Dataset, curves: Iterable[Curve], **columns: Any) -> xr.Dataset:
    """Return the record with a table of these curves and no others, in the order of drawing.

    ``curve_number`` says of each place on which curve it is; ``curve_kind`` and ``curve_of`` are
    over the curves. ``columns`` hold a list of values along each curve, by the name of the axis.
    """
    curves = list(curves)
    sizes = [len(curve.x) for curve in curves]
    numbers = np.repeat(np.arange(len(curves)), sizes)
    return record.assign({
        **{f"curve_{name}": ("curve_place", np.concatenate([np.empty(0), *values]))
           for name, values in columns.items()},
        "curve_number": ("curve_place", numbers),
        "curve_kind": ("curve", np.array([curve.kind for curve in curves], dtype=str)),
        "curve_of": ("curve", np.array([curve.of for curve in curves], dtype=str)),
    })  # fmt: skip


def curves_of(record: xr.Dataset, across: str, up: str) -> list[Curve]:
    """Read the curves of a record's table along two axes; none from a record without a table."""
    if "curve_kind" not in record:
        return []
    x, y, number = (record[f"curve_{n}"].to_numpy() for n in (across, up, "number"))
    kinds, of = record["curve_kind"].to_numpy(), record["curve_of"].to_numpy()
    ends = np.searchsorted(number, np.arange(len(kinds) + 1))
    parts = zip(kinds, of, ends, ends[1:], strict=False)
    return [Curve(str(kind), x[first:last], y[first:last], str(whose))
            for kind, whose, first, last in parts]  # fmt: skip
