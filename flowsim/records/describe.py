"""Units and long names of a record's variables, as the CF conventions have them."""

from __future__ import annotations

import re

import xarray as xr

CONVENTIONS = "CF-1.11"

#: Long names by pattern of the variable's name; the first that fits.
_NAMES = [
    (r"p", "P(0→1), the probability that a one follows a zero; of S states that another follows"),
    (r"q", "P(1→0), the probability that a zero follows a one"),
    (r"e", "embedding e"),
    (r"u", "unembedding u"),
    (r"w", "feed-forward weight w"),
    (r"a", "attention a"),
    (r"b", "bias b"),
    (r"sigma", "standard deviation of the starts"),
    (r"basin", "where the flow ends"),
    (r"label", "where the flow from this start ends"),
    (r"(orbit|near|node)_label", "where the flow from this start ends"),
    (r"predicted", "where the reduced flow ends"),
    (r"outcome", "where full training ended"),
    (r"end_reason", "why full training was moved no further"),
    (r"distance", "distance of the projected weights from the reduced orbit at the same time"),
    (r"status", "how the integration ended"),
    (r"rule", "what decided the label"),
    (r"limit_loss", "loss at the limit, in nats"),
    (r"limit_(\w+)", r"{} at the limit"),
    (r"start_(\w+)", r"{} at the start"),
    (r"end_(\w+)", r"{} at the end of training"),
    (r"open_share", "share of the gap between unigram and bigram loss that is open at the end"),
    (r"on_plateau_at_end", "whether the loss ended within a tenth of the gap of the unigram's"),
    (r"learned_step", "first look, in steps, from which on the start has learned for good"),
    (r"flow_label", "where gradient flow from this start ends"),
    (r"gradient_norm", "norm of the loss's gradient at the limit, in nats"),
    (r"evaluations", "evaluations of the gradient"),
    (r"drift_(\w+)", r"change of the conserved quantity {} along the orbit"),
    (r"hitting_time", "gradient-flow time until the global minima have been learned"),
    (r"settling_time", "gradient-flow time until the excess loss over the limit has fallen"),
    (r"kinks", "times that the orbit crossed a kink of a ReLU"),
    (r"sliding_time", "gradient-flow time that the orbit slid along a kink"),
    (r"count", "starts that end there"),
    (r"share", "share of the starts that end there"),
    (r"share_low", "lower end of the share's 95 % Wilson interval"),
    (r"share_high", "upper end of the share's 95 % Wilson interval"),
    (r"integral", "probability of reaching the global minima, by the integral"),
    (r"fraction", "share of the starts that reach the global minima"),
    (r"fraction_low", "lower end of the fraction's 95 % Wilson interval"),
    (r"fraction_high", "upper end of the fraction's 95 % Wilson interval"),
    (r"learned", "share of the starts that the optimizer brings to the global minima"),
    (r"learned_low", "lower end of that share's 95 % Wilson interval"),
    (r"learned_high", "upper end of that share's 95 % Wilson interval"),
    (r"wrong", "starts whose label contradicts the closed form"),
    (r"count_(\w+)", r"starts that end as {}"),
    (r"energy", "conserved energy of the start"),
    (r"loss", "loss of the trained model, in nats"),
    (r"train_loss", "loss on the batch, in nats"),
    (r"reduced_loss", "loss of the reduced model, in nats"),
    (r"time", "gradient-flow time"),
]
_COMPILED = [(re.compile(pattern), words) for pattern, words in _NAMES]


def described(record: xr.Dataset) -> xr.Dataset:
    """The record with a long name, and units "1" for numbers, where a variable lacks them.

    All quantities are pure numbers: losses and entropies are in nats, which are no unit to CF.
    """
    record = record.copy()
    for key, variable in record.variables.items():
        for name, value in attributes_of(str(key), variable.dtype.kind, variable.attrs).items():
            variable.attrs.setdefault(name, value)
    return record


def attributes_of(name: str, kind: str, present: object = ()) -> dict[str, str]:
    """Long name, if one is known, and units of a variable whose dtype is of that kind."""
    found = {}
    for pattern, words in _COMPILED:
        if match := pattern.fullmatch(name):
            found["long_name"] = words.format(*match.groups())
            break
    flagged = isinstance(present, dict) and "flag_values" in present
    if kind in "iuf" and not flagged:
        found["units"] = "1"
    return found
