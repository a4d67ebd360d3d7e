"""Critical points, ends and shares over a parameter."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"continuation": "bifurcation.record", "fold_curves": "bifurcation.folds"}
)
