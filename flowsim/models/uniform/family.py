"""The model with uniform attention by its name."""

from flowsim.models.family import BIAS, LENGTH, SPATIAL, Family

FAMILY = Family(
    "uniform",
    "uniform attention (e, w, a)",
    "Uniform attention, a slice",
    "flowsim.models.uniform.model:AttentionModel",
    {"length": LENGTH, "bias": BIAS},
    lifts=(SPATIAL,),
)
