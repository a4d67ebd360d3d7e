"""Model, chain and slice: the widgets that choose them, and that show what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flowsim.explorer.page.page_parts import Page
from flowsim.explorer.view import View


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
            c.clear.disabled = not view.starts and view.puff is None
        finally:
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
