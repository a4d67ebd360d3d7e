"""The widgets of the page: what can be chosen, and nothing of what happens then."""

from __future__ import annotations

import math
from typing import Any

from bokeh.layouts import column
from bokeh.models import (
    Button,
    CheckboxGroup,
    Div,
    FileInput,
    InlineStyleSheet,
    RadioButtonGroup,
    Select,
    Slider,
    Spinner,
    TextInput,
)

from flowsim.explorer.training import MOST_D, MOST_N, MOST_NOISE, MOST_RATE, MOST_STEPS
from flowsim.explorer.view import MOST_POSITIONS, MOST_STATES, View
from flowsim.models.catalogue import MODELS, family_of

TRAINER_WORDS = [
    ("gd", "gradient descent"), ("flow", "gradient flow"), ("sgd", "SGD"), ("adamw", "AdamW"),
]  # fmt: skip
#: What a drag does, in the order of the buttons.
ZOOM, MOVE, CLOUD = 0, 1, 2
_STYLE = """
  :host { font: 14px/1.35 system-ui, sans-serif; color: #111; margin: 2px 0; }
  .bk-input, .bk-btn { font-size: 13px; }
  input.bk-input { padding: 0 5px; }
  .bk-btn.bk-btn { padding: 6px 3px; font-size: 12.5px; }
  .bk-btn:focus-visible, .bk-input:focus-visible, input:focus-visible, .noUi-handle:focus-visible {
    outline: 3px solid #00537f; outline-offset: 1px; }
"""


def model_words(view: View) -> list[tuple[str, str]]:
    """The models that the page shows, by their names, with what a menu calls them; first the
    user's own, if the page was opened with one."""
    families = [view.choice.family] if view.choice.name not in MODELS else []
    return [(family.name, family.title) for family in (*families, *map(family_of, MODELS))]


class Controls:
    """All widgets of a page, by what they are for.

    Args:
        view: what the page begins with.
    """

    def __init__(self, view: View) -> None:
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "stylesheets": [_look()]}
        self.model = Select(title="Model", options=model_words(view), name="model", **wide)
        self.p = _slider("p: chance of 1 after 0", 0.01, 0.99, "p")
        self.q = _slider("q: chance of 0 after 1", 0.01, 0.99, "q")
        self.a = _slider("a: attention of the slice", -2.0, 2.0, "a", 0.05)
        self.sliders = {name: _slider(name, *_range(value), name, _step(value))
                        for name, value in view.arguments.items()}  # fmt: skip
        self.arguments = column(*self.sliders.values(), sizing_mode="stretch_width")
        self.arguments.name = "arguments"
        self.length = Spinner(title="N, positions", low=1, high=MOST_POSITIONS, step=1,
                              name="length", **wide)  # fmt: skip
        self.states = Spinner(title="S, states", low=2, high=MOST_STATES, step=1, name="states",
                              **wide)  # fmt: skip
        self.options = CheckboxGroup(labels=["attention", "untied"], name="options",
                                     inline=True, **wide)  # fmt: skip
        self.reading = _words("reading")
        self.drag = RadioButtonGroup(labels=["zooms", "moves", "throws a cloud"], active=ZOOM,
                                     name="drag", **wide)  # fmt: skip
        self.back = Button(label="Zoom back", name="back", **wide)
        self.closer = Button(label="Zoom in", name="closer", **wide)
        self.reset = Button(label="Reset", name="reset", **wide)
        self.logs = CheckboxGroup(labels=["log time", "log excess loss"], inline=True, name="logs",
                                  **wide)  # fmt: skip
        self.under = _words("under")
        self.undo = Button(label="Undo", name="undo", **wide)
        self.clear = Button(label="Clear all", name="clear", **wide)
        self.backward = CheckboxGroup(labels=["also backward in time"], name="backward", **wide)
        self.place = TextInput(placeholder="-1.2, 0.5", name="place", **wide)
        self.go = Button(label="Start", name="go", **wide)
        self.legend = _words("legend")
        self.story = _words("story")
        self.cloud = _words("cloud")
        self.problem = _words("problem")
        self.problem.visible = False
        self._add_training(wide)
        self._add_saving(wide)

    def _add_training(self, wide: dict[str, Any]) -> None:
        self.heading = _words("heading")
        self.heading.text = "<b>Train the full transformer from the chosen start</b>"
        self.trainer = Select(title="Trainer", options=TRAINER_WORDS, value="gd", name="trainer",
                              **wide)  # fmt: skip
        self.d = Spinner(title="width d", low=1, high=MOST_D, step=1, value=8, name="d", **wide)
        self.positions = Spinner(title="N", low=1, high=MOST_N, step=1, value=8, name="positions",
                                 **wide)  # fmt: skip
        self.noise = Spinner(title="noise", low=0, high=MOST_NOISE, step=0.01, value=0.0,
                             name="noise", **wide)  # fmt: skip
        self.rate = Spinner(title="rate", low=1e-6, high=MOST_RATE, step=0.01, value=0.1,
                            name="rate", **wide)  # fmt: skip
        self.steps = Spinner(title="steps", low=1, high=MOST_STEPS, step=500, value=4000,
                             name="steps", **wide)  # fmt: skip
        self.train = Button(label="Train", button_type="primary", name="train", disabled=True,
                            **wide)  # fmt: skip
        self.halt = Button(label="Stop", name="halt", disabled=True, **wide)
        self.whole = Button(label="Run to the end", name="whole", disabled=True, **wide)
        self.verdict = _words("verdict")

    def _add_saving(self, wide: dict[str, Any]) -> None:
        words = {"png": "Save PNG", "svg": "Save SVG", "record": "Save record"}
        self.saving = {key: Button(label=words[key], name=key, **wide) for key in words}
        self.load = FileInput(accept=".csv,.nc", title="Lay a path over it", name="load", **wide)
        self.link = Button(label="Copy link", name="link", **wide)
        self.code = Button(label="Commands", name="code", **wide)
        self.shell, self.python = _words("shell"), _words("python")
        self.copy_shell = Button(label="Copy", name="copy_shell", width=90)
        self.copy_python = Button(label="Copy", name="copy_python", width=90)

    @property
    def of_training(self) -> tuple[Any, ...]:
        """The widgets of full training."""
        return (
            self.heading, self.trainer, self.d, self.positions, self.noise, self.rate, self.steps,
            self.train, self.halt, self.whole, self.verdict,
        )  # fmt: skip

    def roots(self) -> dict[str, Any]:
        """Every widget by its name, for the page's template."""
        widgets = [value for value in vars(self).values() if hasattr(value, "name")]
        return {widget.name: widget for widget in (*widgets, *self.saving.values())}


def _look() -> InlineStyleSheet:
    """The style of one page's widgets: pages share no models, which end with their page."""
    return InlineStyleSheet(css=_STYLE)


def _range(value: float) -> tuple[float, float]:
    """Where the slider of an argument ends: four times its value to both sides, or from −1 to 1."""
    reach = 4 * abs(value) or 1.0
    return -reach, reach


def _step(value: float) -> float:
    """A hundredth of the range, rounded down to 1, 2 or 5 of a power of ten; 1 of whole numbers."""
    if isinstance(value, int):
        return 1
    part = _range(value)[1] / 50
    power = 10.0 ** math.floor(math.log10(part))
    return next(power * digit for digit in (5, 2, 1) if power * digit <= part)


def _slider(title: str, low: float, high: float, name: str, step: float = 0.01) -> Slider:
    return Slider(
        start=low, end=high, step=step, value=low, title=title, name=name, tooltips=False,
        sizing_mode="stretch_width", stylesheets=[_look()], bar_color="#7fb2d4",
    )  # fmt: skip


def _words(name: str) -> Div:
    style = InlineStyleSheet(css="""
      :host { font: 14px/1.4 system-ui, sans-serif; color: #111; width: 100%; margin: 2px 0; }
      .bk-clearfix { display: block; width: 100%; }
      p { margin: 0 0 3px 0; }
      .legend { display: flex; flex-wrap: wrap; gap: 1px 14px; font-size: 12.5px; }
      .legend span { display: inline-flex; align-items: center; gap: 5px; white-space: nowrap; }
      pre { margin: 0; white-space: pre-wrap; font-size: 12px; }
    """)  # fmt: skip
    return Div(text="", name=name, sizing_mode="stretch_width", stylesheets=[style])
