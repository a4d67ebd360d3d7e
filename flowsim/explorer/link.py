"""The view as the query of a link, and back; what a link may not ask for is left out, and said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
#: Settings of full training by their names in a link.
_FULL = {"train": "trainer", "d": "d", "positions": "length", "noise": "noise",
         "rate": "learning_rate", "steps": "steps", "seed": "seed"}  # fmt: skip

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
    if full is not None:
        usual = FullSettings()
        values = {short: getattr(full, name) for short, name in _FULL.items()}
        pairs += [(short, f"{value}") for short, value in values.items()
                  if value != getattr(usual, _FULL[short]) and value is not None]  # fmt: skip
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
    problems: list[str] = []
    words = {name: _words(values) for name, values in query.items()}
    if not words:
        return view, full, problems
    for read in (_read_model, _read_chain, _read_fixed, _read_window, _read_starts, _read_puff,
                 _read_logs):  # fmt: skip
        try:
            view = read(view, words)
        except (InputError, ValueError) as error:
            problems.append(_sentence(error))
    for short, name in _FULL.items():
        if short in words:
            try:
                value: Any = _full_value(name, words[short][-1])
                full = replace(full, **{name: value})
            except (InputError, ValueError) as error:
                problems.append(_sentence(error))
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


def _full_value(name: str, text: str) -> Any:
    if name == "trainer":
        return text
    return _number(text) if name in ("noise", "learning_rate") else _whole(text)


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


def _read_chain(view: View, words: Mapping[str, list[str]]) -> View:
    p, q = (_number(words[n][-1]) if n in words else getattr(view, n) for n in ("p", "q"))
    return view.on_chain(p, q)


def _read_fixed(view: View, words: Mapping[str, list[str]]) -> View:
    found = {name[4:]: _number(words[name][-1]) for name in words if name.startswith("fix-")}
    return replace(view, fixed=tuple(found.items())) if found else view


def _read_window(view: View, words: Mapping[str, list[str]]) -> View:
    sides: list[float] = list(view.window)
    for place, name in ((0, _side(view, view.x)), (2, _side(view, view.y))):
        if name in words:
            sides[place : place + 2] = _parts(words[name][-1], ":", 2)
    return replace(view, window=Window(*sides))


def _side(view: View, axis: str) -> str:
    """What a link calls an axis; a user's may have the name of something else."""
    return axis if view.trains else f"range-{axis}"


def _read_starts(view: View, words: Mapping[str, list[str]]) -> View:
    backward = words["backward"][-1] == "1" if "backward" in words else view.backward
    starts = [Start(*_parts(text, ",", 2)) for text in words.get("start", [])]
    return replace(view, starts=tuple(starts) or view.starts, backward=backward)


def _read_logs(view: View, words: Mapping[str, list[str]]) -> View:
    if "log" not in words:
        return view
    return replace(view, logs=tuple(name for name in words["log"][-1].split(",") if name != "none"))


def _read_puff(view: View, words: Mapping[str, list[str]]) -> View:
    if "cloud" not in words:
        return view
    return replace(view, puff=Puff(*_parts(words["cloud"][-1], ",", 3)))


def _parts(text: str, separator: str, count: int) -> list[float]:
    parts = text.split(separator)
    if len(parts) != count:
        raise InputError(f"a part of the link needs {count} numbers")
    return [_number(part) for part in parts]


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
