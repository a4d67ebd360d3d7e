"""Boundaries of basins, refined."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "add_boundary": "boundary.in_record",
        "add_edge_distance": "boundary.in_record",
        "edge_distance": "boundary.distance",
        "edge_state": "boundary.tracking",
        "per_end": "records.ends",
        "refined_labels": "boundary.refine",
        "stable_manifolds": "boundary.manifolds",
    },
)
