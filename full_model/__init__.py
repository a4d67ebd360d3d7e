"""full_model: the full transformer, trained for real from starts that match the reduced models.

Public names load their module on first use, so that importing the package imports no torch.
"""

_HOME = {
    "Architecture": "model.architecture",
    "Claim": "theorems.verify",
    "Comparison": "comparison.choices",
    "InductionFit": "lift.induction",
    "MarkovSource": "model.sources",
    "PopulationLoss": "model.population",
    "PrefixTreeLoss": "model.prefix_tree",
    "PriorSource": "model.sources",
    "Projection": "lift.projection",
    "RankOnePoint": "lift.lifting",
    "Recipe": "training.settings",
    "RunSettings": "training.settings",
    "Trainer": "training.trainer",
    "UnigramTrap": "theorems.unigram_trap",
    "Weights": "model.architecture",
    "all_sequences": "model.population",
    "classify": "comparison.outcome",
    "cloud_points": "comparison.points",
    "compare": "comparison.compare",
    "cross_entropy": "model.transformer",
    "fit_induction": "lift.induction",
    "format_claims": "theorems.verify",
    "forward": "model.transformer",
    "grid_points": "comparison.points",
    "initial_weights": "lift.initial",
    "lift_canonical": "lift.lifting",
    "lift_held": "lift.lifting",
    "lift_rank_one": "lift.lifting",
    "lift_states": "lift.states",
    "measure": "training.probes",
    "papers_recipe": "training.settings",
    "plateau": "training.probes",
    "project": "lift.projection",
    "sampled_loss": "model.population",
    "starting_weights": "training.settings",
    "stored_points": "comparison.points",
    "train": "training.run",
    "trap_matrix": "theorems.unigram_trap",
    "unigram_trap": "theorems.unigram_trap",
    "verify": "theorems.verify",
    "wilson": "comparison.compare",
    "with_noise": "lift.initial",
}

__all__ = sorted(_HOME)

#: Present places of names that were public before.
_INTERNAL = {
    "AttentionFreeField": "full_model.comparison.fields",
    "EnumeratedField": "full_model.comparison.fields",
    "FullSide": "full_model.comparison.side_by_side",
    "ReducedSide": "full_model.comparison.side_by_side",
    "SideBySide": "full_model.comparison.side_by_side",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        hint = f"; it is internal, in {_INTERNAL[name]}" if name in _INTERNAL else ""
        raise AttributeError(f"module 'full_model' has no attribute {name!r}{hint}")
    from flowsim.door import at_the_door

    return at_the_door(f"full_model.{_HOME[name]}", name)


def __dir__() -> list[str]:
    return __all__
