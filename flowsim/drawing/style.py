"""What all figures share: colours, words, cell edges, legends and files.

Colours are told apart with any kind of colour vision and differ in grey value; where two things
have the same role, a hatch, a marker or a line style separates them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from flowsim.errors import InputError
from flowsim.records.attributes import captions_of

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
#: The same of what an optimizer's steps do beside coming to rest.
_STEPS = {
    "periodic": ("#cdb9df", "#7a4fa3", "8", "xx"),
    "bounded": ("#f6d9bd", "#c25700", "d", "..."),
    "diverged": ("#000000", "#000000", "x", ""),
}


class Styles(dict[str, Any]):
    """What labels look like; of numbered ends what their kind and number say."""

    def __init__(self, known: Mapping[str, Any], part: int) -> None:
        super().__init__(known)
        self.part = part

    def __missing__(self, name: str) -> Any:
        if name in _STEPS:
            return _STEPS[name][self.part]
        kind, _, number = name.rpartition("_")
        if kind in self:
            return self[kind]
        styles = _INFINITIES if kind == "infinity" else _MINIMA
        return styles[(int(number) - 1) % len(styles) if number.isdecimal() else -1][self.part]


#: Areas, by label: light, dark and hatched, white, black.
FILL = Styles({
    "global_minimum": "#d6e9f5",
    "local_minimum": "#e8965a",
    "saddle": "#ffffff",
    "unresolved": "#000000",
}, 0)  # fmt: skip
#: Lines, dots and edges of markers, by label.
INK = Styles({
    "global_minimum": "#00537f",
    "local_minimum": "#c25700",
    "saddle": "#7a4fa3",
    "unresolved": "#000000",
}, 1)  # fmt: skip
MARKER = Styles({"global_minimum": "o", "local_minimum": "^", "saddle": "s", "unresolved": "X"}, 2)
#: Hatches of areas, by label.
HATCH = Styles({"global_minimum": "", "local_minimum": "///", "saddle": "", "unresolved": ""}, 3)
#: What a legend calls the labels.
BASINS = {
    "global_minimum": "reaches the global minima",
    "local_minimum": "trapped in bad local minima",
    "saddle": "ends in a saddle",
    "unresolved": "unresolved",
}
#: What every figure calls the deviation of Gaussian starts.
_SIGMA = {"name_sigma": "standard deviation $\\sigma$ of the starts"}
#: What a figure calls the optimizers.
OPTIMIZERS = {"gd": "gradient descent", "momentum": "momentum", "adam": "Adam", "adamw": "AdamW"}
LINE, SOFT, ARROW = "#111111", "#4d4d4d", "#6a6a6a"
#: Paths of full training beside the flow.
TRAINED = "#7b1161"
#: Runs that end as predicted, and runs that do not.
AGREE, DIFFER = "#8c8c8c", "#7b1161"
#: Dots per inch of every figure.
DPI = 150


def captions(record: xr.Dataset) -> dict[str, str]:
    """The words that the record's model gave it."""
    return _SIGMA | captions_of(record.attrs)


def name_of(record: xr.Dataset, coordinate: str, short: bool = False) -> str:
    """What an axis calls a coordinate."""
    words = captions(record)
    name = words.get(f"name_{coordinate}", f"${coordinate}$")
    return words.get(f"short_{coordinate}", name) if short else name


def axes_of(record: xr.Dataset) -> tuple[str, str]:
    """The horizontal and the vertical coordinate of a record's plane.

    Raises:
        InputError: the record does not say them.
    """
    words = captions(record)
    if "x" in words and "y" in words:
        return words["x"], words["y"]
    if "label" not in record or record["label"].ndim != 2:
        raise InputError("the record does not say what its axes are")
    up, across = map(str, record["label"].dims)
    return across, up


def basin_names(record: xr.Dataset) -> dict[str, str]:
    """What a legend calls the labels of a record."""
    words = captions(record)
    own = {key.removeprefix("end_"): text for key, text in words.items() if key[:4] == "end_"}
    return BASINS | own


def title_of(record: xr.Dataset) -> str:
    """The model of a record, as a figure's title says it."""
    return sentence(captions(record).get("title", ""))


def data_of(record: xr.Dataset) -> list[str]:
    """The line of a title that says what the model is trained on, if the record says it."""
    return [words["data"]] if "data" in (words := captions(record)) else []


def remark_of(record: xr.Dataset, key: str = "remark") -> list[str]:
    """What a reader would otherwise take for granted, by what the record's attributes say."""
    words, a = captions(record), record.attrs
    names = [f"{key}_{name}" for name in a if f"{key}_{name}" in words and a[name]]
    return [words[name] for name in (*names, key) if name in words][:1]


def optimizer_caption(record: xr.Dataset) -> str:
    """The optimizer of a record and its numbers, as a title says them."""
    a = record.attrs
    words = [OPTIMIZERS[str(a["optimizer"])], f"learning rate {a['learning_rate']:g}"]
    words += ["cosine schedule"] * (a["schedule"] == "cosine")
    words += [f"{a['steps']} steps"]
    if "d" in a:  # of a transformer
        words += [f"batches of {a['batch']}" if a["loss"] == "sampled" else "population loss"]
        words += [f"$d$ = {a['d']}"] if a["optimizer"] in ("adam", "adamw") else []
    return sentence(", ".join(words))


def sentence(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]


def percent(count: Any, total: int | None = None) -> str:
    """A share in percent: of the cells that are on, or a count of a total.

    "0 %" and "100 %" are exact; what would round to them is "<0.1 %" or ">99.9 %".
    """
    if total is None:
        count, total = int(np.sum(count)), int(np.size(count))
    if count in (0, total):
        return "100 %" if count else "0 %"
    share = 100 * count / total
    return "<0.1 %" if share < 0.05 else ">99.9 %" if share >= 99.95 else f"{share:.1f} %"


def meanings(variable: xr.DataArray) -> list[str]:
    """Names of the values of a variable of codes."""
    return str(variable.attrs["flag_meanings"]).split()


def label_names(variable: xr.DataArray) -> np.ndarray:
    """The name of every value of a variable of codes, shape of the variable."""
    return np.array(meanings(variable))[variable.to_numpy().astype(int)]


def code_of(variable: xr.DataArray, name: str) -> int:
    """The value that stands for a name in a variable of codes."""
    return int(variable.attrs["flag_values"][meanings(variable).index(name)])


def edges(values: np.ndarray, name: str = "an axis") -> np.ndarray:
    """Edges of the cells around evenly spaced centres, shape (n + 1,).

    Raises:
        InputError: fewer than two values, or not evenly spaced.
    """
    steps = np.diff(values)
    if not steps.size or np.ptp(steps) > 1e-6 * steps[0]:
        raise InputError(f"a figure needs two or more evenly spaced values of {name}")
    return np.append(values - steps[0] / 2, values[-1] + steps[0] / 2)


def basin_dots(
    names: Iterable[str], words: Mapping[str, str] = BASINS, size: float = 5.0
) -> list[Artist]:
    """A legend's entries for starts drawn as markers."""
    return [
        Line2D([], [], marker=MARKER[name], color=FILL[name], linestyle="none", markersize=size,
               markeredgecolor=INK[name], label=words[name])
        for name in names
    ]  # fmt: skip


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def own_axes(ax: Axes | None, width: float, height: float, **options: Any) -> Any:
    """The given axes, or those of a new figure of that size in inches."""
    return new_figure(width, height).add_subplot(**options) if ax is None else ax


def figure_of(ax: Axes) -> Figure:
    """The figure that the axes belong to."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def add_legend(ax: Axes, handles: Sequence[Artist], given: bool, columns: int = 2) -> None:
    """A legend below the axes: of the whole figure, or of axes that were given."""
    if not handles:
        return
    style: dict[str, Any] = {
        "handles": handles, "ncols": columns, "frameon": False, "fontsize": 8.5,
        "handlelength": 2.4, "handler_map": {tuple: HandlerTuple(ndivide=None)},
    }  # fmt: skip
    if given:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), **style)
    else:
        figure_of(ax).legend(loc="outside lower center", **style)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix; a PNG in 256 colours, which keeps it small."""
    if path.suffix.lower() != ".png":
        figure.savefig(path)
        return
    from PIL import Image

    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    image = Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(path, dpi=(figure.dpi, figure.dpi), optimize=True)
