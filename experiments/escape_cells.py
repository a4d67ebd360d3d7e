"""Settings of experiments/adamw_escape.py: chains, and cells of runs trained alike."""

import json
from dataclasses import dataclass
from typing import Any

import xarray as xr

from flowsim import BinaryChain

FITTED = tuple(BinaryChain(*pair) for pair in ((0.5, 0.8), (0.9, 0.9), (0.3, 0.85)))
UNSEEN = tuple(BinaryChain(*pair) for pair in ((0.7, 0.7), (0.95, 0.6), (0.85, 0.35), (0.99, 0.75)))
MEASURED, TESTED = 30, 32
#: In single precision AdamW with this ε is AdamW without one, 0/0 being 0.
NO_EPSILON = 1e-30


@dataclass(frozen=True)
class Cell:
    """One setting; ``group`` says which panel it belongs to. batch 0 is the exact loss."""

    group: str
    d: int = 8
    r: int = 32
    length: int = 16
    trainer: str = "adamw"
    rate: float = 1e-3
    epsilon: float = 1e-8
    beta2: float = 0.95
    batch: int = 16
    momentum: float = 0.0
    deviation: float = 0.02
    unigram_bias: bool = False

    @property
    def recipe_options(self) -> dict[str, Any]:
        """Options of the recipe beside trainer, rate and steps."""
        options: dict[str, Any] = {"schedule": "constant"}
        if self.batch:
            options["batch"] = self.batch
        if self.trainer == "adamw":
            options |= {"epsilon": self.epsilon, "beta2": self.beta2, "weight_decay": 1e-3}
            options["loss"] = "sampled" if self.batch else "population"
        if self.trainer == "sgd":
            options["momentum"] = self.momentum
        return options


def cells_of(record: xr.Dataset) -> list[Cell]:
    """The settings of a record."""
    return [Cell(**cell) for cell in json.loads(record.attrs["cells"])]


def cells() -> list[Cell]:
    """All settings."""
    sizes = ((4, 8), (8, 4), (4, 16), (8, 8), (4, 32), (16, 8), (4, 64), (8, 32), (16, 16),
             (8, 64), (16, 32), (8, 128), (16, 64))  # fmt: skip
    known = ((4, 16), (8, 8), (4, 64), (8, 32), (16, 16), (16, 64))
    return [
        *(Cell("size", d, r) for d, r in sizes),
        *(Cell("rate", d, r, rate=rate) for rate in (3e-4, 3e-3)
          for d, r in ((8, 8), (4, 64), (8, 32), (16, 64))),
        *(Cell("bias", d, r, unigram_bias=True) for d, r in known),
        *(Cell("bias", rate=rate, unigram_bias=True) for rate in (3e-4, 3e-3)),
        *(Cell("bias", batch=batch, unigram_bias=True) for batch in (4, 64)),
        *(Cell("start", deviation=value, unigram_bias=True) for value in (0.01, 0.04)),
        *(Cell("epsilon", epsilon=x) for x in (NO_EPSILON, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)),
        *(Cell("beta2", beta2=value) for value in (0.9, 0.99, 0.999)),
        *(Cell("batch", batch=value) for value in (4, 64)),
        *(Cell("length", length=value) for value in (6, 64)),
        *(Cell("exact", d, r, length=6, batch=0) for d, r in ((4, 16), (8, 8), (8, 32))),
        *(Cell("momentum", trainer="sgd", rate=x, momentum=0.9) for x in (0.1, 1.0, 3.0)),
        *(Cell("descent", length=6, trainer="gd", rate=x, batch=0) for x in (1.0, 5.0, 10.0)),
    ]  # fmt: skip
