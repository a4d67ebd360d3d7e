"""Ends under noise."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "diffuse": "noise.langevin",
        "end_probabilities": "noise.ends",
        "first_passages": "noise.langevin",
    },
)
