"""Critical points of any loss, and the ends of its trajectories."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "End": "landscape.ends",
        "Ends": "landscape.ends",
        "curvatures": "landscape.critical",
        "search_critical_points": "landscape.critical",
    },
)
