"""Optimizers on reduced models."""

from flowsim.door import front

__getattr__, __dir__, __all__ = front(
    __name__,
    {
        "Recipe": "training.recipe",
        "ReducedTraining": "models.rank_one.training.reduced",
        "Trained": "training.trained",
    },
)
