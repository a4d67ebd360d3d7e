"""Solvers of the gradient flow, and the labels of its ends."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Limits": "flow.options",
        "SolverOptions": "flow.options",
        "label_ends": "flow.labelling",
        "settling_times": "flow.orbits",
    },
)
