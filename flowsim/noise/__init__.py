"""Ends under noise."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "diffuse": "noise.langevin",
        "end_probabilities": "noise.ends",
        "first_passages": "noise.langevin",
    },
)
