"""Common style of all figures: colours, names, cell edges, legends and files.

Colours differ for any kind of colour vision and in grey value; where two things
have the same role, a hatch, a marker or a line style separates them too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any, TypedDict, cast

import numpy as np
import xarray as xr
from matplotlib import rc_context, rcParams, rcParamsDefault
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.ticker import AutoLocator
from matplotlib.transforms import ScaledTranslation

from flowsim.errors import InputError
from flowsim.records.attributes import adam_words, axes_of, became_of, end_names, fixed_of, meanings

#: Fill, ink, marker and hatch of ends that are numbered.
_MINIMA = (
    ("#d6e9f5", "#00537f", "o", ""), ("#e8965a", "#c25700", "^", "///"),
    ("#b9dcb0", "#2f6b1f", "v", "\\\\\\"), ("#f3d36b", "#8a6a00", "D", "..."),
    ("#cdb8de", "#5b3a80", "P", "|||"), ("#9fc9cf", "#1e6570", "<", "---"),
)  # fmt: skip
_INFINITIES = (
    ("#eeeeee", "#4d4d4d", "*", "oo"), ("#c9c9c9", "#9a3b6b", "h", "xx"),
    ("#dfd3c3", "#6b5433", "p", "++"), ("#c3cfdf", "#33486b", ">", "OO"),
)  # fmt: skip
#: The same of ends with names.
_ENDS = {
    "global_minimum": ("#d6e9f5", "#00537f", "o", ""),
    "local_minimum": ("#e8965a", "#c25700", "^", "///"),
    "saddle": ("#ffffff", "#7a4fa3", "s", ""),
    "unresolved": ("#000000", "#000000", "X", ""),
}
#: The same of what an optimizer's steps do beside coming to rest.
_STEPS = {
    "periodic": ("#cdb9df", "#7a4fa3", "8", "xx"),
    "bounded": ("#f6d9bd", "#c25700", "d", "..."),
    "diverged": ("#000000", "#000000", "x", ""),
    "plateau": ("#f6d9bd", "#c25700", "d", "..."),
    "between": ("#f3e27a", "#8a6a00", "D", ""),
    "above": ("#a8a8a8", "#4d4d4d", "*", ""),
    "equal": ("#ffffff", "#111111", "s", ""),
}


class Styles(dict[str, Any]):
    """One part of the style of every label; numbered ends take theirs from kind and number."""

    def __init__(self, part: int) -> None:
        """``part`` is 0 for fills, 1 for inks, 2 for markers, 3 for hatches."""
        super().__init__({name: look[part] for name, look in _ENDS.items()})
        self.part = part

    def __missing__(self, key: str) -> Any:
        """The style of a label without an entry: of an optimizer's runs, or of a numbered end."""
        if key in _STEPS:
            return _STEPS[key][self.part]
        kind, _, number = key.rpartition("_")
        if kind in self:
            return self[kind]
        styles = _INFINITIES if kind == "infinity" else _MINIMA
        if not number.isdecimal():
            return styles[-1][self.part]
        again, i = divmod(int(number) - 1, len(styles))
        if self.part == 3:  # other hatches on the same fills, once these are used up
            i = (i + again) % len(styles)
        return styles[i][self.part]


#: Areas, inks of lines and of edges of markers, markers, and hatches of areas, by label.
FILL, INK, MARKER, HATCH = map(Styles, range(4))
#: Words of labels: in a legend, of one start, of several, and in a table.
_WORDS = {
    "global_minimum": (*["reaches the global minima"] * 2, "reach the global minima", "global"),
    "local_minimum": ("trapped in bad local minima", "is trapped", "are trapped", "local"),
    "saddle": (*["ends in a saddle"] * 2, "end in a saddle", "saddle"),
    "unresolved": ("unresolved", "is unresolved", "are unresolved", "unres."),
}
BASINS, VERB_PHRASES, PLURALS, SHORT = (
    {name: words[i] for name, words in _WORDS.items()} for i in range(4)
)
#: Names of the optimizers in a figure.
OPTIMIZERS = {"gd": "gradient descent", "momentum": "momentum", "adam": "Adam", "adamw": "AdamW",
              "own": "its own steps"}  # fmt: skip
#: The same of all that trains transformers.
TRAINERS = OPTIMIZERS | {
    "flow": "gradient flow", "sgd": "SGD", "adamw-papers": "AdamW (the papers' recipe)",
}  # fmt: skip
LINE, SOFT, ARROW = "#111111", "#4d4d4d", "#6a6a6a"
#: Paths of full training beside the flow.
TRAINED = "#7b1161"
#: The same, and of several laid over one portrait.
PATHS = (
    TRAINED, "#1b6e3c", "#1f3fa8", "#a35a00", "#d0307c", "#00808f", "#5c4a00", "#7a62d6",
)  # fmt: skip
#: Dashes of paths: others for each further round of the colours.
DASHES: tuple[Any, ...] = ((0, (2, 1.2)), (0, (5, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1, 1)))
#: Runs that end as predicted, and runs that do not.
AGREE, DIFFER = "#8c8c8c", "#7b1161"
#: Dots per inch of every figure, unless a style sheet says others.
DPI = 150
#: Widths of figures, in inches.
NARROWEST, WIDEST = 1.5, 100.0
#: The width of a usual letter, as a part of the size of its text.
_LETTER = 0.54


def symbol(coordinate: str) -> str:
    """A coordinate as a figure writes it: mathematics for a letter with at most one subscript."""
    found = re.fullmatch(r"([A-Za-z])(?:_?([0-9]+)|_([A-Za-z0-9]+))?", coordinate)
    if found is None:
        return escaped(coordinate)
    letter, *below = found.groups()
    below = [text for text in below if text]
    return f"${letter}_{{{below[0]}}}$" if below else f"${letter}$"


def escaped(text: str) -> str:
    """Text in which no dollar opens a formula."""
    return text.replace("$", r"\$")


def name_of(record: xr.Dataset, coordinate: str, variable: str = "") -> str:
    """Axis label of a coordinate: the long name of its ``variable``, its symbol as mathematics."""
    variable = variable or coordinate
    attributes = record[variable].attrs if variable in record.variables else {}
    if "long_name" not in attributes:
        return symbol(coordinate)
    letter = rf"(?<!\w){re.escape(coordinate)}(?!\w)"
    return re.sub(letter, lambda _: symbol(coordinate), escaped(attributes["long_name"]))


def basin_names(record: xr.Dataset) -> dict[str, str]:
    """The words of a record's labels in a legend, by the name of the label."""
    own = end_names(record.attrs)
    if "label" in record:
        own |= json.loads(became_of(record).attrs.get("words", "{}"))
    for name in np.atleast_1d(record.attrs.get("coordinates", [])):
        if "$" in name:
            own = {key: text.replace(name, escaped(name)) for key, text in own.items()}
    return BASINS | own


def cell_styles(label: np.ndarray, names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Fill, hatch and the hatch's colour of each end, by its name.

    Basins that touch in ``label``, the code (a number of ``names``) of every cell, (n, m), get
    different ones.
    """
    look = {n: (FILL[n], HATCH[n], INK[n] if n in _STEPS else "#ffffff" if HATCH[n] else LINE)
            for n in names}  # fmt: skip
    for kind, styles in (("minimum", _MINIMA), ("infinity", _INFINITIES)):
        codes = [i for i, name in enumerate(names)
                 if name.startswith(f"{kind}_") and (label == i).any()]  # fmt: skip
        if len({look[names[i]][:2] for i in codes[: len(styles)]}) == len(codes):
            continue
        beside: dict[int, set[int]] = {code: set() for code in codes}
        sides = ((label[1:], label[:-1]), (label[:, 1:], label[:, :-1]))
        corners = ((label[1:, 1:], label[:-1, :-1]), (label[1:, :-1], label[:-1, 1:]))
        for one, other in (*sides, *corners):
            pairs = np.stack([one[one != other], other[one != other]])
            touch = np.unique(pairs, axis=1)
            for a, b in touch.T.tolist():
                if a in beside and b in beside:
                    beside[a].add(b)
                    beside[b].add(a)
        taken: dict[int, int] = {}
        for code in sorted(codes, key=lambda code: -len(beside[code])):
            near, all_taken = [taken[b] for b in beside[code] if b in taken], [*taken.values()]
            taken[code] = min(
                range(len(styles)), key=lambda i: (near.count(i), all_taken.count(i), i)
            )
            fill, _, _, hatch = styles[taken[code]]
            look[names[code]] = (fill, hatch, "#ffffff" if hatch else LINE)
    return look


def way_to(caption: str) -> str:
    """The words for an end in a sentence: "to minimum 1 (loss 0)", "to infinity: …"."""
    return caption if caption.startswith("to ") else f"to {caption}"


def title_of(record: xr.Dataset) -> str:
    """The model of a record, as a figure's title says it."""
    return sentence(str(record.attrs.get("title", record.attrs.get("model", ""))))


def subtitle_of(record: xr.Dataset) -> list[str]:
    """The model's arguments and data, and remarks in parentheses, as sentences."""
    return [sentence(line) for line in str(record.attrs.get("subtitle", "")).splitlines()]


def about(record: xr.Dataset) -> list[str]:
    """Lines about a record: its model, fixed values and data in the first, then remarks."""
    below, held = subtitle_of(record), fixed_of(record.attrs)
    held |= {str(name): float(value) for name, value in record.coords.items()
             if not value.dims and value.dtype.kind in "iuf"}  # fmt: skip
    fixed = ["at " + ", ".join(f"{symbol(n)} = {x:g}" for n, x in held.items())] if held else []
    data = [line for line in below if not line.startswith("(")]
    return [", ".join([title_of(record), *fixed, *data]), *below[len(data) :]]


def remarks_on_motion(record: xr.Dataset) -> list[str]:
    """Remarks on motion that the figure leaves out: along other coordinates, of lifted starts."""
    coordinates = [str(name) for name in np.atleast_1d(record.attrs.get("coordinates", []))]
    drawn = {str(name).removeprefix("orbit_") for name in record if str(name)[:6] == "orbit_"}
    drawn |= {*axes_of(record)}
    if not coordinates or not {*axes_of(record)} <= {*coordinates}:
        return ["(starts lifted, orbits projected)"] * bool(coordinates)
    others = [symbol(name) for name in coordinates if name not in drawn]
    return [f"(motion along {', '.join(others)} is not drawn)"] if others else []


def optimizer_caption(record: xr.Dataset) -> str:
    """The optimizer of a record and its numbers, as a title says them."""
    a = record.attrs
    text = [OPTIMIZERS[str(a["optimizer"])], *adam_words(a)]
    text += [f"learning rate {a['learning_rate']:g}"] if "learning_rate" in a else []
    text += ["cosine schedule"] * (a.get("schedule") == "cosine" and "beta2" not in a)
    text += [f"{a['steps']} steps"]
    if "d" in a:  # of a transformer
        text += [f"batches of {a['batch']}" if a["loss"] == "sampled" else "population loss"]
        text += [f"$d$ = {a['d']}"] if a["optimizer"] in ("adam", "adamw") else []
    return sentence(", ".join(text))


def sentence(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def percent(count: Any, total: int | None = None) -> str:
    """A share as text in percent: of a mask that is on, or of a count in a total."""
    if total is None:
        count, total = int(np.sum(count)), int(np.size(count))
    return in_percent(count / max(total, 1))


def in_percent(share: float) -> str:
    """A share as text; "0 %" and "100 %" are exact, else they are "<0.1 %" and ">99.9 %"."""
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    value = 100 * share
    return "<0.1 %" if value < 0.05 else ">99.9 %" if value >= 99.95 else f"{value:.1f} %"


def label_names(variable: xr.DataArray) -> np.ndarray:
    """The name of every value of a variable of codes, shape of the variable."""
    return np.array(meanings(variable))[variable.to_numpy().astype(int)]


def code_of(variable: xr.DataArray, meaning: str) -> int:
    """The value that stands for a meaning in a variable of codes."""
    return int(variable.attrs["flag_values"][meanings(variable).index(meaning)])


def edges(values: np.ndarray, axis: str = "an axis") -> np.ndarray:
    """Edges of the cells around evenly spaced centres, shape (n + 1,).

    Between whole numbers, such as several N, they lie in the middle, evenly spaced or not.
    """
    steps = np.diff(values)
    if len(steps) and values.dtype.kind == "i":
        inner = values[:-1] + steps / 2
        return np.array([values[0] - steps[0] / 2, *inner, values[-1] + steps[-1] / 2])
    if not steps.size or np.ptp(steps) > 1e-6 * steps[0]:
        raise InputError(f"a figure needs two or more evenly spaced values of {axis}")
    return np.append(values - steps[0] / 2, values[-1] + steps[0] / 2)


def basin_dots(
    names: Iterable[str], text: Mapping[str, str] = BASINS, size: float = 5.0
) -> list[Artist]:
    """A legend's entries for starts drawn as markers."""
    return [
        Line2D([], [], marker=MARKER[name], color=FILL[name], linestyle="none", markersize=size,
               markeredgecolor=INK[name], label=text[name])
        for name in names
    ]  # fmt: skip


def is_dark(figure: Figure) -> bool:
    """Return whether a style sheet gives the figure a dark background."""
    return max(to_rgb(figure.get_facecolor())) < 0.5


def figure_of(ax: Axes) -> Figure:
    """The figure to which the axes belong."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


class CombinedHandle(tuple[Any, ...]):
    """Several things beside each other in one entry of a legend, with one label."""

    label = ""

    def set_label(self, label: str) -> CombinedHandle:
        """Set the label of the entry, and return it."""
        self.label = label
        return self

    def get_label(self) -> str:
        return self.label


class _Beside(HandlerTuple):
    """Draws the parts of a ``CombinedHandle`` beside each other, each as wide as it has to be."""

    def __init__(self) -> None:
        super().__init__(ndivide=None)

    def legend_artist(self, legend: Any, handle: Any, fontsize: Any, handlebox: Any) -> Any:
        """Widen the entry's box by the number of its parts, and draw them."""
        handlebox.width = max(handlebox.width, 1.6 * fontsize * len(handle))
        return super().legend_artist(legend, handle, fontsize, handlebox)


# so that a legend of anybody's own draws them: fig.legend(handles=...)
Legend.update_default_handler_map({CombinedHandle: _Beside()})


class Look(TypedDict, total=False):
    """Layout options of a figure, as ``flowsim.draw`` takes them."""

    width: float | None
    title: bool
    legend: bool


class Picture(Figure):
    """A figure that notebooks show; PDF files embed its fonts, SVG files keep text as text.

    Its panels are light in dark style sheets too: all lines are for light grounds.
    """

    def add_subplot(self, *args: Any, **options: Any) -> Any:
        """Add axes as matplotlib does; flat ones are light on a dark figure."""
        flat = options.get("projection") != "3d"  # whose panel has the axes' numbers inside
        light = {"facecolor": "#ffffff"} if flat and is_dark(self) else {}
        return super().add_subplot(*args, **light, **options)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure; PDF files embed its fonts, SVG files keep text as text."""
        with rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        """The bytes of a PNG, which a notebook shows."""
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


class Canvas:
    """A figure in the making: on given axes, or a new one that grows with its title and legend."""

    def __init__(self, ax: Axes | None, width: float, height: float, look: Look) -> None:
        """Take given axes, or make a figure of this size in inches, scaled to ``look``'s width."""
        self.given, self.look, self.ax = ax is not None, look, ax
        for name in look.keys() - Look.__annotations__.keys():
            raise InputError(f"a figure takes {', '.join(Look.__annotations__)}, and no {name}")
        self.width = look.get("width") or width
        if not NARROWEST <= self.width <= WIDEST:
            raise InputError(
                f"the width of a figure is {NARROWEST:g} to {WIDEST:g} inches, not {self.width:g}"
            )
        if ax is not None:
            self.figure = figure_of(ax)
            self.width = self.figure.get_figwidth() * ax.get_position().width
        else:
            size = self.width, self.width * height / width
            self.figure = Picture(
                figsize=size, dpi=from_style_sheet("figure.dpi", DPI), layout="constrained"
            )

    @property
    def narrow(self) -> bool:
        """Return whether the figure is for one column of text, with panels one below the other."""
        return not self.given and self.width < 5

    def axes(self, **options: Any) -> Any:
        """The axes to draw on; if there are none, new ones with these options of matplotlib."""
        if self.ax is None:
            self.ax = self.figure.add_subplot(**options)
        return self.ax

    def complete(self, lines: Iterable[str], handles: Sequence[Any], columns: int = 2) -> Any:
        """Place title and legend; return the new figure, or on given axes the handles.

        The first two lines are the title, further ones remarks above the legend.
        """
        height, kept, lines = 0.0, list(handles), list(lines)
        lines, remarks = [line for line in lines[:2] if line], lines[2:]
        if self.look.get("title", True) and lines:
            size = from_style_sheet("axes.titlesize", "medium")
            beside = 0 if self.given else 2 * in_points("medium") / 72
            text = wrapped("\n".join(lines), self.width - beside, size)
            if self.ax is None or self.narrow:  # where the axes lie far off the middle
                self.figure.suptitle(text, fontsize=size)
            else:
                self.ax.set_title(text, fontsize=size)
            height += 1.2 * in_points(size) * (text.count("\n") + 1)
        if self.look.get("legend", True) and kept:
            height += self._add_legend(kept, columns, remarks)
        if self.given:
            return kept
        if self.narrow:
            if self.ax is not None and self.ax.name == "3d":  # no layout leaves space for its names
                cast(Any, self.ax).set_box_aspect((1.25, 1.0, 1.0), zoom=0.8)
                self.ax.locator_params(nbins=3)
            for ax in self.figure.axes:  # matplotlib lets labels of two decimals touch
                if isinstance(ax.xaxis.get_major_locator(), AutoLocator):
                    ax.locator_params(axis="x", nbins=6)
            tall = self.figure.get_figheight() - 3 * in_points("medium") / 72
            for axis in (a for ax in self.figure.axes for a in (ax.xaxis, ax.yaxis)):
                length = self.width - 0.6 if axis.axis_name == "x" else tall
                axis.label.set_text(wrapped(axis.label.get_text(), length, "medium"))
        self.figure.set_figheight(self.figure.get_figheight() + height / 72)
        return self.figure

    def _add_legend(self, handles: Sequence[Any], columns: int, remarks: Sequence[str]) -> float:
        """Add a legend below the axes, ``remarks`` above its entries; its height in points."""
        size = from_style_sheet("legend.fontsize", "small")
        letter = _LETTER * in_points(size) / 72
        texts = [str(handle.get_label()) for handle in handles]
        words = re.sub(r"[$\\{}]", "", "\n".join(texts)).split("\n")
        columns = max(1, min(columns, int(self.width / letter / (max(map(len, words)) + 7))))
        for handle, text in zip(handles, texts, strict=True):
            handle.set_label(wrapped(text, self.width - 8 * letter, size))
        parts = [len(handle) for handle in handles if isinstance(handle, CombinedHandle)]
        style: dict[str, Any] = {
            "handles": handles, "ncols": columns, "frameon": False, "fontsize": size,
            "handlelength": max(2.8, 1.6 * max(parts, default=1)),
        }  # fmt: skip
        note = "\n".join(wrapped(remark.strip("()"), self.width, size) for remark in remarks)
        if note:
            style |= {"title": note, "title_fontsize": size}
        if is_dark(self.figure):
            style |= {"frameon": True, "facecolor": "#ffffff", "framealpha": 1, "labelcolor": LINE}
        if self.given and self.ax is not None:
            below = ScaledTranslation(
                0, -3.6 * in_points("medium") / 72, self.figure.dpi_scale_trans
            )
            self.ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0),
                           bbox_transform=self.ax.transAxes + below, **style)  # fmt: skip
        else:
            self.figure.legend(loc="outside lower center", **style)
        lines = sum(str(handle.get_label()).count("\n") + 1 for handle in handles)
        above = note.count("\n") + 1 if note else 0
        return 1.5 * in_points(size) * (-(-lines // columns) + above)


def in_points(size: str | float) -> float:
    """A size of text in points: of "medium", "small" and the like by matplotlib's rcParams."""
    return float(FontProperties(size=size).get_size_in_points())


def from_style_sheet(key: Any, usual: Any) -> Any:
    """A value of ``rcParams`` that a style sheet has set; ``usual`` if none has."""
    return usual if rcParams[key] == rcParamsDefault[key] else rcParams[key]


def wrapped(text: str, width: float, size: str | float) -> str:
    """Break lines that are wider than so many inches; equations and shares stay whole."""
    count = max(int(72 * width / (_LETTER * in_points(size))), 12)
    whole = r"\$[^$]*\$( [=<>] \S+)*|\S+( [=<>] \S+)+|\d %"
    held = re.sub(whole, lambda formula: formula[0].replace(" ", "\0"), text)
    broken = [fill(line, count + line.count("$"), break_long_words=False, break_on_hyphens=False)
              for line in held.split("\n")]  # fmt: skip
    return "\n".join(broken).replace("\0", " ")


def save_figure(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """Write a figure in the format of its suffix; a PNG in 256 colours, which keeps it small."""
    if path.suffix.lower() != ".png":
        figure.savefig(path)
        return
    from PIL import Image

    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    drawn = Image.open(buffer)
    image = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(path, dpi=drawn.info["dpi"], optimize=True)
