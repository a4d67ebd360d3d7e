"""AdamW's law of escape: when the unigram, a trap of gradient flow, becomes a saddle in training.

Criteria, fixed before the runs that are shown: a run escapes at the first measured step at which
less than half of the gap between unigram and bigram is open, on 32 sequences of its chain kept for
it, with the unigram's and the bigram's own losses on the same sequences as the ends of the gap; it
crosses at the first measured step with λ_min(S) < 0; it has diverged if its weights are not finite
at the end, and then counts as nothing else; it is trapped if it neither escapes nor crosses, and
open if it crosses alone. Every 100 steps are measured; no run is left out.

    python experiments/adamw_escape.py      about 20 minutes on one core
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from papers import experiment, median, timed

from flowsim import BinaryChain
from flowsim.training.optimizer_choice import Recipe
from full_model import (
    Architecture,
    MarkovSource,
    Trainer,
    Weights,
    cross_entropy,
    forward,
    initial_weights,
    trap_matrix,
    wilson,
)

#: The first three have more seeds.
CHAINS = tuple(
    BinaryChain(*pair)
    for pair in ((0.5, 0.8), (0.9, 0.9), (0.3, 0.85),
                 (0.7, 0.7), (0.95, 0.6), (0.85, 0.35), (0.99, 0.75))
)  # fmt: skip
MEASURED, TESTED = 30, 32
#: In single precision AdamW with this ε is AdamW without one, 0/0 being 0.
NO_EPSILON = 1e-30


@dataclass(frozen=True)
class Cell:
    """One setting; ``group`` says what it varies. batch 0 is the exact loss."""

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


def compute(seeds: int = 16, steps: int = 3000, seed: int = 0) -> xr.Dataset:
    """Every cell trained: open share and λ_min(S) (cell, run, line), and the overlap at escape.

    Lines after the escape repeat it. The overlap is that of the line before.
    """
    runs = list(runs_of(seeds, seed))
    settings, parts = cells(), []
    for i, cell in enumerate(timed(settings)):
        parts.append(run_cell(cell, runs, steps, 1000 * seed + i))
    share, smallest, overlap = map(np.stack, zip(*parts, strict=True))
    left = (share < 0.5) & np.isfinite(share[..., -1:])
    last = np.where(left.any(-1), left.argmax(-1), MEASURED)[..., None]
    unit = np.where(smallest < 0, 1 / 16, 1 / 256)
    unit[..., [0, MEASURED // 10, MEASURED]] = 1 / 8192
    axes = ("cell", "run", "line")
    record = xr.Dataset({
        "share": (axes, repeat_after(round_down(share, 1 / 4), last)),
        "smallest": (axes, repeat_after(round_down(smallest, unit), last)),
        "overlap": (axes[:2], round_down(
            np.take_along_axis(overlap, np.maximum(last - 1, 0), -1)[..., 0], 1 / 256)),
    })  # fmt: skip
    columns = zip(*((chain.p, chain.q, s) for chain, s in runs), strict=True)
    for name, column in zip(("p", "q", "seed"), columns, strict=True):
        record[name] = ("run", list(column))
    record["step"] = ("line", np.arange(MEASURED + 1) * (steps // MEASURED))
    record.attrs = {"cells": json.dumps([asdict(cell) for cell in settings]), "steps": steps}
    return record


def runs_of(seeds: int, seed: int) -> Iterator[tuple[BinaryChain, int]]:
    """Chain and seed of every run of a cell; no two chains share a seed."""
    for i, chain in enumerate(CHAINS):
        first = 100_000 * seed + 1000 * (i + 1)
        start, count = (0, seeds + max(1, seeds // 2)) if i < 3 else (seeds, max(1, seeds // 4))
        yield from ((chain, first + start + s) for s in range(count))


def round_down(values: np.ndarray, unit: Any) -> np.ndarray:
    """Values rounded down to multiples of a unit, which takes less room and keeps signs."""
    return (np.floor(values.clip(-1e6, 1e6) / unit) * unit).astype("float32")


def repeat_after(values: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Values (cell, run, line) that repeat themselves after a run's last line (cell, run, 1)."""
    return np.take_along_axis(values, np.minimum(np.arange(values.shape[-1]), last), -1)


def run_cell(cell: Cell, runs: list[Any], steps: int, seed: int) -> list[np.ndarray]:
    """The measurements of one cell's runs, (run, line) each; once all are over, the last."""
    dtype = torch.float32 if cell.batch else torch.float64
    arch = Architecture(cell.d, cell.length, hidden=cell.r)
    weights = initial_weights(arch, "gaussian", [s for _, s in runs], std=cell.deviation)
    chains = [chain for chain, _ in runs]
    if cell.unigram_bias:
        odds = [np.log(chain.p / chain.q) for chain in chains]
        weights["bias"] = weights["bias"] + torch.tensor(odds, dtype=torch.float64)
    weights = {name: w.to(dtype) for name, w in weights.items()}
    recipe = Recipe(cell.trainer, steps, learning_rate=cell.rate, **cell.recipe_options)
    generator = torch.Generator().manual_seed(seed)
    trainer = Trainer(arch, weights, MarkovSource.of(chains), recipe, generator)
    tokens = {chain: MarkovSource.of(chain).sample(
        TESTED, cell.length, torch.Generator().manual_seed(seed + 1))[0][0]
        for chain in dict.fromkeys(chains)}  # fmt: skip
    lines = [measure(arch, trainer.weights, chains, tokens)]
    for _ in range(MEASURED):
        if ((lines[-1][0] < 0.1) | np.isnan(lines[-1][0])).all():
            lines.append(lines[-1])
            continue
        trainer.advance(steps // MEASURED)
        lines.append(measure(arch, trainer.weights, chains, tokens))
    return [np.stack(values, axis=-1) for values in zip(*lines, strict=True)]


def measure(arch: Architecture, weights: Weights, chains: list[BinaryChain],
             tokens: dict[BinaryChain, torch.Tensor]) -> list[np.ndarray]:  # fmt: skip
    """Open share, λ_min(S) and |cos| between e and that eigenvector, for every model (M,).

    NaN where weights are not finite.
    """
    found = np.full((3, len(chains)), np.nan)
    finite = torch.stack(
        [w.reshape(len(chains), -1).isfinite().all(1) for w in weights.values()]
    ).all(0)
    for chain, x in tokens.items():
        rows = torch.tensor([c == chain for c in chains]) & finite
        part = {name: w[rows].double() for name, w in weights.items()}
        target = torch.where(x == 1, 1 - chain.q, chain.p).double()
        best, flat = torch.logit(target), torch.full_like(target, np.log(chain.p / chain.q))
        low, high = (cross_entropy(arch, f, target).mean() for f in (best, flat))
        with torch.no_grad():
            loss = cross_entropy(arch, forward(arch, part, x), target).mean((-2, -1))
        values, vectors = torch.linalg.eigh(trap_matrix(arch, part, chain))
        size = part["embedding"].norm(dim=-1)
        along = (vectors[..., 0] * part["embedding"]).sum(-1).abs() / size
        for i, value in enumerate(((loss - low) / (high - low), values[:, 0], along)):
            found[i, rows.numpy()] = value.numpy()
    return list(found)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Counts and times of every cell; a run that diverged neither escapes nor crosses."""
    lines = []
    for i, cell in enumerate(json.loads(record.attrs["cells"])):
        share, below = record.share.values[i], record.smallest.values[i] < 0
        diverged = ~np.isfinite(share[:, -1])
        left, crossed = (seen.any(-1) & ~diverged for seen in (share < 0.5, below))
        stayed = ~left & ~diverged
        escape = (share[left] < 0.5).argmax(-1)
        crossing = np.where(crossed, below.argmax(-1), below.shape[-1])[left]
        lines.append(cell | {
            "runs": len(left), "escaped": int(left.sum()),
            "interval": wilson(int(left.sum()), len(left)),
            "diverged": int(diverged.sum()),
            "trapped": int((stayed & ~crossed).sum()), "open": int((stayed & crossed).sum()),
            "escaped_without_crossing": int((left & ~crossed).sum()),
            "crossing_seen": {"before": int((crossing < escape).sum()),
                              "at": int((crossing == escape).sum()),
                              "after": int((crossing > escape).sum())},
            "escape_median": median(record.step.values[escape]),
            "overlap_median": median(record.overlap.values[i][left]),
            "escaped_by_chain": {f"({chain.p}, {chain.q})": int(left[of_chain(record, chain)].sum())
                                 for chain in CHAINS},
        })  # fmt: skip
    return {"cells": lines}


def of_chain(record: xr.Dataset, chain: BinaryChain) -> np.ndarray:
    """Mask of the runs of a chain."""
    return ((record.p == chain.p) & (record.q == chain.q)).values


main = experiment(__name__, compute, numbers, None)
