"""The flow by torchdiffeq alone, as a check of this package's solvers."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "confirm": "flow.reference",
        "integrate": "flow.reference",
        "reference_labels": "flow.reference",
        "reference_limits": "flow.reference",
    },
)
