"""The plane in the browser: basins, curves, arrows, orbits, training paths and a cloud."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import BoxZoomTool, ColumnDataSource, LinearColorMapper, WheelZoomTool
from bokeh.plotting import figure

from flowsim.drawing.boundary_lines import BESIDE_SADDLES
from flowsim.drawing.plane_curves import CANONICAL_SEPARATRIX, CRITICAL, MINIMA, SEPARATRIX
from flowsim.drawing.style import (
    ARROW,
    FILL,
    INK,
    LINE,
    MARKER,
    SOFT,
    TRAINED,
    code_of,
)
from flowsim.explorer.border import Border
from flowsim.explorer.clouds import CloudShare
from flowsim.explorer.orbits_from_starts import Orbit
from flowsim.explorer.plane_layers import Cells, runs
from flowsim.explorer.training_stream import Run
from flowsim.explorer.view import View, Window
from flowsim.landscape.labels import Label

#: Cells that are not decided yet.
NOT_YET = "#e9e9e9"
_SHAPES = {"o": "circle", "^": "triangle", "s": "square", "X": "x"}
#: Arrows: half their length, and their heads, in parts of the distance between two.
_ARROW_HALF, _ARROW_HEAD = 0.36, 0.2
_NO_CURVES: dict[str, Any] = {"xs": [], "ys": []}
_MARKS = ("x", "y", "fill", "line", "marker")


def shape_of(label: Label) -> str:
    """The marker of a label, the same as in the figures."""
    return _SHAPES[MARKER[label.name.lower()]]


class PlaneFigure:
    """A figure and its data sources.

    Attributes:
        figure: to be laid out and to take events from.
        zoom: the tool that a drag uses while dragging zooms.
    """

    def __init__(self, window: Window) -> None:
        w_low, w_high, e_low, e_high = window
        self.zoom = BoxZoomTool()
        wheel = WheelZoomTool(zoom_together="all")
        self.figure = figure(
            x_range=(w_low, w_high), y_range=(e_low, e_high), tools=[self.zoom, wheel],
            active_scroll=wheel, toolbar_location=None, sizing_mode="stretch_both",
            x_axis_label="feed-forward weight w", y_axis_label="embedding e",
            lod_threshold=None, name="plane",
        )  # fmt: skip
        self.figure.toolbar.active_drag = self.zoom
        self.figure.grid.visible = False
        self.figure.min_border = 8
        self.sources: dict[str, ColumnDataSource] = {}
        self._add_cells()
        self._add_curves()
        self._add_starts()

    def _source(self, name: str, *columns: str) -> ColumnDataSource:
        self.sources[name] = ColumnDataSource({column: [] for column in columns}, name=name)
        return self.sources[name]

    def _add_cells(self) -> None:
        palette = [FILL[label.name.lower()] for label in Label] + [NOT_YET]
        mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)
        cells = self._source("cells", "image", "x", "y", "dw", "dh")
        self.figure.image("image", x="x", y="y", dw="dw", dh="dh", source=cells,
                          color_mapper=mapper, level="image")  # fmt: skip
        for name, pattern, colour, alpha in (
            ("trapped", "right_diagonal_line", "#ffffff", 0.9), ("saddle", "dot", LINE, 0.35),
        ):  # fmt: skip
            hatched = self._source(name, "left", "right", "bottom", "top")
            self.figure.quad(
                "left", "right", "bottom", "top", source=hatched, fill_alpha=0, line_alpha=0,
                hatch_pattern=pattern, hatch_color=colour, hatch_alpha=alpha, hatch_scale=9,
                hatch_weight=1.4, level="image",
            )  # fmt: skip

    def _add_curves(self) -> None:
        plot = self.figure
        heads = self._source("arrows", "x0", "y0", "x1", "y1", "angle")
        plot.segment("x0", "y0", "x1", "y1", source=heads, line_color=ARROW, line_alpha=0.8)
        plot.scatter("x1", "y1", angle="angle", marker="triangle", size=5, source=heads,
                     color=ARROW, alpha=0.8)  # fmt: skip
        for kind, style in CRITICAL.items():
            plot.line("x", "y", source=self._source(f"line {kind}", "x", "y"), **_line(style))
        minima = self._source("minima", "xs", "ys")
        plot.multi_line("xs", "ys", source=minima, **_line(MINIMA))
        for name, style in (("beside saddles", BESIDE_SADDLES), ("border", SEPARATRIX),
                            ("separatrix", SEPARATRIX),
                            ("canonical separatrix", CANONICAL_SEPARATRIX)):  # fmt: skip
            plot.multi_line("xs", "ys", source=self._source(name, "xs", "ys"), **_line(style))
        plot.scatter("x", "y", source=self._source("saddle points", "x", "y"), marker="x",
                     size=11, line_width=3, color=LINE)  # fmt: skip

    def _add_starts(self) -> None:
        plot = self.figure
        cloud = self._source("cloud", "x", "y", "fill", "line", "marker")
        plot.scatter("x", "y", marker="marker", fill_color="fill", line_color="line", size=5,
                     fill_alpha=0.8, line_width=0.7, source=cloud)  # fmt: skip
        ring = self._source("ring", "x", "y", "width", "height")
        plot.ellipse("x", "y", "width", "height", source=ring, fill_alpha=0, line_color=LINE,
                     line_dash="dotted", line_width=1.5)  # fmt: skip
        back = self._source("backward", "xs", "ys")
        plot.multi_line("xs", "ys", source=back, line_color=SOFT, line_width=2, line_dash="dotted")
        ahead = self._source("orbits", "xs", "ys", "width")
        plot.multi_line("xs", "ys", source=ahead, line_color="#ffffff", line_width=5,
                        line_alpha=0.7)  # fmt: skip
        plot.multi_line("xs", "ys", source=ahead, line_color=LINE, line_width="width")
        paths = self._source("training", "xs", "ys")
        plot.multi_line("xs", "ys", source=paths, line_color=TRAINED, line_width=3,
                        line_dash=[3, 3])  # fmt: skip
        at = self._source("training now", "x", "y")
        plot.scatter("x", "y", source=at, marker="diamond", size=12, fill_color="#ffffff",
                     line_color=TRAINED, line_width=2.5)  # fmt: skip
        cross = self._source("cross", "x", "y", "text")
        for colour, width in (("#ffffff", 5), (LINE, 2)):
            plot.scatter("x", "y", source=cross, marker="cross", size=26, line_color=colour,
                         line_width=width)  # fmt: skip
        plot.text("x", "y", text="text", source=cross, x_offset=10, y_offset=22, padding=2,
                  text_font_size="12px", text_color=LINE, background_fill_color="#ffffff",
                  background_fill_alpha=0.85)  # fmt: skip
        first = self._source("starts", "x", "y", "number")
        plot.scatter("x", "y", source=first, size=9, fill_color="#ffffff", line_color=LINE,
                     line_width=2)  # fmt: skip
        plot.text("x", "y", text="number", source=first, x_offset=8, y_offset=-4,
                  text_font_size="12px", text_color=LINE)  # fmt: skip
        ends = self._source("ends", *_MARKS)
        plot.scatter("x", "y", marker="marker", fill_color="fill", line_color="line", size=12,
                     line_width=2, source=ends)  # fmt: skip

    def _put(self, name: str, data: dict[str, Any]) -> None:
        """Show other data; what was empty and stays so needs no message to the browser."""
        source = self.sources[name]
        if any(len(x) for x in data.values()) or any(len(x) for x in source.data.values()):
            source.data = data

    def show_window(self, window: Window) -> None:
        """Move the axes, without an event of the user's."""
        w_low, w_high, e_low, e_high = window
        x, y = self.figure.x_range, self.figure.y_range
        x.update(start=w_low, end=w_high)
        y.update(start=e_low, end=e_high)

    def show_cells(self, view: View, cells: Cells) -> None:
        """Basins, the trapped ones hatched and the saddles' dotted."""
        w_low, w_high, e_low, e_high = view.window
        size = {"x": [w_low], "y": [e_low], "dw": [w_high - w_low], "dh": [e_high - e_low]}
        self._put("cells", {"image": [cells.label.astype(np.uint8)], **size})
        rows, columns = cells.label.shape
        for name, label in (("trapped", Label.LOCAL_MINIMUM), ("saddle", Label.SADDLE)):
            row, first, end = runs(cells.label == label).T
            tall, wide = (e_high - e_low) / rows, (w_high - w_low) / columns
            self._put(name, {
                "left": w_low + wide * first, "right": w_low + wide * end,
                "bottom": e_low + tall * row, "top": e_low + tall * (row + 1),
            })  # fmt: skip

    def show_border(self, border: Border) -> None:
        """The boundary of the basins, found between the cells."""
        for name, curves in (("border", border.basins), ("beside saddles", border.saddles)):
            self._put(name, {"xs": [w for _, w in curves], "ys": [e for e, _ in curves]})

    def show_landscape(self, view: View, record: xr.Dataset, keep_line: bool = False) -> None:
        """Curves, critical line by kind, saddle points and arrows.

        With ``keep_line`` the line and the saddle points stay as they are.
        """
        w = record["curve_w"].to_numpy()
        both = bool(record["minima_e"].attrs.get("mirrored", 1))
        lifted = view.choice.name == "rank-one"
        border = "canonical separatrix" if lifted else "separatrix"
        for name in ("separatrix", "canonical separatrix"):
            there = name == border
            curves = _mirrored(w, record["separatrix_e"].to_numpy(), True) if there else _NO_CURVES
            self._put(name, curves)
        minima = _mirrored(w, record["minima_e"].to_numpy(), both)
        if view.model.chain.second_eigenvalue == 0:  # there also above one w
            at = -1 / np.sqrt(view.choice.hidden_per_state or 2)
            minima["xs"].append(np.array([at, at]))
            minima["ys"].append(np.array(view.window[2:]))
        self._put("minima", minima)
        if not keep_line:
            self._show_line(w, record)
        self._show_arrows(view, record)

    def _show_line(self, w: np.ndarray, record: xr.Dataset) -> None:
        saddle = record["saddle_w"].to_numpy()
        self._put("saddle points", {"x": saddle, "y": np.zeros_like(saddle)})
        for kind in CRITICAL:
            on = np.zeros(len(w), bool)
            if "critical_line" in record:
                on = record["critical_line"].to_numpy() == code_of(record["critical_line"], kind)
            on &= on.sum() > max(1, len(saddle))
            drawn = np.where(on, w, np.nan) if on.any() else np.array([])
            self._put(f"line {kind}", {"x": drawn, "y": np.zeros_like(drawn)})

    def _show_arrows(self, view: View, record: xr.Dataset) -> None:
        w_low, w_high, e_low, e_high = view.window
        x, y = np.meshgrid(record["arrow_w"].to_numpy(), record["arrow_e"].to_numpy())
        u, v = (record[f"direction_{n}"].to_numpy() / s for n, s in
                (("w", w_high - w_low), ("e", e_high - e_low)))  # fmt: skip
        length = np.hypot(u, v)
        there = length > 0
        u, v = u[there] / length[there], v[there] / length[there]
        half = _ARROW_HALF / len(record["arrow_w"])
        dx, dy = half * u * (w_high - w_low), half * v * (e_high - e_low)
        x, y = x[there], y[there]
        self._put("arrows", {
            "x0": x - dx, "y0": y - dy, "x1": x + dx, "y1": y + dy,
            "angle": np.arctan2(v, u) - np.pi / 2,
        })  # fmt: skip

    def show_orbits(self, view: View, orbits: Sequence[Orbit], chosen: int) -> None:
        """Orbits from their numbered starts to the markers of their labels."""
        paths = [(np.append(o.forward.w, o.end[1]), np.append(o.forward.e, o.end[0]))
                 for o in orbits]  # fmt: skip
        width = [3.2 if i == chosen else 1.6 for i in range(len(orbits))]
        self._put("orbits", {
            "xs": [x for x, _ in paths], "ys": [y for _, y in paths], "width": width,
        })  # fmt: skip
        behind = [o.backward for o in orbits if o.backward is not None]
        self._put("backward", {"xs": [p.w for p in behind], "ys": [p.e for p in behind]})
        self._put("starts", {
            "x": [s.w for s in view.starts], "y": [s.e for s in view.starts],
            "number": [str(i + 1) for i in range(len(view.starts))],
        })  # fmt: skip
        ended = [o for o in orbits if np.isfinite(o.end[0])]
        at = [o.end for o in ended]
        self.sources["ends"].data = _marks(
            np.array([w for _, w in at]), np.array([e for e, _ in at]), [o.label for o in ended]
        )

    def show_runs(self, training: Sequence[Run]) -> None:
        """Paths of full training, projected, with a diamond where each is."""
        curves = [list(run.curve) for run in training if run.curve]  # they grow meanwhile
        self._put(
            "training",
            {
                "xs": [[p.w for p in curve] for curve in curves],
                "ys": [[p.e for p in curve] for curve in curves],
            },
        )
        self._put("training now", {
            "x": [curve[-1].w for curve in curves], "y": [curve[-1].e for curve in curves],
        })  # fmt: skip

    def show_cloud(self, view: View, found: CloudShare | None) -> None:
        """The cloud's starts by their labels, and the ring of two deviations."""
        puff = view.puff
        width = [] if puff is None else [4 * puff.sigma]
        self._put("ring", {
            "x": [] if puff is None else [puff.w], "y": [] if puff is None else [puff.e],
            "width": width, "height": width,
        })  # fmt: skip
        if found is None:
            self._put("cloud", {name: [] for name in _MARKS})
        else:
            kinds = [Label(int(code)) for code in found.label]
            self.sources["cloud"].data = _marks(found.w, found.e, kinds)


def _marks(x: np.ndarray, y: np.ndarray, labels: Sequence[Label]) -> dict[str, Any]:
    """Markers by label, in their colours and shapes."""
    names = [label.name.lower() for label in labels]
    return {
        "x": x, "y": y, "fill": [FILL[name] for name in names],
        "line": [INK[name] for name in names], "marker": [shape_of(label) for label in labels],
    }  # fmt: skip


def _mirrored(w: np.ndarray, e: np.ndarray, both: bool) -> dict[str, Any]:
    """A curve, and its image at −e."""
    return {"xs": [w, w] if both else [w], "ys": [e, -e] if both else [e]}


def _line(style: dict[str, Any]) -> dict[str, Any]:
    """A style of the figures in the words of the page."""
    dashes = style.get("linestyle", (0, ()))[1]
    return {
        "line_color": style["color"], "line_width": style["linewidth"],
        "line_dash": " ".join(f"{style['linewidth'] * part:.0f}" for part in dashes) or "solid",
    }  # fmt: skip
