"""Drawing the plane of a record. Knows arrays and matplotlib, nothing of models or integration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from flowsim.curves import CRITICAL, curves_of
from flowsim.drawing.boundary_lines import draw_boundary
from flowsim.drawing.looks import LAYERS, look_of, name_of_curve
from flowsim.drawing.style import (
    ARROW,
    DASHES,
    FILL,
    INK,
    LINE,
    MARKER,
    PATHS,
    SOFT,
    VERB_PHRASES,
    Canvas,
    CombinedHandle,
    Look,
    about,
    basin_names,
    cell_styles,
    edges,
    escaped,
    label_names,
    meanings,
    name_of,
    optimizer_caption,
    percent,
    remarks_on_motion,
    way_to,
    wrapped,
)
from flowsim.errors import InputError
from flowsim.records.attributes import axes_of, became_of, end_names, most_frequent

#: Cells a side up to which hatching follows their edges, and beyond it their centres.
_WHOLE_CELLS = 512
#: Entries of a legend, beyond which those of critical points are joined.
_ENTRIES = 8
#: Colour, hatch and its colour of steps that go on when they are counted out.
_MOVING = ("#ffffff", "...", LINE)
#: Letters of a title's line.
_MESSAGE = 72
_STEPS_TEXTS = {
    "unresolved": "on its way after {steps} steps",
    "periodic": "large steps go round in a circle",
    "bounded": "steps go back and forth without end",
    "diverged": "diverges",
}
_FLOW: dict[str, Any] = {
    "color": LINE, "linewidth": 1.7, "linestyle": (0, (4, 2.5)), "zorder": 4,
    "path_effects": [withStroke(linewidth=3.2, foreground="#ffffff")],
}  # fmt: skip


def draw_portrait(
    record: xr.Dataset, ax: Axes | None = None, energy: bool = False, **look: Unpack[Look]
) -> Any:
    """Draw a portrait: basins, flow, curves, and where a simpler model predicts another end.

    Args:
        record: from ``portrait`` or read back from its file; or a scan with an optimizer
            over a grid in the plane.
        ax: axes to draw on; by default those of a new figure.
        energy: also draw contours of the conserved energy.
        look: width, title and legend, as of ``draw``, which says what is returned.

    Raises:
        InputError: energy contours of a record without a conserved energy.

    >>> import flowsim
    >>> steps = flowsim.OptimizerChoice.named("gd", steps=100)
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.portrait(model, resolution=8, optimizer=steps)
    >>> flowsim.drawing.draw_portrait(record).axes[0].get_xlabel()
    'feed-forward weight $w$'
    """
    canvas = Canvas(ax, 7.0, 5.9, look)
    return canvas.complete(_title(record), draw_layers(record, canvas.axes(), energy))


def draw_models_side_by_side(
    records: Sequence[xr.Dataset], energy: bool = False, **look: Unpack[Look]
) -> Any:
    """Draw portraits beside each other with one legend: other models of one chain, or other chains.

    Args:
        records: from ``portrait``, of one window.
        energy: also draw contours of the conserved energy.
        look: width, title and legend, as of ``draw``.

    >>> import flowsim
    >>> models = [flowsim.model("canonical", p, 0.8) for p in (0.1, 0.5)]
    >>> steps = flowsim.OptimizerChoice.named("gd", steps=100)
    >>> records = [flowsim.portrait(m, resolution=8, optimizer=steps) for m in models]
    >>> len(flowsim.drawing.draw_models_side_by_side(records).axes)
    2
    """
    canvas = Canvas(None, 6.1 * len(records), 6.3, look)
    shape = (len(records), 1) if canvas.narrow else (1, len(records))
    panels = canvas.figure.subplots(*shape, sharex=True, sharey=True, squeeze=False).flat
    handles: dict[str, Any] = {}
    remarks: dict[str, list[str]] = {}
    places = [f"panel {i}" for i in range(1, len(records) + 1)]
    if len(records) == 2:
        places = ["above", "below"] if canvas.narrow else ["left", "right"]
    for record, ax, place in zip(records, panels, places, strict=True):
        for handle in draw_layers(record, ax, energy):
            alike = re.split(r" \(|;", handle.get_label())[0]  # without the numbers of a panel
            handles.setdefault(alike, handle)
        lines = _title(record)
        for line in lines[2:]:
            remarks.setdefault(line, []).append(place)
        words = "\n".join(lines[:2])
        ax.set_title(wrapped(words, canvas.width / shape[1], "medium"), fontsize="medium")
        ax.label_outer()
    basins = [text for record in records for text in basin_names(record).values()]
    first = [text for text in dict.fromkeys(basins) if text in handles]
    order = [*first, *(text for text in handles if text not in first)]
    told = [
        line if len(there) == len(records) else f"{', '.join(there)}: {line.strip('()')}"
        for line, there in remarks.items()
    ]
    lines = ["", "", *told]
    return canvas.complete(lines, [handles[text] for text in order], columns=3)


def draw_layers(record: xr.Dataset, ax: Axes, energy: bool = False) -> list[Any]:
    """Draw all of a portrait but title and legend on given axes; return the entries of a legend."""
    if energy:
        if "energy" not in record:
            raise InputError("energy contours need a portrait of the canonical model")
        look = {"drawn_as": "conserved quantity", "legend": "energy $E$"}
        record = record.assign(energy=record["energy"].assign_attrs(look))
    handles = draw_basins(record, ax)
    for layer in _layers(record):
        handles += _draw_layer(record, ax, layer)
    handles += draw_curves(record, ax)
    handles += draw_flow(record, ax)
    if len(handles) > _ENTRIES:
        kinds = [handle for handle in handles if handle.get_label() in CRITICAL]
        kinds.sort(key=lambda handle: str(handle.get_label()))  # alike in several panels
        names = ", ".join(str(kind.get_label()) for kind in kinds)
        handles = _joined(handles, kinds, f"critical points: {names}")
    others = dict.fromkeys(curve.of for curve in curves_of(record, *axes_of(record)))
    for other in filter(None, others):  # a layer that compares with another model, and its curves
        both = [handle for handle in handles if f"the {other}" in handle.get_label()]
        if len(handles) > _ENTRIES and both:
            first, *its = (handle.get_label().removesuffix(f" of the {other}") for handle in both)
            handles = _joined(handles, both, f"{first}; its {', '.join(its)}")
    return handles


def _joined(handles: list[Any], parts: list[Any], text: str) -> list[Any]:
    """Join the entries ``parts`` of a legend in one with this text, in the place of the first."""
    if len(parts) < 2:
        return handles
    one = CombinedHandle(tuple(parts)).set_label(text)
    at = min(handles.index(part) for part in parts)
    return [*handles[:at], one, *(handle for handle in handles[at:] if handle not in parts)]


def draw_basins(
    record: xr.Dataset, ax: Axes, plane: tuple[str, str] | None = None,
    hidden: np.ndarray | None = None,
) -> list[Any]:  # fmt: skip
    """Colour each cell by its end and hatch some ends; return the entries of a legend.

    ``plane`` names the horizontal and the vertical axis, by default the record's. Cells of the mask
    ``hidden`` (up, across) are not hatched, and have no entry.
    """
    across, up = plane or axes_of(record)
    label = became_of(record).transpose(up, across, ...)
    found, names = label.to_numpy(), meanings(label)
    cells, texts = cell_styles(found, names), basin_names(record)
    if "steps" in record.attrs:
        cells["unresolved"] = _MOVING
        texts |= {name: s.format(steps=record.attrs["steps"]) for name, s in _STEPS_TEXTS.items()}
    x, y = (edges(record[name].to_numpy(), name) for name in (across, up))
    ax.imshow(
        found, origin="lower", aspect="auto", extent=(x[0], x[-1], y[0], y[-1]), vmin=-0.5,
        vmax=len(names) - 0.5,
        cmap=ListedColormap([colour for colour, *_ in cells.values()]), interpolation="nearest",
        rasterized=True,
    )  # fmt: skip
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    ax.set(xlabel=name_of(record, across), ylabel=name_of(record, up))
    shown = found if hidden is None else np.where(hidden, -1, found)
    counts = dict(zip(names, np.bincount(shown[shown >= 0], minlength=len(names)), strict=True))
    there = [name for name in names if counts[name]]
    for hatch, ink in dict.fromkeys(cells[name][1:] for name in there):
        codes = [names.index(name) for name in there if cells[name][1:] == (hatch, ink)]
        if hatch:
            _hatch(record, ax, np.isin(shown, codes), hatch, ink, across, up)
    handles: list[Any] = []
    named, others = most_frequent({name: counts[name] for name in names[1:]})
    for name in (*named, *names[:1]):
        if counts[name]:
            colour, hatch, ink = cells[name]
            edge = 0.6 if colour == "#ffffff" else 0  # white on white without its edge
            handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor=ink, linewidth=edge,
                                 label=texts[name]))  # fmt: skip
    if others:
        look: dict[str, Any] = {"edgecolor": LINE, "linewidth": 0.6}
        fills = dict.fromkeys(cells[name][0] for name in others)
        patches = CombinedHandle(Patch(facecolor=fill, **look) for fill in fills)
        handles.append(patches.set_label(f"{len(others)} more ends"))
    return handles


def _hatch(
    record: xr.Dataset, ax: Axes, on: np.ndarray, hatch: str, colour: str, across: str,
    up: str,
) -> None:  # fmt: skip
    """Hatch the cells of the mask ``on`` (up, across)."""
    x, y = record[across].to_numpy(), record[up].to_numpy()
    if max(on.shape) <= _WHOLE_CELLS:
        x, y = (np.repeat(edges(values), 2)[1:-1] for values in (x, y))
        on = on.repeat(2, axis=0).repeat(2, axis=1)
    drawn = ax.contourf(x, y, on, levels=[0.5, 1.5], colors="none", hatches=[hatch])
    drawn.set(edgecolor=colour, linewidth=0)


def _layers(record: xr.Dataset) -> Iterator[xr.DataArray]:
    """Yield the variables over the plane whose attribute ``drawn_as`` says how they are drawn."""
    across, up = axes_of(record)
    for variable in record.values():
        if variable.attrs.get("drawn_as") in LAYERS and {*variable.dims} == {across, up}:
            yield variable.transpose(up, across)


def _draw_layer(record: xr.Dataset, ax: Axes, layer: xr.DataArray) -> list[Any]:
    """Hatch or outline cells where a layer is positive, or draw contours; a legend's entries."""
    across, up = axes_of(record)
    look, text = dict(LAYERS[layer.attrs["drawn_as"]]), layer.attrs.get("long_name", layer.name)
    text = layer.attrs.get("legend", text)
    values = layer.to_numpy()
    on = values > 0
    if hatch := look.get("hatch"):
        _hatch(record, ax, on, hatch, look["color"], across, up)
        patch = Patch(facecolor="#ffffff", hatch=hatch, edgecolor=look["color"], linewidth=0)
        patch.set_label(f"{text} ({percent(on)})")
        return [patch] if on.any() else []
    if min(on.shape) < 2 or not np.isfinite(values).any():
        return []
    line = Line2D([], [], color=look["colors"], linewidth=look["linewidths"], label=text)
    line.set_linestyle(look.get("linestyles", "solid"))
    x, y, sides = layer[across].to_numpy(), layer[up].to_numpy(), [slice(None)]
    if look.pop("outline", False):
        line.set_label(f"{text} ({percent(on)})")
        sides = sides if 0 < on.mean() < 1 else []
    if look.pop("infinite_at_0", False):
        sides = [slice(int((x < 0).sum())), slice(int((x <= 0).sum()), None)]
    finite = np.ma.masked_invalid(values)
    numbered = "levels" not in look
    if numbered:
        look["levels"] = MaxNLocator(6).tick_values(0, float(finite.max()))[1:]
    for side in sides:
        if len(x[side]) > 1:
            drawn = ax.contour(x[side], y, finite[:, side], zorder=2.5, **look)
            for number in ax.clabel(drawn, fontsize="x-small") if numbered else ():
                number.set_path_effects([withStroke(linewidth=2, foreground="#ffffff")])
    return [line]


def draw_flow(record: xr.Dataset, ax: Axes) -> list[Any]:
    """Draw arrows of the flow, orbits, paths of training and a cloud; return a legend's entries."""
    x, y = axes_of(record)
    if f"arrow_{x}" not in record:
        return []
    ax.quiver(
        *(record[f"{name}_{n}"].to_numpy() for name in ("arrow", "direction") for n in (x, y)),
        angles="xy", pivot="mid", scale=38, scale_units="width", width=0.012, units="inches",
        color=ARROW, alpha=0.75,
    )  # fmt: skip
    arrow = Line2D([], [], color=ARROW, marker="$\\rightarrow$", linestyle="none", markersize=11)
    arrow.set_label("direction of the flow")
    cloud = _draw_cloud(record, ax, x, y)
    paths = _draw_paths(record, ax, x, y)
    if f"orbit_{x}" not in record:
        return [arrow, *paths, *cloud]
    across, up = (record[f"orbit_{n}"].to_numpy() for n in (x, y))
    ax.plot(across, up, color=SOFT, linewidth=0.9)
    ax.plot(across[0], up[0], "o", color=SOFT, markersize=2.8)
    _draw_heads(ax, across, up, SOFT)
    line = Line2D([], [], color=SOFT, linewidth=0.9, marker="o", markersize=2.8, markevery=2)
    last = ""
    if remarks_on_motion(record):  # orbits are projected, and stop off this plane
        there = np.isfinite(across) & np.isfinite(up)
        rows = len(there) - 1 - there[::-1].argmax(axis=0)
        columns = np.arange(len(rows))
        ax.plot(across[rows, columns], up[rows, columns], "s", color=SOFT, mfc="#ffffff",
                markersize=3.4, mew=0.8)  # fmt: skip
        last = " to their last points (squares), beside this plane"
    early = int(record.attrs.get("orbits_unfinished", 0))
    more = f"; {early} stop before their ends" if early else ""
    flow = CombinedHandle((line, arrow)).set_label(
        f"orbits from their starts (dots){last}, and the flow{more}"
    )
    return [flow, *paths, *cloud]


def _draw_cloud(record: xr.Dataset, ax: Axes, x: str, y: str) -> list[Any]:
    """Draw the explorer's random starts around a place, marked by their ends.

    Returns a legend's entries, with the share of each end.
    """
    if "cloud_label" not in record:
        return []
    label, names = record["cloud_label"].to_numpy(), meanings(record["cloud_label"])
    handles: list[Any] = []
    for name, words in basin_names(record).items():
        on = label == names.index(name)
        if on.any():
            share = f"of the cloud {percent(on)} {words}"
            at = (record[f"cloud_{n}"].to_numpy()[on] for n in (x, y))
            handles += ax.plot(*at, MARKER[name], ms=4, mfc=FILL[name], mec=INK[name], mew=0.6,
                               linestyle="none", label=share)  # fmt: skip
    return handles


def _draw_heads(ax: Axes, x: np.ndarray, y: np.ndarray, colour: str) -> None:
    """Draw an arrowhead halfway along each path (time, n) in the axes, pointing the way it goes."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    places, ways = [], []
    for path in np.stack([x, y], axis=-1).swapaxes(0, 1):
        unit = (path - (left, low)) / (right - left, high - low)
        unit = unit[np.isfinite(unit).all(axis=1) & (np.abs(unit - 0.5) <= 0.5).all(axis=1)]
        length = np.append(0, np.linalg.norm(np.diff(unit, axis=0), axis=1).cumsum())
        if len(unit) < 2 or length[-1] < 0.04:
            continue
        at = min(int(np.searchsorted(length, length[-1] / 2)), len(unit) - 1)
        share = (length[-1] / 2 - length[at - 1]) / (length[at] - length[at - 1])
        places.append(unit[at - 1] + share * (unit[at] - unit[at - 1]))
        ways.append((unit[at] - unit[at - 1]) * (right - left, high - low))
    if places:
        at_x, at_y = np.transpose(places) * [[right - left], [high - low]] + [[left], [low]]
        way_x, way_y = np.transpose(ways) / np.linalg.norm(ways, axis=1)
        ax.quiver(at_x, at_y, way_x, way_y, color=colour, angles="xy", pivot="mid", units="inches",
                  scale_units="inches", scale=1 / 0.08, width=0.011, headwidth=6, headlength=7,
                  headaxislength=6, zorder=6)  # fmt: skip


def _draw_paths(record: xr.Dataset, ax: Axes, x: str, y: str) -> list[Any]:
    """Draw paths of training; return a legend's entries.

    These are the paths laid over the portrait, and those in records of the explorer.
    """
    paths: dict[str, list[np.ndarray]] = {}
    if f"trained_{x}" in record:
        paths["full training, projected"] = [record[f"trained_{n}"].to_numpy() for n in (x, y)]
    names = record["path_name"].to_numpy() if "path_name" in record else np.array([])
    for name in dict.fromkeys(names):
        paths[name] = [record[f"path_{n}"].to_numpy()[:, names == name] for n in (x, y)]
    handles: list[Any] = []
    for i, (name, (across, up)) in enumerate(paths.items()):
        again, colour = divmod(i, len(PATHS))
        style: dict[str, Any] = {"color": PATHS[colour], "linewidth": 1.6,
                                 "linestyle": DASHES[again % len(DASHES)]}  # fmt: skip
        ax.plot(across, up, zorder=6, **style)
        if name in names:
            ax.plot(across[0], up[0], "o", color=style["color"], markersize=4, zorder=6)
            _draw_heads(ax, across, up, style["color"])
        handles.append(Line2D([], [], label=escaped(str(name)), **style))
    return handles


def _title(record: xr.Dataset) -> list[str]:
    """The lines of a portrait's title: the shares of the ends, the model, remarks."""
    a, total = record.attrs, record["label"].size
    of_model, *remarks = about(record)
    if "optimizer" in a:
        lifted = ["Starts are lifted from the plane"] * ("d" in a)
        steps, ends = optimizer_caption(record), _shares_after_steps(record)
        first, second = (ends, [steps]) if len(ends) == 1 else ([steps], ends)
        return [*first, of_model, *second, *remarks, *lifted]
    names, verbs = meanings(record["label"]), VERB_PHRASES | _end_phrases(record)
    counts = {name: int(a[f"cells_{name}"]) for name in (*names[1:], names[0])}
    named, others = most_frequent(counts)

    def shares() -> str:
        """The shares of the ends as text, such as "46.0 % reaches the global minima, …"."""
        said = [f"{percent(counts[name], total)} {verbs.get(name, '')}" for name in named]
        if others:
            rest = percent(sum(counts[name] for name in others), total)
            ends = all(verbs.get(name, "").startswith("goes") for name in others)
            said.append(f"{rest} {_to_more_ends(others) if ends else 'otherwise'}")
        return ", ".join(said)

    if len(shares()) > _MESSAGE:  # the legend has the losses of ends
        verbs = {name: re.sub(r" \(loss[^)]*\)", "", verb) for name, verb in verbs.items()}
    while len(shares()) > _MESSAGE and len(named) > 1:
        others = [*others, min(named, key=lambda name: counts[name])]
        named = [name for name in named if name not in others]
    remarks += [f"{percent(layer.to_numpy() > 0)} {layer.attrs['remark']}"
                for layer in _layers(record) if "remark" in layer.attrs]  # fmt: skip
    return [f"Of the window {shares()}", of_model, *remarks, *remarks_on_motion(record)]


def _end_phrases(record: xr.Dataset) -> dict[str, str]:
    """Words for what a start does, such as "goes to minimum 1", by the name of its end."""
    found = {}
    for name, text in end_names(record.attrs).items():
        # an optimizer's periodic orbits and the like go nowhere
        goes = "ends" in record.attrs and name.startswith(("minimum", "saddle", "infinity"))
        found[name] = f"goes {way_to(text)}" if goes else text
    return found


def _shares_after_steps(record: xr.Dataset) -> list[str]:
    """A line for each end: its share of an optimizer's runs, and of the flow if that is known."""
    found = label_names(record["label"])
    flow = label_names(record["flow_label"]) if "flow_label" in record else None
    counts = {n: int((found == n).sum()) for n in meanings(record["label"])[1:]}
    named, others = most_frequent(counts)
    said = basin_names(record) | _end_phrases(record)
    return [
        f"{percent(np.isin(found, ends))} {words}"
        + ("" if flow is None else f", by gradient flow {percent(np.isin(flow, ends))}")
        for ends, words in [*(([n], said.get(n, n)) for n in named),
                            *([(others, _to_more_ends(others))] if others else [])]
    ]  # fmt: skip


def _to_more_ends(ends: Sequence[str]) -> str:
    """The words "goes to 3 more ends", by how many there are."""
    return f"goes to {len(ends)} more end{'s' * (len(ends) > 1)}"


def draw_curves(record: xr.Dataset, ax: Axes) -> list[Any]:
    """Draw the boundary between the labels and all curves; return a legend's entries by kind."""
    across, up = axes_of(record)
    curves = curves_of(record, across, up)
    found: list[Any] = []
    if f"boundary_{across}" not in record:
        pass
    elif "flow_label" in record:
        points = np.stack([record[f"boundary_{n}"].to_numpy() for n in (across, up)], -1)
        number = record["boundary_curve"].to_numpy()
        lines = [points[number == i] for i in np.unique(number)]
        ax.add_collection(LineCollection(lines, **_FLOW), autolim=False)
        several = "ends" in record.attrs and len(lines) > 1
        text = "boundaries between the basins" if several else "boundary of the basin"
        found = [Line2D([], [], label=f"{text} of gradient flow", **_FLOW)] if lines else []
    else:
        over = any(curve.kind == "separatrix" and not curve.of for curve in curves)
        found = draw_boundary(record, ax, (across, up), over)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    marks: dict[str, list[tuple[float, float]]] = {}
    looks = {name_of_curve(curve): look_of(curve) for curve in curves}
    handles: dict[str, Any] = {}
    for curve in curves:
        name = name_of_curve(curve)
        line = {key: value for key, value in looks[name].items() if not key.startswith("marker")}
        if len(curve.points) < np.isfinite(curve.x + curve.y).sum():
            ax.plot(curve.x, curve.y, **line)
            handles.setdefault(name, Line2D([], [], label=name, **line))
        inside = [(x, y) for x, y in curve.points if left <= x <= right and low <= y <= high]
        marks.setdefault(name, []).extend(inside)
    for name, places in marks.items():
        if places:
            look = {**looks[name], "linestyle": "none", "markeredgecolor": LINE, "label": name}
            (handles[name],) = ax.plot(*np.transpose(places), **look)
    return [*found, *handles.values()]
