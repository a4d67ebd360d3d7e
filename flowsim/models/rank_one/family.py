"""The rank-one manifold by its name."""

from flowsim.models.family import LENGTH, PLANAR, SPATIAL, Family, Option

FAMILY = Family(
    "rank-one",
    "rank-one, which full training from lifted starts follows",
    "Rank-one: full training",
    "flowsim.models.rank_one.model:RankOneModel",
    {
        "length": LENGTH,
        "attention": Option(False, "its attention layer"),
        "tied": Option(True, "reads with weights of its own", word="untied weights"),
    },
    lifts=(PLANAR, SPATIAL),
    without={"bias": "always has its bias as a coordinate; omit bias"},
)
