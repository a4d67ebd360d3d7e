"""Optimizers on reduced models."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Recipe": "training.optimizer_choice",
        "ReducedTraining": "models.rank_one.training.reduced",
        "Trained": "training.trained",
    },
)
