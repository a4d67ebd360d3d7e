"""The view as the query of a link, and back; what a link may not ask for is left out, and said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from flowsim.errors import InputError
from flowsim.explorer.full_settings import FullSettings
from flowsim.explorer.view import MOST_STARTS, Puff, Start, View, Window
from flowsim.models.catalogue import ModelChoice

#: Letters of one value that are read, and values of one name.
_LONGEST, _MOST = 80, MOST_STARTS
#: Settings of full training by their names in a link.
_FULL = {"train": "trainer", "d": "d", "positions": "length", "noise": "noise",
         "rate": "learning_rate", "steps": "steps", "seed": "seed"}  # fmt: skip


def to_query(view: View, full: FullSettings | None = None) -> str:
    """The query that ``from_query`` reads as this view; numbers are written so that they return."""
    pairs = [("model", view.choice.name), *_model_pairs(view), ("p", f"{view.p!r}")]
    pairs += [("q", f"{view.q!r}")] if view.choice.states is None else []
    pairs += [(f"fix-{name}", f"{value!r}") for name, value in view.fixed]
    if view.window != Window():
        w_low, w_high, e_low, e_high = view.window
        pairs += [("w", f"{w_low!r}:{w_high!r}"), ("e", f"{e_low!r}:{e_high!r}")]
    pairs += [("start", f"{e!r},{w!r}") for e, w in view.starts]
    pairs += [("backward", "1")] if view.backward else []
    pairs += [("cloud", ",".join(f"{x!r}" for x in view.puff))] if view.puff else []
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
    for read in (_read_model, _read_chain, _read_fixed, _read_window, _read_starts, _read_puff):
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
    """The model's options that are not the usual ones."""
    choice, pairs = view.choice, []
    if choice.length is not None:
        pairs.append(("length", str(choice.length)))
    if choice.states is not None:
        pairs += [("states", str(choice.states)), ("hidden", str(choice.hidden_per_state))]
    pairs += [("attention", "1")] if choice.attention else []
    pairs += [("untied", "1")] if not choice.tied else []
    pairs += [("bias", choice.bias)] if choice.bias != "optimal" else []
    return pairs


def _read_model(view: View, words: Mapping[str, list[str]]) -> View:
    own = ("model", "length", "states", "hidden", "attention", "untied", "bias")
    given = {name: words[name][-1] for name in own if name in words}
    if not given:
        return view
    options: dict[str, object] = {
        "length": _whole(given["length"]) if "length" in given else None,
        "states": _whole(given["states"]) if "states" in given else None,
        "hidden_per_state": _whole(given["hidden"]) if "hidden" in given else None,
        "attention": given.get("attention") == "1",
        "tied": given.get("untied") != "1",
        "bias": given.get("bias", "optimal"),
    }
    choice = ModelChoice(given.get("model", view.choice.name), **options)  # type: ignore[arg-type]
    return replace(view, choice=choice, fixed=())


def _read_chain(view: View, words: Mapping[str, list[str]]) -> View:
    p, q = (_number(words[n][-1]) if n in words else getattr(view, n) for n in ("p", "q"))
    return view.on_chain(p, q)


def _read_fixed(view: View, words: Mapping[str, list[str]]) -> View:
    found = {name[4:]: _number(words[name][-1]) for name in words if name.startswith("fix-")}
    return replace(view, fixed=tuple(found.items())) if found else view


def _read_window(view: View, words: Mapping[str, list[str]]) -> View:
    sides: list[float] = list(view.window)
    for place, name in ((0, "w"), (2, "e")):
        if name in words:
            sides[place : place + 2] = _parts(words[name][-1], ":", 2)
    return replace(view, window=Window(*sides))


def _read_starts(view: View, words: Mapping[str, list[str]]) -> View:
    backward = words["backward"][-1] == "1" if "backward" in words else view.backward
    starts = [Start(*_parts(text, ",", 2)) for text in words.get("start", [])]
    return replace(view, starts=tuple(starts) or view.starts, backward=backward)


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
