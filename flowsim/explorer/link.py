"""The view as the query of a link, and back; what a link may not ask for is left out, and said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from flowsim.errors import InputError
from flowsim.explorer.training import FullSettings
from flowsim.explorer.view import MOST_STARTS, Puff, Start, View, Window
from flowsim.models.catalogue import MODELS, ModelChoice, family_of
from flowsim.models.own import is_own

#: Letters of one value that are read, and values of one name.
_LONGEST, _MOST = 300, MOST_STARTS

#: Options whose name in a link is another; a switch there says whether it is not as usual.
_SPELLED = {"hidden_per_state": "hidden", "tied": "untied"}


def to_query(view: View, full: FullSettings | None = None) -> str:
    """The query that ``from_query`` reads as this view; numbers are written so that they return."""
    pairs = [("model", view.choice.name), *_model_pairs(view)]
    pairs += [(name, repr(getattr(view, name))) for name in view.choice.family.data]
    pairs += [(f"fix-{name}", f"{value!r}") for name, value in view.fixed]
    if view.window != view.usual_window:
        x_low, x_high, y_low, y_high = view.window
        pairs += [(_side(view, view.x), f"{x_low!r}:{x_high!r}"),
                  (_side(view, view.y), f"{y_low!r}:{y_high!r}")]  # fmt: skip
    pairs += [("start", f"{y!r},{x!r}") for y, x in view.starts]
    pairs += [("backward", "1")] if view.backward else []
    pairs += [("cloud", ",".join(f"{x!r}" for x in view.puff))] if view.puff else []
    pairs += [("log", ",".join(view.logs) or "none")] if view.logs is not None else []
    for short, (name, _) in _FULL.items() if full is not None else ():
        value = getattr(full, name)
        if value not in (None, getattr(FullSettings(), name)):
            pairs.append((short, f"{value}"))
    return urlencode(pairs, safe=":,")


def from_query(
    query: Mapping[str, Sequence[bytes | str]], usual: View | None = None
) -> tuple[View, FullSettings, list[str]]:
    """The view that a link asks for.

    Args:
        query: every name's values, as a server parses them.
        usual: what is shown without a query.

    Returns:
        (view, settings of full training, problems): a part of the link that is not understood or
        out of bounds changes nothing, and is named in the problems, one plain sentence each.
    """
    view, full = usual or View(), FullSettings()
    words = {name: _words(values) for name, values in query.items()}
    problems: list[str] = []
    for name in ("model", *(name for name in words if name != "model")):
        try:
            if name == "model":
                view = _read_model(view, words)
            elif name in _FULL:
                field, read = _FULL[name]
                full = replace(full, **{field: read(words[name][-1])})
            else:
                view = _changed(view, name, words[name])
        except (InputError, ValueError) as error:
            problems.append(" ".join(str(error).split())[:200])
    return view, full, problems


def _words(values: Sequence[bytes | str]) -> list[str]:
    """The values as short texts, at least one."""
    texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
    return [text[:_LONGEST] for text in texts[:_MOST]] or [""]


def _number(text: str) -> float:
    value = float(text) if text.isascii() else math.nan
    if not math.isfinite(value):
        raise InputError("a number of the link is none")
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError("a whole number of the link is none")
    return int(text)


#: Settings of full training by their names in a link, and what reads them.
_FULL: dict[str, tuple[str, Callable[[str], Any]]] = {
    "train": ("trainer", str), "d": ("d", _whole), "positions": ("length", _whole),
    "noise": ("noise", _number), "rate": ("learning_rate", _number), "steps": ("steps", _whole),
    "seed": ("seed", _whole),
}  # fmt: skip


def _model_pairs(view: View) -> list[tuple[str, str]]:
    """The model's sizes, and those of its other options that are not the usual ones; of a user's
    own the numbers with which it is made."""
    if is_own(view.model):
        return [(f"set-{name}", repr(value)) for name, value in view.arguments.items()]
    pairs = []
    for name, value in view.choice.options.items():
        usual = view.choice.family.options[name].default
        if type(value) is int or value != usual:
            text = "1" if isinstance(value, bool) else str(value)
            pairs.append((_SPELLED.get(name, name), text))
    return pairs


def _read_model(view: View, words: Mapping[str, list[str]]) -> View:
    known = {k: option.default for n in MODELS for k, option in family_of(n).options.items()}
    given = {name: words[_SPELLED.get(name, name)][-1] for name in known
             if _SPELLED.get(name, name) in words}  # fmt: skip
    if not given and "model" not in words:
        return view
    options: dict[str, Any] = {
        name: _option_value(known[name], text) for name, text in given.items()
    }
    name = words["model"][-1] if "model" in words else view.choice.name
    if name == view.choice.name and ":" in name:
        return _read_arguments(view, words)
    if ":" in name:  # which would be run
        raise InputError("a link opens no model of your own: use flowsim explore --model")
    found = replace(view, choice=ModelChoice(name, **options), fixed=(), axes=())
    moved = view.window == view.usual_window  # nobody has chosen it
    return replace(found, window=found.usual_window) if moved else found


def _read_arguments(view: View, words: Mapping[str, list[str]]) -> View:
    """The user's own model that is served, with other numbers."""
    found: dict[str, Any] = {}
    for name, value in view.arguments.items():
        if f"set-{name}" in words:
            number = _number(words[f"set-{name}"][-1])
            found[name] = int(number) if type(value) is int else number
    return view.with_model(view.choice.name, **found)


def _option_value(usual: object, text: str) -> object:
    if isinstance(usual, bool):
        return usual != (text == "1")
    return _whole(text) if isinstance(usual, int) else text


def _side(view: View, axis: str) -> str:
    """What a link calls an axis; a user's may have the name of something else."""
    return axis if view.trains else f"range-{axis}"


def _changed(view: View, name: str, texts: list[str]) -> View:
    """The view with what a link says under one name; names that mean nothing change nothing."""
    text = texts[-1]
    if name in ("p", "q"):
        return view.on_chain(**{"p": view.p, "q": view.q, name: _number(text)})
    if name.startswith("fix-"):
        held = {**view.held, name.removeprefix("fix-"): _number(text)}
        return replace(view, fixed=tuple(held.items()))
    for place, axis in ((0, view.x), (2, view.y)):
        if name == _side(view, axis):
            sides: list[float] = list(view.window)
            sides[place : place + 2] = _parts(text, ":", 2)
            return replace(view, window=Window(*sides))
    if name == "start":
        return replace(view, starts=tuple(Start(*_parts(text, ",", 2)) for text in texts))
    if name == "backward":
        return replace(view, backward=text == "1")
    if name == "cloud":
        return replace(view, puff=Puff(*_parts(text, ",", 3)))
    if name == "log":
        return replace(view, logs=tuple(word for word in text.split(",") if word != "none"))
    return view


def _parts(text: str, separator: str, count: int) -> list[float]:
    parts = text.split(separator)
    if len(parts) != count:
        raise InputError(f"a part of the link needs {count} numbers")
    return [_number(part) for part in parts]
