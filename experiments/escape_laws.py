"""What the record of experiments/adamw_escape.py says: times, laws, predictions, scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from escape_cells import FITTED, MEASURED, UNSEEN, Cell, cells_of
from scipy.stats import norm

from flowsim import BinaryChain
from full_model import wilson

#: The first tenth of a run, in measurements.
TENTH = MEASURED // 10
#: Below this a growth √μ counts as none.
LEAST = 0.01
PARTS = ("fit", "new seeds", "new chains")
EVENTS = ("crossing", "escape")
LAW = ("constant", "r", "d", "rate", "batch N", "1/(1 - beta2)", "1 + epsilon/1e-7",
       "(p + q - 1) sqrt(pi0 pi1)", "exp(way of b)", "(r d)^(way of b)")  # fmt: skip


def times(record: xr.Dataset) -> dict[str, np.ndarray]:
    """Steps of escape and of crossing, √μ of every measurement, and which runs diverged.

    NaN where there is none; a run that diverged neither escapes nor crosses.
    """
    smallest, left, step = record.smallest.values, record.share.values < 0.5, record.step.values
    sound = np.isfinite(record.share.values[..., -1])
    excess = (record.p + record.q - 1).values[None, :, None]
    root = np.sqrt(np.maximum(smallest[..., :1] - smallest, 0) / (2 * excess))
    return {
        "escape": np.where(left.any(-1) & sound, step[left.argmax(-1)].astype(float), np.nan),
        "crossing": np.where(sound, crossed_at(smallest, float(step[1])), np.nan),
        "root": root, "diverged": ~sound,
    }  # fmt: skip


def crossed_at(smallest: np.ndarray, every: float) -> np.ndarray:
    """The step at which λ_min(S) (…, look) is 0; NaN where no look is below.

    √μ grows about evenly, so it is what is interpolated between two looks.
    """
    below = smallest < 0
    at = np.maximum(below.argmax(-1), 1)[..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(np.maximum(1 - smallest / smallest[..., :1], 0))
        before, after = (np.take_along_axis(root, k, -1)[..., 0] for k in (at - 1, at))
        step = every * (at[..., 0] - 1 + (1 - before) / (after - before))
    return np.where(below.any(-1), np.where(below[..., 0], 0.0, step), np.nan)


def growth(record: xr.Dataset, never: float = np.nan) -> np.ndarray:
    """κ = √μ/t at the crossing (cell, run), which runs that never cross have at the step ``never``.

    At the crossing μ is λ₀/(2(p + q − 1)), with λ₀ the first λ_min(S).
    """
    root = np.sqrt(record.smallest.values[..., 0] / (2 * (record.p + record.q - 1).values))
    crossing = times(record)["crossing"]
    return root / np.where(np.isfinite(crossing), crossing, never)


def bounded(record: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """log κ (cell, run), and where it is known.

    A run that never crosses has a smaller κ than one that crosses in the last step, which is what
    stands in its place.
    """
    return np.log(growth(record, never=float(record.step[-1]))), np.isfinite(growth(record))


def chain_columns(record: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Of every run's chain: log of (p + q − 1)√(π₀π₁), and |log(π₁/π₀)|, which b learns first."""
    p, q = record.p.values, record.q.values
    signal = np.log((p + q - 1) * np.sqrt(p * q) / (p + q))
    return signal, np.abs(np.log(p / q))


def features(record: xr.Dataset) -> np.ndarray:
    """(cell, run, 10): what the law is linear in, the logarithms of what LAW names.

    Signal over noise of the gradients, and the way that b still has to go: docs/derivations/18.md.
    """
    signal, way = chain_columns(record)
    lines = []
    for c in cells_of(record):
        left = 0.0 * way if c.unigram_bias else way
        columns = [1.0, np.log(c.r), np.log(c.d), np.log(c.rate),
                   np.log(max(c.batch, 1) * c.length), -np.log(1 - c.beta2),
                   np.log1p(c.epsilon / 1e-7), signal, left, left * np.log(c.r * c.d)]  # fmt: skip
        lines.append(np.stack([0.0 * way + column for column in columns], -1))
    return np.stack(lines)


def derived(settings: list[Cell], record: xr.Dataset) -> np.ndarray:
    """log κ (cell, run) of derivation 18, nothing fitted: between its two ends, in the middle."""
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


def fit(
    columns: np.ndarray, target: np.ndarray, known: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """The weights of (…, k) columns for a target (…), and the deviation of its normal errors.

    Where it is not ``known``, a target is an upper bound: maximum likelihood in the weights and 1,
    both divided by the deviation, where it is concave, by at most 50 of Newton's steps.
    """
    x, y = columns.reshape(-1, columns.shape[-1]), target.ravel()
    weight = np.linalg.lstsq(x, y, rcond=None)[0]
    deviation = float(np.sqrt(np.mean(np.square(y - x @ weight))))
    if known is None or known.all():
        return weight, deviation
    table, sure = np.column_stack([-x, y]), known.ravel()
    exact, bounds, count = table[sure], table[~sure], sure.sum()
    fixed, point = exact.T @ exact, np.append(weight, 1) / max(deviation, 1e-3)

    def likelihood(at: np.ndarray) -> float:
        if at[-1] <= 0:
            return -np.inf
        log = count * np.log(at[-1]) - np.square(exact @ at).sum() / 2
        return float(log + norm.logcdf(bounds @ at).sum())

    now = likelihood(point)
    for _ in range(50):
        t = bounds @ point
        ratio = np.exp(norm.logpdf(t) - norm.logcdf(t))
        slope = bounds.T @ ratio - fixed @ point
        curve = fixed + (bounds.T * (ratio * (ratio + t))) @ bounds
        slope[-1] += count / point[-1]
        curve[-1, -1] += count / point[-1] ** 2
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        while (then := likelihood(point + step)) < now and np.abs(step).max() > 1e-9:
            step /= 2
        if not then - now > 1e-9:
            break
        point, now = point + step, then
    return point[:-1] / point[-1], float(1 / point[-1])


def spread(values: np.ndarray, known: np.ndarray) -> list[float]:
    """10 %, median and 90 % of the normal distribution fitted to logarithms; exponentials of them.

    Where a value is not ``known``, it is an upper bound.
    """
    (mean,), deviation = fit(np.ones((*values.shape, 1)), values, known)
    return np.exp(mean + deviation * norm.ppf([0.1, 0.5, 0.9])).tolist()


def predictions(record: xr.Dataset) -> dict[str, Any]:
    """Steps of crossing and of escape foretold, (cell, run) by event and way, and the fits.

    The ways: a fit to the "settings", the settings by the "derived" formula, the "first tenth" of
    the run alone, and "both", a fit to the settings and √μ after the first tenth. Delays between
    crossing and escape are fitted too: for the first tenth as one number, otherwise as a power of
    d, rate and chain.
    """
    settings = cells_of(record)
    law, found, seen = in_law(settings), times(record), record.part.values == "fit"
    (log_kappa, known), root = bounded(record), np.maximum(found["root"][..., TENTH], LEAST)
    columns, used = features(record), np.ix_(law, seen)
    weight, _ = fit(columns[used], log_kappa[used], known[used])
    more = np.concatenate([columns, np.log(root)[..., None]], -1)
    both, _ = fit(more[used], log_kappa[used], known[used])
    with np.errstate(over="ignore"):
        crossing = {
            "settings": np.exp(-columns @ weight),
            "derived": np.exp(-derived(settings, record)),
            "first tenth": record.step.values[TENTH] / root,
            "both": np.exp(-more @ both),
        }
    for way in ("first tenth", "both"):
        gone = found["crossing"] <= record.step.values[TENTH]
        crossing[way] = np.where(gone, found["crossing"], crossing[way])
    delay = delays(record, found, columns, used)
    escape = {way: crossing[way] + delay[way != "first tenth"] for way in crossing}
    return {"law": law, "weight": weight, "log kappa": log_kappa, "known": known,
            "columns": columns, "crossing": crossing, "escape": escape}  # fmt: skip


def delays(record: xr.Dataset, found: dict[str, np.ndarray], columns: np.ndarray,
           used: tuple[np.ndarray, ...]) -> tuple[float, np.ndarray]:  # fmt: skip
    """Steps from crossing to escape: the fitted runs' median, and a power law (cell, run)."""
    columns = columns[..., [LAW.index(name) for name in (
        "constant", "d", "rate", "(p + q - 1) sqrt(pi0 pi1)")]]  # fmt: skip
    known = (found["escape"] - found["crossing"])[used]
    both = np.isfinite(known)
    if not both.any():
        return np.inf, np.full(columns.shape[:2], np.inf)
    known = np.maximum(known[both], record.step.values[1] / 2)
    weight, _ = fit(columns[used][both], np.log(known))
    return float(np.median(known)), np.exp(columns @ weight)


def exponents(
    columns: np.ndarray, target: np.ndarray, known: np.ndarray, chains: int
) -> list[dict[str, Any]]:
    """Weights of columns (cell, run, k), with 95 % intervals by drawing every chain's runs anew.

    The runs are ``chains`` equal blocks; 400 draws. Targets that are not known are bounds.
    """
    rng, drawn = np.random.default_rng(0), []
    blocks = np.arange(target.shape[1]).reshape(chains, -1)
    for _ in range(400):
        again = np.concatenate([rng.choice(runs, len(runs)) for runs in blocks])
        drawn.append(fit(columns[:, again], target[:, again], known[:, again])[0])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return [
        {"value": float(value), "interval": [float(a), float(b)]}
        for value, a, b in zip(fit(columns, target, known)[0], low, high, strict=True)
    ]


def laws(record: xr.Dataset) -> dict[str, Any]:
    """The exponents of the fitted law; those of r, d and rate for either start of b; deviations.

    With b at the unigram's the chain's and the batch's exponents are fitted too, on the cells of
    the group "bias"; with b = 0 chain by chain, on those of "size" and "rate".
    """
    settings, foretold, part = cells_of(record), predictions(record), record.part.values
    law, columns, target, crossed = (foretold[k] for k in ("law", "columns", "log kappa", "known"))
    seen = np.flatnonzero(part == "fit")

    def powers(cells: np.ndarray, runs: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        here, chains = np.ix_(cells, runs), {*zip(record.p.values[runs], record.q.values[runs],
                                                  strict=True)}  # fmt: skip
        some = columns[here][..., [LAW.index(name) for name in names]]
        words = exponents(some, target[here], crossed[here], len(chains))
        return dict(zip(names, words, strict=True))

    found: dict[str, Any] = {"law": powers(np.flatnonzero(law), seen, LAW)}
    known = np.flatnonzero([c.group == "bias" for c in settings])
    names = ("constant", "r", "d", "rate", "batch N", "(p + q - 1) sqrt(pi0 pi1)")
    if len(known):
        found["b at the unigram"] = powers(known, seen, names)
    sized = np.flatnonzero([c.group in ("size", "rate") for c in settings])
    for chain, runs in zip(FITTED, seen.reshape(len(FITTED), -1), strict=True):
        found[f"b = 0, ({chain.p}, {chain.q})"] = powers(sized, runs, names[:4])
    off = {way: target + np.log(foretold["crossing"][way]) for way in ("settings", "derived")}
    found["deviation"] = {
        word: {way: mean_square_root(values[here], crossed[here]) for way, values in off.items()}
        for word in PARTS for here in [np.ix_(law, part == word)]
    }  # fmt: skip
    if len(known):
        ratio, wide = np.exp(off["derived"]), np.array([c.d for c in settings])[:, None] ** 0.25
        between = crossed & (ratio > 1 / wide) & (ratio < wide)
        found["derived, b at the unigram"] = {
            "runs": int(ratio[known].size), "never_cross": int((~crossed[known]).sum()),
            "between_the_ends": int(between[known].sum()),
            "quantiles": spread(off["derived"][known], crossed[known]),
            "by_cell": [
                {"d": c.d, "r": c.r, "rate": c.rate, "batch": c.batch,
                 "never_cross": int((~crossed[i]).sum()),
                 "quantiles": spread(off["derived"][i], crossed[i])
                 if crossed[i].mean() > 0.5 else None}
                for i, c in enumerate(settings) if i in known],
        }  # fmt: skip
    return found


def mean_square_root(values: np.ndarray, known: np.ndarray) -> float:
    """The root mean square of values, some of which are upper bounds, as if they were normal."""
    (mean,), deviation = fit(np.ones((*values.shape, 1)), values, known)
    return float(np.hypot(mean, deviation))


def same_starts(record: xr.Dataset) -> dict[str, Any]:
    """How alike runs with the same first weights grow in settings that share nothing else.

    The mean correlation of log κ between the law's cells of d = 8, r = 32, N = 16 and b = 0, whose
    run i starts at the same weights everywhere; every cell's chains have their means taken off.
    1: the start decides, 0: the batches do. 95 % interval by drawing runs anew, 400 times. Cells
    in which fewer than half of the runs cross are left out, and so are runs that do not cross.
    """
    settings = cells_of(record)
    alike = np.array([(c.d, c.r, c.length, c.unigram_bias) == (8, 32, 16, False)
                      for c in settings]) & in_law(settings)  # fmt: skip
    growths = np.log(growth(record))
    alike &= np.isfinite(growths).mean(1) >= 0.5
    growths = growths[alike]
    for chain in (*FITTED, *UNSEEN):
        runs = of_chain(record, chain)
        known = np.isfinite(growths[:, runs]).sum(1, keepdims=True)
        growths[:, runs] -= np.nansum(growths[:, runs], 1, keepdims=True) / np.maximum(known, 1)
    count, rng = len(growths), np.random.default_rng(0)
    if count < 2:
        return {"cells": count}

    def likeness(values: np.ndarray) -> float:
        pairs = pd.DataFrame(values.T).corr().values
        return float((np.nansum(pairs) - count) / (count * (count - 1)))

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
                span = np.quantile(ratio, [0.1, 0.5, 0.9]).tolist() if len(ratio) else None
                line[way] = _right(guess, truth) | {"time_ratio": span}
            line["majority"] = _right(np.full_like(truth, majority), truth)
            lines[event][word] = line
    return lines


def _right(guess: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """How many guesses are right, with the interval."""
    right = int((guess == truth).sum())
    return {"right": right, "interval": wilson(right, truth.size)}


def of_chain(record: xr.Dataset, chain: BinaryChain) -> np.ndarray:
    """Which runs are of a chain."""
    return ((record.p == chain.p) & (record.q == chain.q)).values


def by_chain(record: xr.Dataset) -> dict[str, Any]:
    """Of the runs that the law is for: how many cross and escape, and how they grow."""
    found, foretold = times(record), predictions(record)
    crosses = foretold["known"]
    right = (foretold["crossing"]["settings"] <= float(record.step[-1])) == crosses
    off = foretold["log kappa"] + np.log(foretold["crossing"]["settings"])
    lines: dict[str, Any] = {}
    for chain in (*FITTED, *UNSEEN):
        here = np.ix_(foretold["law"], of_chain(record, chain))
        lines[f"p = {chain.p}, q = {chain.q}"] = {
            "runs": int(off[here].size), "cross": int(crosses[here].sum()),
            "escaped": int(np.isfinite(found["escape"][here]).sum()),
            "growth_against_law": spread(off[here], crosses[here]),
            "crossing_right": int(right[here].sum()),
        }  # fmt: skip
    return lines
