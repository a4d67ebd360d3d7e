"""The attributes of a record about its model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowsim.models.words import model_captions
from flowsim.sources import source_digest, source_of
from flowsim.spec import is_own, kept_arguments

if TYPE_CHECKING:
    from flowsim.interface import Model

#: A record keeps the source of a model up to this size.
MOST_SOURCE = 65_536


def model_attributes(
    model: Model, varied: Sequence[str] = (), last: Model | None = None
) -> dict[str, Any]:
    """The attributes from which ``model_of`` builds a built-in model, and captions.

    With ``varied``, names of arguments in which models differ from the first to the last, only
    what these share.
    """
    left = {*varied, *(("regime",) if {"p", "q"} & set(varied) else ())}
    known = {name: value for name, value in model.attributes().items() if name not in left}
    captions = model_captions(model, varied)
    if varied and last is not None:
        shared = json.loads(captions["captions"]).items()
        theirs = json.loads(model_captions(last, varied)["captions"])
        same = {name: text for name, text in shared if theirs.get(name) == text}
        same.setdefault("title", model.name.rpartition(":")[2])
        captions = {"captions": json.dumps(same, ensure_ascii=False)}
    return {**known, **source_attributes(model, varied), **captions}


def source_attributes(model: Model, varied: Sequence[str] = ()) -> dict[str, str]:
    """The arguments of a user's model but the varied ones, its source if not too long, a digest."""
    if not is_own(model):
        return {}
    arguments = {name: x for name, x in kept_arguments(model).items() if name not in varied}
    kept = {"arguments": json.dumps(arguments, default=repr)}
    text = source_of(type(model))
    if not text:
        return kept
    kept["source_digest"] = source_digest(type(model))
    return {**kept, "source": text} if len(text.encode()) <= MOST_SOURCE else kept
