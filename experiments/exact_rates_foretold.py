"""The rate from which AdamW leaves the unigram on the exact loss, foretold for eight new settings.

The law was made from figures/exact_rates.json alone (docs/derivations/18.md) and the predictions
were committed before these runs. With G = (p + q − 1)π₀π₁ and T steps, two routes lead out:

- fast: while e comes down from its start all steps agree, and η ≥ 0.045/√(rd) is enough;
- slow: later e swings with a size in proportion to η, the layers' gradients, of order Gη², are
  below Adam's ε, and the layers grow at a rate in proportion to Gη³/ε: t = (1400/G) ε/η³.

η* is the smaller of 0.045/√(rd) and (1400 ε/(G T))^(1/3). A prediction holds if fewer than half of
the runs escape within T = 3 000 steps at η*/1.4, and more than half at 1.4 η*. For three more
settings the slow route's 1400 is replaced by what is derived for it, up to a factor √d to either
side, 2·38²·log(0.045/(η√r))/√d; they were committed before they were run too. Runs at 2 η* were
added when it was known which held: docs/results/escape.md. As in exact_rates: N = 6, N(0, 0.02²),
b known, constant rate, every ten steps looked at.

    python experiments/exact_rates_foretold.py [--quick]      about four minutes on one core

--quick takes 4 seeds and 600 steps.
"""

from typing import Any

import numpy as np
import xarray as xr
from exact_rates import COLOURS, Setting, followed, named
from matplotlib.figure import Figure
from papers import experiment, log_axis, median

from full_model import wilson

#: Fitted to figures/exact_rates.json; the second in steps.
FAST, SLOW = 0.045, 1400.0
#: p, q, d, r and Adam's ε: none was run before.
FITTED = (
    ((0.8, 0.8, 8, 32), 1e-8),
    ((0.9, 0.9, 4, 16), 1e-9),
    ((0.9, 0.9, 4, 16), 1e-7),
    ((0.7, 0.7, 12, 48), 1e-8),
    ((0.6, 0.9, 6, 24), 1e-10),
)
#: The same, with the slow route's number of steps derived.
DERIVED = (((0.85, 0.75, 8, 8), 1e-10), ((0.9, 0.9, 16, 4), 1e-10), ((0.8, 0.7, 3, 12), 1e-9))
SETTINGS = FITTED + DERIVED
#: The last shows how far off the misses are.
FACTORS = (1 / 1.4, 1.0, 1.4, 2.0)


def routes(setting: Setting, epsilon: float, steps: int) -> list[float]:
    """The least rate of the fast and of the slow route."""
    p, q, d, r = setting
    strength = (p + q - 1) * p * q / (p + q) ** 2
    slow = (SLOW * epsilon / (strength * steps)) ** (1 / 3)
    if (setting, epsilon) in DERIVED:
        for _ in range(50):
            long = 2 * 38**2 * np.log(FAST / (slow * np.sqrt(r))) / np.sqrt(d)
            slow = (long * epsilon / (strength * steps)) ** (1 / 3)
    return [FAST / np.sqrt(r * d), float(slow)]


def words(setting: Setting, epsilon: float) -> str:
    """What figure and table call a setting."""
    return f"{named(setting)}, ε = {epsilon:g}"


def compute(seeds: int = 16, steps: int = 3000) -> xr.Dataset:
    """The steps at which runs escape and cross (setting, factor, seed); NaN of the others."""
    runs = {
        words(*case): [(case[0], factor * min(routes(*case, steps)), case[1]) for factor in FACTORS]
        for case in SETTINGS
    }
    return followed(runs, {"factor": list(FACTORS)}, seeds, steps)


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Per setting: the rate foretold, how many escape at every factor, and whether it holds."""
    found: dict[str, Any] = {}
    for (setting, epsilon), name in zip(SETTINGS, record.setting.values.tolist(), strict=True):
        fast, slow = routes(setting, epsilon, int(record.attrs["steps"]))
        left = np.isfinite(record.escape.sel(setting=name).values)
        counts, runs = left.sum(1).tolist(), left.shape[1]
        found[name] = {
            "fast": fast, "slow": slow, "foretold": min(fast, slow), "runs": runs,
            "escaped": counts, "intervals": [wilson(n, runs) for n in counts],
            "escape_median": [*map(median, record.escape.sel(setting=name).values)],
            "holds": bool(2 * counts[0] < runs < 2 * counts[2]),
        }  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """How many of the runs escape against the rate over the one foretold."""
    figure = Figure(figsize=(9.2, 4.3), layout="constrained")
    axes = figure.subplots()
    share = np.isfinite(record.escape).mean("seed")
    for k, name in enumerate(record.setting.values.tolist()):
        line, later = share.sel(setting=name), k >= len(FITTED)
        axes.plot(line.factor * 1.01 ** (k - 4), line, "s--" if later else "o-", label=name,
                  color=COLOURS[k % len(COLOURS)])  # fmt: skip
    axes.axvline(1, color="k", lw=0.8, ls=":")
    log_axis(axes, "x", FACTORS, ["1/1.4", "1", "1.4", "2"])
    axes.set(xlabel="rate over the rate foretold", ylabel="share of the runs that escape")
    runs, steps = record.sizes["seed"], record.attrs["steps"]
    found = numbers(record).values()
    right = sum(line["holds"] for line in found)
    wider = sum(2 * line["escaped"][0] < runs < 2 * line["escaped"][3] for line in found)
    axes.set_title(f"{right} of {len(SETTINGS)} rates foretold are right within 1.4, {wider} "
                   f"within 2\n(exact loss, b known, {runs} seeds, {steps} steps)",
                   fontsize=10.5)  # fmt: skip
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


main = experiment(__name__, compute, numbers, draw, quick={"seeds": 4, "steps": 600})
