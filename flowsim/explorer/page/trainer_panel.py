"""The panel that trains the full transformer from a start, beside the flow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

from flowsim.errors import InputError
from flowsim.explorer.full_settings import USUAL_RATE, FullSettings
from flowsim.explorer.full_start import check_training
from flowsim.explorer.page.page_parts import Page
from flowsim.explorer.training_stream import Run, training
from flowsim.explorer.verdicts import verdict
from flowsim.explorer.view import full_length
from flowsim.labels import Label

#: Milliseconds between two drawings of a run.
_MOST_RUNS = 8


class TrainerPanel:
    """Settings, the run that is going on, and the runs that are shown.

    Args:
        visit: the page.
        settings: what the panel begins with.
    """

    def __init__(self, visit: Page, settings: FullSettings) -> None:
        self.visit, self.settings = visit, settings
        self.runs: list[Run] = []
        self.busy = False
        self._setting = False
        c = visit.controls
        fields = {"trainer": c.trainer, "d": c.d, "length": c.positions, "noise": c.noise,
                  "learning_rate": c.rate, "steps": c.steps}  # fmt: skip
        for name, widget in fields.items():
            widget.on_change("value", partial(self._chosen, name))
        c.train.on_click(self.train)
        c.halt.on_click(self.halt)
        self._set_widgets()

    def forget(self) -> None:
        """The chain or the model is another: former runs say nothing about it."""
        self.visit.jobs.stop("training")
        had, self.busy, self.runs = bool(self.runs), False, []
        self._set_widgets()
        if had:
            self.show()

    def halt(self) -> None:
        """Stop the run that is going on, and keep what it did."""
        if not self.busy:
            return
        self.visit.jobs.stop("training")
        self.busy = False
        self.runs[-1].ended = "stopped"
        self.show()

    def train(self) -> None:
        """Train from the chosen start."""
        visit = self.visit
        if not 0 <= visit.chosen < len(visit.orbits):
            return
        self.halt()
        orbit, view = visit.orbits[visit.chosen], visit.view
        try:
            check_training(view, self.settings)
        except InputError as error:
            visit.controls.verdict.text = f"<p>{escape(str(error))}.</p>"
            return
        run = Run(orbit.start, self.settings, orbit.label)
        self.runs = [*self.runs, run][-_MOST_RUNS:]
        self.busy = True

        def done() -> None:
            self.busy = False
            run.ended = run.ended or "stopped"  # it failed, which is said elsewhere
            self.show()

        visit.jobs.start(
            "training", lambda stop: training(view, run, stop), lambda _: self.show(),
            pool="training", done=done,
        )  # fmt: skip
        self.show()

    def show(self) -> None:
        """The runs in the plane and against time, the buttons and the verdict."""
        visit, c = self.visit, self.visit.controls
        self.runs = [run for run in self.runs if run.start in visit.view.starts]
        self.busy = self.busy and bool(self.runs)
        visit.plane.show_runs(self.runs)
        visit.times.show_runs(self.runs)
        visit.show_legend()
        c.train.disabled = self.busy or not 0 <= visit.chosen < len(visit.orbits)
        c.halt.disabled = not self.busy
        here = [run for run in self.runs if _is_chosen(visit, run)]
        if here:
            strong = here[-1].ended and here[-1].outcome != Label.UNRESOLVED
            text = escape(verdict(visit.view, here[-1]))
            c.verdict.text = f"<p><b>{text}</b></p>" if strong else f"<p>{text}</p>"
        else:
            c.verdict.text = "" if visit.view.starts else "<p>First click a start.</p>"

    def _chosen(self, name: str, _attribute: str, _old: Any, new: Any) -> None:
        if self._setting:
            return
        try:
            value: Any = str(new) if name == "trainer" else new
            if name in ("d", "length", "steps"):
                value = int(new)
            settings = replace(self.settings, **{name: value})
            if name == "trainer":
                settings = replace(settings, learning_rate=None)
        except (InputError, TypeError, ValueError) as error:
            self.visit.controls.verdict.text = f"<p>{escape(str(error))}.</p>"
        else:
            self.settings = settings
            self.visit.write_address()
        self._set_widgets()

    def _set_widgets(self) -> None:
        c, settings = self.visit.controls, self.settings
        self._setting = True
        try:
            c.trainer.value, c.d.value = settings.trainer, settings.d
            c.positions.value = settings.length or full_length(self.visit.view)
            c.noise.value, c.steps.value = settings.noise, settings.steps
            c.rate.disabled = settings.trainer == "flow"
            c.rate.value = settings.rate if settings.rate is not None else USUAL_RATE["gd"]
        finally:
            self._setting = False


def _is_chosen(visit: Page, run: Run) -> bool:
    starts = visit.view.starts
    return 0 <= visit.chosen < len(starts) and starts[visit.chosen] == run.start
