"""Settings of experiments/adamw_escape.py, and what its record says: times, laws, scores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from flowsim import BinaryChain
from full_model import wilson

FITTED = tuple(BinaryChain(*pair) for pair in ((0.5, 0.8), (0.9, 0.9), (0.3, 0.85)))
UNSEEN = tuple(BinaryChain(*pair) for pair in ((0.7, 0.7), (0.95, 0.6)))
MEASURED, TESTED = 20, 32
#: The first tenth of a run, in measurements.
TENTH = MEASURED // 10


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

    @property
    def recipe_options(self) -> dict[str, Any]:
        """What the recipe takes beside trainer, rate and steps."""
        options: dict[str, Any] = {"schedule": "constant"}
        if self.batch:
            options["batch"] = self.batch
        if self.trainer == "adamw":
            options |= {"epsilon": self.epsilon, "beta2": self.beta2, "weight_decay": 1e-3}
            options["loss"] = "sampled" if self.batch else "population"
        if self.trainer == "sgd":
            options["momentum"] = self.momentum
        return options


def cells() -> list[Cell]:
    """All settings."""
    sizes = ((4, 8), (8, 8), (4, 16), (8, 16), (4, 32), (8, 32), (4, 64), (16, 16), (8, 64),
             (16, 32), (16, 64))  # fmt: skip
    found = [Cell("size", d, r) for d, r in sizes]
    for rate in (3e-4, 3e-3):
        found += [Cell("rate", d, r, rate=rate) for d, r in ((8, 8), (8, 32), (16, 64))]
    found += [Cell("epsilon", epsilon=value) for value in (1e-12, 1e-6, 1e-5, 1e-4)]
    found += [Cell("beta2", beta2=value) for value in (0.9, 0.99, 0.999)]
    found += [Cell("batch", batch=value) for value in (4, 64)]
    found += [Cell("length", length=value) for value in (6, 32)]
    found += [Cell("exact", d, r, length=4, batch=0) for d, r in ((4, 16), (8, 8), (8, 32))]
    found += [Cell("momentum", trainer="sgd", rate=rate, momentum=0.9) for rate in (0.1, 1.0)]
    found += [Cell("descent", length=4, trainer="gd", rate=rate, batch=0) for rate in (1.0, 5.0)]
    return found


def first_step(record: xr.Dataset, happens: np.ndarray) -> np.ndarray:
    """The first measured step at which it happens (cell, run), NaN where it never does."""
    step = record.step.values[happens.argmax(-1)].astype(float)
    return np.where(happens.any(-1), step, np.nan)


def times(record: xr.Dataset) -> dict[str, np.ndarray]:
    """Steps of escape and of crossing, and √μ of every measurement."""
    smallest = record.smallest.values
    excess = (record.p + record.q - 1).values[None, :, None]
    drop = np.maximum(smallest[..., :1] - smallest, 0) / (2 * excess)
    return {
        "escape": first_step(record, record.share.values < 0.5),
        "crossing": first_step(record, smallest < 0),
        "root": np.sqrt(drop),
    }


def growth(record: xr.Dataset, root: np.ndarray) -> np.ndarray:
    """κ = √μ/t at the crossing, or at the end where there is none, (cell, run)."""
    crossed = record.smallest.values < 0
    last = np.where(crossed.any(-1), crossed.argmax(-1), MEASURED)
    at = np.take_along_axis(root, last[..., None], -1)[..., 0]
    return np.maximum(at, 1e-3) / record.step.values[last]


def features(settings: list[Cell]) -> np.ndarray:
    """(cell, 5): 1, log(r d), log rate, log(batch·N) and log(1/(1 − β₂))."""
    rows = [[1.0, np.log(c.r * c.d), np.log(c.rate), np.log(max(c.batch, 1) * c.length),
             -np.log(1 - c.beta2)] for c in settings]  # fmt: skip
    return np.array(rows)


def predictions(record: xr.Dataset) -> dict[str, Any]:
    """Steps of crossing foretold from the settings and from the first tenth, and the fit."""
    settings = [Cell(**cell) for cell in json.loads(record.attrs["cells"])]
    law = np.array([c.trainer == "adamw" and c.batch > 0 and c.epsilon <= 1e-6 for c in settings])
    found, fit = times(record), record.part.values == "fit"
    kappa = growth(record, found["root"])
    columns = features(settings)
    target = np.log(kappa[law][:, fit])
    design = np.repeat(columns[law][:, None], target.shape[1], 1)
    weight, *_ = np.linalg.lstsq(design.reshape(-1, 5), target.ravel(), rcond=None)
    tenth = found["root"][..., TENTH] / record.step.values[TENTH]
    with np.errstate(divide="ignore"):
        early = np.where(record.smallest.values[..., TENTH] < 0, 0.0, 1 / tenth)
    return {"law": law, "weight": weight, "kappa": kappa, "early": early,
            "settings": np.repeat(np.exp(-columns @ weight)[:, None], len(fit), 1)}  # fmt: skip


def score(record: xr.Dataset) -> dict[str, Any]:
    """Right answers to "does it cross within the run", by part, with Wilson's intervals."""
    found, foretold = times(record), predictions(record)
    horizon, part = float(record.step[-1]), record.part.values
    crosses = np.isfinite(found["crossing"])
    law = foretold["law"]
    fit = part == "fit"
    majority = crosses[law][:, fit].mean() >= 0.5
    lines: dict[str, Any] = {}
    for word in ("fit", "new seeds", "new chains"):
        here = np.ix_(law, part == word)
        truth = crosses[here]
        guesses = {
            "settings": foretold["settings"][here] <= horizon,
            "first tenth": foretold["early"][here] <= horizon,
            "majority": np.full_like(truth, majority),
        }
        line: dict[str, Any] = {"runs": int(truth.size), "cross": int(truth.sum())}
        for name, guess in guesses.items():
            right = int((guess == truth).sum())
            line[name] = {"right": right, "interval": wilson(right, truth.size)}
        for name, key in (("settings", "settings"), ("first tenth", "early")):
            both = truth & guesses[name] & (foretold[key][here] > 0)
            ratio = foretold[key][here][both] / found["crossing"][here][both]
            line[name]["time_ratio"] = (
                np.quantile(ratio, [0.1, 0.5, 0.9]).tolist() if len(ratio) else None
            )
        lines[word] = line
    return lines


def median(values: np.ndarray) -> float | None:
    """The median of the finite values."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None
