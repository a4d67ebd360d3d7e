"""Loss, logit gap and coordinates against time, of the orbits and of full training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, Range1d, Span
from bokeh.models import Label as Text
from bokeh.plotting import figure

from flowsim.drawing.style import INK, LINE, SOFT, TRAINED
from flowsim.explorer.orbits_from_starts import Orbit, Path
from flowsim.explorer.training_stream import Run
from flowsim.explorer.view import View

#: Panels from top to bottom.
_PANELS = ("loss", "logit gap", "coordinates")
#: How coordinates are told apart in the third panel, without colour too.
_DASHES: tuple[list[int], ...] = ([], [7, 4], [2, 3], [9, 3, 2, 3], [1, 4], [5, 2])
#: The same of full training, e and w.
_TRAINED_DASH = ([3, 3], [7, 3, 2, 3])


class TimeFigures:
    """Three figures, one above the other, with one axis of time.

    Attributes:
        layout: to be put on the page.
    """

    def __init__(self) -> None:
        self.sources: dict[str, ColumnDataSource] = {}
        self.figures = []
        self.time = Range1d(0, 1)
        self.axes = "e", "w"
        for name in _PANELS:
            last = name == _PANELS[-1]
            plot = figure(
                x_range=self.time, y_range=Range1d(0, 1), y_axis_label=name,
                toolbar_location=None, tools="",
                height=165 if last else 140, sizing_mode="stretch_both", name=name,
                x_axis_label="time (of training: steps × learning rate)" if last else None,
            )  # fmt: skip
            plot.min_border = 4
            plot.grid.grid_line_alpha = 0.4
            plot.xaxis.visible = last
            self._add_lines(plot, name)
            self.figures.append(plot)
        self.best, self.unigram = (
            Span(dimension="width", line_dash=dash, line_color=SOFT, line_width=1)
            for dash in ([4, 4], [1, 3])
        )
        self.target = Span(dimension="width", line_dash=[4, 4], line_color=SOFT, line_width=1)
        self.names = [
            _named(figure, span, words, x)
            for figure, span, words, x in (
                (self.figures[0], self.best, "entropy rate: least", 330),
                (self.figures[0], self.unigram, "unigram", 240),
                (self.figures[1], self.target, "gap of the chain", 330),
            )
        ]
        self.layout = column(self.figures, sizing_mode="stretch_both")

    def _add_lines(self, plot: Any, name: str) -> None:
        for kind in ("flow", "training"):
            self.sources[f"{name} {kind}"] = ColumnDataSource(
                {key: [] for key in ("xs", "ys", "colour", "width", "dash")}, name=f"{name} {kind}"
            )
        plot.multi_line("xs", "ys", line_color="colour", line_width="width", line_dash="dash",
                        source=self.sources[f"{name} flow"])  # fmt: skip
        plot.multi_line("xs", "ys", line_color="colour", line_width="width", line_dash="dash",
                        source=self.sources[f"{name} training"])  # fmt: skip
        words = ColumnDataSource({"x": [], "y": [], "text": []})
        self.sources[f"{name} words"] = words
        plot.text("x", "y", text="text", source=words, text_font_size="11px", text_color=LINE,
                  x_offset=3, text_baseline="middle")  # fmt: skip

    def show_chain(self, view: View) -> None:
        """The least loss, the loss of the unigram, and the gap of the minima, of a chain."""
        self.axes = view.y, view.x
        for part in (self.best, self.unigram, self.target, *self.names, self.figures[1]):
            part.visible = view.trains
        if not view.trains:
            return
        chain = view.model.chain
        least = chain.entropy_rate
        places = least, least + chain.mutual_information, chain.target_logit_gap
        spans = self.best, self.unigram, self.target
        for span, name, place in zip(spans, self.names, places, strict=True):
            span.location = name.y = place

    def show_orbits(self, orbits: Sequence[Orbit], chosen: int) -> None:
        """The loss and the gap of all orbits, and the coordinates of the chosen one."""
        found: dict[str, list[tuple[Any, Any, str, float, list[int]]]] = {n: [] for n in _PANELS}
        words: dict[str, list[tuple[float, float, str]]] = {n: [] for n in _PANELS}
        for i, orbit in enumerate(orbits):
            whole = _joined(orbit)
            ink = INK[orbit.kind]
            width = 2.8 if i == chosen else 1.3
            for name, values in (("loss", whole.loss), ("logit gap", whole.gap)):
                found[name].append((whole.time, values, ink, width, []))
                words[name].append((whole.time[-1], values[-1], str(i + 1)))
            if i == chosen:
                several = dict(zip(self.axes, (whole.y, whole.x), strict=True)) | whole.others
                for values, dash in zip(several.values(), cycle(_DASHES), strict=False):
                    found["coordinates"].append((whole.time, values, ink, 2.0, dash))
                words["coordinates"] = _at_ends(whole.time, several)
        for name in _PANELS:
            self.sources[f"{name} flow"].data = _columns(found[name])
            marks = words[name]
            self.sources[f"{name} words"].data = {
                "x": [m[0] for m in marks], "y": [m[1] for m in marks],
                "text": [m[2] for m in marks],
            }  # fmt: skip
        self._fit()

    def _fit(self) -> None:
        """Let the axes show all lines, and room for the words at their ends."""
        for i, name in enumerate(_PANELS):
            data = [self.sources[f"{name} {kind}"].data for kind in ("flow", "training")]
            pairs = [pair for d in data for pair in zip(d["xs"], d["ys"], strict=True)]
            # what came before the start may be far up, and runs out of the picture
            lines = [np.asarray(ys, float)[np.asarray(xs) >= 0] for xs, ys in pairs]
            values = np.concatenate(lines) if lines else np.zeros(0)
            values = values[np.isfinite(values)]
            if i < 2 and len(values) and self.best.visible:  # the dashed lines are worth seeing too
                marks = (self.best, self.unigram) if i == 0 else (self.target,)
                values = np.append(values, [mark.location for mark in marks])
            low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
            room = (0.07 if i == 2 else 0.13) * max(high - low, 1e-6)  # names stand above lines
            self.figures[i].y_range.update(start=low - room, end=high + room)
        ends = [
            xs for kind in ("flow", "training") for xs in self.sources[f"loss {kind}"].data["xs"]
        ]
        first = min((float(xs[0]) for xs in ends if len(xs)), default=0.0)
        last = max((float(xs[-1]) for xs in ends if len(xs)), default=1.0)
        room = max(last - first, 1e-9)
        self.time.update(start=first - 0.01 * room, end=last + 0.05 * room)

    def show_runs(self, training: Sequence[Run]) -> None:
        """The same of full training; the coordinates are those of its projection."""
        found: dict[str, list[tuple[Any, Any, str, float, list[int]]]] = {n: [] for n in _PANELS}
        for i, run in enumerate(training):
            curve = list(run.curve)  # which grows meanwhile
            seen = curve if i == len(training) - 1 else []
            time = [p.time for p in curve]
            columns = {
                "loss": [[p.loss for p in curve]],
                "logit gap": [[p.gap for p in curve]],
                "coordinates": [[p.e for p in seen], [p.w for p in seen]] if seen else [],
            }
            for name, several in columns.items():
                found[name] += [
                    (time, values, TRAINED, 2.2, dash)
                    for values, dash in zip(several, _TRAINED_DASH, strict=False)
                ]
        for name in _PANELS:
            self.sources[f"{name} training"].data = _columns(found[name])
        self._fit()


def _at_ends(time: np.ndarray, several: dict[str, np.ndarray]) -> list[tuple[float, float, str]]:
    """The curves' names at their ends; those of curves that end together are one text."""
    if not len(time):
        return []
    reach = max(float(np.ptp(np.concatenate(list(several.values())))), 1e-6)
    words: list[tuple[float, float, str]] = []
    for name, values in sorted(several.items(), key=lambda item: float(item[1][-1])):
        near = bool(words) and float(values[-1]) - words[-1][1] < 0.12 * reach
        text = f"{words.pop()[2]}, {name}" if near else name
        words.append((float(time[-1]), float(values[-1]), text))
    return words


def _named(plot: Any, span: Span, words: str, x: int) -> Text:
    """The line in the plot, with words above it, so many pixels from the left."""
    name = Text(
        x=x, y=0, x_units="screen", y_offset=1, text=words, text_font_size="10.5px",
        text_color=SOFT,
    )  # fmt: skip
    plot.add_layout(span)
    plot.add_layout(name)
    return name


def _joined(orbit: Orbit) -> Path:
    """The backward path, as far back as the forward one goes on, and the forward one."""
    ahead, back = orbit.forward, orbit.backward
    if back is None or not len(ahead.time):
        return ahead
    near = back.time >= -ahead.time[-1]

    def join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.concatenate([first[near], second])

    others = {name: join(back.others[name], values) for name, values in ahead.others.items()}
    named = {
        n: join(getattr(back, n), getattr(ahead, n)) for n in ("time", "y", "x", "loss", "gap")
    }
    return Path(**named, others=others)


def _columns(lines: list[tuple[Any, Any, str, float, list[int]]]) -> dict[str, Any]:
    names = ("xs", "ys", "colour", "width", "dash")
    columns: dict[str, Any] = {name: [line[i] for line in lines] for i, name in enumerate(names)}
    columns["dash"] = [" ".join(map(str, dash)) or "solid" for dash in columns["dash"]]
    return columns
