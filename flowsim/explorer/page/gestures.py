"""Gestures with the mouse and the keyboard in the plane."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bokeh import events
from bokeh.models import ColumnDataSource, CustomJS

from flowsim.explorer.page.controls import CLOUD
from flowsim.explorer.view import FARTHEST, NARROWEST, GaussianCloud, Start, View, Window

#: Milliseconds without a move after which the mouse rests.
_HOVER = 40
#: A click or a drag is meant for a start that is so near, in parts of the window's sides.
NEAR = 0.02
#: In the browser: the box of a zoom is undone here, not there too by a double click.
_FORGET = """
  for (const view of Object.values(Bokeh.index.roots ?? Bokeh.index))
    if (view.model === plane) view.state.clear();
"""
_MOST_UNDONE, _MOST_WINDOWS = 50, 50


class Gestures:
    """Gestures of the mouse in the plane, and the buttons for the same, which change the view."""

    def __init__(self, visit: Any) -> None:
        self.visit = visit
        self._windows: list[Window] = []
        self._clicked: tuple[Start, View] | None = None  # the last click, and its view
        self._moved: int | None = None  # the start that a drag moves
        self._grip: tuple[float, float] | None = None
        figure, c = visit.plane.figure, visit.controls
        for event, call in (
            (events.Tap, self._tapped),
            (events.Press, self._pressed),
            (events.PressUp, self._released),
            (events.DoubleTap, self._double_tapped),
            (events.PanStart, self._pan_start),
            (events.Pan, self._pan),
            (events.PanEnd, self._pan_end),
        ):
            figure.on_event(event, partial(_at_place, call))
        figure.on_event(events.RangesUpdate, self._ranges_moved)
        under = ColumnDataSource({"x": [], "y": []}, name="under")
        under.on_change("data", self._hovered)
        sources = visit.plane.sources
        known = {
            "bar": figure.toolbar, "zoom": visit.plane.zoom, "pan": visit.plane.pan, "drag": c.drag,
            "starts": sources["starts"], "clicked": sources["clicked"], "under": under,
            "across": figure.x_range, "up": figure.y_range, "part": NEAR, "wait": _HOVER,
        }  # fmt: skip
        forget = CustomJS(args={"plane": figure}, code=_FORGET)
        figure.js_on_event(events.RangesUpdate, forget)
        seen = CustomJS.from_file(Path(__file__).with_name("pointer.js"), **known)
        for event in (events.Tap, events.MouseMove, events.MouseLeave):
            figure.js_on_event(event, seen)
        c.back.on_click(self.zoom_back)
        c.closer.on_click(lambda: self.closer(*visit.view.window.middle))
        c.reset.on_click(lambda: self.zoom_to(visit.view.usual_window))
        c.undo.on_click(self.undo)
        c.clear.on_click(self._clear)
        c.go.on_click(self._typed)
        c.place.on_event(events.ValueSubmit, lambda _: self._typed())

    def start(self, y: float, x: float, exact: bool = False) -> None:
        """Start an orbit at (y, x), or choose the one that starts near there.

        With ``exact`` an orbit is always started, at the very numbers given.
        """
        visit, near = self.visit, self._start_at(y, x)
        if near is not None and not exact:
            visit.choose(near)
            return
        self._remember()
        view, there = visit.view, (*visit.view.starts, Start(y, x))
        visit.try_to(lambda: replace(view, starts=there) if exact else view.with_start(y, x))

    def _start_at(self, y: float, x: float) -> int | None:
        """Return the index of the start near (y, x); None if there is none."""
        starts = enumerate(self.visit.view.starts)
        return next((i for i, start in starts if self._is_near(start, y, x)), None)

    def _is_near(self, start: Start, y: float, x: float) -> bool:
        """Return whether (y, x) is near a start: within 2 % of the window's sides."""
        x_low, x_high, y_low, y_high = self.visit.view.window
        wide, tall = NEAR * (x_high - x_low), NEAR * (y_high - y_low)
        return abs(start.x - x) < wide and abs(start.y - y) < tall

    def _hovered(self, _attribute: str, _old: Any, new: Any) -> None:
        """Describe the place at which the mouse rests; nothing once it has left the plane.

        ``new`` is the browser's data, which may be malformed and is then ignored.
        """
        try:
            at = (float(new["y"][0]), float(new["x"][0])) if new["x"] else None
        except (KeyError, IndexError, TypeError, ValueError):
            return
        self.visit.show_under(at)

    def undo(self) -> None:
        """Take back the last orbit, cloud or clearing; then the orbits of the link."""
        visit = self.visit
        if visit.undone:
            last = visit.undone.pop()
            visit.try_to(lambda: replace(visit.view, starts=last.starts, cloud=last.cloud))
        elif visit.view.starts:
            visit.try_to(lambda: replace(visit.view, starts=visit.view.starts[:-1]))

    def zoom_to(self, window: Window) -> None:
        """Show another window, and keep the former one for ``zoom_back``."""
        visit = self.visit
        if window != visit.view.window:
            self._windows = [*self._windows, visit.view.window][-_MOST_WINDOWS:]
            visit.try_to(lambda: replace(visit.view, window=window))

    def zoom_back(self) -> None:
        """Show the window before the last zoom, or the model's usual one."""
        window = self._windows.pop() if self._windows else self.visit.view.usual_window
        self.visit.try_to(lambda: replace(self.visit.view, window=window))

    def closer(self, y: float, x: float) -> None:
        """Halve the sides of the window around a point."""
        x_low, x_high, y_low, y_high = self.visit.view.window
        half = (x_high - x_low) / 4, (y_high - y_low) / 4
        self._zoom_within([x - half[0], x + half[0], y - half[1], y + half[1]])

    def throw(self, y: float, x: float) -> None:
        """Put the cloud around a point, as wide as before."""
        cloud, (x_low, x_high, *_) = self.visit.view.cloud, self.visit.view.window
        self._remember()
        self._set_cloud(GaussianCloud(y, x, cloud.sigma if cloud else (x_high - x_low) / 20))

    def spread(self, factor: float) -> None:
        """Multiply the cloud's standard deviation by a factor."""
        cloud = self.visit.view.cloud
        if cloud is not None:
            self._remember()
            self._set_cloud(cloud._replace(sigma=cloud.sigma * factor))

    def _remember(self) -> None:
        """Keep the present view, so that ``undo`` can bring it back."""
        self.visit.undone = [*self.visit.undone, self.visit.view][-_MOST_UNDONE:]

    def _tapped(self, y: float, x: float) -> None:
        """Start an orbit at a click, or choose the one that starts there.

        A click that changed the view is remembered: a double click takes it back.
        """
        before = self.visit.view
        self.start(y, x)
        self._clicked = (Start(y, x), self.visit.view) if self.visit.view != before else None

    def _pressed(self, y: float, x: float) -> None:
        """Remember the start at which the mouse is held down for long: it may be dragged."""
        self._moved = self._start_at(y, x)

    def _released(self, y: float, x: float) -> None:
        """Move the start that was held down to where the mouse is let go; else take it as a click.

        Bokeh reports only the end of a drag that follows a long press.
        """
        number = self._moved
        if number is None or self._start_at(y, x) == number:
            self._tapped(y, x)
        elif number < len(self.visit.view.starts):
            self._remember()
            self.visit.choose(number)
            self._pan(y, x)
        self._moved = None

    def _double_tapped(self, y: float, x: float) -> None:
        """Take back what the first of two clicks at one place did, and zoom back.

        Two quick clicks at two places are two clicks.
        """
        if self._clicked is not None:
            place, view = self._clicked
            if not self._is_near(place, y, x):
                self._tapped(y, x)
                return
            if view == self.visit.view:
                self.undo()
        self._clicked = None
        self.zoom_back()

    def _ranges_moved(self, event: events.RangesUpdate) -> None:
        """Take over the ranges that the browser gave the axes, by a zoom or a move."""
        bounds = (event.x0, event.x1, event.y0, event.y1)
        if all(isinstance(side, (int, float)) and math.isfinite(side) for side in bounds):
            self._zoom_within([float(side) for side in bounds])

    def _zoom_within(self, bounds: list[float]) -> None:
        """Show the window with bounds (x low, x high, y low, y high), cut to what a view allows.

        Its sides are rounded, so that links stay short.
        """
        x_low, x_high, y_low, y_high = (min(max(side, -FARTHEST), FARTHEST) for side in bounds)
        least = min(x_high - x_low, y_high - y_low)
        digits = 3 - math.floor(math.log10(least)) if least > 0 else 12  # a thousandth of it
        window = Window(*(round(side, digits) for side in (x_low, x_high, y_low, y_high)))
        self.zoom_to(window)
        if self.visit.view.window != window:  # refused: put the axes back
            self.visit.plane.show_window(self.visit.view.window)

    @property
    def throws(self) -> bool:
        """Return whether drags throw a cloud, as chosen on the page."""
        return self.visit.controls.drag.active == CLOUD

    def _pan_start(self, y: float, x: float) -> None:
        """Begin a drag of the start at (y, x); elsewhere, if drags throw clouds, of a cloud.

        Inside the cloud's ring it moves the cloud; outside it makes a new one.
        """
        dragged = self.visit.plane.figure.toolbar.active_drag
        self._moved = self._start_at(y, x) if dragged is None else None
        if self._moved is not None:
            self._remember()
            self.visit.choose(self._moved)
            return
        if not self.throws:
            return
        self._remember()
        cloud = self.visit.view.cloud
        self._grip = None
        if cloud is not None and math.dist(cloud[:2], (y, x)) < 2 * cloud.sigma:
            self._grip = cloud.y - y, cloud.x - x
        else:
            side = self.visit.view.window.x_high - self.visit.view.window.x_low
            self._set_cloud(GaussianCloud(y, x, side / 200))

    def _pan(self, y: float, x: float) -> None:
        """Move the dragged start or cloud to (y, x), or widen a new cloud up to there."""
        view, number = self.visit.view, self._moved
        if number is not None:
            if number < len(view.starts):
                self.visit.try_to(lambda: view.with_start(y, x, number))
        elif self.throws and view.cloud is not None:
            at_y, at_x, sigma = view.cloud
            if self._grip is not None:
                self._set_cloud(GaussianCloud(y + self._grip[0], x + self._grip[1], sigma))
            else:
                self._set_cloud(GaussianCloud(at_y, at_x, math.dist((at_y, at_x), (y, x)) / 2))

    def _pan_end(self, *_: float) -> None:
        """End the drag."""
        self._grip = self._moved = None

    def _set_cloud(self, cloud: GaussianCloud) -> None:
        """Show this cloud, with its numbers rounded."""
        sigma = max(float(f"{cloud.sigma:.3g}"), NARROWEST)
        cloud = GaussianCloud(round(cloud.y, 4), round(cloud.x, 4), sigma)
        self.visit.try_to(lambda: replace(self.visit.view, cloud=cloud))

    def _clear(self) -> None:
        """Remove all starts, the cloud, and the paths that are laid over the plane."""
        if self.visit.view.starts or self.visit.view.cloud:
            self._remember()
        self.visit.plane.show_paths({})
        self.visit.controls.load.clear()
        self.visit.try_to(lambda: replace(self.visit.view, starts=(), cloud=None))
        self.visit.show_legend()

    def _typed(self) -> None:
        """Start an orbit at the two numbers in the text field, the horizontal one first."""
        text = str(self.visit.controls.place.value)[:60].replace("\N{MINUS SIGN}", "-")
        words = text.replace(";", " ").replace(",", " ").split()
        try:
            x, y = map(float, words)
        except ValueError:
            names = f"{self.visit.view.x} and {self.visit.view.y}"
            self.visit.say_problem(f"Write a start as two numbers, {names}, like -1.2, 0.5")
        else:
            self.start(y, x, exact=True)


def _at_place(call: Callable[[float, float], None], event: Any) -> None:
    """Call ``call`` with the place (y, x) of a mouse event, if it has one."""
    if event.x is not None and event.y is not None:
        call(float(event.y), float(event.x))


#: Arrow keys of one side of the window to the other; with Shift a step is five of these.
_STEPS = 60


class Keyboard:
    """Key handlers while the plane is in focus: the mouse's gestures by keyboard."""

    def __init__(self, visit: Any, gestures: Gestures) -> None:
        self.visit, self.gestures = visit, gestures
        figure = visit.plane.figure
        keyed = ColumnDataSource({"x": [], "y": [], "key": [], "count": []}, name="keyed")
        keyed.on_change("data", self._keyed)
        visit.controls.place.tags = [keyed]  # so that it is of the page
        arguments = {
            "across": figure.x_range, "up": figure.y_range, "cross": visit.plane.sources["cross"],
            "keyed": keyed, "steps": _STEPS, "names": visit.plane.names,
        }  # fmt: skip
        ready = CustomJS.from_file(Path(__file__).with_name("keyboard.js"), **arguments)
        visit.document.js_on_event(events.DocumentReady, ready)

    def _keyed(self, _attribute: str, _old: Any, new: Any) -> None:
        """Do what a key at the cross-hair means: Enter, + or −; ignore what is no place and key.

        Enter starts an orbit; + and − zoom. If drags throw clouds, they place the cloud, and make
        it wider and narrower.
        """
        try:
            x, y, key = float(new["x"][0]), float(new["y"][0]), str(new["key"][0])
        except (KeyError, IndexError, TypeError, ValueError):
            return
        do = self.gestures
        if key == "Enter":
            (do.throw if do.throws else do.start)(y, x)
        elif key in ("+", "="):
            do.spread(1.25) if do.throws else do.closer(y, x)
        elif key == "-":
            do.spread(0.8) if do.throws else do.zoom_back()
