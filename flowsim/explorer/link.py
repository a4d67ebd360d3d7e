"""The view as the query of a link, and back; what a link may not ask for is left out, and said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from flowsim.errors import InputError, integer, number
from flowsim.explorer.training import FullSettings
from flowsim.explorer.view import MOST_STARTS, GaussianCloud, Start, View, Window
from flowsim.spec import BUILT_IN, ModelSpec, built_in, parameters

#: Letters of one value that are read, and values of one name.
_LONGEST, _MOST = 300, MOST_STARTS

#: Parts of the view that are on or off.
_SWITCHES = ("backward", "nullclines")
#: Options whose name in a link is another; a switch there says whether it is not as usual.
_SPELLED = {"hidden_per_state": "hidden", "tied": "untied"}
#: Sizes, switches and words of built-in models, and their defaults.
_OPTIONS = {name: about.default for model in BUILT_IN
            for name, about in parameters(built_in(model)).items()
            if not isinstance(about.default, float)}  # fmt: skip


def to_query(view: View, full: FullSettings | None = None) -> str:
    """Return the query that ``from_query`` reads as this view and these settings of training."""
    pairs = [("model", view.spec.name)]
    if view.spec.is_own:
        pairs += [(f"set-{name}", repr(value)) for name, value in view.numbers.items()]
    else:
        pairs += [(_SPELLED.get(name, name), "1" if isinstance(value, bool) else str(value))
                  for name, value in view.written.items()]  # fmt: skip
    pairs += [(f"fix-{name}", f"{value!r}") for name, value in view.fixed]
    if view.window != view.usual_window:
        x_low, x_high, y_low, y_high = view.window
        pairs += [(_side(view, view.x), f"{x_low!r}:{x_high!r}"),
                  (_side(view, view.y), f"{y_low!r}:{y_high!r}")]  # fmt: skip
    pairs += [("start", f"{y!r},{x!r}") for y, x in view.starts]
    pairs += [(name, "1") for name in _SWITCHES if getattr(view, name)]
    pairs += [("cloud", ",".join(f"{x!r}" for x in view.cloud))] if view.cloud else []
    pairs += [("log", ",".join(view.logs) or "none")] if view.logs is not None else []
    for short, (name, _) in _FULL.items() if full is not None else ():
        value = getattr(full, name)
        if value not in (None, getattr(FullSettings(), name)):
            pairs.append((short, f"{value}"))
    return urlencode(pairs, safe=":,")


def from_query(
    query: Mapping[str, Sequence[bytes | str]], usual: View | None = None
) -> tuple[View, FullSettings, list[str]]:
    """Return the view and the training that a link asks for, and sentences on parts left out.

    ``query`` has lists of texts by name; ``usual`` is the view of a link that asks for nothing.
    """
    view, full = usual or View(), FullSettings()
    by_name: dict[str, list[str]] = {}
    for name, values in query.items():  # as short texts, at least one of a name
        texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
        by_name[name] = [text[:_LONGEST] for text in texts[:_MOST]] or [""]
    problems: list[str] = []
    for name in ("model", *(name for name in by_name if name != "model")):
        try:
            if name == "model":
                view = _read_model(view, by_name)
            elif name in _FULL:
                field, read = _FULL[name]
                full = replace(full, **{field: read(by_name[name][-1])})
            else:
                view = _changed(view, name, by_name[name])
        except (InputError, ValueError) as error:
            problems.append(" ".join(str(error).split())[:200])
    return view, full, problems


def _finite(text: str) -> float:
    """Return the finite number that a text of the link spells; InputError if it spells none."""
    if not math.isfinite(value := number(text)):
        raise InputError(f"a number of the link is none: {text[:40]!r}")
    return value


def _whole(text: str) -> int:
    """Return the integer of at least 0 that a text of the link spells; InputError if none."""
    if (value := integer(text)) < 0:
        raise InputError(f"a whole number of the link is none: {text[:40]!r}")
    return value


#: Settings of full training by their names in a link, and what reads them.
_FULL: dict[str, tuple[str, Callable[[str], Any]]] = {
    "train": ("trainer", str), "d": ("d", _whole), "positions": ("length", _whole),
    "noise": ("noise", _finite), "rate": ("learning_rate", _finite), "steps": ("steps", _whole),
    "seed": ("seed", _whole),
}  # fmt: skip


def _read_model(view: View, by_name: Mapping[str, list[str]]) -> View:
    """Return the view with the model that a link names, or with the options alone that it gives."""
    name = by_name["model"][-1] if "model" in by_name else view.spec.name
    if ":" in name:
        if name != view.spec.name:  # which would be run
            raise InputError("a link opens no model of your own: use flowsim explore --model")
        numbers = {key: _finite(by_name[f"set-{key}"][-1]) for key in view.numbers
                   if f"set-{key}" in by_name}  # fmt: skip
        return view.with_arguments(**{k: type(view.numbers[k])(x) for k, x in numbers.items()})
    options: dict[str, Any] = {}
    for key, usual in _OPTIONS.items():
        if (spelled := _SPELLED.get(key, key)) in by_name:
            text = by_name[spelled][-1]
            if isinstance(usual, bool):
                options[key] = usual != (text == "1")
            else:
                options[key] = _whole(text) if isinstance(usual, int) else text
    if not options and "model" not in by_name:
        return view
    known = parameters(built_in(name))
    kept = {n: x for n, x in view.numbers.items() if type(x) is float and n in known}
    found = replace(view, spec=ModelSpec.first(name, **kept | options), fixed=(), axes=())
    moved = view.window == view.usual_window  # nobody has chosen it
    return replace(found, window=found.usual_window) if moved else found


def _side(view: View, axis: str) -> str:
    """Return the key of an axis's range in a link.

    It is the name of the axis, with "range-" before it if the model has no chain: then coordinates
    may have the names of other keys.
    """
    return axis if view.trainable else f"range-{axis}"


def _changed(view: View, key: str, values: list[str]) -> View:
    """Return the view with a link's values of one key; unknown keys change nothing."""
    text = values[-1]
    if not view.spec.is_own and type(view.spec.get(key)) is float:
        return view.with_arguments(**{key: _finite(text)})
    if key.startswith("fix-"):
        held = {**view.fixed_values, key.removeprefix("fix-"): _finite(text)}
        return replace(view, fixed=tuple(held.items()))
    for place, axis in ((0, view.x), (2, view.y)):
        if key == _side(view, axis):
            bounds: list[float] = list(view.window)
            bounds[place : place + 2] = _parts(text, ":", 2)
            return replace(view, window=Window(*bounds))
    if key == "start":
        return replace(view, starts=tuple(Start(*_parts(text, ",", 2)) for text in values))
    if key in _SWITCHES:
        switch: dict[str, Any] = {key: text == "1"}
        return replace(view, **switch)
    if key == "cloud":
        return replace(view, cloud=GaussianCloud(*_parts(text, ",", 3)))
    if key == "log":
        return replace(view, logs=tuple(word for word in text.split(",") if word != "none"))
    return view


def _parts(text: str, separator: str, count: int) -> list[float]:
    """Return the numbers of a text between separators; InputError unless they are ``count``."""
    parts = text.split(separator)
    if len(parts) != count:
        raise InputError(f"a part of the link needs {count} numbers")
    return [_finite(part) for part in parts]
