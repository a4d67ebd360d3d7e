"""What the page says, in plain words; every number comes from what was computed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from flowsim.explorer.clouds import CloudShare
from flowsim.explorer.orbits_from_starts import Orbit
from flowsim.explorer.page.time_figures import ends_where
from flowsim.explorer.plane_layers import Cells
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
        regime = f"p is {sign} the threshold (S − 1)/S = {threshold:.3g}"
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
