"""The words of a figure, as a record carries them: its attribute ``captions``, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def captions_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The words that a record's model gave it; of a record without them, the model's name."""
    if "captions" not in attributes:
        return {"title": str(attributes["model"])} if "model" in attributes else {}
    found: dict[str, str] = json.loads(attributes["captions"])
    return found


def held_attributes(held: Mapping[str, float]) -> dict[str, object]:
    """Values of names beside the axes as attributes of a record, and which ones these are."""
    return {**held, "held": " ".join(held)} if held else {}


def held_of(attributes: Mapping[str, Any]) -> dict[str, float]:
    """The inverse of ``held_attributes``; records of before have names of coordinates alone."""
    former = [str(name) for name in attributes.get("coordinates", ()) if name in attributes]
    names = str(attributes["held"]).split() if "held" in attributes else former
    return {name: float(attributes[name]) for name in names}
