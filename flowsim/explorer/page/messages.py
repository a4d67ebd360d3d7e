"""Texts of the page, in plain words; every number comes from a computation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import cycle
from typing import Any

import numpy as np
import xarray as xr

from flowsim.curves import curves_of
from flowsim.drawing import style
from flowsim.drawing.boundary_lines import BESIDE_SADDLES
from flowsim.drawing.looks import LOOKS, look_of, name_of_curve
from flowsim.explorer.layers import UNKNOWN, Border, Cells, ends_of
from flowsim.explorer.starts import CloudShare, Orbit
from flowsim.explorer.training import LONGEST, FullSettings, Run
from flowsim.explorer.view import View, full_length
from flowsim.labels import Label
from flowsim.records.attributes import plain_mathematics
from full_model.comparison.outcome import open_gap

_ENDS = style.VERB_PHRASES | {"local_minimum": "is trapped in a bad local minimum"}


def _goes_to(view: View) -> dict[str, str]:
    """Return what several starts do at each end, by the end's name, such as "are trapped"."""
    found = ends_of(view).captions.items()
    return {
        **style.PLURALS,
        **{name: escape(f"go {style.way_to(caption)}") for name, caption in found},
    }


def describe_window(view: View, cells: Cells) -> str:
    """Return HTML with the chain's regime and the share of the window that goes to each end."""
    regime = escape(plain_mathematics("".join(view.model.title.split("\n")[1:2])))
    shares, verbs = cells.shares(ends_of(view).names), _goes_to(view)
    parts = [f"<b>{style.in_percent(share)}</b> {verbs[name]}" for name, share in shares.items()]
    said = ", ".join(parts) if parts else "being worked out …"
    side = cells.label.shape[0]
    ways = {"closed form": "by the closed form", "flow": "each followed by the flow"}
    how = f"{side} × {side} points, {ways[cells.decided_by]}" if cells.decided_by else ""
    more = "" if cells.final or not parts else " …"
    note = f"<p style='color:#555;font-size:12px'>{how}{more}</p>" if how else ""
    first = f"<p>{regime}.</p>" if regime else ""
    return f"{first}<p>Of this square {said}.</p>{note}"


def describe_cursor(view: View, cells: Cells, y: float, x: float, loss: float) -> str:
    """Return HTML about the place (y, x) of the mouse: its loss, and the end of its cell."""
    x_low, x_high, y_low, y_high = view.window
    rows, columns = cells.label.shape
    row = int(np.clip((y - y_low) / (y_high - y_low) * rows, 0, rows - 1))
    column = int(np.clip((x - x_low) / (x_high - x_low) * columns, 0, columns - 1))
    code, ends = int(cells.label[row, column]), ends_of(view)
    said = ""
    if code != UNKNOWN:
        name = ends.names[code]
        caption = ends.captions.get(name, "")
        goes = f"goes {style.way_to(caption)}" if caption else _ENDS[name]
        said = f"; its cell {escape(goes)}"
    return f"<p>{view.x} = {x:.3f}, {view.y} = {y:.3f}: loss {loss:.4f}{said}.</p>"


def describe_trajectory(
    view: View, orbits: Sequence[Orbit], chosen: int, waiting: int, edge: float | None = None
) -> str:
    """Return HTML that says where the chosen orbit ends.

    ``chosen`` is its index in ``orbits``, and ``waiting`` the number of starts not followed yet.
    ``edge`` is the distance from its start to one with another end: infinite if the window has
    none, None while it is not known.
    """
    if not orbits and not waiting:
        return "<p>Click anywhere in the square to start an orbit.</p>"
    if not 0 <= chosen < len(orbits):
        return "<p>Following the flow …</p>"
    orbit = orbits[chosen]
    y, x = orbit.start
    start = f"Orbit {chosen + 1} from {view.x} = {x:.3f}, {view.y} = {y:.3f}"
    does = f"goes {style.way_to(orbit.caption)}" if orbit.caption else _ENDS[orbit.kind]
    if np.isfinite(orbit.end).all():
        y, x = (0.0 if abs(value) < 5e-4 else value for value in orbit.end)
        does += f" at {view.x} = {x:.3f}, {view.y} = {y:.3f}, loss {orbit.end_loss:.4f}"
    more = ""
    if orbit.beside and not orbit.caption:
        name, (there, here) = next(iter(orbit.beside.items()))
        trapped = abs(orbit.end[0]) <= 1e-3
        drawn = f"what is drawn on {view.y} = 0" if trapped else "the curve of minima in it"
        more = (
            f" It lies beside this plane ({name} = {there:.3f}, not {here:.3g}): {drawn} is not "
            "about it."
        )
    if edge is not None and edge < np.inf:
        more += f" The boundary is {edge:.4g} away."
    elif edge == np.inf:
        more += " No start in the window ends elsewhere."
    return f"<p>{start} <b>{escape(does)}</b>.{more}</p>"


def cloud_words(view: View, found: CloudShare | None) -> str:
    """Return HTML with the share of the cloud that goes to each end; "" without a cloud."""
    if view.cloud is None:
        return ""
    if found is None:
        return "<p>Following the cloud …</p>"
    verbs, parts = _goes_to(view), []
    for code, name in sorted(enumerate(ends_of(view).names), key=lambda end: end[0] == 0):
        share, low, high = found.share(code)
        if share:
            interval = f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
            parts.append(f"<b>{style.in_percent(share)}</b> {verbs[name]} {interval}")
    count, spread = len(found.label), f"{view.cloud.sigma:.3g} (half the ring's)"
    more = f"; {found.wanted} are followed in all …" if count < found.wanted else ""
    shares = ", ".join(parts) + more
    begin = f"<p>Of {count} normal starts, spread {spread}: {shares}. "
    return f"{begin}Drag inside its ring to move it.</p>"


_BOXES = {
    "global_minimum": f"<rect width='22' height='13' fill='{style.FILL['global_minimum']}'/>",
    "local_minimum": f"<rect width='22' height='13' fill='{style.FILL['local_minimum']}'/>"
    "<path d='M-2 15 l17 -17 M5 15 l17 -17 M12 15 l17 -17' stroke='#fff' stroke-width='1.5'/>",
    "saddle": "<rect width='22' height='13' fill='#fff'/><path d='M4 4h2 M10 4h2 M16 4h2 M4 10h2"
    f" M10 10h2 M16 10h2' stroke='{style.LINE}' stroke-width='2'/>",
    "unresolved": "<rect width='22' height='13' fill='#000'/>",
}
_MARKERS = {"o": "●", "X": "✕", "^": "△", "*": "★", "D": "◆"}


def legend(
    view: View, cells: Cells, border: Border, record: xr.Dataset, training: bool,
    laid: Iterable[str] = (),
) -> str:  # fmt: skip
    """Return the plane's legend as HTML: one entry for each kind of cell, curve, mark and path.

    ``record`` holds the curves, ``training`` says whether paths of training are drawn, and ``laid``
    names the paths that are laid over the plane.
    """
    codes, ends = set(cells.label.ravel().tolist()), ends_of(view)
    here = [name for code, name in enumerate(ends.names) if code in codes]
    called = style.BASINS | ends.captions
    items = [_box(_BOXES.get(name) or f"<rect width='22' height='13' fill='{style.FILL[name]}'/>",
                  called[name])
             for name in sorted(here, key=lambda name: name == "unresolved")]  # fmt: skip
    if UNKNOWN in codes:
        items.append(_box("<rect width='22' height='13' fill='#e9e9e9'/>", "not known yet"))
    items += [_stroke(LOOKS["separatrix"], "basin boundary")] * bool(len(border.basins))
    if len(border.saddles):
        items.append(_stroke(BESIDE_SADDLES, "edge of starts that end in a saddle"))
    curves = {name_of_curve(c): c for c in curves_of(record, view.x, view.y)}
    for name, curve in curves.items():
        mark = _MARKERS.get(look_of(curve)["marker"], "○") if curve.points else ""
        items.append(f"{mark} {escape(name)}" if mark else _stroke(look_of(curve), escape(name)))
    if view.starts or view.cloud:
        items.append("○ start")
    if (view.starts or view.cloud) and ends.named:
        marks = ("global_minimum", "●", "reaches"), ("local_minimum", "▲", "trapped")
        for name, mark, word in marks:
            items.append(f"<b style='color:{style.INK[name]}'>{mark}</b> {word}")
    dashed = {"color": style.TRAINED, "linewidth": 3, "linestyle": (0, (1, 1))}
    items += [_stroke(dashed, "full training ◇")] if training else []
    items += [_stroke({"color": colour, "linewidth": 2.5}, escape(name))
              for name, colour in zip(laid, cycle(style.PATHS), strict=False)]  # fmt: skip
    return "<div class='legend'>" + "".join(f"<span>{item}</span>" for item in items) + "</div>"


def _box(inside: str, text: str) -> str:
    """Return a legend's entry as HTML: a framed box with SVG shapes ``inside``, and its text."""
    frame = f"<rect width='22' height='13' fill='none' stroke='{style.SOFT}'/>"
    return f"<svg width='22' height='13'>{inside}{frame}</svg>{text}"


def _stroke(look: dict[str, Any], text: str) -> str:
    """Return a legend's entry as HTML: a line of matplotlib's style ``look``, and its text."""
    width, dashes = look["linewidth"], look.get("linestyle", (0, ()))[1]
    pattern = " ".join(f"{width * part:.0f}" for part in dashes) or "none"
    line = (
        f"<line x1='0' y1='4' x2='28' y2='4' stroke='{look['color']}' stroke-width='{width}' "
        f"stroke-dasharray='{pattern}'/>"
    )
    return f"<svg width='28' height='8'>{line}</svg>{text}"


#: Distance at which a path of training leaves an orbit.
_APART = 0.05


def describe_run(view: View, run: Run) -> str:
    """Describe a run and whether the flow predicted it, in one or two plain sentences."""
    if not run.curve:
        return "Training was stopped before it began." if run.ended else "Training begins …"
    latest = run.curve[-1]
    does = style.VERB_PHRASES[run.predicted.name.lower()]
    if not run.ended:
        return f"Training: {latest.step} steps done, loss {latest.loss:.4f}."
    if run.outcome == Label.UNRESOLVED:
        why = {
            "stopped": "Training was stopped",
            "out of time": f"Training ran out of its {LONGEST:.0f} seconds",
            "out of steps": "Training ended",
        }[run.ended]
        share = float(open_gap(view.chain, latest.loss))
        return (
            f"{why} after {latest.step} steps with {100 * share:.0f} % of what can be learned "
            f"still unlearned: neither learned nor surely trapped. The flow from here {does}."
        )
    words = {
        Label.GLOBAL_MINIMUM: "has learned the chain (global minima)",
        Label.LOCAL_MINIMUM: "is trapped (bad local minimum)",
        Label.SADDLE: "rests at a saddle",
    }
    flow = "the flow"
    flow += f" of N = {view.spec.get('length')}" if other_length(view, run.settings) else ""
    agree = run.outcome == run.predicted
    ending = f"just as {flow} says" if agree else f"but {flow} from here {does}"
    when = f"After {latest.step} steps" if latest.step else "At its very start"
    if run.settings.trainer in ("gd", "flow"):  # read off the weights, before they rest
        when += " it is decided:"
    return f"{when} the full transformer {words[run.outcome]}, {ending}."


def other_length(view: View, full: FullSettings) -> str:
    """Return a note in HTML that training has another N than the view's flow; "" if it has not."""
    flow, trained = view.spec.get("length"), full_length(view, full.length)
    if flow is None or flow == trained:
        return ""
    return (
        f"<p>Training has <b>N = {trained}</b>, the flow on the left <b>N = {flow}</b>: two "
        "problems, which may end apart.</p>"
    )


def why_apart(run: Run, orbit: Orbit) -> str:
    """Explain in a sentence why exact training without noise left the orbit; "" if it did not."""
    path, full = orbit.forward, run.settings
    if full.noise or full.trainer not in ("gd", "flow") or len(path.y) < 2:
        return ""
    trained = np.array([(point.e, point.w) for point in run.curve])
    drawn = np.stack([np.append(path.y, orbit.end[0]), np.append(path.x, orbit.end[1])], -1)
    drawn = drawn[np.isfinite(drawn).all(1)]
    apart = np.hypot(*(trained[:, None] - drawn[None]).transpose(2, 0, 1)).min(1).max()
    if apart < _APART:
        return ""
    return (
        " Its dotted path leaves the orbit since the transformer moves all of its weights, at "
        "speeds of their own: its positions N times slower than this plane has it."
    )
