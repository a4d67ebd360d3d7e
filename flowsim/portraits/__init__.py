"""Portraits and their summaries."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "portrait_summary": "portraits.summaries",
    },
)
