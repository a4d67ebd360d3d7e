"""The model with linear attention by its name."""

from flowsim.models.family import BIAS, Family

FAMILY = Family(
    "linear",
    "linear attention (e, w, a)",
    "Linear attention, a slice",
    "flowsim.models.linear.model:LinearAttentionModel",
    {"bias": BIAS},
)
