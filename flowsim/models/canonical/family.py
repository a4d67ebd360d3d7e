"""The canonical model by its name."""

from flowsim.models.family import BIAS, PLANAR, Family

FAMILY = Family(
    "canonical",
    "canonical (e, w)",
    "Canonical: weights e and w",
    "flowsim.models.canonical.model:CanonicalModel",
    {"bias": BIAS},
    lifts=(PLANAR,),
)
