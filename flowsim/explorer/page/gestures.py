"""What a visitor does with the mouse and the keyboard in the plane."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bokeh.events import (
    DocumentReady,
    DoubleTap,
    MouseLeave,
    MouseMove,
    Pan,
    PanEnd,
    PanStart,
    PressUp,
    RangesUpdate,
    Tap,
    ValueSubmit,
)
from bokeh.models import ColumnDataSource, CustomJS

from flowsim.errors import InputError
from flowsim.explorer.page.controls import CLOUD
from flowsim.explorer.page.page_parts import Page
from flowsim.explorer.view import FARTHEST, NARROWEST, Puff, Start, View, Window

#: Milliseconds without a move after which the mouse rests.
_HOVER = 40
#: A click or a drag is meant for a start that is so near, in parts of the window's sides.
NEAR = 0.02
#: In the browser: near a start a drag moves it, elsewhere it does what is chosen; and a click's dot
#: is put down, and what is under the mouse is asked for once it rests.
_MOVED = f"""
  const near = (x, y) => Array.from(starts.data.x).some((at, i) =>
    Math.abs(at - x) < {NEAR} * (across.end - across.start)
    && Math.abs(starts.data.y[i] - y) < {NEAR} * (up.end - up.start));
  const {{x, y}} = cb_obj;
  if (cb_obj.event_name === "tap") {{
    if (!near(x, y)) {{
      clicked.setv({{data: {{x: [x], y: [y]}}}}, {{sync: false}});
      setTimeout(() => clicked.setv({{data: {{x: [], y: []}}}}, {{sync: false}}), 1000);
    }}
    return;
  }}
  const tool = near(x, y) ? null : [zoom, pan, null][drag.active];
  if (bar.active_drag !== tool) bar.active_drag = tool;
  clearTimeout(window.hovering);
  const inside = x > across.start && x < across.end && y > up.start && y < up.end;
  window.hovering = setTimeout(() => {{
    const there = inside && cb_obj.event_name !== "mouseleave";
    under.data = there ? {{x: [x], y: [y]}} : {{x: [], y: []}};
  }}, {_HOVER});
"""
#: In the browser: the box of a zoom is undone here, not there too by a double click.
_FORGET = """
  for (const view of Object.values(Bokeh.index.roots ?? Bokeh.index))
    if (view.model === plane) view.state.clear();
"""
_MOST_UNDONE, _MOST_WINDOWS = 50, 50


class Gestures:
    """What a visitor does with mouse and keyboard.

    Args:
        visit: the page.
    """

    def __init__(self, visit: Page) -> None:
        self.visit = visit
        self._undone: list[View] = []
        self._windows: list[Window] = []
        self._clicked: tuple[float, float, View] | None = None  # the last click, and its view
        self._moved: int | None = None  # the start that a drag moves
        self._grip: tuple[float, float] | None = None
        figure, c = visit.plane.figure, visit.controls
        figure.on_event(Tap, self._tapped)
        figure.on_event(PressUp, self._tapped)  # a click that was held for long
        figure.on_event(DoubleTap, self._double_tapped)
        figure.on_event(RangesUpdate, self._ranges_moved)
        for event, call in ((PanStart, self._pan_start), (Pan, self._pan), (PanEnd, self._pan_end)):
            figure.on_event(event, call)
        under = ColumnDataSource({"x": [], "y": []}, name="under")
        under.on_change("data", self._hovered)
        sources = visit.plane.sources
        known = {
            "bar": figure.toolbar, "zoom": visit.plane.zoom, "pan": visit.plane.pan, "drag": c.drag,
            "starts": sources["starts"], "clicked": sources["clicked"], "under": under,
            "across": figure.x_range, "up": figure.y_range,
        }  # fmt: skip
        forget = CustomJS(args={"plane": figure}, code=_FORGET)
        figure.js_on_event(RangesUpdate, forget)
        seen = CustomJS(args=known, code=_MOVED)
        for event in (Tap, MouseMove, MouseLeave):
            figure.js_on_event(event, seen)
        c.back.on_click(self.zoom_back)
        c.closer.on_click(lambda: self.zoom_to(visit.view.zoomed(2).window))
        c.reset.on_click(lambda: self.zoom_to(visit.view.usual_window))
        c.undo.on_click(self.undo)
        c.clear.on_click(self._clear)
        c.go.on_click(self._typed)
        c.place.on_event(ValueSubmit, lambda _: self._typed())

    @property
    def can_undo(self) -> bool:
        return bool(self._undone or self.visit.view.starts)

    def start(self, y: float, x: float, exact: bool = False) -> None:
        """Start an orbit, or choose the one whose start was clicked."""
        visit = self.visit
        near = self._start_at(y, x)
        if near is not None and not exact:
            visit.choose(near)
            return
        self._remember()
        view = visit.view
        visit.try_to(
            lambda: (
                replace(view, starts=(*view.starts, Start(y, x)))
                if exact
                else view.with_start(y, x)
            )
        )

    def _start_at(self, y: float, x: float) -> int | None:
        """The number of the start that a click or a drag is meant for."""
        x_low, x_high, y_low, y_high = self.visit.view.window
        near = NEAR * (x_high - x_low), NEAR * (y_high - y_low)
        for i, start in enumerate(self.visit.view.starts):
            if abs(start.x - x) < near[0] and abs(start.y - y) < near[1]:
                return i
        return None

    def _hovered(self, _attribute: str, _old: Any, new: Any) -> None:
        """The mouse rests at a place, or has left; what is no place says nothing."""
        try:
            at = (float(new["y"][0]), float(new["x"][0])) if new["x"] else None
        except (KeyError, IndexError, TypeError, ValueError):
            return
        self.visit.show_under(at)

    def undo(self) -> None:
        """Take back the last orbit, cloud or clearing; then the orbits of the link."""
        visit = self.visit
        if self._undone:
            last = self._undone.pop()
            visit.try_to(lambda: replace(visit.view, starts=last.starts, puff=last.puff))
        elif visit.view.starts:
            visit.try_to(visit.view.without_last)

    def zoom_to(self, window: Window) -> None:
        """Look at another window; the former one is kept for the way back."""
        visit = self.visit
        if window != visit.view.window:
            self._windows = [*self._windows, visit.view.window][-_MOST_WINDOWS:]
            visit.try_to(lambda: replace(visit.view, window=window))

    def zoom_back(self) -> None:
        """The window before, or the usual one."""
        window = self._windows.pop() if self._windows else self.visit.view.usual_window
        self.visit.try_to(lambda: replace(self.visit.view, window=window))

    def closer(self, y: float, x: float) -> None:
        """A window of half the size around a point."""
        x_low, x_high, y_low, y_high = self.visit.view.window
        half = (x_high - x_low) / 4, (y_high - y_low) / 4
        self._zoom_within([x - half[0], x + half[0], y - half[1], y + half[1]])

    def throw(self, y: float, x: float) -> None:
        """The cloud around a point, as wide as before."""
        puff, window = self.visit.view.puff, self.visit.view.window
        self._remember()
        self._puff(Puff(y, x, puff.sigma if puff else (window.x_high - window.x_low) / 20))

    def spread(self, factor: float) -> None:
        """The cloud so many times as wide."""
        puff = self.visit.view.puff
        if puff is not None:
            self._remember()
            self._puff(puff._replace(sigma=puff.sigma * factor))

    def _remember(self) -> None:
        self._undone = [*self._undone, self.visit.view][-_MOST_UNDONE:]

    def _tapped(self, event: Tap | PressUp) -> None:
        """A click; it may be the first half of a double click."""
        if event.x is None or event.y is None:
            return
        y, x, before = float(event.y), float(event.x), self.visit.view
        self.start(y, x)
        started = self.visit.view != before
        self._clicked = (y, x, self.visit.view) if started else None

    def _double_tapped(self, event: DoubleTap) -> None:
        """Two clicks at one place go back; those of two places are two clicks."""
        x_low, x_high, y_low, y_high = self.visit.view.window
        if self._clicked is not None and event.x is not None and event.y is not None:
            y, x, view = self._clicked
            wide, tall = NEAR * (x_high - x_low), NEAR * (y_high - y_low)
            if abs(event.x - x) > wide or abs(event.y - y) > tall:
                self._tapped(event)
                return
            if view == self.visit.view:
                self.undo()
        self._clicked = None
        self.zoom_back()

    def _ranges_moved(self, event: RangesUpdate) -> None:
        """A zoom by box or wheel has ended."""
        sides = (event.x0, event.x1, event.y0, event.y1)
        if not all(isinstance(side, (int, float)) and math.isfinite(side) for side in sides):
            return
        self._zoom_within([float(side) for side in sides])

    def _zoom_within(self, sides: list[float]) -> None:
        bounded = _rounded([min(max(side, -FARTHEST), FARTHEST) for side in sides])
        self.zoom_to(Window(*bounded))
        if self.visit.view.window != Window(*bounded):  # refused: put the axes back
            self.visit.plane.show_window(self.visit.view.window)

    @property
    def throws(self) -> bool:
        """Whether a drag throws a cloud."""
        return self.visit.controls.drag.active == CLOUD

    def _pan_start(self, event: PanStart) -> None:
        """A drag begins: at a start it moves it, inside the ring the cloud; else it throws one."""
        if event.x is None or event.y is None:
            return
        y, x, dragged = float(event.y), float(event.x), self.visit.plane.figure.toolbar.active_drag
        self._moved = self._start_at(y, x) if dragged is None else None
        if self._moved is not None:
            self._remember()
            self.visit.choose(self._moved)
            return
        if not self.throws:
            return
        self._remember()
        puff = self.visit.view.puff
        inside = puff is not None and (y - puff.y) ** 2 + (x - puff.x) ** 2 < 4 * puff.sigma**2
        self._grip = (puff.y - y, puff.x - x) if inside and puff is not None else None
        if self._grip is None:
            side = self.visit.view.window.x_high - self.visit.view.window.x_low
            self._puff(Puff(y, x, max(side / 200, NARROWEST)))

    def _pan(self, event: Pan) -> None:
        puff, number = self.visit.view.puff, self._moved
        if event.x is None or event.y is None:
            return
        y, x = float(event.y), float(event.x)
        if number is not None:
            if number < len(self.visit.view.starts):
                self.visit.try_to(lambda: self.visit.view.with_start(y, x, number))
            return
        if not self.throws or puff is None:
            return
        if self._grip is not None:
            self._puff(Puff(y + self._grip[0], x + self._grip[1], puff.sigma))
        else:
            reach = ((y - puff.y) ** 2 + (x - puff.x) ** 2) ** 0.5
            self._puff(Puff(puff.y, puff.x, max(reach / 2, NARROWEST)))

    def _pan_end(self, event: PanEnd) -> None:
        self._grip = self._moved = None

    def _puff(self, puff: Puff) -> None:
        sigma = max(float(f"{puff.sigma:.3g}"), NARROWEST)
        puff = Puff(round(puff.y, 4), round(puff.x, 4), sigma)
        self.visit.try_to(lambda: replace(self.visit.view, puff=puff))

    def _clear(self) -> None:
        if self.visit.view.starts or self.visit.view.puff:
            self._remember()
        self.visit.plane.show_paths({})
        self.visit.controls.load.clear()
        self.visit.try_to(lambda: replace(self.visit.view, starts=(), puff=None))
        self.visit.show_legend()

    def _typed(self) -> None:
        """A start written as two numbers, the horizontal one first."""
        words = str(self.visit.controls.place.value)[:60].replace(";", ",").split(",")
        try:
            x, y = (float(word) for word in words)
            start = Start(y, x)
        except ValueError:
            view = self.visit.view
            self.visit.say_problem(
                f"Write a start as two numbers, {view.x} and {view.y}, like -1.2, 0.5"
            )
            return
        with suppress(InputError):
            self.start(*start, exact=True)


def _rounded(sides: list[float]) -> list[float]:
    """A window's sides to a thousandth of it, so that links and commands stay short."""
    least = min(sides[1] - sides[0], sides[3] - sides[2])
    digits = 3 - math.floor(math.log10(least)) if least > 0 else 12
    return [round(side, digits) for side in sides]


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
