"""full_model: the full transformer, trained for real from starts that match the reduced models.

Public names load their module on first use, so that importing the package imports no torch.
"""

from flowsim.stub import names_of

#: The module of every public name.
_HOME = names_of(__file__)

__all__ = sorted(_HOME)


def __getattr__(attribute: str) -> object:
    if attribute not in _HOME:
        raise AttributeError(f"module 'full_model' has no attribute {attribute!r}")
    from flowsim.door import at_the_door

    return at_the_door(f"full_model.{_HOME[attribute]}", attribute)


def __dir__() -> list[str]:
    return __all__
