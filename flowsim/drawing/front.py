"""One door for the drawing of every kind of record."""

from __future__ import annotations

from contextlib import suppress

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flowsim.drawing.boundary_lines import draw_refined
from flowsim.drawing.comparison import draw_comparison
from flowsim.drawing.gaussian_curve import draw_gaussian
from flowsim.drawing.plane import draw_portrait
from flowsim.drawing.scan_map import check_grid, draw_scan
from flowsim.drawing.space import draw_phase_space
from flowsim.drawing.style import axes_of
from flowsim.drawing.training import draw_training
from flowsim.errors import InputError
from flowsim.portraits.in_plane import portrait_of_scan


def draw(
    record: xr.Dataset, ax: Axes | None = None, energy: bool = False, show: str = "label"
) -> Figure:
    """The figure of a record of any kind.

    A portrait, a view in space, a scan, a boundary, a Gaussian curve, a comparison or a training
    run, by the record's attribute ``kind``.

    Args:
        record: from one of flowsim's functions or ``read_record``.
        ax: axes to draw on (with ``projection="3d"`` for what has three dimensions); by default
            those of a new figure.
        energy: also draw contours of the conserved energy, of a portrait that holds it.
        show: of a scan, "label" (where starts end) or "hitting_time" (when they have learned).

    Returns:
        The figure that the axes belong to; ``figure.savefig`` writes it.

    Raises:
        InputError: an unknown kind, or options that do not go with the record.
    """
    if not isinstance(record, xr.Dataset):
        raise InputError(f"draw takes a record, such as portrait_record(model), not {record!r}")
    kind = record.attrs.get("kind", "scan" if "share" in record else None)
    if energy and kind != "portrait":
        raise InputError("energy contours go with a portrait of the canonical model")
    if show != "label" and kind != "scan":
        raise InputError(f"show={show!r} goes with a scan, not with a record of kind {kind}")
    if kind == "portrait":
        return draw_portrait(record, ax, energy)
    if kind == "scan":
        return _draw_scan(record, ax, show)
    others = {
        "phase space": draw_phase_space,
        "boundary": draw_refined,
        "gaussian": draw_gaussian,
        "comparison": draw_comparison,
        "training": draw_training,
    }
    if kind not in others:
        raise InputError(f"records of kind {kind} are not drawn; known are portrait, scan, "
                         + ", ".join(others))  # fmt: skip
    return others[kind](record, ax)


def _draw_scan(record: xr.Dataset, ax: Axes | None, show: str) -> Figure:
    """A scan of a plane with its curves and arrows where its model says them; others plainly."""
    if show == "label" and "boundary_face" in record:
        return draw_refined(record, ax)
    dims = {str(name) for name in record["label"].dims}
    if show == "label" and len(dims) == 2 and dims == set(axes_of(record)):
        check_grid(record)
        if "optimizer" in record.attrs:
            return draw_portrait(record, ax)
        portrait = None
        with suppress(InputError):  # of a model that is not at hand
            portrait = portrait_of_scan(record)
        if portrait is not None:
            return draw_portrait(portrait, ax)
    if show == "label" and "boundary_curve" in record:
        return draw_refined(record, ax)
    return draw_scan(record, ax, show)
