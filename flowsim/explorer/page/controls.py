"""The widgets of the page: what can be chosen, and nothing of what happens then."""

from __future__ import annotations

import math
from typing import Any

from bokeh import models
from bokeh.layouts import column

from flowsim.explorer.training import MOST_D, MOST_N, MOST_NOISE, MOST_RATE, MOST_STEPS
from flowsim.explorer.view import View
from flowsim.spec import BUILT_IN, Parameter, built_in, parameters

TRAINER_WORDS = [
    ("gd", "gradient descent"), ("flow", "gradient flow"), ("sgd", "SGD"), ("adamw", "AdamW"),
    ("adamw-papers", "AdamW, papers' recipe"),
]  # fmt: skip
#: Modes of a drag, in the order of the buttons.
ZOOM, MOVE, CLOUD = 0, 1, 2
_STYLE = """
  :host { font: 14px/1.35 system-ui, sans-serif; color: #111; margin: 2px 0; }
  .bk-input, .bk-btn { font-size: 13px; }
  input.bk-input { padding: 0 5px; }
  .bk-slider-title { white-space: normal; }
  .bk-btn.bk-btn { padding: 6px 3px; font-size: 12.5px; }
  .bk-btn:focus-visible, .bk-input:focus-visible, input:focus-visible, .noUi-handle:focus-visible {
    outline: 3px solid #00537f; outline-offset: 1px; }
"""


def model_words(view: View) -> list[tuple[str, str]]:
    """Return the models of the menu as pairs (name, title); a user's own comes first."""
    own = [(view.spec.name, view.spec.name.rpartition(":")[2])] if view.spec.is_own else []
    return own + [(name, built_in(name).title) for name in BUILT_IN]


class Controls:
    """All widgets of one page, as attributes.

    Each has a ``name``, by which the template page.html places it. ``p`` and ``q`` are the first
    two sliders, and ``arguments`` is the column of all others.
    """

    def __init__(self, view: View) -> None:
        self._wide: dict[str, Any] = {"sizing_mode": "stretch_width", "stylesheets": [_look()]}
        self.model = self._widget(models.Select, "model", title="Model", options=model_words(view))
        abouts = {argument: about for name in BUILT_IN
                  for argument, about in parameters(built_in(name)).items()
                  if type(about.default) in (int, float)}  # fmt: skip
        values = {argument: about.default for argument, about in abouts.items()} | view.numbers
        abouts |= view.spec.parameters
        #: A slider for every numeric argument, by its name.
        self.sliders = {name: _slider(name, x, abouts[name]) for name, x in values.items()}
        self.p, self.q, *others = self.sliders.values()
        self.arguments = column(*others, sizing_mode="stretch_width", name="arguments")
        self.a = _slider("a", 0.0, Parameter(0.0, "attention of the slice", slider=(-2.0, 2.0)))
        self.options = self._boxes("options", "attention", "untied")
        self.window_text = _words("reading")
        ways = ["zooms", "moves", "throws a cloud"]
        self.nullclines = self._boxes("nullclines", "nullclines")
        self.drag = self._widget(models.RadioButtonGroup, "drag", active=ZOOM, labels=ways)
        self.back = self._button("Zoom back", "back")
        self.closer = self._button("Zoom in", "closer")
        self.reset = self._button("Reset", "reset")
        self.logs = self._boxes("logs", "log time", "log excess loss")
        self.cursor_text = _words("under")
        self.undo = self._button("Undo", "undo")
        self.clear = self._button("Clear all", "clear")
        self.backward = self._boxes("backward", "also backward in time")
        self.place = self._widget(models.TextInput, "place", placeholder="-1.2, 0.5")
        self.go = self._button("Start", "go")
        self.legend, self.cloud = _words("legend"), _words("cloud")
        self.trajectory_text = _words("story")
        self.problem = _words("problem", visible=False)
        heading = "<b>Train the full transformer from the chosen start</b>"
        self.heading = _words("heading", text=heading)
        self.trainer = self._widget(
            models.Select, "trainer", title="Trainer", options=TRAINER_WORDS, value="gd"
        )
        self.d = self._spinner("width", "d", 1, MOST_D, value=8)
        self.positions = self._spinner("N", "positions", 1, MOST_N, value=8)
        self.noise = self._spinner("noise", "noise", 0, MOST_NOISE, step=0.01, value=0.0)
        self.rate = self._spinner("rate", "rate", 1e-6, MOST_RATE, step=0.01, value=0.1)
        self.steps = self._spinner("steps", "steps", 1, MOST_STEPS, step=500, value=4000)
        self.train = self._button("Train", "train", button_type="primary", disabled=True)
        self.halt = self._button("Stop", "halt", disabled=True)
        self.whole = self._button("Run to the end", "whole", disabled=True)
        self.outcome_text = _words("verdict")
        #: The widgets of full training.
        self.of_training = [
            self.heading, self.trainer, self.d, self.positions, self.noise, self.rate, self.steps,
            self.train, self.halt, self.whole, self.outcome_text,
        ]  # fmt: skip
        words = {"png": "Save PNG", "svg": "Save SVG", "record": "Save record"}
        self.saving = {name: self._button(label, name) for name, label in words.items()}
        self.load = self._widget(
            models.FileInput, "load", accept=".csv,.nc", title="Lay a path over it"
        )
        self.link, self.code = self._button("Copy link", "link"), self._button("Commands", "code")
        self.shell, self.python = _words("shell"), _words("python")
        self.copy_shell = models.Button(label="Copy", name="copy_shell", width=90)
        self.copy_python = models.Button(label="Copy", name="copy_python", width=90)

    def _widget(self, kind: Any, key: str, **more: Any) -> Any:
        """Make a widget of a bokeh class, called ``key``, in the page's style and full width."""
        return kind(name=key, **self._wide, **more)

    def _button(self, label: str, key: str, **more: Any) -> Any:
        """Make a button called ``key`` with this label."""
        return self._widget(models.Button, key, label=label, **more)

    def _spinner(self, title: str, key: str, low: float, high: float, **more: Any) -> Any:
        """Make a field for a number from ``low`` to ``high``; its step is 1 unless given."""
        return self._widget(
            models.Spinner, key, title=title, low=low, high=high, **{"step": 1, **more}
        )

    def _boxes(self, key: str, *labels: str) -> Any:
        """Make check boxes with these labels, side by side if there are several."""
        return self._widget(models.CheckboxGroup, key, labels=list(labels), inline=len(labels) > 1)

    def roots(self) -> list[Any]:
        """Every widget, which the page's template finds by its name."""
        widgets = [value for value in vars(self).values() if hasattr(value, "name")]
        return [*widgets, *self.saving.values()]


def _look() -> models.InlineStyleSheet:
    """Return a new style sheet for a widget; pages cannot share one, which ends with its page."""
    return models.InlineStyleSheet(css=_STYLE)


def scale(about: Parameter, value: float) -> dict[str, float]:
    """Return ``start``, ``end`` and ``step`` of a parameter's slider.

    The ends are those that the parameter declares; else four times the value to both sides of 0, or
    −1 and 1 for the value 0. They are rounded inwards to multiples of the step.
    """
    reach = 4 * abs(value) or 1.0
    low, high = about.slider or (-reach, reach)
    step = 1 if isinstance(value, int) else 10.0 ** math.floor(math.log10((high - low) / 50))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return {"start": first * step, "end": last * step, "step": step}


def _slider(argument: str, value: float, about: Parameter) -> models.Slider:
    """Make the slider of a model's argument, at this value."""
    return models.Slider(
        **scale(about, value), value=value, title=title_of(argument, about), name=argument,
        sizing_mode="stretch_width", stylesheets=[_look()], bar_color="#7fb2d4", tooltips=False,
    )  # fmt: skip


def title_of(argument: str, about: Parameter) -> str:
    """Return "argument: help", or the argument alone if its help is just its name."""
    return argument if argument == about.help else f"{argument}: {about.help}"


def _words(key: str, **more: Any) -> models.Div:
    """Make a block of HTML called ``key``, empty unless ``text`` is given."""
    style = models.InlineStyleSheet(css="""
      :host { font: 14px/1.4 system-ui, sans-serif; color: #111; width: 100%; margin: 2px 0; }
      .bk-clearfix { display: block; width: 100%; }
      p { margin: 0 0 3px 0; }
      .legend { display: flex; flex-wrap: wrap; gap: 1px 14px; font-size: 12.5px; }
      .legend span { display: inline-flex; align-items: center; gap: 5px; white-space: nowrap; }
      pre { margin: 0; white-space: pre-wrap; font-size: 12px; }
    """)  # fmt: skip
    return models.Div(
        name=key, sizing_mode="stretch_width", stylesheets=[style], **{"text": "", **more}
    )
