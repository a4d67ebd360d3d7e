"""Critical points of any loss, and the ends of its trajectories."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "End": "landscape.ends",
        "Ends": "landscape.ends",
        "critical_points_in": "landscape.critical",
        "curvatures": "landscape.critical",
    },
)
