"""Drawing a portrait record. Knows arrays and matplotlib, nothing of models or integration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flowsim.drawing.plane_curves import draw_curves, draw_energy
from flowsim.drawing.style import (
    ARROW,
    BASINS,
    FILL,
    INK,
    LINE,
    MARKER,
    SOFT,
    TRAINED,
    add_legend,
    basin_patches,
    chain_caption,
    edges,
    figure_of,
    meanings,
    model_caption,
    name_of,
    new_figure,
    own_axes,
    percent,
    sentence,
)
from flowsim.errors import InputError

#: Cells a side up to which hatching follows their edges, and beyond it their centres.
_WHOLE_CELLS = 512
_DIFFERS: dict[str, Any] = {"hatches": ["xxx"], "colour": LINE}
_SLIDES: dict[str, Any] = {"hatches": [".."], "colour": "#3f6f86"}


def draw_portrait(record: xr.Dataset, ax: Axes | None = None, energy: bool = False) -> Figure:
    """A portrait: basins, flow, curves, and where the canonical model predicts another end.

    Args:
        record: from ``portrait_record`` or read back from its file.
        ax: axes to draw on; by default those of a new figure.
        energy: also draw contours of the conserved energy.

    Raises:
        InputError: energy contours of a record without the canonical model's energy.
    """
    given = ax is not None
    ax = own_axes(ax, 7.0, 7.6)
    handles = draw_layers(record, ax, energy)
    ax.set_title("\n".join(_title(record)), fontsize=10.5)
    add_legend(ax, handles, given)
    return figure_of(ax)


def draw_models_side_by_side(records: Sequence[xr.Dataset], energy: bool = False) -> Figure:
    """Portraits beside each other with one legend: other models of one chain, or other chains.

    Args:
        records: from ``portrait_record``, of one window.
        energy: also draw contours of the conserved energy.
    """
    figure = new_figure(6.1 * len(records), 7.6)
    panels = figure.subplots(1, len(records), sharex=True, sharey=True, squeeze=False)[0]
    handles: dict[object, Artist] = {}
    titles = [_title(record) for record in records]
    one_chain = len({title[1] for title in titles}) == 1
    for record, ax, title in zip(records, panels, titles, strict=True):
        for handle in draw_layers(record, ax, energy):
            handles.setdefault(handle.get_label(), handle)
        ax.set_title("\n".join([title[0], *title[1 + one_chain :]]), fontsize=10.5)
        ax.label_outer()
    if one_chain:
        figure.suptitle(titles[0][1], fontsize=12)
    first = [text for text in BASINS.values() if text in handles]
    order = [*first, *(text for text in handles if text not in first)]
    add_legend(panels[0], [handles[text] for text in order], given=False, columns=3)
    return figure


def draw_layers(record: xr.Dataset, ax: Axes, energy: bool = False) -> list[Artist]:
    """All of a portrait but title and legend, on given axes; the entries of a legend."""
    if energy and "energy" not in record:
        raise InputError("energy contours need a portrait of the canonical model")
    handles = draw_basins(record, ax)
    handles += _draw_regions(record, ax)
    handles += draw_curves(record, ax)
    handles += draw_flow(record, ax)
    return handles + (draw_energy(record, ax) if energy else [])


def draw_basins(record: xr.Dataset, ax: Axes, across: str = "w", up: str = "e") -> list[Artist]:
    """The basins as filled cells, the bad one hatched; a legend's entries."""
    names = meanings(record["label"])
    labels = record["label"].transpose(up, across).to_numpy()
    x, y = edges(record[across].to_numpy(), across), edges(record[up].to_numpy(), up)
    extent = (x[0], x[-1], y[0], y[-1])
    ax.imshow(
        labels, origin="lower", extent=extent, aspect="auto", vmin=-0.5, vmax=len(names) - 0.5,
        cmap=ListedColormap([FILL[name] for name in names]), interpolation="nearest",
        rasterized=True,
    )  # fmt: skip
    _hatch(record, ax, labels == names.index("local_minimum"), ["///"], "#ffffff", across, up)
    ax.set(xlim=extent[:2], ylim=extent[2:], xlabel=name_of(across), ylabel=name_of(up))
    return basin_patches(name for name in BASINS if (labels == names.index(name)).any())


def _hatch(
    record: xr.Dataset, ax: Axes, on: np.ndarray, hatches: list[str], colour: str, across: str,
    up: str,
) -> None:  # fmt: skip
    """Hatch the cells that are ``on``, an array over (up, across)."""
    if not on.any():
        return
    x, y = record[across].to_numpy(), record[up].to_numpy()
    if max(on.shape) <= _WHOLE_CELLS:
        x, y = (np.repeat(edges(values), 2)[1:-1] for values in (x, y))
        on = on.repeat(2, axis=0).repeat(2, axis=1)
    hatch = ax.contourf(x, y, on, levels=[0.5, 1.5], colors="none", hatches=hatches)
    hatch.set(edgecolor=colour, linewidth=0)


def _draw_regions(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Cells whose end the canonical model does not predict, and cells whose orbit slides."""
    regions = {}
    if "differs" in record:
        regions["the canonical model predicts the other end"] = ("differs", _DIFFERS)
    if "sliding_time" in record:
        regions["the orbit slides along a ReLU's kink"] = ("sliding_time", _SLIDES)
    handles: list[Artist] = []
    for text, (name, style) in regions.items():
        on = record[name].transpose("e", "w").to_numpy() > 0
        if on.any():
            _hatch(record, ax, on, style["hatches"], style["colour"], "w", "e")
            patch = Patch(facecolor="#ffffff", hatch=style["hatches"][0], linewidth=0)
            patch.set(edgecolor=style["colour"], label=f"{text} ({percent(on)})")
            handles.append(patch)
    return handles


def draw_flow(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Unit arrows of the flow, and the orbits from the points where they start."""
    ax.quiver(
        record["arrow_w"], record["arrow_e"], record["direction_w"], record["direction_e"],
        angles="xy", pivot="mid", scale=38, width=0.0021, color=ARROW, alpha=0.75,
    )  # fmt: skip
    arrow = Line2D([], [], color=ARROW, marker="$\\rightarrow$", linestyle="none", markersize=11)
    arrow.set_label("direction of the flow")
    cloud = _draw_cloud(record, ax)
    if "orbit_w" not in record:
        return [arrow, *cloud]
    w, e = record["orbit_w"].to_numpy(), record["orbit_e"].to_numpy()
    ax.plot(w, e, color=SOFT, linewidth=0.9)
    ax.plot(w[0], e[0], "o", color=SOFT, markersize=2.8)
    line = Line2D([], [], color=SOFT, linewidth=0.9, marker="o", markersize=2.8, markevery=2)
    early = int(record.attrs.get("orbits_unfinished", 0))
    more = f"; {early} stop before their ends" if early else ""
    line.set_label(f"orbit from its start (dot){more}")
    return [arrow, line, *_draw_training(record, ax), *cloud]


def _draw_cloud(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """The starts of a cloud by where they end, of records of the explorer."""
    if "cloud_label" not in record:
        return []
    label, names = record["cloud_label"].to_numpy(), meanings(record["cloud_label"])
    handles: list[Artist] = []
    for name, words in BASINS.items():
        on = label == names.index(name)
        if on.any():
            share = f"of the cloud {percent(on)} {words}"
            w, e = (record[f"cloud_{n}"].to_numpy()[on] for n in "we")
            handles += ax.plot(w, e, MARKER[name], ms=4, mfc=FILL[name], mec=INK[name], mew=0.6,
                               linestyle="none", label=share)  # fmt: skip
    return handles


def _draw_training(record: xr.Dataset, ax: Axes) -> list[Artist]:
    """Paths of full training from the starts of orbits, of records of the explorer."""
    if "trained_w" not in record:
        return []
    style: dict[str, Any] = {"color": TRAINED, "linewidth": 1.6, "linestyle": (0, (2, 1.2))}
    ax.plot(record["trained_w"].to_numpy(), record["trained_e"].to_numpy(), **style)
    return [Line2D([], [], label="full training, projected", **style)]


def _title(record: xr.Dataset) -> list[str]:
    """The model on its chain; shares of the window; what else has to be known of it."""
    a, total = record.attrs, record["label"].size
    held = [f"${n}$ = {a[n]:g}" for n in ("a", "v", "u", "b") if n in a]
    word = "slice" if a["model"] in ("uniform", "linear", "states") else "starts at"
    model = ", ".join([sentence(model_caption(record)), *(f"{word} {h}" for h in held)])
    verbs = {"global_minimum": "reaches the global minima", "local_minimum": "is trapped",
             "saddle": "ends in a saddle", "unresolved": "is unresolved"}  # fmt: skip
    shares = [
        f"{percent(int(a[f'cells_{name}']), total)} {verb}"
        for name, verb in verbs.items()
        if a[f"cells_{name}"]
    ]
    lines = [model, chain_caption(record)]
    lines.append("of the window " + ", ".join(shares[:2]))
    lines += [", ".join(shares[2:])] if shares[2:] else []
    return lines + _remarks(record)


def _remarks(record: xr.Dataset) -> list[str]:
    """What a reader of the portrait would otherwise take for granted."""
    a, remarks = record.attrs, []
    if "share_differs" in a:
        share = percent(int(a["cells_differ"]), record["label"].size)
        remarks.append(f"{share} ends elsewhere than in the canonical model")
    if a["model"] == "rank-one":
        remarks.append("(starts lifted from the plane, orbits projected to it)")
    if a["model"] == "states" and "v" in a["coordinates"]:
        where = "; the global minima lie at $v$ = 0" if a.get("v") else ""
        remarks.append(f"(arrows and orbits without their part along $v${where})")
    elif a["model"] == "states":
        trap = str(a["regime"])[2] == "<" and a["cells_local_minimum"]
        more = ";\nits trap opens to any noise off it, rounding too" if trap else ""
        remarks.append(f"(exact: full training with $S$ logits never leaves this plane{more})")
    if a["model"] == "canonical" and str(a["regime"]) == "p + q < 1" and a["cells_local_minimum"]:
        remarks.append("(no trap of the full model, whose positions move: see rank-one)")
    if a["model"] in ("uniform", "linear"):
        elsewhere = a["model"] == "uniform" and a.get("a")
        more = "; the global minima lie at $a$ = 0" if elsewhere else ""
        remarks.append(f"(arrows and orbits without their part along $a${more})")
    return remarks
