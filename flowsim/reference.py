"""The flow by torchdiffeq alone, as a check of this package's solvers."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "confirm": "flow.reference",
        "integrate": "flow.reference",
        "reference_labels": "flow.reference",
        "reference_limits": "flow.reference",
    },
)
