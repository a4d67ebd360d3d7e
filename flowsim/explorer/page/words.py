"""What the page says, in plain words; every number comes from what was computed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import xarray as xr

from flowsim.drawing.boundary_lines import BESIDE_SADDLES
from flowsim.drawing.plane_curves import CANONICAL_SEPARATRIX, CRITICAL, MINIMA, SEPARATRIX
from flowsim.drawing.style import BASINS, FILL, LINE, SOFT, TRAINED, code_of
from flowsim.explorer.border import Border
from flowsim.explorer.clouds import CloudShare
from flowsim.explorer.orbits_from_starts import Orbit
from flowsim.explorer.page.time_figures import ends_where
from flowsim.explorer.plane_layers import UNKNOWN, Cells
from flowsim.explorer.view import View
from flowsim.landscape.labels import Label

_VERBS = {
    "global_minimum": "reach the global minima",
    "local_minimum": "are trapped",
    "saddle": "end in a saddle",
    "unresolved": "are unresolved",
}


def percent(share: float) -> str:
    """A share; "0 %" and "100 %" are exact."""
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    value = 100 * share
    return "<0.1 %" if value < 0.05 else ">99.9 %" if value >= 99.95 else f"{value:.1f} %"


def reading(view: View, cells: Cells) -> str:
    """The chain's regime and the shares of the window."""
    if view.choice.states is not None:
        threshold = (view.choice.states - 1) / view.choice.states
        sign = "above" if view.p > threshold else "below" if view.p < threshold else "at"
        regime = f"p is {sign} the threshold <nobr>(S − 1)/S</nobr> = {threshold:.3g}"
    else:
        total = view.p + view.q
        sign = "&gt;" if total > 1 else "&lt;" if total < 1 else "="
        regime = f"p + q = {total:.4g} {sign} 1" if sign != "=" else "p + q = 1: nothing to learn"
    shares = cells.shares
    parts = [f"<b>{percent(shares[name])}</b> {_VERBS[name]}" for name in _VERBS if name in shares]
    said = ", ".join(parts) if parts else "being worked out …"
    side = cells.label.shape[0]
    ways = {"closed form": "by the closed form", "flow": "each followed by the flow"}
    how = f"{side} × {side} points, {ways[cells.how]}" if cells.how else ""
    more = "" if cells.final or not parts else " …"
    note = f"<p style='color:#555;font-size:12px'>{how}{more}</p>" if how else ""
    return f"<p>{regime}.</p><p>Of this square {said}.</p>{note}"


def story(orbits: Sequence[Orbit], chosen: int, waiting: int) -> str:
    """What the chosen orbit does."""
    if not orbits and not waiting:
        return "<p>Click anywhere in the square to start an orbit.</p>"
    if not 0 <= chosen < len(orbits):
        return "<p>Following the flow …</p>"
    orbit = orbits[chosen]
    e, w = orbit.start
    start = f"Orbit {chosen + 1} from w = {w:.3f}, e = {e:.3f}"
    return f"<p>{start} <b>{escape(ends_where(orbit))}</b>.</p>"


def cloud_words(view: View, found: CloudShare | None) -> str:
    """The shares of a cloud, with their intervals."""
    if view.puff is None:
        return ""
    if found is None:
        return "<p>Following the cloud …</p>"
    trapped, low, high = found.share(Label.LOCAL_MINIMUM)
    text = (
        f"<p>Of {len(found.label)} normal starts, spread {view.puff.sigma:.3g}: "
        f"<b>{percent(trapped)} trapped</b> (95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
    )
    for label in (Label.SADDLE, Label.UNRESOLVED):
        share = found.share(label)[0]
        text += f", {percent(share)} {_VERBS[label.name.lower()]}" if share else ""
    text += f"; {found.drawn} are followed in all …" if len(found.label) < found.drawn else ""
    return text + ". Drag inside its ring to move it.</p>"


_BOXES = {
    "global_minimum": f"<rect width='22' height='13' fill='{FILL['global_minimum']}'/>",
    "local_minimum": f"<rect width='22' height='13' fill='{FILL['local_minimum']}'/>"
    "<path d='M-2 15 l17 -17 M5 15 l17 -17 M12 15 l17 -17' stroke='#fff' stroke-width='1.5'/>",
    "saddle": "<rect width='22' height='13' fill='#fff'/><path d='M4 4h2 M10 4h2 M16 4h2 M4 10h2"
    f" M10 10h2 M16 10h2' stroke='{LINE}' stroke-width='2'/>",
    "unresolved": "<rect width='22' height='13' fill='#000'/>",
}
_LINES = {"local_minimum": "local minima", "local_maximum": "local maxima", "saddle": "saddles"}


def legend(
    view: View, cells: Cells, border: Border, record: xr.Dataset, line: xr.Dataset, training: bool
) -> str:
    """What is in the picture, and nothing else; the critical line and saddles are of ``line``."""
    codes = set(cells.label.ravel().tolist())
    items = [_box(_BOXES[name], BASINS[name]) for name in BASINS
             if Label[name.upper()] in codes]  # fmt: skip
    if UNKNOWN in codes:
        items.append(_box("<rect width='22' height='13' fill='#e9e9e9'/>", "not known yet"))
    items += [_stroke(SEPARATRIX, "basin boundary")] if border.basins else []
    items += [_stroke(BESIDE_SADDLES, "edge of starts that end in a saddle")] * bool(border.saddles)
    if np.isfinite(record["separatrix_e"]).any():
        lifted = view.choice.name == "rank-one"
        style = CANONICAL_SEPARATRIX if lifted else SEPARATRIX
        items.append(_stroke(style, "separatrix" + " of the canonical model" * lifted))
    if np.isfinite(record["minima_e"]).any() or view.model.chain.second_eigenvalue == 0:
        items.append(_stroke(MINIMA, "global minima"))
    saddles = line["saddle_w"].size
    if "critical_line" in line:
        kinds = line["critical_line"]
        items += [
            _stroke(CRITICAL[kind], f"{words} on e = 0")
            for kind, words in _LINES.items()
            if (kinds == code_of(kinds, kind)).sum() > max(1, saddles)
        ]
    items += ["✕ saddle"] if saddles else []
    items += ["○ start, ● reaches, ▲ trapped"] if view.starts or view.puff else []
    dashed = {"color": TRAINED, "linewidth": 3, "linestyle": (0, (1, 1))}
    items += [_stroke(dashed, "full training ◇")] if training else []
    return "<div class='legend'>" + "".join(f"<span>{item}</span>" for item in items) + "</div>"


def _box(inside: str, text: str) -> str:
    frame = f"<rect width='22' height='13' fill='none' stroke='{SOFT}'/>"
    return f"<svg width='22' height='13'>{inside}{frame}</svg>{text}"


def _stroke(style: dict[str, Any], text: str) -> str:
    width, dashes = style["linewidth"], style.get("linestyle", (0, ()))[1]
    pattern = " ".join(f"{width * part:.0f}" for part in dashes) or "none"
    line = (
        f"<line x1='0' y1='4' x2='28' y2='4' stroke='{style['color']}' stroke-width='{width}' "
        f"stroke-dasharray='{pattern}'/>"
    )
    return f"<svg width='28' height='8'>{line}</svg>{text}"
