"""What all figures share: colours, words, cell edges, legends and files.

Colours are told apart with any kind of colour vision and differ in grey value; where two things
have the same role, a hatch, a marker or a line style separates them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from matplotlib.patches import Patch

from flowsim.errors import InputError

#: Areas, by label: light, dark and hatched, white, black.
FILL = {
    "global_minimum": "#d6e9f5",
    "local_minimum": "#e8965a",
    "saddle": "#ffffff",
    "unresolved": "#000000",
}
#: Lines, dots and edges of markers, by label.
INK = {
    "global_minimum": "#00537f",
    "local_minimum": "#c25700",
    "saddle": "#7a4fa3",
    "unresolved": "#000000",
}
MARKER = {"global_minimum": "o", "local_minimum": "^", "saddle": "s", "unresolved": "X"}
#: What a legend calls the labels.
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
    "v": "attention $v$, $a = v|v|$",
    "u": "unembedding $u$",
    "b": "bias $b$",
    "p": "$p$ = P(0→1)",
    "q": "$q$ = P(1→0)",
    "alpha": "previous symbol $\\alpha$",
    "beta": "match $\\beta$",
    "sigma": "standard deviation $\\sigma$ of the starts",
}
#: What a figure calls laws of kernels; of older records by another word.
PRIORS = {"dirichlet": "Dirichlet(1)", "DirichletPrior": "Dirichlet(1)"}
#: What a figure calls the optimizers.
OPTIMIZERS = {"gd": "gradient descent", "momentum": "momentum", "adam": "Adam", "adamw": "AdamW"}
LINE, SOFT, ARROW = "#111111", "#4d4d4d", "#6a6a6a"
#: Paths of full training beside the flow.
TRAINED = "#7b1161"
#: Runs that end as predicted, and runs that do not.
AGREE, DIFFER = "#8c8c8c", "#7b1161"
_HATCH: dict[str, dict[str, Any]] = {
    "local_minimum": {"hatch": "///", "edgecolor": "#ffffff", "linewidth": 0},
    "saddle": {"edgecolor": LINE, "linewidth": 0.6},  # white on white without its edge
}
#: Dots per inch of every figure.
DPI = 150


def name_of(coordinate: str) -> str:
    """What an axis calls a coordinate."""
    return NAMES.get(coordinate, f"${coordinate}$")


def chain_caption(record: xr.Dataset) -> str:
    """A record's Markov chain and its regime, as a figure's title says them."""
    a = record.attrs
    if a["model"] == "induction":
        return f"kernels from {PRIORS.get(str(a['prior']), str(a['prior']))}, anew per sequence"
    if a["model"] == "states":
        return f"Markov chain $p$ = {a['p']:g}:  ${a['regime']}$"
    p, q = a["p"], a["q"]
    sign = a["regime"].removeprefix("p + q ")
    regime = f"{p + q:.15g} {'' if sign.startswith('=') else sign}".rstrip()
    return f"Markov chain $p$ = {p:g}, $q$ = {q:g}:  $p + q$ = {regime}"


def model_caption(record: xr.Dataset) -> str:
    """The reduced model of a record, as a figure's title says it."""
    a = record.attrs
    name, over = str(a["model"]), f"$N$ = {a['length']}" if "length" in a else ""
    if name == "uniform":
        words = f"uniform attention over {over}"
    elif name == "rank-one":
        kinds = ["with attention"] * bool(a.get("attention", 0))
        kinds += ["untied"] * (not a.get("tied", 1))
        words = ", ".join([f"rank-one model, {over}", *kinds])
    elif name == "induction":
        words = f"induction head on {a['length']} symbols"
    elif name == "states":
        words = f"$S$ = {a['states']} states, {a['hidden_per_state']} hidden units for each"
        if "v" in a["coordinates"]:
            m = a["hidden_per_state"]
            words = f"$S$ = {a['states']} states, $m$ = {m}, uniform attention over {over}"
    else:
        plain = {"linear": "linear attention", "untied": "untied weights"}
        words = plain.get(name, f"{name} model")
    return f"{words}, bias as a coordinate" if a.get("bias") == "dynamic" else words


def optimizer_caption(record: xr.Dataset) -> str:
    """The optimizer of a record and its numbers, as a title says them."""
    a = record.attrs
    words = [OPTIMIZERS[str(a["optimizer"])], f"learning rate {a['learning_rate']:g}"]
    words += ["cosine schedule"] * (a["schedule"] == "cosine")
    words += [f"{a['steps']} steps"]
    sampled = a["loss"] == "sampled"
    words += [f"batches of {a['batch']}" if sampled else "population loss"]
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


def basin_patches(names: Iterable[str]) -> list[Artist]:
    """A legend's entries for filled basins."""
    return [
        Patch(facecolor=FILL[name], label=BASINS[name], **_HATCH.get(name, {"linewidth": 0}))
        for name in names
    ]


def basin_dots(names: Iterable[str], size: float = 5.0) -> list[Artist]:
    """A legend's entries for starts drawn as markers."""
    return [
        Line2D([], [], marker=MARKER[name], color=FILL[name], linestyle="none", markersize=size,
               markeredgecolor=INK[name], label=BASINS[name])
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
