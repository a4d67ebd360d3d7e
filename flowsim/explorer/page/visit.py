"""One visitor's page: what happens when something is chosen, clicked, dragged or closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from itertools import takewhile
from operator import is_
from time import monotonic
from typing import Any

from bokeh.document import Document

from flowsim.errors import InputError
from flowsim.explorer.link import to_query
from flowsim.explorer.page.controls import Controls
from flowsim.explorer.page.gestures import Gestures, Keyboard
from flowsim.explorer.page.jobs import Jobs, Pools
from flowsim.explorer.page.messages import cloud_words, describe_trajectory
from flowsim.explorer.page.panels import Choices, Outgoing, TrainerPanel
from flowsim.explorer.page.plane_figure import PlaneFigure
from flowsim.explorer.page.plane_picture import REST, Picture
from flowsim.explorer.page.time_figures import TimeFigures
from flowsim.explorer.starts import CloudShare, Orbit, cloud_shares, edge_of, follow_start
from flowsim.explorer.training import FullSettings, Run
from flowsim.explorer.view import LOGS, Start, Stop, View, Window

#: Milliseconds: moves of a slider within it are one.
_TOGETHER = 5
#: Seconds after which orbits are shown while others wait.
_SHOWN = 0.2


class Visit:
    """One open page: its view, widgets, figures and jobs.

    ``chosen`` is the index of the orbit whose coordinates are shown and from whose start training
    begins. ``undone`` are former views, whose starts and cloud "Undo" brings back.
    """

    def __init__(
        self, document: Document, view: View, full: FullSettings, problems: Sequence[str],
        pools: Pools,
    ) -> None:  # fmt: skip
        self.document, self.view, self.full = document, view, full
        self.orbits: list[Orbit] = []
        self.runs: list[Run] = []
        self.undone: list[View] = []
        self.controls, self.times = Controls(view), TimeFigures()
        self.plane = PlaneFigure(view.window)
        self.jobs = Jobs(document, pools, self.say_problem)
        self.chosen = len(view.starts) - 1
        self._due: dict[str, Any] = {}
        self._found: dict[Start, Orbit] = {}
        self._edge: tuple[Orbit, Window, float] | None = None
        self._tried: set[Start] = set()
        self._found_for: object = None
        self._following = False
        self.picture = Picture(self)
        self.show_under, self.show_legend = self.picture.show_under, self.picture.show_legend
        self.outgoing, self.choices = Outgoing(self), Choices(self)
        self.panel = TrainerPanel(self)
        Keyboard(self, Gestures(self))
        for root in (*self.controls.roots(), self.plane.figure, self.times.layout):
            document.add_root(root)
        document.on_session_destroyed(lambda _: self.jobs.close())
        self.show(view, everything=True)
        if problems:
            self.say_problem("The link was not followed in full: " + "; ".join(problems))

    def choose(self, number: int) -> None:
        """Choose an orbit by its index, to show its coordinates and to train from its start."""
        self.chosen = number
        self.show_orbits()

    def say_problem(self, sentence: str) -> None:
        """Show a sentence about what could not be done; "" hides the last one."""
        text = f"<p style='border-left:4px solid #c25700;padding-left:6px'>{escape(sentence)}</p>"
        self.controls.problem.visible = bool(sentence)
        self.controls.problem.text = text if sentence else ""

    def try_to(self, change: Callable[[], View]) -> None:
        """Show the view that ``change`` returns; report it and change nothing if it is refused.

        While the page itself sets its widgets, nothing is done.
        """
        if self.choices.updating:
            return
        try:
            view = change()
        except (InputError, TypeError, ValueError) as error:
            self.say_problem(str(error))
            self.choices.show()
        else:
            self.say_problem("")
            self.show(view)

    def show(self, view: View, everything: bool = False) -> None:
        """Make the page show a view; only what differs from before is computed anew."""
        before, self.view = self.view, view
        model = everything or view.flow_key != before.flow_key
        window = view.window != before.window
        starts = model or (view.starts, view.backward) != (before.starts, before.backward)
        self.choices.show()
        if window or everything:
            self.plane.show_window(view.window)
        if model:
            self.plane.show_axes(view)
            if (view.x, view.y) != (before.x, before.y):
                self.plane.show_paths({})
            self.panel.forget()
            wait = 0 if everything else REST
            self.soon("chain", wait, lambda: self.times.show_chain(self.view))
        if model or window or view.nullclines != before.nullclines:
            self.picture.outdate(model and view.but_chain != before.but_chain)
            self.soon("plane", max(_TOGETHER, self.picture.early), self.picture.draw)
        if everything or (starts and (view.starts or before.starts)):
            if len(view.starts) != len(before.starts):
                self.chosen = len(view.starts) - 1
            self.soon("orbits", _TOGETHER, self._follow_orbits)
        if view.logs != before.logs:
            self.show_orbits()
        elif window:
            self.soon("edge", REST, self._find_edge)
        if (model or view.cloud != before.cloud) and (view.cloud or before.cloud):
            self.soon("cloud", _TOGETHER, self._follow_cloud)
        self.soon("address", REST, self.write_address)

    def write_address(self) -> None:
        """Write the view and the settings of training into the page's address."""
        self.outgoing.address.data = {"query": [to_query(self.view, self.full)]}

    def soon(self, kind: str, wait: int, call: Callable[[], None]) -> None:
        """Call ``call`` after ``wait`` milliseconds, once for all requests of one kind meanwhile.

        The first of two requests counts, or the last if its ``wait`` is ``REST``.
        """

        def now() -> None:
            self._due.pop(kind, None)
            if not self.jobs.closed:
                call()

        if kind in self._due:
            if wait != REST:
                return
            with suppress(ValueError):
                self.document.remove_timeout_callback(self._due.pop(kind))
        self._due[kind] = self.document.add_timeout_callback(now, wait)

    def _follow_orbits(self) -> None:
        """Follow in a thread every start that has no orbit yet, and show the orbits as they come.

        A start that is dragged shows its former orbit meanwhile.
        """
        view = self.view
        key = view.flow_key, view.window if view.backward else None
        if self._found_for != key:
            self.jobs.stop("orbits")
            self._found_for, self._following = key, False
            self._found, self._tried, self.orbits = {}, set(), []
        self._show_found()
        missing = [start for start in view.starts if start not in self._tried]
        if self._following or not missing:
            return
        self._following = True
        self._tried |= set(missing)
        waiting, shown = iter(missing), monotonic()

        def work(stop: Stop) -> Iterator[Orbit]:
            """Yield the orbit of every start that waits."""
            for start in waiting:
                yield follow_start(view, start, stop)

        def show(orbit: Orbit) -> None:
            """Keep an orbit, and show all that are known, at most every fifth of a second."""
            nonlocal shown
            self._found[orbit.start] = orbit
            if monotonic() - shown > _SHOWN:
                self._show_found()
                shown = monotonic()

        def done() -> None:  # also where one could not be followed: those behind it still wait
            self._following = False
            self._tried -= set(waiting)
            self._follow_orbits()

        self.jobs.start("orbits", work, show, done=done)

    def _show_found(self) -> None:
        """Show the orbits found so far, in the order of the starts, up to the first missing one.

        A start that was moved shows its former orbit until its own is found.
        """
        starts, former = self.view.starts, self.orbits
        stale = former if len(former) == len(starts) else [None] * len(starts)
        known = [self._found.get(start) or old for start, old in zip(starts, stale, strict=True)]
        self.orbits = [orbit for orbit in takewhile(bool, known) if orbit is not None]
        self._found = {o.start: o for o in self._found.values() if o.start in starts}
        self._tried &= set(starts)
        self._show_in_plane()
        if len(former) != len(self.orbits) or not all(map(is_, former, self.orbits)):
            self.soon("times", 0, self._show_beside)  # once the plane is on its way

    def show_orbits(self) -> None:
        """Draw the orbits in the plane and against time, and say where the chosen one ends."""
        self._show_in_plane()
        self._show_beside()

    def _show_beside(self) -> None:
        """Draw orbits and training against time, and begin to search the chosen start's edge."""
        self.times.show_orbits(self.view, self.orbits, self.chosen)
        self.choices.updating = True
        self.controls.logs.active = [i for i, name in enumerate(LOGS) if name in self.times.logs]
        self.choices.updating = False
        self.panel.show()
        self.soon("edge", REST, self._find_edge)

    def _find_edge(self) -> None:
        """Search in a thread how far the chosen start is from one with another end, and say it."""
        view = self.view
        if not 0 <= self.chosen < len(self.orbits):
            return
        orbit = self.orbits[self.chosen]

        def show(away: float) -> None:
            """Keep the distance, with the orbit and the window that it is of, and say it."""
            self._edge = orbit, view.window, away
            self._show_in_plane()

        self.jobs.start("edge", lambda stop: [edge_of(view, orbit.start, stop)], show, pool="edge")

    def _show_in_plane(self) -> None:
        """Draw the orbits in the plane, and say where the chosen one ends."""
        view = self.view
        self.plane.show_orbits(view, self.orbits, self.chosen)
        waiting = len(view.starts) - len(self.orbits)
        orbit, window, away = self._edge or (None, None, None)
        chosen = self.orbits[self.chosen : self.chosen + 1]
        edge = away if window == view.window and chosen and chosen[0] is orbit else None
        self.controls.trajectory_text.text = describe_trajectory(
            view, self.orbits, self.chosen, waiting, edge
        )

    def _follow_cloud(self) -> None:
        """Follow the cloud's starts in a thread; draw them and the shares of their ends."""
        view = self.view

        def show(found: CloudShare | None) -> None:
            """Show the shares of the cloud so far."""
            self.plane.show_cloud(view, found)
            self.controls.cloud.text = cloud_words(view, found)

        show(None)
        self.jobs.start("cloud", partial(cloud_shares, view), show)
