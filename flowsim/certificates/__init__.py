"""Ends proven by interval bounds."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "landscape_in": "certificates.wells",
        "with_certificates": "certificates.cells",
    },
)
