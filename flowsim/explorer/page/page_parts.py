"""What the parts of a page know of it: the page itself is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bokeh.document import Document

from flowsim.explorer.page.controls import Controls
from flowsim.explorer.page.jobs import Jobs
from flowsim.explorer.page.plane_figure import PlaneFigure
from flowsim.explorer.page.time_figures import TimeFigures
from flowsim.explorer.starts import Orbit
from flowsim.explorer.training import FullSettings, Run
from flowsim.explorer.view import View


class Page(Protocol):
    """One page: what it shows, what it is made of, and what its parts may ask of it."""

    document: Document
    view: View
    controls: Controls
    plane: PlaneFigure
    times: TimeFigures
    jobs: Jobs
    orbits: list[Orbit]
    #: The number of the orbit whose coordinates are shown and from whose start training begins.
    chosen: int
    #: How full transformers are trained, and the runs that are shown.
    full: FullSettings
    runs: list[Run]
    #: Views whose orbits and clouds come back by "Undo".
    undone: list[View]

    def try_to(self, change: Callable[[], View]) -> None: ...

    def choose(self, number: int) -> None: ...

    def show_under(self, at: tuple[float, float] | None) -> None: ...

    def say_problem(self, sentence: str) -> None: ...

    def show_legend(self) -> None: ...

    def write_address(self) -> None: ...

    def soon(self, kind: str, wait: int, call: Callable[[], None]) -> None: ...
