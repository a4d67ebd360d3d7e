"""Shared state of the page's widgets."""

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
    """One page: its view, its widgets, and the methods that they share."""

    document: Document
    view: View
    controls: Controls
    plane: PlaneFigure
    times: TimeFigures
    jobs: Jobs
    orbits: list[Orbit]
    #: The number of the orbit whose coordinates are shown and from whose start training begins.
    chosen: int
    #: Settings of full training, and the runs on the page.
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
