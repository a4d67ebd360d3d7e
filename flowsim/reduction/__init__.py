"""Reduced models found by machine: any network, any start."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "agreement": "reduction.trust",
        "conserved": "reduction.structure",
        "origin_of_coordinates": "reduction.structure",
        "reduce": "reduction.found",
        "symmetries": "reduction.structure",
        "transverse_growth": "reduction.trust",
    },
)
