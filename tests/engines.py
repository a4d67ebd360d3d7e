"""A short use of everything that is compiled by itself, and who compiles it when tests are shared.

Processes that share the tests (pytest -n) begin with this list. Each compiles what no other has
begun, and takes the rest from the disk: otherwise each would compile all of it.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from flowsim import BinaryChain, MarkovChain, find_limits, trajectories
from flowsim.compiled import config
from flowsim.flow import settling_times
from flowsim.models import (
    CanonicalModel,
    InductionModel,
    LinearAttentionModel,
    RankOneModel,
    StatesAttentionModel,
    StatesModel,
    UniformAttentionModel,
    UntiedModel,
)
from full_model import Architecture, initial_weights
from full_model.comparison.fields import FullField

CHAIN = BinaryChain(0.5, 0.8)


def follow(model):
    """Limits of two rows, their paths and their times."""
    start = torch.full((2, len(model.coordinates)), 0.3, dtype=torch.float64)
    settling_times(model, start, 0.5, limits=find_limits(model, start))
    trajectories(model, start, [0.0, 0.1, 1.0])


def sum_over_prefixes():
    """Gradient and stiffness of two transformers, with attention and without."""
    arch = Architecture(d=4, length=3)
    for field in (
        FullField(arch, CHAIN),
        FullField(replace(arch, attention="none"), CHAIN),
    ):
        field(field.state(initial_weights(field.arch, "gaussian", [0, 1], std=0.5)))


#: Those that take longest come first.
ENGINES = {
    "uniform": partial(follow, UniformAttentionModel(CHAIN, 3)),
    "full models": sum_over_prefixes,
    "rank-one": partial(follow, RankOneModel(CHAIN, 3)),
    "rank-one with attention": partial(follow, RankOneModel(CHAIN, 3, attention=True)),
    "induction": partial(follow, InductionModel(4)),
    "canonical": partial(follow, CanonicalModel(CHAIN)),
    "bias": partial(follow, CanonicalModel(CHAIN, bias="dynamic")),
    "states": partial(follow, StatesAttentionModel(MarkovChain.symmetric(3, 0.8), 2, 4)),
    "linear": partial(follow, LinearAttentionModel(CHAIN)),
    "untied": partial(follow, UntiedModel(CHAIN)),
    "states in the plane": partial(follow, StatesModel(MarkovChain.symmetric(3, 0.8))),
}


def compile_shared(folder: Path) -> None:
    """Compile what no other process has begun, as files in a folder that all of them see say."""
    if not config.DISABLE_JIT:
        for name, use in ENGINES.items():
            with suppress(FileExistsError):
                (folder / f"compiled {name}").touch(exist_ok=False)
                use()
