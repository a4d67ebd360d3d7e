"""One door for the drawing of every kind of record."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Unpack, overload

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flowsim.drawing.boundary_lines import draw_refined
from flowsim.drawing.branches import draw_continuation, draw_fold_curves
from flowsim.drawing.comparison import draw_comparison
from flowsim.drawing.curves import draw_gaussian, draw_training
from flowsim.drawing.noise import draw_noise
from flowsim.drawing.optimizers import draw_optimizers
from flowsim.drawing.overlay import Paths, with_paths
from flowsim.drawing.plane import draw_portrait
from flowsim.drawing.scan_map import check_grid, draw_scan
from flowsim.drawing.space import draw_phase_space
from flowsim.drawing.style import Look
from flowsim.errors import InputError
from flowsim.records.attributes import axes_of


@overload
def draw(
    record: xr.Dataset, ax: None = None, energy: bool = False, show: str = "label",
    orbits: bool = True, paths: Paths | None = None, **look: Unpack[Look],
) -> Figure: ...  # fmt: skip
@overload
def draw(
    record: xr.Dataset, ax: Axes, energy: bool = False, show: str = "label",
    orbits: bool = True, paths: Paths | None = None, **look: Unpack[Look],
) -> list[Any]: ...  # fmt: skip
def draw(
    record: xr.Dataset,
    ax: Axes | None = None,
    energy: bool = False,
    show: str = "label",
    orbits: bool = True,
    paths: Paths | None = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the figure of a record of any kind.

    A portrait, a view in space, a scan, a boundary, a Gaussian curve, a comparison or a training
    run, by the record's attribute ``kind``. Text has the sizes of matplotlib's ``rcParams``.

    Args:
        record: from one of flowsim's functions or ``read_record``.
        ax: axes to draw on (with ``projection="3d"`` for what has three dimensions); by default
            those of a new figure.
        energy: also draw contours of the conserved energy, of a portrait that holds it.
        show: of a scan, "label" (where starts end) or "hitting_time" (when they have learned).
        orbits: draw the orbits of a portrait.
        paths: what to lay over a portrait, such as runs of training; one, a list of files, or
            several by name. A path is a file (a record of ``flowsim train``, or a .csv with a
            column for each axis and perhaps one called run), a Dataset, columns by name, or an
            array (times, 2) or (times, runs, 2) of (e, w).
        width: of a new figure, in inches; its height follows.
        title, legend: False leaves it out.

    Returns:
        A new figure, which a notebook shows and ``savefig`` writes. On given axes, the list of what
        was drawn there: entries for a legend of your own.

    Raises:
        InputError: an unknown kind, options that do not go with the record, or paths that do not.

    >>> import flowsim
    >>> model, axis = flowsim.model("canonical", 0.5, 0.8), flowsim.scan.cell_centres(-2, 2, 8)
    >>> record = flowsim.scan(model, {"e": axis, "w": axis})
    >>> float(flowsim.draw(record, width=3.3, title=False).get_figwidth())
    3.3
    """
    if not isinstance(record, xr.Dataset):
        raise InputError(f"draw takes a record, such as portrait(model), not {record!r}")
    kind = record.attrs.get("kind", "scan" if "share" in record else None)
    if energy and kind != "portrait":
        raise InputError("energy contours go with a portrait of the canonical model")
    if show != "label" and kind != "scan":
        raise InputError(f"show={show!r} goes with a scan, not with a record of kind {kind}")
    if kind == "scan" and show == "label" and "boundary_face" not in record:
        dims = {str(name) for name in record["label"].dims}
        if len(dims) == 2 and dims == set(axes_of(record)):  # with its model's curves and arrows
            check_grid(record)
            from flowsim.portraits.in_plane import portrait_of_scan  # which imports torch

            with suppress(InputError):  # of a model that is not at hand
                record = record if "optimizer" in record.attrs else portrait_of_scan(record)
                kind = "portrait"
    if not orbits and kind != "portrait":
        raise InputError("orbits=False goes with a portrait, or with a scan of a plane")
    if not orbits:
        record = record.drop_vars([name for name in map(str, record) if name[:6] == "orbit_"])
    if paths is not None:
        if kind != "portrait":
            raise InputError("paths are laid over a portrait, or over a scan of a plane")
        record = with_paths(record, paths)
    if kind == "portrait":
        return draw_portrait(record, ax, energy, **look)
    if kind == "scan" and (show != "label" or not {"boundary_curve", "boundary_face"} & {*record}):
        return draw_scan(record, ax, show, **look)
    others: dict[str, Any] = {
        "phase space": draw_phase_space,
        "boundary": draw_refined,
        "scan": draw_refined,
        "gaussian": draw_gaussian,
        "continuation": draw_continuation,
        "fold curves": draw_fold_curves,
        "comparison": draw_comparison,
        "training": draw_training,
        "optimizers": draw_optimizers,
        "noise": draw_noise,
    }
    if kind not in others:
        raise InputError(f"records of kind {kind} are not drawn; known are portrait, "
                         + ", ".join(others))  # fmt: skip
    return others[kind](record, ax, **look)
