"""The widgets around the plane: what is chosen, trained, and taken away from the page."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
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
from flowsim.explorer.export import command_lines, python_lines, saved_file
from flowsim.explorer.page.controls import scale, title_of
from flowsim.explorer.page.messages import describe_run, other_length, why_apart
from flowsim.explorer.training import USUAL_RATE, Run, check_training, training
from flowsim.explorer.view import LOGS, View, full_length
from flowsim.labels import Label


class Choices:
    """Connects the view with the widgets that choose model, arguments, slice and layers."""

    def __init__(self, visit: Any) -> None:
        self.visit, c = visit, visit.controls
        #: True while the widgets are set, so that their callbacks do nothing.
        self.updating = False

        def on_change(widget: Any, change: Callable[[View, Any], View]) -> None:
            """Show the view that a widget's new value makes of the page's."""

            def changed(_attribute: str, _old: Any, new: Any) -> None:
                visit.try_to(lambda: change(visit.view, new))

            widget.on_change("active" if hasattr(widget, "active") else "value", changed)

        on_change(c.a, lambda view, new: view.with_slice(round(float(new), 6)))
        for name, slider in c.sliders.items():
            on_change(slider, partial(_with_argument, name))
        for widget in (c.model, c.options):
            on_change(widget, self._model_chosen)
        on_change(c.backward, lambda view, new: replace(view, backward=bool(new)))
        on_change(c.nullclines, lambda view, new: replace(view, nullclines=bool(new)))
        on_change(c.logs, lambda view, new: replace(view, logs=tuple(
            name for i, name in enumerate(LOGS) if i in new)))  # fmt: skip

    def show(self) -> None:
        """Set the widgets to the view, while their callbacks do nothing."""
        c, view = self.visit.controls, self.visit.view
        spec, known = view.spec, view.spec.parameters
        self.updating = True
        try:
            sliders = {name: slider for name, slider in c.sliders.items() if name in view.numbers}
            pairs = [(c.a, view.fixed_values.get(view.slice_name or "", 0.0))]
            pairs += [(slider, view.numbers[name]) for name, slider in sliders.items()]
            for name, slider in sliders.items():
                slider.title = title_of(name, known[name])
                if known[name].slider is not None:
                    slider.update(**scale(known[name], view.numbers[name]))
            for slider, value in pairs:
                if not abs(slider.value - value) <= 1e-6:  # one that is moved is left alone
                    slider.value = value
            for name, slider in c.sliders.items():
                slider.visible = name in sliders
            c.a.visible = view.slice_name is not None
            c.arguments.visible = bool(sliders.keys() - {"p", "q"})
            c.a.title = f"{view.slice_name}: {'attention of the ' * view.trainable}slice"
            c.place.title = f"Start at {view.x}, {view.y}"
            for widget in c.of_training:
                widget.visible = view.trainable
            c.model.value = spec.name
            c.options.visible = not spec.is_own and {"attention", "tied"} <= known.keys()
            c.options.active = [0] * spec.get("attention", False) + [1] * (
                not spec.get("tied", True)
            )
            c.backward.active = [0] if view.backward else []
            c.nullclines.active = [0] if view.nullclines else []
            c.undo.disabled = not (self.visit.undone or view.starts)
            c.clear.disabled = not (view.starts or view.cloud or self.visit.plane.laid)
        finally:
            self.updating = False

    def _model_chosen(self, view: View, _: Any) -> View:
        """Return the view with the menu's model; if it is the same, with the ticked options."""
        c = self.visit.controls
        on, name = list(c.options.active), str(c.model.value)
        same = name == view.spec.name  # else what is chosen belongs to the model before
        return view.with_model(
            name, **({"attention": 0 in on, "tied": 1 not in on} if same else {})
        )


def _with_argument(argument: str, view: View, new: Any) -> View:
    """Return the view with a slider's new value of an argument, rounded."""
    number = int(new) if type(view.numbers.get(argument)) is int else round(float(new), 9)
    return view.with_arguments(**{argument: number})


#: Runs that are shown at once.
_MOST_RUNS = 8


class TrainerPanel:
    """Settings of full training, the run that is going on, and the runs that are shown."""

    def __init__(self, visit: Any) -> None:
        self.visit, c = visit, visit.controls
        self.busy = self._setting = False
        fields = {"trainer": c.trainer, "d": c.d, "length": c.positions, "noise": c.noise,
                  "learning_rate": c.rate, "steps": c.steps}  # fmt: skip
        for name, widget in fields.items():
            widget.on_change("value", partial(self._chosen, name))
        c.train.on_click(self.train)
        c.whole.on_click(lambda: self.train(whole=True))
        c.halt.on_click(self.halt)
        self._set_widgets()

    def forget(self) -> None:
        """Forget former runs, since the chain or the model has changed."""
        self.visit.jobs.stop("training")
        had, self.busy, self.visit.runs = self.visit.runs, False, []
        self._set_widgets()
        if had:
            self.show()

    def halt(self) -> None:
        """Stop the run that is going on, and keep what it did."""
        if self.busy:
            self.visit.jobs.stop("training")
            self.busy = False
            self.visit.runs[-1].ended = "stopped"
            self.show()

    def train(self, whole: bool = False) -> None:
        """Train from the chosen start, until it is decided or through all of its steps."""
        visit = self.visit
        if not 0 <= visit.chosen < len(visit.orbits):
            return
        self.halt()
        orbit, view = visit.orbits[visit.chosen], visit.view
        try:
            check_training(view, visit.full)
        except InputError as error:
            visit.controls.outcome_text.text = f"<p>{escape(str(error))}.</p>"
            return
        run = Run(orbit.start, visit.full, orbit.label, whole=whole)
        others = [r for r in visit.runs if not (whole and r.start == run.start)]
        visit.runs = [*others, run][-_MOST_RUNS:]
        self.busy = True

        def done() -> None:
            """Show the run as ended."""
            self.busy = False
            run.ended = run.ended or "stopped"  # it failed, which another message reports
            self.show()

        visit.jobs.start(
            "training", lambda stop: training(view, run, stop), lambda _: self.show(),
            pool="training", done=done,
        )  # fmt: skip
        self.show()

    def show(self) -> None:
        """Draw the runs, and say what the last one from the chosen start does; set the buttons."""
        visit, c = self.visit, self.visit.controls
        starts, chosen = visit.view.starts, visit.chosen
        visit.runs = [run for run in visit.runs if run.start in starts]
        self.busy = self.busy and bool(visit.runs)
        visit.plane.show_runs(visit.runs)
        visit.times.show_runs(visit.runs)
        visit.show_legend()
        c.train.disabled = self.busy or not 0 <= chosen < len(visit.orbits)
        c.halt.disabled = not self.busy
        here = starts[chosen] if 0 <= chosen < len(starts) else None
        run = next((run for run in reversed(visit.runs) if run.start == here), None)
        if run is None:
            text = "" if starts else "<p>First click a start.</p>"
        elif run.ended and run.outcome != Label.UNRESOLVED:
            said = escape(describe_run(visit.view, run))
            text = f"<p><b>{said}</b>{why_apart(run, visit.orbits[chosen])}</p>"
        else:
            text = f"<p>{escape(describe_run(visit.view, run))}</p>"
        c.whole.disabled = self.busy or run is None or run.ended != "decided"
        c.outcome_text.text = text + other_length(visit.view, visit.full)

    def _chosen(self, setting: str, _attribute: str, _old: Any, new: Any) -> None:
        """Take over a new value of a setting of training, or say why it is refused."""
        if self._setting:
            return
        try:
            value: Any = new
            if setting in ("d", "length", "steps"):
                value = int(new)
                if value != new:
                    raise InputError(f"{setting} must be a whole number, not {new:g}")
            settings = replace(self.visit.full, **{setting: value})
            if setting == "length" and value == full_length(self.visit.view):
                settings = replace(settings, length=None)  # which follows the view's again
            if setting == "trainer":
                settings = replace(settings, learning_rate=None)
        except (InputError, TypeError, ValueError) as error:
            self.visit.controls.outcome_text.text = f"<p>{escape(str(error))}.</p>"
        else:
            self.visit.full = settings
            self.visit.write_address()
            self.show()
        self._set_widgets()

    def _set_widgets(self) -> None:
        """Set the widgets to the settings of training, while their callbacks do nothing."""
        c, settings = self.visit.controls, self.visit.full
        self._setting = True
        try:
            c.trainer.value, c.d.value = settings.trainer, settings.d
            c.positions.value = settings.length or full_length(self.visit.view)
            c.noise.value, c.steps.value = settings.noise, settings.steps
            c.rate.disabled = settings.trainer == "flow"
            c.rate.value = settings.rate if settings.rate is not None else USUAL_RATE["gd"]
        finally:
            self._setting = False


_ADDRESS = """
  const query = cb_obj.data.query[0];
  if (query !== undefined) window.history.replaceState(null, "", "?" + query);
"""
_COPY = """
  navigator.clipboard.writeText(%s).then(() => {
    const label = button.label;
    button.label = "Copied";
    setTimeout(() => { button.label = label; }, 1200);
  });
"""
_SHOW_COMMANDS = "document.getElementById('commands').showModal()"
_KINDS = {"png": "image/png", "svg": "image/svg+xml", "nc": "application/x-netcdf"}


class Outgoing:
    """The page's address, the files that are saved or laid over the plane, and its commands."""

    def __init__(self, visit: Any) -> None:
        self.visit, c = visit, visit.controls
        self.address = ColumnDataSource({"query": []}, name="address")
        self.address.js_on_change("data", CustomJS(code=_ADDRESS))
        self.download = ColumnDataSource({"name": [], "kind": [], "content": []}, name="download")
        saved = CustomJS.from_file(Path(__file__).with_name("download.js"))
        self.download.js_on_change("data", saved)
        self.copied = ColumnDataSource({"shell": [""], "python": [""]}, name="copied")
        c.problem.tags = [self.address, self.download]
        for button, text in ((c.link, "location.href"), (c.copy_shell, "from.data.shell[0]"),
                             (c.copy_python, "from.data.python[0]")):  # fmt: skip
            code = CustomJS(args={"from": self.copied, "button": button}, code=_COPY % text)
            button.js_on_event("button_click", code)
        for key, suffix in (("png", "png"), ("svg", "svg"), ("record", "nc")):
            c.saving[key].on_click(partial(self.save, suffix))
        c.code.on_click(self.show_commands)
        c.code.js_on_event("button_click", CustomJS(code=_SHOW_COMMANDS))
        # a file has come; its name comes after it
        later = visit.document.add_next_tick_callback
        c.load.on_change("value", lambda _attribute, _old, _new: later(self._lay_over))

    def save(self, suffix: str) -> None:
        """Draw (png, svg) or record (nc) what is on the page, and hand the file to the browser."""
        visit = self.visit
        shown = visit.view, list(visit.orbits), list(visit.runs), suffix
        laid = visit.plane.laid
        visit.say_problem("Being drawn …" if suffix != "nc" else "Being written …")

        def show(found: tuple[str, bytes]) -> None:
            """Hand the file, its name and bytes, to the browser."""
            name, content = found
            visit.say_problem("")
            self.download.data = {
                "name": [name], "kind": [_KINDS[suffix]], "content": [b64encode(content).decode()],
            }  # fmt: skip

        visit.jobs.start("saving", lambda stop: [saved_file(*shown, stop, laid)], show)

    def _lay_over(self) -> None:
        """Draw the paths of the file that was chosen over the plane."""
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
        """Write the shell and Python lines that repeat what the page shows."""
        visit = self.visit
        shown = visit.view, visit.full, [run.start for run in visit.runs]
        lines, code = command_lines(*shown), python_lines(*shown)
        visit.controls.shell.text = f"<p><b>In a shell</b></p><pre>{escape(lines)}</pre>"
        visit.controls.python.text = f"<p><b>In Python</b></p><pre>{escape(code)}</pre>"
        self.copied.data = {"shell": [lines], "python": [code]}
