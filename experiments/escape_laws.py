"""What the record of experiments/adamw_escape.py says: times, laws, predictions, scores."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr
from escape_cells import FITTED, MEASURED, Cell

from full_model import wilson

#: The first tenth of a run, in measurements.
TENTH = MEASURED // 10
#: Below this a growth √μ counts as none.
LEAST = 0.01
PARTS = ("fit", "new seeds", "new chains")
EVENTS = ("crossing", "escape")
WAYS = ("settings", "derived", "first tenth", "both")
LAW = ("constant", "r", "d", "rate", "batch N", "1/(1 - beta2)", "1 + epsilon/1e-7",
       "(p + q - 1) sqrt(pi0 pi1)", "exp(way of b)", "(r d)^(way of b)")  # fmt: skip


def first_step(record: xr.Dataset, happens: np.ndarray) -> np.ndarray:
    """The first measured step at which it happens (cell, run), NaN where it never does."""
    step = record.step.values[happens.argmax(-1)].astype(float)
    return np.where(happens.any(-1), step, np.nan)


def times(record: xr.Dataset) -> dict[str, np.ndarray]:
    """Steps of escape and of crossing, √μ of every measurement, and which runs diverged.

    A run that diverged neither escapes nor crosses.
    """
    smallest = record.smallest.values
    excess = (record.p + record.q - 1).values[None, :, None]
    drop = np.maximum(smallest[..., :1] - smallest, 0) / (2 * excess)
    diverged = ~np.isfinite(record.share.values[..., -1])
    sound = ~diverged[..., None]
    return {
        "escape": first_step(record, (record.share.values < 0.5) & sound),
        "crossing": first_step(record, (smallest < 0) & sound),
        "root": np.sqrt(drop),
        "diverged": diverged,
    }


def growth(record: xr.Dataset, root: np.ndarray) -> np.ndarray:
    """κ = √μ/t at the crossing, or at the end where there is none, (cell, run)."""
    crossed = record.smallest.values < 0
    last = np.where(crossed.any(-1), crossed.argmax(-1), MEASURED)
    at = np.take_along_axis(root, last[..., None], -1)[..., 0]
    return np.maximum(at, LEAST) / record.step.values[last]


def chain_columns(record: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Of every run's chain: log of (p + q − 1)√(π₀π₁), and |log(π₁/π₀)|, which b learns first."""
    p, q = record.p.values, record.q.values
    signal = np.log((p + q - 1) * np.sqrt(p * q) / (p + q))
    return signal, np.abs(np.log(p / q))


def features(settings: list[Cell], record: xr.Dataset) -> np.ndarray:
    """(cell, run, 10): what the law is linear in, the logarithms of what LAW names.

    Signal over noise of the gradients, and the way that b still has to go: derivations, 18.
    """
    signal, way = chain_columns(record)
    lines = []
    for c in settings:
        left = 0.0 * way if c.unigram_bias else way
        columns = [1.0, np.log(c.r), np.log(c.d), np.log(c.rate),
                   np.log(max(c.batch, 1) * c.length), -np.log(1 - c.beta2),
                   np.log1p(c.epsilon / 1e-7), signal, left, left * np.log(c.r * c.d)]  # fmt: skip
        lines.append(np.stack([0.0 * way + column for column in columns], -1))
    return np.stack(lines)


def derived(settings: list[Cell], record: xr.Dataset) -> np.ndarray:
    """log κ (cell, run) of derivations, 18, nothing fitted: between its two ends, in the middle."""
    signal, _ = chain_columns(record)
    lines = []
    for c in settings:
        noise = 0.5 * np.log(max(c.batch, 1) * c.length)
        spring = np.log(2) + signal + noise - np.log(c.deviation)
        lines.append(1.5 * np.log(c.rate) + 0.5 * spring + 0.5 * np.log(c.r / 2)
                     + 0.25 * np.log(c.d) - np.log(4))  # fmt: skip
    return np.stack(lines)


def in_law(settings: list[Cell]) -> np.ndarray:
    """Which cells the law is for: AdamW on batches from deviation 0.02, ε at most 1e-6."""
    return np.array([c.trainer == "adamw" and c.batch > 0 and c.epsilon <= 1e-6
                     and c.deviation == 0.02 for c in settings])  # fmt: skip


def least_squares(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The weights of (…, k) columns for a target (…)."""
    weight, *_ = np.linalg.lstsq(columns.reshape(-1, columns.shape[-1]), target.ravel(), rcond=None)
    return weight


def predictions(record: xr.Dataset) -> dict[str, Any]:
    """Steps of crossing and of escape foretold, (cell, run) by event and way, and the fits.

    The ways: a fit to the "settings", the settings by the "derived" formula, the "first tenth" of
    the run alone, and "both", a fit to the settings and √μ after the first tenth. Delays between
    crossing and escape are fitted too: for the first tenth as one number, otherwise as a power of
    d, rate and chain.
    """
    settings = [Cell(**cell) for cell in json.loads(record.attrs["cells"])]
    law, found, fit = in_law(settings), times(record), record.part.values == "fit"
    kappa, root = growth(record, found["root"]), np.maximum(found["root"][..., TENTH], LEAST)
    columns, used = features(settings, record), np.ix_(law, fit)
    weight = least_squares(columns[used], np.log(kappa[used]))
    more = np.concatenate([columns, np.log(root)[..., None]], -1)
    both = least_squares(more[used], np.log(kappa[used]))
    with np.errstate(over="ignore"):
        crossing = {
            "settings": np.exp(-columns @ weight),
            "derived": np.exp(-derived(settings, record)),
            "first tenth": record.step.values[TENTH] / root,
            "both": np.exp(-more @ both),
        }
    for way in ("first tenth", "both"):
        gone = record.smallest.values[..., TENTH] < 0
        crossing[way] = np.where(gone, found["crossing"], crossing[way])
    delay = delays(settings, record, found, used)
    escape = {way: crossing[way] + delay[way != "first tenth"] for way in crossing}
    return {"law": law, "weight": weight, "kappa": kappa, "columns": columns,
            "crossing": crossing, "escape": escape}  # fmt: skip


def delays(settings: list[Cell], record: xr.Dataset, found: dict[str, np.ndarray],
           used: tuple[np.ndarray, ...]) -> tuple[float, np.ndarray]:  # fmt: skip
    """Steps from crossing to escape: the fitted runs' median, and a power law (cell, run)."""
    columns = features(settings, record)[..., [LAW.index(name) for name in (
        "constant", "d", "rate", "(p + q - 1) sqrt(pi0 pi1)")]]  # fmt: skip
    known = (found["escape"] - found["crossing"])[used]
    both = np.isfinite(known)
    if not both.any():
        return np.inf, np.full(columns.shape[:2], np.inf)
    known = np.maximum(known[both], record.step.values[1] / 2)
    return float(np.median(known)), np.exp(columns @ least_squares(columns[used][both],
                                                                   np.log(known)))  # fmt: skip


def exponents(columns: np.ndarray, target: np.ndarray, chains: int) -> list[dict[str, Any]]:
    """Weights of columns (cell, run, k), with 95 % intervals by drawing every chain's runs anew.

    The runs are ``chains`` equal blocks; 400 draws.
    """
    rng, drawn = np.random.default_rng(0), []
    blocks = np.arange(target.shape[1]).reshape(chains, -1)
    for _ in range(400):
        again = np.concatenate([rng.choice(runs, len(runs)) for runs in blocks])
        drawn.append(least_squares(columns[:, again], target[:, again]))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return [
        {"value": float(value), "interval": [float(a), float(b)]}
        for value, a, b in zip(least_squares(columns, target), low, high, strict=True)
    ]


def laws(record: xr.Dataset) -> dict[str, Any]:
    """The exponents of the fitted law; those of r, d and rate for either start of b; deviations.

    With b at the unigram's the chain's and the batch's exponents are fitted too, on the cells of
    the group "bias"; with b = 0 chain by chain, on those of "size" and "rate".
    """
    settings = [Cell(**cell) for cell in json.loads(record.attrs["cells"])]
    foretold, part = predictions(record), record.part.values
    law, columns, target = foretold["law"], foretold["columns"], np.log(foretold["kappa"])
    fit = np.flatnonzero(part == "fit")
    whole = exponents(columns[law][:, fit], target[law][:, fit], len(FITTED))
    found: dict[str, Any] = {"law": dict(zip(LAW, whole, strict=True))}
    known = np.flatnonzero([c.group == "bias" for c in settings])
    names = ("constant", "r", "d", "rate", "batch N", "(p + q - 1) sqrt(pi0 pi1)")
    some = columns[np.ix_(known, fit)][..., [LAW.index(name) for name in names]]
    if len(known):
        words = exponents(some, target[np.ix_(known, fit)], len(FITTED))
        found["b at the unigram"] = dict(zip(names, words, strict=True))
    sized = np.flatnonzero([c.group in ("size", "rate") for c in settings])
    for k, chain in enumerate(FITTED):
        runs = fit.reshape(len(FITTED), -1)[k]
        words = exponents(columns[np.ix_(sized, runs)][..., :4], target[np.ix_(sized, runs)], 1)
        found[f"b = 0, ({chain.p}, {chain.q})"] = dict(zip(names, words, strict=False))
    off = {way: target + np.log(foretold["crossing"][way]) for way in ("settings", "derived")}
    found["deviation"] = {
        word: {way: float(np.sqrt(np.mean(np.square(values[np.ix_(law, part == word)]))))
               for way, values in off.items()} for word in PARTS
    }  # fmt: skip
    if len(known):
        ratio = np.exp(off["derived"][known])
        wide = np.array([settings[i].d for i in known])[:, None] ** 0.25
        found["derived, b at the unigram"] = {
            "runs": int(ratio.size), "between_the_ends": int(
                ((ratio > 1 / wide) & (ratio < wide)).sum()),
            "quantiles": np.quantile(ratio, [0.1, 0.5, 0.9]).tolist(),
        }  # fmt: skip
    return found


def same_starts(record: xr.Dataset) -> dict[str, Any]:
    """How alike runs with the same first weights grow in settings that share nothing else.

    The mean correlation of log κ between the law's cells of d = 8, r = 32, N = 16 and b = 0, whose
    run i starts at the same weights everywhere; every cell's chains have their means taken off.
    1: the start decides, 0: the batches do. 95 % interval by drawing runs anew, 400 times.
    """
    settings = [Cell(**cell) for cell in json.loads(record.attrs["cells"])]
    alike = np.array([(c.d, c.r, c.length, c.unigram_bias) == (8, 32, 16, False)
                      for c in settings]) & in_law(settings)  # fmt: skip
    growths = np.log(growth(record, times(record)["root"])[alike])
    for p, q in {*zip(record.p.values, record.q.values, strict=True)}:
        runs = ((record.p == p) & (record.q == q)).values
        growths[:, runs] -= growths[:, runs].mean(1, keepdims=True)
    count, rng = len(growths), np.random.default_rng(0)
    if count < 2:
        return {"cells": count}

    def likeness(values: np.ndarray) -> float:
        return float((np.corrcoef(values).sum() - count) / (count * (count - 1)))

    runs = np.arange(growths.shape[1])
    drawn = [likeness(growths[:, rng.choice(runs, len(runs))]) for _ in range(400)]
    return {"cells": count, "runs": len(runs), "correlation": likeness(growths),
            "interval": np.quantile(drawn, [0.025, 0.975]).tolist()}  # fmt: skip


def score(record: xr.Dataset) -> dict[str, Any]:
    """Right answers to "does it cross, does it escape, within the run", with Wilson's intervals."""
    found, foretold = times(record), predictions(record)
    horizon, part, law = float(record.step[-1]), record.part.values, foretold["law"]
    lines: dict[str, Any] = {event: {} for event in EVENTS}
    for event in EVENTS:
        happens = np.isfinite(found[event])
        majority = happens[law][:, part == "fit"].mean() >= 0.5
        for word in PARTS:
            here = np.ix_(law, part == word)
            truth = happens[here]
            late = found[event][here] > record.step.values[TENTH]
            line: dict[str, Any] = {
                "runs": int(truth.size),
                "happens": int(truth.sum()),
                "happens_in_first_tenth": int((truth & ~late).sum()),
            }
            for way, foretold_times in foretold[event].items():
                guess = foretold_times[here] <= horizon
                ratio = (foretold_times[here] / found[event][here])[guess & late]
                line[way] = _right(guess, truth) | {
                    "time_ratio": np.quantile(ratio, [0.1, 0.5, 0.9]).tolist() if len(ratio)
                    else None
                }  # fmt: skip
            line["majority"] = _right(np.full_like(truth, majority), truth)
            lines[event][word] = line
    return lines


def _right(guess: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """How many guesses are right, with the interval."""
    right = int((guess == truth).sum())
    return {"right": right, "interval": wilson(right, truth.size)}


def median(values: np.ndarray) -> float | None:
    """The median of the finite values."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None
