"""The attributes of a record about its model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowsim.labels import BASINS
from flowsim.own import source_digest, source_of
from flowsim.spec import attributes_of, is_own, kept_arguments, options_of

if TYPE_CHECKING:
    from flowsim.interface import Model

#: A record keeps the source of a model up to this size.
MOST_SOURCE = 65_536


def model_attributes(
    model: Model, varied: Sequence[str] = (), last: Model | None = None
) -> dict[str, Any]:
    """The attributes of a record from which its model is built again.

    For models that differ in the ``varied`` arguments, from ``model`` to ``last``, they are those
    that all have.
    """
    title, _, subtitle = model.title.partition("\n")
    left = {*varied, *(("regime",) if {"p", "q"} & set(varied) else ())}
    known = {name: value for name, value in attributes_of(model).items() if name not in left}
    named = {name: text for name, text in model.long_names.items() if name in BASINS}
    if varied:  # the arguments that the models share
        own = kept_arguments(model) if is_own(model) else {}
        names = ("p", "q", *options_of(model), *own)
        shared = {name: own.get(name, known.get(name)) for name in names if name not in varied}
        pairs = sorted((name, x) for name, x in shared.items() if x is not None)
        subtitle = ", ".join(f"{name} = {value}" for name, value in pairs)
    same = last is None or title == last.title.partition("\n")[0]
    plane = model.plane if len(model.coordinates) > 1 else None
    return {
        **known,
        **source_attributes(model, varied),
        "title": title if same else model.name.rpartition(":")[2],
        "subtitle": subtitle,
        **({} if plane is None else {"axes": (plane.x, plane.y)}),
        **({"end_names": json.dumps(named, ensure_ascii=False)} if named else {}),
    }


def source_attributes(model: Model, varied: Sequence[str] = ()) -> dict[str, str]:
    """The arguments of a user's model but the varied ones, its source if not too long, a digest.

    A built-in model has none of them.
    """
    if not is_own(model):
        return {}
    arguments = {name: x for name, x in kept_arguments(model).items() if name not in varied}
    kept = {"arguments": json.dumps(arguments, default=repr)}
    text = source_of(type(model))
    if not text:
        return kept
    kept["source_digest"] = source_digest(type(model))
    return {**kept, "source": text} if len(text.encode()) <= MOST_SOURCE else kept
