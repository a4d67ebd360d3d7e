"""The recipes of training, which the reduced maps have in common with the full model."""

from flowsim.training.recipe import (
    LOSSES,
    METHODS,
    SCHEDULES,
    TRAINERS,
    Recipe,
    papers_recipe,
)

__all__ = ["LOSSES", "METHODS", "SCHEDULES", "TRAINERS", "Recipe", "papers_recipe"]
