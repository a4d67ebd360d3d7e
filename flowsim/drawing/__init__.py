"""Figures of records, one function a kind; ``flowsim.draw`` draws any."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "draw_boundary": "drawing.boundary_lines",
        "draw_gaussian": "drawing.curves",
        "draw_models_side_by_side": "drawing.plane",
        "draw_phase_space": "drawing.space",
        "draw_portrait": "drawing.plane",
        "draw_refined": "drawing.boundary_lines",
        "draw_scan": "drawing.scan_map",
    },
)
