"""Critical points, ends and shares over a parameter."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(__name__, {"continuation": "bifurcation.record"})
