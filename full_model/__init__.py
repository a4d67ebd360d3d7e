"""full_model: the full transformer, trained for real from starts that match the reduced models.

Public names load their module on first use, so that importing the package imports no torch.
"""

from flowsim.stub import names_of

#: The module of every public name.
_HOME = names_of(__file__)

__all__ = sorted(_HOME)

#: Present places of names that were public before.
_INTERNAL = {
    "AttentionFreeField": "full_model.comparison.fields (FullField)",
    "EnumeratedField": "full_model.comparison.fields (FullField)",
    "FullSide": "full_model.comparison.side_by_side",
    "ReducedSide": "full_model.comparison.side_by_side (SideBySide)",
    "SideBySide": "full_model.comparison.side_by_side",
}


def __getattr__(attribute: str) -> object:
    if attribute not in _HOME:
        hint = f"; it is internal, in {_INTERNAL[attribute]}" if attribute in _INTERNAL else ""
        raise AttributeError(f"module 'full_model' has no attribute {attribute!r}{hint}")
    from flowsim.door import at_the_door

    return at_the_door(f"full_model.{_HOME[attribute]}", attribute)


def __dir__() -> list[str]:
    return __all__
