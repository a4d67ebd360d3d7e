"""Portraits and their summaries."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"phase_space": "portraits.in_space", "portrait_summary": "portraits.summaries"}
)
