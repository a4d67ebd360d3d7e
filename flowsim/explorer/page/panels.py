"""The widgets around the plane: what is chosen, trained, and taken away from the page."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, CustomJS

from flowsim.drawing.overlay import path_columns
from flowsim.errors import InputError
from flowsim.explorer.outside import Stopped, command_lines, python_lines, saved_file
from flowsim.explorer.page.page_parts import Page
from flowsim.explorer.page.words import other_length, verdict, why_apart
from flowsim.explorer.training import USUAL_RATE, FullSettings, Run, check_training, training
from flowsim.explorer.view import LOGS, View, full_length
from flowsim.labels import Label


class Choices:
    """The widgets of model, chain and slice.

    Args:
        visit: the page.

    Attributes:
        showing: whether the widgets are being set, so that their own callbacks are no choice.
    """

    def __init__(self, visit: Page) -> None:
        self.visit, self.showing = visit, False
        c = visit.controls
        for name in ("p", "q", "a"):
            getattr(c, name).on_change("value", partial(self._slid, name))
        for name, slider in c.sliders.items():
            slider.on_change("value", partial(self._set, name))
        for widget in (c.model, c.length, c.states):
            widget.on_change("value", self._model_chosen)
        c.options.on_change("active", self._model_chosen)
        c.backward.on_change("active", self._backward_chosen)
        c.logs.on_change("active", self._logs_chosen)

    def show(self) -> None:
        """Let the widgets show the page's view, without their callbacks."""
        c, view = self.visit.controls, self.visit.view
        choice = view.choice
        options, data = choice.family.options, choice.family.data
        self.showing = True
        try:
            own = view.arguments
            pairs = [(c.p, view.p), (c.q, view.q), (c.a, view.held.get(view.slice_name or "", 0.0))]
            pairs += [(slider, own[name]) for name, slider in c.sliders.items() if name in own]
            for slider, value in pairs:
                if not abs(slider.value - value) <= 1e-6:  # one that is moved is left alone
                    slider.value = value
            c.p.title = f"p: {data['p'].help}" if data else ""
            c.p.visible, c.q.visible = "p" in data, "q" in data
            c.a.visible, c.arguments.visible = view.slice_name is not None, bool(own)
            c.a.title = f"{view.slice_name}: {'attention of the ' * view.trains}slice"
            c.place.title = f"Start at {view.x}, {view.y}"
            for widget in c.of_training:
                widget.visible = view.trains
            c.model.value = choice.name
            for widget, name in ((c.length, "length"), (c.states, "states")):
                widget.visible = name in choice.options
                if widget.visible:
                    widget.value = choice.options[name]
            c.options.visible = {"attention", "tied"} <= options.keys()
            c.options.active = [0] * choice.attention + [1] * (not choice.tied)
            c.backward.active = [0] if view.backward else []
            c.undo.disabled = not self.visit.can_undo
            laid = self.visit.plane.laid
            c.clear.disabled = not view.starts and view.puff is None and not laid
        finally:
            self.showing = False

    def show_logs(self, logs: Sequence[str]) -> None:
        """Which axes are logarithmic."""
        self.showing = True
        self.visit.controls.logs.active = [i for i, name in enumerate(LOGS) if name in logs]
        self.showing = False

    def _slid(self, name: str, _attribute: str, _old: Any, new: Any) -> None:
        def change() -> View:
            view, value = self.visit.view, round(float(new), 6)
            if name == "a":
                return view.with_slice(value)
            return replace(view, p=value) if name == "p" else replace(view, q=value)

        self.visit.try_to(change)

    def _set(self, name: str, _attribute: str, _old: Any, new: Any) -> None:
        def change() -> View:
            view = self.visit.view
            number = int(new) if type(view.arguments[name]) is int else round(float(new), 9)
            return view.with_model(view.choice.name, **{name: number})

        self.visit.try_to(change)

    def _model_chosen(self, _attribute: str, _old: Any, _new: Any) -> None:
        c, view = self.visit.controls, self.visit.view
        on, name = list(c.options.active), str(c.model.value)
        options: dict[str, Any] = {}
        if name == view.choice.name and view.trains:  # what is chosen belongs to the model before
            options |= {"attention": 0 in on, "tied": 1 not in on}
            options["length"] = None if c.length.value is None else int(c.length.value)
            options["states"] = None if c.states.value is None else int(c.states.value)
        self.visit.try_to(lambda: view.with_model(name, **options))

    def _backward_chosen(self, _attribute: str, _old: Any, new: Sequence[int]) -> None:
        self.visit.try_to(lambda: replace(self.visit.view, backward=bool(new)))

    def _logs_chosen(self, _attribute: str, _old: Any, new: Sequence[int]) -> None:
        logs = tuple(LOGS[i] for i in sorted(new) if i < len(LOGS))
        self.visit.try_to(lambda: replace(self.visit.view, logs=logs))


#: Runs that are shown at once.
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
        c.whole.on_click(lambda: self.train(whole=True))
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

    def train(self, whole: bool = False) -> None:
        """Train from the chosen start, until it is decided or through all of its steps."""
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
        run = Run(orbit.start, self.settings, orbit.label, whole=whole)
        again = [r for r in self.runs if not (whole and r.start == run.start)]
        self.runs = [*again, run][-_MOST_RUNS:]
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
            text = (
                f"<p><b>{text}</b>{why_apart(here[-1], visit.orbits[visit.chosen])}</p>"
                if (strong)
                else f"<p>{text}</p>"
            )
        else:
            text = "" if visit.view.starts else "<p>First click a start.</p>"
        c.whole.disabled = self.busy or not (here and here[-1].ended == "decided")
        c.verdict.text = text + other_length(visit.view, self.settings)

    def _chosen(self, name: str, _attribute: str, _old: Any, new: Any) -> None:
        if self._setting:
            return
        try:
            value: Any = str(new) if name == "trainer" else new
            if name in ("d", "length", "steps"):
                value = int(new)
            settings = replace(self.settings, **{name: value})
            if name == "length" and value == full_length(self.visit.view):
                settings = replace(settings, length=None)  # which follows the view's again
            if name == "trainer":
                settings = replace(settings, learning_rate=None)
        except (InputError, TypeError, ValueError) as error:
            self.visit.controls.verdict.text = f"<p>{escape(str(error))}.</p>"
        else:
            self.settings = settings
            self.visit.write_address()
            self.show()
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


_ADDRESS = """
  const query = cb_obj.data.query[0];
  if (query !== undefined) window.history.replaceState(null, "", "?" + query);
"""
_DOWNLOAD = """
  const {name, kind, content} = cb_obj.data;
  if (name.length) {
    const bytes = Uint8Array.from(atob(content[0]), c => c.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], {type: kind[0]}));
    link.download = name[0];
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
"""
_COPY = """
  navigator.clipboard.writeText(%s).then(() => {
    const label = button.label;
    button.label = "Copied";
    setTimeout(() => { button.label = label; }, 1200);
  });
"""
_KINDS = {"png": "image/png", "svg": "image/svg+xml", "nc": "application/x-netcdf"}


class Outgoing:
    """Address, files and commands of a page.

    Args:
        visit: the page.
    """

    def __init__(self, visit: Page) -> None:
        self.visit = visit
        self.address = ColumnDataSource({"query": []}, name="address")
        self.address.js_on_change("data", CustomJS(code=_ADDRESS))
        self.download = ColumnDataSource({"name": [], "kind": [], "content": []}, name="download")
        self.download.js_on_change("data", CustomJS(code=_DOWNLOAD))
        c = visit.controls
        self.copied = ColumnDataSource({"shell": [""], "python": [""]}, name="copied")
        c.problem.tags = [self.address, self.download]
        for button, text in ((c.link, "location.href"), (c.copy_shell, "from.data.shell[0]"),
                             (c.copy_python, "from.data.python[0]")):  # fmt: skip
            code = CustomJS(args={"from": self.copied, "button": button}, code=_COPY % text)
            button.js_on_event("button_click", code)
        for key, suffix in (("png", "png"), ("svg", "svg"), ("record", "nc")):
            c.saving[key].on_click(partial(self.save, suffix))
        c.code.on_click(self.show_commands)
        c.load.on_change("value", self._loaded)
        c.code.js_on_event(
            "button_click", CustomJS(code="document.getElementById('commands').showModal()")
        )

    def show_address(self, query: str) -> None:
        """Write the query into the address bar; the page is not loaded again."""
        self.address.data = {"query": [query]}

    def save(self, suffix: str) -> None:
        """Draw or record what is on the screen, and hand it to the browser."""
        visit = self.visit
        view, orbits, runs = visit.view, list(visit.orbits), list(visit.training_runs)
        laid = visit.plane.laid
        visit.say_problem("Being drawn …" if suffix != "nc" else "Being written …")

        def work(stop: Callable[[], bool]) -> Iterator[tuple[str, bytes]]:
            with suppress(Stopped):
                yield saved_file(view, orbits, runs, suffix, stop, laid)

        def show(found: tuple[str, bytes]) -> None:
            name, content = found
            visit.say_problem("")
            self.download.data = {
                "name": [name], "kind": [_KINDS[suffix]], "content": [b64encode(content).decode()],
            }  # fmt: skip

        visit.jobs.start("saving", work, show)

    def _loaded(self, _attribute: str, _old: Any, _new: Any) -> None:
        """A file has come; its name comes after it."""
        self.visit.document.add_next_tick_callback(self._lay_over)

    def _lay_over(self) -> None:
        """Lay the paths of a file over the plane, such as a record of training."""
        visit = self.visit
        if not visit.controls.load.value:  # "Clear all"
            return
        try:
            with TemporaryDirectory() as folder:
                path = Path(folder) / Path(str(visit.controls.load.filename)).name
                path.write_bytes(b64decode(visit.controls.load.value))
                x, y = path_columns(path, visit.view.x, visit.view.y)
        except (InputError, TypeError, ValueError, OSError) as error:
            visit.say_problem(str(error))
            return
        visit.plane.show_paths({**visit.plane.laid, path.stem: np.stack([y, x], axis=-1)})
        visit.try_to(lambda: visit.view)
        visit.show_legend()

    def show_commands(self) -> None:
        """The lines that make the page's contents again."""
        visit = self.visit
        starts_trained = [run.start for run in visit.training_runs]
        lines = command_lines(visit.view, visit.training_settings, starts_trained)
        code = python_lines(visit.view, visit.training_settings, starts_trained)
        visit.controls.shell.text = f"<p><b>In a shell</b></p><pre>{escape(lines)}</pre>"
        visit.controls.python.text = f"<p><b>In Python</b></p><pre>{escape(code)}</pre>"
        self.copied.data = {"shell": [lines], "python": [code]}
