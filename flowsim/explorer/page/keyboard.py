"""The plane without a mouse: a cross-hair that arrow keys move, and what other keys do there."""

from __future__ import annotations

from typing import Any

from bokeh.events import DocumentReady
from bokeh.models import ColumnDataSource, CustomJS

from flowsim.explorer.page.gestures import Gestures
from flowsim.explorer.page.page_parts import Page

#: Arrow keys of one side of the window to the other; with Shift a step is five of these.
_STEPS = 60
_KEYS = """
  const inside = (root, name) => {  // elements of a class, in shadow roots too
    const found = [];
    for (const element of root.querySelectorAll("*")) {
      if (element.classList.contains(name)) found.push(element);
      if (element.shadowRoot) found.push(...inside(element.shadowRoot, name));
    }
    return found;
  };
  for (const button of inside(document.body, "bk-spin-btn")) button.tabIndex = -1;
  for (const layer of inside(document.getElementById("times"), "bk-events")) layer.tabIndex = -1;
  for (const handle of inside(document.getElementById("choose"), "noUi-handle")) {
    const title = inside(handle.getRootNode(), "bk-slider-title")[0];
    if (title) handle.setAttribute("aria-label", title.textContent.split(":")[0]);
  }
  const plane = inside(document.getElementById("plane"), "bk-events")[0];
  const words = document.getElementById("keys"), usual = document.getElementById("usual");
  plane.tabIndex = 0;
  plane.setAttribute("role", "application");
  plane.setAttribute("aria-label", "The plane. " + words.textContent);
  let at = null, count = 0;
  const show = (place) => {
    const number = (x) => Number(x.toFixed(digits())).toString();
    if (place !== null) at = place.map((x) => Number(number(x)));
    const data = place === null ? {x: [], y: [], text: []}
      : {x: [at[0]], y: [at[1]], text: [["x", "y"].map((axis, i) =>
          `${names.data[axis][0]} = ${number(at[i])}`).join(", ")]};
    cross.setv({data}, {sync: false});
    words.hidden = place === null;
    usual.hidden = place !== null;
    plane.style.outline = place === null ? "" : "3px solid #00537f";
    plane.style.outlineOffset = "-3px";
  };
  const sides = () => [across.end - across.start, up.end - up.start];
  const digits = () => Math.max(1, 2 - Math.floor(Math.log10(Math.min(...sides()))));
  const first = () => {
    const [wide, tall] = sides();
    const seen = at !== null && at[0] > across.start && at[0] < across.end
      && at[1] > up.start && at[1] < up.end;
    return seen ? at : [across.start + 0.3 * wide, up.start + 0.7 * tall];
  };
  const ways = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1]};
  plane.addEventListener("focus", () => { if (plane.matches(":focus-visible")) show(first()); });
  plane.addEventListener("blur", () => show(null));
  plane.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in ways) {
      const far = (event.shiftKey ? 5 : 1) / steps, size = sides(), before = first();
      const low = [across.start, up.start], high = [across.end, up.end];
      show(before.map((x, i) =>
        Math.min(Math.max(x + ways[event.key][i] * far * size[i], low[i]), high[i])));
    } else if (["Enter", "+", "=", "-"].includes(event.key)) {
      if (words.hidden) show(first());
      count += 1;
      keyed.data = {x: [at[0]], y: [at[1]], key: [event.key], count: [count]};
    } else if (event.key === "Escape") {
      show(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
"""


class Keyboard:
    """What keys do while the plane is in focus.

    Args:
        visit: the page.
        gestures: what the mouse does there.
    """

    def __init__(self, visit: Page, gestures: Gestures) -> None:
        self.visit, self.gestures = visit, gestures
        figure = visit.plane.figure
        keyed = ColumnDataSource({"x": [], "y": [], "key": [], "count": []}, name="keyed")
        keyed.on_change("data", self._keyed)
        visit.controls.place.tags = [keyed]  # so that it is of the page
        arguments = {
            "across": figure.x_range, "up": figure.y_range, "cross": visit.plane.sources["cross"],
            "keyed": keyed, "steps": _STEPS, "names": visit.plane.names,
        }  # fmt: skip
        visit.document.js_on_event(DocumentReady, CustomJS(args=arguments, code=_KEYS))

    def _keyed(self, _attribute: str, _old: Any, new: Any) -> None:
        """A key at the cross-hair; what is no place and no key changes nothing."""
        try:
            x, y, key = float(new["x"][0]), float(new["y"][0]), str(new["key"][0])
        except (KeyError, IndexError, TypeError, ValueError):
            return
        gestures = self.gestures
        if key == "Enter" and gestures.throws:
            gestures.throw(y, x)
        elif key == "Enter":
            gestures.start(y, x)
        elif key in ("+", "=") and gestures.throws:
            gestures.spread(1.25)
        elif key == "-" and gestures.throws:
            gestures.spread(0.8)
        elif key in ("+", "="):
            gestures.closer(y, x)
        elif key == "-":
            gestures.zoom_back()
