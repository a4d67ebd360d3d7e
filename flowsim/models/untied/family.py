"""The untied model by its name."""

from flowsim.models.family import BIAS, Family

FAMILY = Family(
    "untied",
    "untied (e, u, w)",
    "Untied, from u = e",
    "flowsim.models.untied.model:UntiedModel",
    {"bias": BIAS},
    tied=False,
)
