"""Inherited methods that stay valid in a class that overrides others.

A method that was computed from another one, such as the gradient from the loss, is out of date in a
class where the other is written by a more derived class. It is then the default again: automatic
differentiation, or no knowledge. The order of the classes decides (``__mro__``), for models of this
package and of users alike. A class that leaves its loss unwritten, such as a common base, speaks
for the first classes that write it.
"""

from __future__ import annotations

from typing import Any

#: Methods from which the flow is computed.
_FORMULAS = {
    "loss", "gradient", "field", "metric", "coordinates", "loss_at", "slope_at", "logit_gap",
    "logit_gap_gradient", "offset", "offset_gradient",
}  # fmt: skip
#: For every member that is computed from others: the others, whose overriding outdates it.
_SOURCES = {
    "gradient": {"loss"},
    "hessian": {"loss", "gradient"},
    "jacobian": {"loss", "gradient", "hessian", "field", "metric"},
    "logit_gap_gradient": {"logit_gap"},
    "offset_gradient": {"offset"},
    "slope_at": {"loss_at"},
    "end_losses": {"loss", "gradient", "field", "loss_at", "slope_at"},  # not the logit gap
    **dict.fromkeys(("flow", "plane", "keeps_sign", "title", "long_names", "conserved"), _FORMULAS),
    "_axes": {"coordinates"},
}
#: Members that change nothing in the flow.
_WORDS = {"options", "attributes", "optimal_bias", "from_canonical", "heading", "_chain_words",
          "_remark"}  # fmt: skip
_KNOWN = {*_SOURCES, *_FORMULAS, *_WORDS}


class Former:
    """A member of former versions: reading it raises AttributeError with what to use instead."""

    def __init__(self, attribute: str, instead: str) -> None:
        self.attribute, self.instead = attribute, instead

    def __get__(self, model: Any, kind: Any = None) -> Any:
        gone = f"{kind.__name__!r} object has no {self.attribute}"
        raise AttributeError(f"{gone}: use {self.instead}")


def unwritten(method: Any) -> Any:
    """Mark a method that only raises an error: complete classes have to write it."""
    method.unwritten = True
    return method


def forget_outdated(cls: type) -> None:
    """Reset inherited members of a new class that no longer fit its formulas to their defaults.

    A member is out of date if a more derived class overrides what it was computed from.
    """
    order, outdated = cls.__mro__, {}
    for name, sources in _SOURCES.items():
        at = next((at for at, kind in enumerate(order) if name in vars(kind)), len(order))
        if not _is_in(name, order[at + 1 :]):
            continue  # no other class has written it
        # from the first class that writes it, or whose formulas are complete
        while at and any(getattr(getattr(order[at], formula, None), "unwritten", False)
                         for formula in _FORMULAS):  # fmt: skip
            at -= 1
        if _changed(cls, at, sources):
            first = next(kind for kind in reversed(order) if _is_in(name, (kind,)))
            outdated[name] = vars(first)[name]  # the default
    for name, value in outdated.items():
        setattr(cls, name, value)


def keeps_formulas_of(cls: type, base: type) -> bool:
    """Return whether a class is the base or derived from it with the same flow."""
    if base not in cls.__mro__:
        return False
    return not _changed(cls, cls.__mro__.index(base), _FORMULAS)


def _changed(cls: type, place: int, sources: set[str]) -> bool:
    """Return whether classes before a place in the order override one of the sources.

    A method or a property that replaces another counts too: formulas may rest on it.
    """
    for at, kind in enumerate(cls.__mro__[:place]):
        later = cls.__mro__[at + 1 :]
        for name, value in vars(kind).items():
            helps = hasattr(value, "__get__") and not name.startswith("__") and name not in _KNOWN
            if (helps or name in sources) and _is_in(name, later):
                return True
    return False


def _is_in(member: str, classes: tuple[type, ...]) -> bool:
    """Return whether one of the classes has a member of its own, other than a ``Former``."""
    found = (vars(kind).get(member) for kind in classes if member in vars(kind))
    return any(not isinstance(value, Former) for value in found)
