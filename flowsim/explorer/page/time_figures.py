"""Loss, logit gap and coordinates against time, of the orbits and of full training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from bokeh.layouts import column
from bokeh.models import BasicTicker, ColumnDataSource, CustomJSTickFormatter, Range1d, Span
from bokeh.models import Label as Text
from bokeh.plotting import figure

from flowsim.drawing.style import INK, LINE, SOFT, TRAINED
from flowsim.explorer.page.plane_figure import update_source
from flowsim.explorer.starts import Orbit, Path
from flowsim.explorer.training import Run
from flowsim.explorer.view import View

#: Panels from top to bottom.
_PANELS = ("loss", "logit gap", "coordinates")
#: Dashes of coordinates in the third panel, which do not need colour.
_DASHES: tuple[list[int], ...] = ([], [7, 4], [2, 3], [9, 3, 2, 3], [1, 4], [5, 2])
#: The same of full training, e and w.
_TRAINED_DASH = ([3, 3], [7, 3, 2, 3])
#: The axis of time, numbers and powers of ten along an axis, and the least excess loss there.
_TIME = "time (of training: steps × learning rate)"
_NUMBER = "return Number(tick.toPrecision(6)).toString()"
_POWER = """
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  if (tick !== Math.round(tick)) return "";
  return "10" + String(tick).replace("-", "⁻").replace(/[0-9]/g, (d) => digits[d]);
"""
_LEAST = 1e-9
#: Pixels below the last panel, for the axis of time.
_BELOW = 42

Scale = Callable[[np.ndarray], np.ndarray]


class Line(NamedTuple):
    """A curve of one panel, its look and the word at its end."""

    time: np.ndarray
    values: np.ndarray
    colour: str
    width: float
    dash: list[int]
    label: str = ""

    @property
    def begins(self) -> float:
        """First time on a logarithmic axis: a third of that at which it has moved visibly.

        A hundredth of its whole way is visible. A line without points begins at infinity.
        """
        there = np.isfinite(self.values) & (self.time > 0)
        time, values = self.time[there], self.values[there]
        moved = np.abs(values - values[:1]) > 0.01 * np.ptp(values) if len(values) else values
        return float(time[np.argmax(moved)]) / 3 if len(values) else np.inf

    def on(self, across: Scale, up: Scale) -> Line:
        """Return the line with ``across`` applied to its times and ``up`` to its values."""
        return self._replace(time=across(self.time), values=up(self.values))


class TimeFigures:
    """Three figures, one above the other, with one axis of time."""

    def __init__(self) -> None:
        self.sources: dict[str, ColumnDataSource] = {}
        self._lines: dict[str, list[Line]] = {}  # unscaled, for any axes
        self.logs: tuple[str, ...] = ()
        self.least = self.unigrams = 0.0  # the least loss, and by how much the unigram's is more
        self.trainable = True
        self.time = Range1d(0, 1)
        self.axes = "e", "w"
        self.figures = [self._panel(name, name == _PANELS[-1]) for name in _PANELS]
        loss, gap, _ = self.figures
        self.best, best_words = _named_line(loss, [4, 4], "entropy rate: least", 8)
        self.unigram, unigram_words = _named_line(loss, [1, 3], "unigram", 200)
        self.target, target_words = _named_line(gap, [4, 4], "gap of the chain", 8)
        self.names = [best_words, unigram_words, target_words]
        self.layout = column(self.figures, sizing_mode="stretch_both", name="times")

    def _panel(self, quantity: str, last: bool) -> Any:
        """Make the figure of one quantity; the last one shows the axis of time."""
        plot = figure(
            x_range=self.time, y_range=Range1d(0, 1), y_axis_label=quantity, toolbar_location=None,
            tools="", height=165 if last else 140, sizing_mode="stretch_both", name=quantity,
            styles={"flex": f"1 0 {_BELOW if last else 0}px"},  # frames of one height
            x_axis_label=_TIME if last else None,
        )  # fmt: skip
        plot.min_border = 4
        # space for the longest numbers: a frame that changes is laid out anew, for a second
        plot.min_border_left, plot.min_border_bottom = 66, 4 + _BELOW if last else 4
        for axis in (plot.xaxis[0], plot.yaxis[0]):  # other models would be looked through too
            axis.ticker, axis.formatter = BasicTicker(), CustomJSTickFormatter(code=_NUMBER)
        plot.grid.grid_line_alpha = 0.4
        plot.xaxis.visible = last
        for kind in ("flow", "training"):
            source = ColumnDataSource(_columns([]), name=f"{quantity} {kind}")
            self.sources[source.name] = source
            plot.multi_line("xs", "ys", line_color="colour", line_width="width", line_dash="dash",
                            source=source)  # fmt: skip
        self.sources[f"{quantity} words"] = ColumnDataSource(_at_ends([]))
        plot.text("x", "y", text="text", source=self.sources[f"{quantity} words"], x_offset=3,
                  text_font_size="11px", text_color=LINE, text_baseline="middle")  # fmt: skip
        return plot

    def show_chain(self, view: View) -> None:
        """Draw the least loss, the loss of the unigram, and the gap of the minima, of a chain."""
        self.axes, self.trainable = (view.y, view.x), view.trainable
        for part in (self.best, self.unigram, self.target, *self.names, self.figures[1]):
            part.visible = view.trainable
        if view.trainable:
            chain = view.chain
            self.least = chain.entropy_rate
            self.unigrams = chain.mutual_information
            self.target.location = self.names[2].y = chain.target_logit_gap
        self._draw()

    def show_orbits(self, view: View, orbits: Sequence[Orbit], chosen: int) -> None:
        """Draw the loss and the gap of all orbits, and the coordinates of the chosen one."""
        found: dict[str, list[Line]] = {name: [] for name in _PANELS}
        for i, orbit in enumerate(orbits):
            whole, ink, width = _joined(orbit), INK[orbit.kind], 2.8 if i == chosen else 1.3
            for name, values in (("loss", whole.loss), ("logit gap", whole.gap)):
                found[name].append(Line(whole.time, values, ink, width, [], str(i + 1)))
            if i == chosen:
                several = dict(zip(self.axes, (whole.y, whole.x), strict=True)) | whole.others
                for (name, values), dash in zip(several.items(), cycle(_DASHES), strict=False):
                    found["coordinates"].append(Line(whole.time, values, ink, 2.0, dash, name))
        self._lines |= {f"{name} flow": lines for name, lines in found.items()}
        if not view.trainable and orbits:
            self.least = min(orbit.end_loss for orbit in orbits)
        # logarithms where a fall begins early, or far above the unigram's excess loss
        quarter, excess = [], []
        for path in (orbit.forward for orbit in orbits if len(orbit.forward.time) > 1):
            fall = (path.loss[0] - path.loss) / max(path.loss[0] - path.loss[-1], 1e-300)
            quarter.append(float(path.time[np.argmax(fall >= 0.25)] / path.time[-1]))
            excess.append(float(path.loss[0] - self.least))
        usual = self.unigrams if self.trainable else min(excess, default=0.0)
        logs = ("time",) * (min(quarter, default=1.0) < 1 / 30)
        logs += ("loss",) * (max(excess, default=0.0) > 30 * usual)
        self.logs = logs if view.logs is None else view.logs
        self._draw()

    def show_runs(self, training: Sequence[Run]) -> None:
        """Draw loss and gap of all runs of training, and the projected coordinates of the last."""
        if not training and not any(self._lines.get(f"{name} training") for name in _PANELS):
            return
        found: dict[str, list[Line]] = {name: [] for name in _PANELS}
        for i, run in enumerate(training):
            curve = list(run.curve)  # which grows meanwhile
            seen = curve if i == len(training) - 1 else []
            columns = {
                "loss": [[p.loss for p in curve]],
                "logit gap": [[p.gap for p in curve]],
                "coordinates": [[p.e for p in seen], [p.w for p in seen]] if seen else [],
            }
            time = np.array([p.time for p in curve])
            for name, several in columns.items():
                pairs = zip(several, _TRAINED_DASH, strict=False)
                found[name] += [Line(time, np.array(v), TRAINED, 2.2, dash) for v, dash in pairs]
        self._lines |= {f"{name} training": lines for name, lines in found.items()}
        self._draw()

    def _draw(self) -> None:
        """Draw all lines, on logarithmic axes where ``logs`` names them."""
        time_log, loss_log = "time" in self.logs, "loss" in self.logs
        first = min((x.begins for lines in self._lines.values() for x in lines), default=1.0)
        across = _log(first if np.isfinite(first) else 1e-3) if time_log else np.asarray
        for name in _PANELS:
            up = _log(_LEAST, self.least) if loss_log and name == "loss" else np.asarray
            for kind in ("flow", "training"):
                lines = [line.on(across, up) for line in self._lines.get(f"{name} {kind}", [])]
                update_source(self.sources[f"{name} {kind}"], _columns(lines))
                if kind == "flow":
                    update_source(self.sources[f"{name} words"], _at_ends(lines))
        for axis, log, labels in (
            (self.figures[-1].xaxis[0], time_log, _TIME),
            (self.figures[0].yaxis[0], loss_log, "excess loss" if loss_log else "loss"),
        ):  # powers of ten, or plain numbers
            axis.axis_label, axis.formatter.code = labels, _POWER if log else _NUMBER
            axis.ticker.update(min_interval=1 if log else 0, num_minor_ticks=0 if log else 5)
        if self.trainable:
            above = self.unigrams
            self.best.visible = self.names[0].visible = not loss_log
            self.best.location = self.names[0].y = self.least
            at = np.log10(max(above, _LEAST)) if loss_log else self.least + above
            self.unigram.location = self.names[1].y = at
        self._fit()

    def _fit(self) -> None:
        """Let the axes show all lines, with space for the words at their ends."""
        ends = []
        for i, name in enumerate(_PANELS):
            data = [self.sources[f"{name} {kind}"].data for kind in ("flow", "training")]
            pairs = [pair for d in data for pair in zip(d["xs"], d["ys"], strict=True)]
            # what came before the start may be far up, and runs out of the picture
            before = -np.inf if "time" in self.logs else 0
            lines = [ys[xs >= before] for xs, ys in pairs]
            values = np.concatenate(lines) if lines else np.zeros(0)
            values = values[np.isfinite(values)]
            if i < 2 and len(values):  # the dashed lines are worth seeing too
                marks = (self.best, self.unigram) if i == 0 else (self.target,)
                values = np.append(values, [mark.location for mark in marks if mark.visible])
            low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
            room = (0.07 if i == 2 else 0.13) * max(high - low, 1e-6)  # names stand above lines
            self.figures[i].y_range.update(start=low - room, end=high + room)
            ends += [xs[np.isfinite(xs)][[0, -1]] for xs, _ in pairs if np.isfinite(xs).any()]
        first, last = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else (0.0, 1.0)
        room = max(last - first, 1e-9)
        self.time.update(start=first - 0.01 * room, end=last + 0.05 * room)


def _log(least: float, above: float = 0.0) -> Scale:
    """Return the function v ↦ log10(v − above), NaN where v − above is less than ``least``."""

    def of(values: np.ndarray) -> np.ndarray:
        over = np.asarray(values, float) - above
        return np.log10(np.where(over >= least, over, np.nan))

    return of


def _at_ends(lines: Sequence[Line]) -> dict[str, list[Any]]:
    """Return texts and their places (x, y): the lines' names at their ends.

    Names of lines that end together are one text.
    """
    ends = []
    for line in lines:
        there = np.flatnonzero(np.isfinite(line.time) & np.isfinite(line.values))
        if len(there):
            ends.append((float(line.values[there[-1]]), float(line.time[there[-1]]), line.label))
    heights = [y for line in lines for y in line.values[np.isfinite(line.values)]]
    reach = max(float(np.ptp(heights)), 1e-6) if heights else 1.0
    labels: list[tuple[float, float, str]] = []
    for y, x, name in sorted(ends):
        near = bool(labels) and y - labels[-1][0] < 0.12 * reach and x == labels[-1][1]
        labels.append((y, x, f"{labels.pop()[2]}, {name}" if near else name))
    return {"x": [x for _, x, _ in labels], "y": [y for y, _, _ in labels],
            "text": [text for _, _, text in labels]}  # fmt: skip


def _named_line(plot: Any, dash: list[int], labels: str, x: int) -> tuple[Span, Text]:
    """Add a horizontal line, and words above it ``x`` pixels from the left; return both."""
    span = Span(dimension="width", line_dash=dash, line_color=SOFT, line_width=1)
    name = Text(
        x=x, y=0, x_units="screen", y_offset=1, text=labels, text_font_size="10.5px",
        text_color=SOFT, background_fill_color="#ffffff", background_fill_alpha=0.8,
    )  # fmt: skip
    plot.add_layout(span)
    plot.add_layout(name)
    return span, name


def _joined(orbit: Orbit) -> Path:
    """Return an orbit's backward and forward paths as one, no longer backward than forward."""
    ahead, back = orbit.forward, orbit.backward
    if back is None or not len(ahead.time):
        return ahead
    near = back.time >= -ahead.time[-1]

    def join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return one column of both paths."""
        return np.concatenate([first[near], second])

    others = {name: join(back.others[name], values) for name, values in ahead.others.items()}
    columns = ("time", "y", "x", "loss", "gap")
    joined = {n: join(getattr(back, n), getattr(ahead, n)) for n in columns}
    return Path(**joined, others=others)


def _columns(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the columns of the data source that draws these lines."""
    return {
        "xs": [line.time for line in lines], "ys": [line.values for line in lines],
        "colour": [line.colour for line in lines], "width": [line.width for line in lines],
        "dash": [" ".join(map(str, line.dash)) or "solid" for line in lines],
    }  # fmt: skip
