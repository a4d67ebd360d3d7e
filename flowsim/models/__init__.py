"""The built-in reduced models and their closed forms."""

from flowsim.public_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "CanonicalModel": "models.canonical.model",
        "InductionModel": "models.induction.model",
        "LinearAttentionModel": "models.linear.model",
        "RankOneModel": "models.rank_one.model",
        "StatesAttentionModel": "models.states.attention",
        "StatesModel": "models.states.plane",
        "UniformAttentionModel": "models.uniform.model",
        "UntiedModel": "models.untied.model",
        "energy": "models.canonical.model",
        "gaussian_probability": "models.canonical.gaussian_integral",
        "induction_landscape": "models.induction.ends",
        "minima_curve": "models.canonical.basins",
        "reaches_global_minimum": "models.canonical.basins",
        "separatrix": "models.canonical.basins",
    },
)
