"""Boundaries of basins, refined."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "add_boundary": "boundary.in_record",
        "refined_labels": "boundary.refine",
    },
)
