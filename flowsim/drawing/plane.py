"""Drawing a portrait record. Knows arrays and matplotlib, nothing of models or integration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flowsim.drawing.style import attention_caption, chain_caption

# Fills differ in lightness as well as hue, and the bad basin is hatched: readable in greyscale.
FILL = {
    "global_minimum": "#d6e9f5",
    "local_minimum": "#e8965a",
    "saddle": "#ffffff",
    "unresolved": "#000000",
}
BASINS = {
    "global_minimum": "reaches the global minima",
    "local_minimum": "trapped in bad local minima",
    "saddle": "ends in a saddle",
    "unresolved": "unresolved",
}
#: What the axes of a figure call the coordinates.
NAMES = {
    "w": "feed-forward weight $w$",
    "e": "embedding $e$",
    "a": "attention $a$",
    "u": "unembedding $u$",
    "b": "bias $b$",
}
#: Cells a side up to which the hatching follows their edges, and beyond it their centres.
_WHOLE_CELLS = 512
_MINIMA, _BAD, _LINE, _ORBIT, _ENERGY = "#00537f", "#a33b00", "#111111", "#4d4d4d", "#7a4fa3"


def draw_portrait(record: xr.Dataset, energy: bool = False) -> Figure:
    """A figure of one portrait record; ``draw_basins`` draws on given axes.

    Args:
        record: from ``portrait_record`` or read back from its file.
        energy: also draw contours of the conserved energy.
    """
    figure = Figure(figsize=(7.0, 7.2), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    draw_basins(record, axes)
    draw_flow(record, axes)
    draw_curves(record, axes)
    if energy:
        draw_energy(record, axes)
    axes.set_title(_title(record))
    figure.legend(
        handles=legend_handles(record, energy),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8.5,
        handlelength=2.4,
        handler_map={tuple: HandlerTuple(ndivide=None)},
    )
    return figure


def draw_basins(record: xr.Dataset, axes: Axes, across: str = "w", up: str = "e") -> None:
    """The basins as filled cells, w horizontal and e vertical; the bad one hatched."""
    meanings = _meanings(record)
    labels = record["label"].transpose(up, across).to_numpy()
    x, y = record[across].to_numpy(), record[up].to_numpy()
    extent = (*_edges(x)[[0, -1]], *_edges(y)[[0, -1]])
    colours = ListedColormap([FILL[name] for name in meanings])
    axes.imshow(
        labels,
        origin="lower",
        extent=extent,
        aspect="auto",
        cmap=colours,
        vmin=-0.5,
        vmax=len(meanings) - 0.5,
        interpolation="nearest",
        rasterized=True,
    )
    bad = labels == meanings.index("local_minimum")
    if bad.any():
        if max(bad.shape) <= _WHOLE_CELLS:
            x, y = (np.repeat(_edges(values), 2)[1:-1] for values in (x, y))
            bad = bad.repeat(2, axis=0).repeat(2, axis=1)
        hatch = axes.contourf(x, y, bad, levels=[0.5, 1.5], colors="none", hatches=["///"])
        hatch.set(edgecolor="#ffffff", linewidth=0)
    axes.set(xlim=extent[:2], ylim=extent[2:], xlabel=NAMES[across], ylabel=NAMES[up])


def draw_flow(record: xr.Dataset, axes: Axes) -> None:
    """Unit arrows of the gradient flow, and the orbits with the point where each starts."""
    axes.quiver(
        record["arrow_w"],
        record["arrow_e"],
        record["direction_w"],
        record["direction_e"],
        angles="xy",
        pivot="mid",
        scale=38,
        width=0.0021,
        color="#6a6a6a",
        alpha=0.75,
    )
    if "orbit_w" not in record:
        return
    w, e = record["orbit_w"].to_numpy(), record["orbit_e"].to_numpy()
    axes.plot(w, e, color=_ORBIT, linewidth=0.9)
    axes.plot(w[0], e[0], "o", color=_ORBIT, markersize=2.6)


def draw_curves(record: xr.Dataset, axes: Axes) -> None:
    """Separatrix, curve of global minima, critical line by kind, and the saddle."""
    w = record["curve_w"].to_numpy()
    for sign in (1, -1):
        axes.plot(w, sign * record["separatrix_e"], color=_LINE, linewidth=1.8)
        axes.plot(w, sign * record["minima_e"], color=_MINIMA, linewidth=2.6)
    kind, names = record["critical_line"].to_numpy(), _meanings(record, "critical_line")
    values = record["critical_line"].attrs["flag_values"]
    for value, name in zip(values, names, strict=True):
        on = (kind == value) | (kind == values[names.index("saddle")])
        if name in _CRITICAL and (kind == value).sum() > 1:
            axes.plot(np.where(on, w, np.nan), np.zeros_like(w), **_CRITICAL[name])
    saddle = record["saddle_w"].to_numpy()
    axes.plot(saddle, np.zeros_like(saddle), **_SADDLE)
    if "global_minimum" in names and (kind == values[names.index("global_minimum")]).all():
        axes.axvline(-np.sqrt(0.5), color=_MINIMA, linewidth=2.6)


_SADDLE: dict[str, Any] = {
    "marker": "X",
    "markersize": 9,
    "color": "#ffffff",
    "markeredgecolor": _LINE,
    "linestyle": "none",
}
_CRITICAL: dict[str, dict[str, Any]] = {
    "local_minimum": {"color": _BAD, "linewidth": 3.0},
    "local_maximum": {"color": _LINE, "linewidth": 1.6, "linestyle": (0, (2, 2))},
    "global_minimum": {"color": _MINIMA, "linewidth": 2.6},
}


def draw_energy(record: xr.Dataset, axes: Axes) -> None:
    """Contours of the conserved energy, along which orbits run."""
    w, e = record["w"].to_numpy(), record["e"].to_numpy()
    values = record["energy"].transpose("e", "w").to_numpy()
    for side in (w < 0, w > 0):  # E is infinite at w = 0
        if side.sum() > 1:
            axes.contour(
                w[side],
                e,
                values[:, side],
                levels=np.arange(-8.0, 9.0),
                colors=_ENERGY,
                linewidths=0.6,
                linestyles="dashed",
                negative_linestyles="dashed",
            )


def _title(record: xr.Dataset) -> str:
    total = record["label"].size
    share = {name: record.attrs[f"cells_{name}"] / total for name in _meanings(record)}
    lines = [
        f"Gradient flow on the Markov chain {chain_caption(record)}",
        f"{share['global_minimum']:.1%} of the window reaches the global minima, "
        f"{share['local_minimum']:.1%} is trapped",
    ]
    if "a" in record.attrs:
        lines.insert(
            1, f"{attention_caption(record)}, starts in the slice $a$ = {record.attrs['a']:g}"
        )
        if "length" in record.attrs and record.attrs["a"] != 0:
            lines.append("(the global minima lie in another slice, $a$ = 0)")
    return "\n".join(lines)


def legend_handles(record: xr.Dataset, energy: bool = False) -> list[Patch | Line2D]:
    """One entry for each thing that is in the picture."""
    present = [name for name in BASINS if record.attrs[f"cells_{name}"]]
    handles: list[Patch | Line2D] = [*basin_patches(present)]
    values = record["critical_line"].attrs["flag_values"]
    kinds = dict(zip(_meanings(record, "critical_line"), values, strict=True))
    on_line = set(record["critical_line"].to_numpy().tolist())
    flat = kinds["global_minimum"] in on_line
    if np.isfinite(record["separatrix_e"]).any():
        handles.append(Line2D([], [], color=_LINE, linewidth=1.8, label="separatrix (analytic)"))
    if flat or np.isfinite(record["minima_e"]).any():
        line = Line2D([], [], color=_MINIMA, linewidth=2.6)
        line.set_label("global minima: $e = 0$ or $w = -1/\\sqrt{2}$" if flat else "global minima")
        handles.append(line)
    for name in ("local_minimum", "local_maximum"):
        if kinds[name] in on_line:
            text = f"$e = 0$: {name.replace('_', ' ')}"
            handles.append(Line2D([], [], label=text, **_CRITICAL[name]))
    if record["saddle_w"].size:
        handles.append(Line2D([], [], label="saddle", **_SADDLE))
    arrows = Line2D(
        [], [], color="#6a6a6a", marker="$\\rightarrow$", linestyle="none", markersize=11
    )
    along = ", along (w, e)" if "a" in record.attrs else ""
    arrows.set_label(f"direction of the flow{along}")
    handles.append(arrows)
    if "orbit_w" in record:
        line = Line2D([], [], color=_ORBIT, linewidth=0.9, label="orbit from its start (dot)")
        line.set(marker="o", markersize=2.6, markevery=2)
        handles.append(line)
    if energy:
        handles.append(
            Line2D([], [], color=_ENERGY, linewidth=0.6, linestyle="dashed", label="energy $E$")
        )
    return handles


def basin_patches(names: Iterable[str]) -> list[Patch]:
    """A legend's entries for filled basins."""
    style: dict[str, dict[str, Any]] = {
        "local_minimum": {"hatch": "///", "edgecolor": "#ffffff", "linewidth": 0},
        "saddle": {"edgecolor": _LINE, "linewidth": 0.6},  # white on white without its edge
    }
    plain = {"linewidth": 0}
    return [
        Patch(facecolor=FILL[name], label=BASINS[name], **style.get(name, plain)) for name in names
    ]


def _meanings(record: xr.Dataset, variable: str = "label") -> list[str]:
    return str(record[variable].attrs["flag_meanings"]).split()


def _edges(centres: np.ndarray) -> np.ndarray:
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)
