"""The plane in the browser: basins, curves, arrows, orbits, training paths and a cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import BoxZoomTool, ColumnDataSource, LinearColorMapper, PanTool, WheelZoomTool
from bokeh.plotting import figure

from flowsim.curves import Curve, curves_of
from flowsim.drawing import style
from flowsim.drawing.boundary_lines import BESIDE_SADDLES
from flowsim.drawing.looks import LOOKS, look_of
from flowsim.explorer.layers import Border, Cells, ends_of, runs
from flowsim.explorer.starts import CloudShare, Orbit
from flowsim.explorer.training import Run
from flowsim.explorer.view import View, Window

#: Cells that are not decided yet.
NOT_YET = "#e9e9e9"
_SHAPES = {
    "o": "circle", "^": "triangle", "s": "square", "X": "x", "v": "inverted_triangle",
    "D": "diamond", "P": "plus", "<": "hex", "*": "star", "h": "hex", "p": "star_dot",
    ">": "square_pin",
}  # fmt: skip
#: Half the length of an arrow, in parts of the distance between two.
_ARROW_HALF = 0.36
_MARKS = "x y fill line marker"
#: The source of curves of another model.
_OTHER = "of another model"


class PlaneFigure:
    """The figure of the plane: every layer has a data source in ``sources``, by its name.

    ``laid`` are paths that are laid over it, by name, of shape (times, runs, 2) with y first.
    """

    def __init__(self, window: Window) -> None:
        x_low, x_high, y_low, y_high = window
        self.zoom, self.pan = BoxZoomTool(match_aspect=True), PanTool()
        wheel = WheelZoomTool(zoom_together="all")
        self.figure = figure(
            x_range=(x_low, x_high), y_range=(y_low, y_high), tools=[self.zoom, self.pan, wheel],
            active_scroll=wheel, toolbar_location=None, sizing_mode="stretch_both",
            lod_threshold=None, name="plane",
        )  # fmt: skip
        self.figure.toolbar.active_drag = self.zoom
        self.figure.grid.visible = False
        self.figure.min_border = 8  # with the page's style they make the frame a square
        self.figure.min_border_left, self.figure.min_border_bottom = 62, 50
        self.sources: dict[str, ColumnDataSource] = {}
        self.names = ColumnDataSource({"x": [], "y": []}, name="names")
        self.laid: Mapping[str, np.ndarray] = {}
        plot = self.figure
        self.mapper = LinearColorMapper(
            palette=[NOT_YET], low=-0.5, high=0.5, low_color=NOT_YET, high_color=NOT_YET
        )
        cells = self._source("cells", "image x y dw dh")
        plot.image("image", x="x", y="y", dw="dw", dh="dh", source=cells,
                          color_mapper=self.mapper, level="image")  # fmt: skip
        for name, pattern, colour, alpha in (
            ("trapped", "right_diagonal_line", "#ffffff", 0.9), ("saddle", "dot", style.LINE, 0.35),
        ):  # fmt: skip
            hatched = self._source(name, "left right bottom top")
            plot.quad(
                "left", "right", "bottom", "top", source=hatched, fill_alpha=0, line_alpha=0,
                hatch_pattern=pattern, hatch_color=colour, hatch_alpha=alpha, hatch_scale=9,
                hatch_weight=1.4, level="image",
            )  # fmt: skip
        heads = self._source("arrows", "x0 y0 x1 y1 angle")
        plot.segment("x0", "y0", "x1", "y1", source=heads, line_color=style.ARROW, line_alpha=0.8)
        plot.scatter("x1", "y1", angle="angle", marker="triangle", size=5, source=heads,
                     color=style.ARROW, alpha=0.8)  # fmt: skip
        for name, look in (
            *LOOKS.items(), (_OTHER, look_of(Curve("separatrix", (), (), "other"))),
            ("beside saddles", BESIDE_SADDLES), ("border", LOOKS["separatrix"]),
        ):  # fmt: skip
            dashes, width = look.get("linestyle", (0, ()))[1], look.get("linewidth", 1.6)
            dash = " ".join(f"{width * part:.0f}" for part in dashes) or "solid"
            line = {"line_color": look["color"], "line_width": width, "line_dash": dash}
            self._curves(f"curves {name}", **line)
        self._add_marks("points", size=11, line_width=2)
        self._add_marks("cloud", size=5, fill_alpha=0.8, line_width=0.7)
        ring = self._source("ring", "x y width height")
        plot.ellipse("x", "y", "width", "height", source=ring, fill_alpha=0, line_width=1.5,
                     line_color=style.LINE, line_dash="dotted")  # fmt: skip
        self._curves("backward", line_color=style.SOFT, line_width=2, line_dash="dotted")
        ahead = self._source("orbits", "xs ys width")
        plot.multi_line("xs", "ys", source=ahead, line_color="#ffffff", line_width=5,
                        line_alpha=0.7)  # fmt: skip
        plot.multi_line("xs", "ys", source=ahead, line_color=style.LINE, line_width="width")
        self._curves("training", line_color=style.TRAINED, line_width=3, line_dash=[3, 3])
        laid = self._source("laid over", "xs ys colour")
        plot.multi_line("xs", "ys", source=laid, line_color="colour", line_width=2.5)
        now = self._source("training now", "x y")
        plot.scatter("x", "y", source=now, marker="diamond", size=12, fill_color="#ffffff",
                     line_color=style.TRAINED, line_width=2.5)  # fmt: skip
        cross = self._source("cross", "x y text")
        for colour, width in (("#ffffff", 5), (style.LINE, 2)):
            plot.scatter("x", "y", source=cross, marker="cross", size=26, line_color=colour,
                         line_width=width)  # fmt: skip
        words = {"text_font_size": "12px", "text_color": style.LINE}
        plot.text("x", "y", text="text", source=cross, x_offset=10, y_offset=22, padding=2,
                  background_fill_color="#ffffff", background_fill_alpha=0.85, **words)  # fmt: skip
        first = self._source("starts", "x y number")
        # a click is drawn at once, until the server has seen it
        for source in (self._source("clicked", "x y"), first):
            plot.scatter("x", "y", source=source, size=9, fill_color="#ffffff", line_width=2,
                         line_color=style.LINE)  # fmt: skip
        plot.text("x", "y", text="number", source=first, x_offset=8, y_offset=-4, **words)
        self._add_marks("ends", size=12, line_width=2)

    def _source(self, layer: str, columns: str) -> ColumnDataSource:
        """Make the empty data source of a layer, with columns of these names, and return it."""
        empty: dict[str, Any] = {column: [] for column in columns.split()}
        self.sources[layer] = ColumnDataSource(empty, name=layer)
        return self.sources[layer]

    def _curves(self, layer: str, **look: Any) -> None:
        """Add a layer of lines with this look."""
        self.figure.multi_line("xs", "ys", source=self._source(layer, "xs ys"), **look)

    def _add_marks(self, layer: str, **look: Any) -> None:
        """Add a layer of markers, each with a shape and colours of its own."""
        self.figure.scatter("x", "y", marker="marker", fill_color="fill", line_color="line",
                            source=self._source(layer, _MARKS), **look)  # fmt: skip

    def _put(self, layer: str, data: dict[str, Any]) -> None:
        """Show other data in a layer: ``data`` has its columns."""
        update_source(self.sources[layer], data)

    def show_axes(self, view: View) -> None:
        """Label the axes with the names of the view's coordinates."""
        names = view.model.long_names
        self.names.data = {"x": [view.x], "y": [view.y]}
        for axis, name in ((self.figure.xaxis[0], view.x), (self.figure.yaxis[0], view.y)):
            axis.axis_label = names.get(name, name)

    def show_window(self, window: Window) -> None:
        """Set the ranges of the axes, without an event as of a zoom by the user."""
        x_low, x_high, y_low, y_high = window
        self.figure.x_range.update(start=x_low, end=x_high)
        self.figure.y_range.update(start=y_low, end=y_high)

    def show_cells(self, view: View, cells: Cells) -> None:
        """Colour the cells by their ends, the trapped ones hatched and the saddles' dotted."""
        x_low, x_high, y_low, y_high = view.window
        size = {"x": [x_low], "y": [y_low], "dw": [x_high - x_low], "dh": [y_high - y_low]}
        names = ends_of(view).names
        palette = [style.FILL[name] for name in names]
        if palette != self.mapper.palette:
            self.mapper.update(palette=palette, high=len(palette) - 0.5)
        small = np.uint8 if len(names) < 255 else np.int32  # of which UNKNOWN is the last, or −1
        self._put("cells", {"image": [cells.label.astype(small)], **size})
        rows, columns = cells.label.shape
        for name, end in (("trapped", "local_minimum"), ("saddle", "saddle")):
            there = np.isin(cells.label, [i for i, x in enumerate(names) if x.startswith(end)])
            row, first, last = runs(there).T
            tall, wide = (y_high - y_low) / rows, (x_high - x_low) / columns
            self._put(name, {
                "left": x_low + wide * first, "right": x_low + wide * last,
                "bottom": y_low + tall * row, "top": y_low + tall * (row + 1),
            })  # fmt: skip

    def show_border(self, border: Border) -> None:
        """Draw the boundaries of basins, and those beside starts that end in a saddle."""
        for name, pieces in (("border", border.basins), ("beside saddles", border.saddles)):
            apart = np.pad(pieces, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)
            y, x = apart.reshape(-1, 2).T
            self._put(f"curves {name}", {"xs": [x], "ys": [y]})

    def show_landscape(self, view: View, record: xr.Dataset) -> None:
        """Draw a record's curves and points by kind, and arrows along the flow."""
        curves = curves_of(record, view.x, view.y)
        kinds = [_OTHER if c.of else c.kind if c.kind in LOOKS else "" for c in curves]
        for kind in (*LOOKS, _OTHER):
            here = [curve for curve, own in zip(curves, kinds, strict=True) if own == kind]
            self._put(f"curves {kind}", {"xs": [c.x for c in here], "ys": [c.y for c in here]})
        marks = [(x, y, look_of(curve)) for curve in curves for x, y in curve.points]
        self._put("points", {
            "x": np.array([x for x, *_ in marks]), "y": np.array([y for _, y, _ in marks]),
            "fill": [look.get("markerfacecolor", look["color"]) for *_, look in marks],
            "line": [look["color"] for *_, look in marks],
            "marker": [_SHAPES[look["marker"]] for *_, look in marks],
        })  # fmt: skip
        x_low, x_high, y_low, y_high = view.window
        x, y = np.meshgrid(*(record[f"arrow_{name}"].to_numpy() for name in (view.x, view.y)))
        u, v = (record[f"direction_{n}"].to_numpy() / s for n, s in
                ((view.x, x_high - x_low), (view.y, y_high - y_low)))  # fmt: skip
        length = np.hypot(u, v)
        there = length > 0
        u, v = u[there] / length[there], v[there] / length[there]
        half = _ARROW_HALF / len(record[f"arrow_{view.x}"])
        dx, dy = half * u * (x_high - x_low), half * v * (y_high - y_low)
        x, y = x[there], y[there]
        self._put("arrows", {
            "x0": x - dx, "y0": y - dy, "x1": x + dx, "y1": y + dy,
            "angle": np.arctan2(v, u) - np.pi / 2,
        })  # fmt: skip

    def show_orbits(self, view: View, orbits: Sequence[Orbit], chosen: int) -> None:
        """Draw orbits from numbered starts to markers of their ends; the chosen one is thick."""
        paths = [(np.append(o.forward.x, o.end[1]), np.append(o.forward.y, o.end[0]))
                 for o in orbits]  # fmt: skip
        width = [3.2 if i == chosen else 1.6 for i in range(len(orbits))]
        self._put("orbits", {
            "xs": [x for x, _ in paths], "ys": [y for _, y in paths], "width": width,
        })  # fmt: skip
        behind = [o.backward for o in orbits if o.backward is not None]
        self._put("backward", {"xs": [p.x for p in behind], "ys": [p.y for p in behind]})
        self._put("starts", {
            "x": [s.x for s in view.starts], "y": [s.y for s in view.starts],
            "number": [str(i + 1) for i in range(len(view.starts))],
        })  # fmt: skip
        ended = [o for o in orbits if np.isfinite(o.end[0])]
        at = [o.end for o in ended]
        x, y = np.array([x for _, x in at]), np.array([y for y, _ in at])
        self._put("ends", _marks(x, y, [o.kind for o in ended]))

    def show_runs(self, training: Sequence[Run]) -> None:
        """Draw paths of full training, projected to (w, e), with a diamond where each is now."""
        curves = [list(run.curve) for run in training if run.curve]  # they grow meanwhile
        self._put("training", {
            "xs": [[p.w for p in curve] for curve in curves],
            "ys": [[p.e for p in curve] for curve in curves],
        })  # fmt: skip
        self._put("training now", {
            "x": [curve[-1].w for curve in curves], "y": [curve[-1].e for curve in curves],
        })  # fmt: skip

    def show_paths(self, laid: Mapping[str, np.ndarray]) -> None:
        """Lay these paths, and no others, over the plane."""
        self.laid = laid
        coloured = zip(laid.values(), cycle(style.PATHS), strict=False)
        runs = [(x, colour) for paths, colour in coloured for x in np.moveaxis(paths, 1, 0)]
        self._put("laid over", {
            "xs": [run[:, 1] for run, _ in runs], "ys": [run[:, 0] for run, _ in runs],
            "colour": [colour for _, colour in runs],
        })  # fmt: skip

    def show_cloud(self, view: View, found: CloudShare | None) -> None:
        """Draw the cloud's starts by their ends, and the ring of two standard deviations."""
        rings, none = [] if view.cloud is None else [view.cloud], np.array([])
        width = [4 * ring.sigma for ring in rings]
        self._put("ring", {
            "x": [ring.x for ring in rings], "y": [ring.y for ring in rings],
            "width": width, "height": width,
        })  # fmt: skip
        names = ends_of(view).names
        kinds = [] if found is None else [names[code] for code in found.label]
        self._put("cloud", _marks(found.x, found.y, kinds) if found else _marks(none, none, []))


def update_source(source: ColumnDataSource, data: dict[str, Any]) -> None:
    """Give a data source other columns; equal ones are not sent to the browser again."""
    if not all(_same(values, source.data[name]) for name, values in data.items()):
        source.data = data


def _same(one: Any, other: Any) -> bool:
    """Return whether two columns are equal: numbers, words, or arrays of them."""
    if len(one) != len(other):
        return False
    arrays = not isinstance(one, np.ndarray) and any(isinstance(x, np.ndarray) for x in one)
    return all(map(np.array_equal, one, other)) if arrays else np.array_equal(one, other)


def _marks(x: np.ndarray, y: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a layer of markers at (x, y), each in the style of the end named."""
    return {
        "x": x, "y": y, "fill": [style.FILL[name] for name in names],
        "line": [style.INK[name] for name in names],
        "marker": [_SHAPES[style.MARKER[name]] for name in names],
    }  # fmt: skip
