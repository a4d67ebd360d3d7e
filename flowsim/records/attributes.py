"""Attributes of a record: long names of variables, words of its figure, provenance."""

from __future__ import annotations

import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

CONVENTIONS = "CF-1.11"


def plain_mathematics(text: str) -> str:
    """Remove the pairs of dollar signs that enclose formulas in a text.

    >>> plain_mathematics("chain $p$ = 0.5, of a$b.nc")
    'chain p = 0.5, of a$b.nc'
    """
    return re.sub(r"\$([^$]*)\$", r"\1", text)


def as_json(value: Any) -> Any:
    """Convert a value of a record for JSON; None for what is not known (NaN) or at infinity."""
    if isinstance(value, Mapping):
        return {str(name): as_json(part) for name, part in value.items()}
    value = value.to_numpy() if hasattr(value, "to_numpy") else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


#: Long names by pattern of the variable's name; the first that fits.
_NAMES = [
    (r"sigma", "standard deviation of the starts"),
    (r"basin", "where the flow ends"),
    (r"((orbit|near|node)_)?label", "where the flow from this start ends"),
    (r"predicted", "where the reduced flow ends"),
    (r"outcome", "where full training ended"),
    (r"end_reason", "why full training was moved no further"),
    (r"well_level", "lower bound of the lowest pass of the well"),
    (r"well_(\w+)", r"{} of the well's minimum"),
    (r"distance", "distance of the projected weights from the reduced orbit at the same time"),
    (r"status", "how the integration ended"),
    (r"rule", "what decided the label"),
    (r"limit_loss", "loss at the limit, in nats"),
    (r"limit_(\w+)", r"{} at the limit"),
    (r"start_(\w+)", r"{} at the start"),
    (r"end_(\w+)", r"{} at the end of training"),
    (r"open_share", "share of the gap between unigram and bigram loss that is open at the end"),
    (r"progress", "how far the run came, by its loss at the end"),
    (r"period", "steps, or time, after which a periodic run comes back; 0 or NaN of others"),
    (r"largest", "the largest coordinate on the way, by size, in units of the metric's root"),
    (r"steps_taken", "steps until the run was decided"),
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
    (r"temperature", "temperature T of the noise, in nats"),
    (r"total_count", "paths from all starts that end there"),
    (r"total_share", "share of the paths from all starts that end there"),
    (r"(\w*share|fraction|learned)_low", "lower end of the 95 % Wilson interval of {}"),
    (r"(\w*share|fraction|learned)_high", "upper end of the 95 % Wilson interval of {}"),
    (r"integral", "probability of reaching the global minima, by the integral"),
    (r"fraction", "share of the starts that reach the global minima"),
    (r"learned", "share of the starts that the optimizer brings to the global minima"),
    (r"wrong", "starts whose label contradicts the closed form"),
    (r"count_(\w+)", r"starts that end as {}"),
    (r"energy", "conserved energy of the start"),
    (r"loss", "loss of the trained model, in nats"),
    (r"train_loss", "loss on the batch, in nats"),
    (r"reduced_loss", "loss of the reduced model, in nats"),
    (r"time", "gradient-flow time"),
    (r"branch_(\w+)", r"{} along branches of critical points"),
    (r"event_(\w+)", r"{} where a branch changes"),
    (r"cusp_(\w+)", r"{} where a curve of folds has a cusp"),
    # what portraits draw
    (r"curve_number", "the curve on which a place is, counted from 0"),
    (r"curve_kind", "what a curve consists of"),
    (r"curve_of", "the model that has the curve, where it is another one"),
    (r"curve_(\w+)", r"{} along curves"),
    (r"arrow_(\w+)", r"{} of the arrows"),
    (r"direction_(\w+)", r"{} of the flow's direction"),
    (r"(?:orbit|near|fine|boundary)_(\w+)", r"{}"),
    # what full training measures
    (r"trained", "projected weights, as (e, w) or (e, w, a)"),
    (r"orbit", "the reduced orbit at the same time, as (e, w) or (e, w, a)"),
    (r"drift", "distance of the weights from the model's family, over their norm"),
    (r"steps", "steps until training was decided or left"),
    (r"end", "gradient-flow time at which training was decided or left"),
    (r"curvature", "curvature across e = 0, where training ended at the unigram's loss"),
    (r"confusion", "starts by what was predicted and what was found"),
    (r"(predicted|outcome)_label", r"label, {}"),
    (r"coordinate|matrix|layer", "which of them"),
    (r"symbol", "the symbol that was read"),
    (r"step", "steps of training"),
    (r"seed", "seed of the model's start"),
    (r"canonical", "projected weights, as (e, w, a)"),
    (r"bias", "bias b of the logits"),
    (r"position(_spread)?", "position vectors along the embedding's direction: mean, or deviation"),
    (r"relative_distance", "distance of the weights from the rank-one family, over their norm"),
    (r"probability", "mean predicted probability of a one"),
    (r"predicted_kernel", "mean predicted law of the next symbol after each symbol"),
    (r"next", "the symbol that was predicted"),
    (r"baseline", "predictor that the loss is compared with"),
    (r"baseline_loss", "loss of that predictor, in nats; exact"),
    (r"looks_back", "mean attention to the symbol so many positions before"),
    (r"back", "positions before the own one"),
    (r"attention_share", "share of attention in what the feed-forward layer reads"),
    (r"leading_share", "rank-one energy σ₁²/Σσ² of every matrix"),
    (r"entropy_rate", "least possible loss on the chain, in nats (order 1: the bigram's)"),
    (r"stationary_entropy", "loss of the unigram, in nats"),
    (r"plateau_start", "step at which the loss has come to the unigram's"),
    (r"escape", "step from which on half the gap to the bigram's loss is closed"),
    (r"plateau_length", "steps from plateau_start to escape"),
    (r"finite", "1 where all weights are finite"),
]


def described(record: xr.Dataset, long_names: Mapping[str, str] | None = None) -> xr.Dataset:
    """Copy the record, with a long name for every variable that lacks a known one.

    ``long_names`` are the model's own, of its coordinates among others.
    """
    record, own = record.copy(), long_names or {}
    for name, variable in ((str(key), x) for key, x in record.variables.items()):
        matches = ((re.fullmatch(pattern, name), text) for pattern, text in _NAMES)
        found = (text.format(*(own.get(part, part) for part in match.groups()))
                 for match, text in matches if match)  # fmt: skip
        if text := own.get(name) or next(found, ""):
            variable.attrs.setdefault("long_name", text)
    return record


def end_names(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The words for a record's ends in a legend, by the names of their labels."""
    found: dict[str, str] = json.loads(attributes.get("end_names", "{}"))
    return found


def meanings(variable: xr.DataArray) -> list[str]:
    """Names of the values of a variable of codes."""
    return str(variable.attrs["flag_meanings"]).split()


def became_of(record: xr.Dataset) -> xr.DataArray:
    """The variable of every start's code: ``label``, or the finer one that its attributes name."""
    return record[record["label"].attrs.get("ancillary_variables", "label")]


def axes_of(record: xr.Dataset) -> tuple[str, str]:
    """The horizontal and the vertical coordinate of a record's plane."""
    if "axes" in record.attrs:
        across, up = map(str, record.attrs["axes"])
        return across, up
    if "label" not in record or record["label"].ndim != 2:
        raise InputError("the record does not say what its axes are")
    up, across = map(str, record["label"].dims)
    return across, up


#: Number of ends with a name in a title, a legend and a summary; the rest are counted.
MOST_NAMED = 8


def most_frequent(counts: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Split ends into the most frequent, which are named, and the others, which are only counted.

    Both are in the order of ``counts``; ends that none reaches are left out.
    """
    there = [name for name, count in counts.items() if count]
    if len(there) <= MOST_NAMED + 1:  # a line that counts one end could name it
        return there, []
    named = sorted(there, key=lambda name: -counts[name])[:MOST_NAMED]
    return [n for n in there if n in named], [n for n in there if n not in named]


def fixed_attributes(fixed: Mapping[str, float]) -> dict[str, object]:
    """The attributes of a record for the values of held coordinates, and for their names."""
    return {**fixed, "held": " ".join(fixed)} if fixed else {}


def fixed_of(attributes: Mapping[str, Any]) -> dict[str, float]:
    """Read the values of held coordinates from attributes: the inverse of ``fixed_attributes``."""
    return {name: float(attributes[name]) for name in str(attributes.get("held", "")).split()}


#: Value of the attribute ``schema``.
SCHEMA = 3

#: Everything that a number can depend on.
LIBRARIES = (
    "torch", "torchdiffeq", "numpy", "scipy", "numba", "xarray", "h5py", "h5netcdf",
    "safetensors",
)  # fmt: skip


def provenance(settings: dict[str, object]) -> dict[str, object]:
    """Add versions, command, commit and device to settings; no date: all runs write the same."""
    import torch

    return {
        "schema": SCHEMA,
        "device": "cpu",
        **settings,
        "versions": package_versions(),
        "command": command_line([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def command_line(arguments: list[str]) -> str:
    """Join words to a command for a shell, and escape bytes that are no text.

    No file holds such bytes in an attribute.
    """
    return shlex.join(arguments).encode("utf-8", "backslashreplace").decode()


def installed_version() -> str:
    """The version of the distribution, "unknown" in a source tree that was never installed."""
    try:
        return version("flowsim-lab")
    except PackageNotFoundError:
        return "unknown"


def package_versions(packages: tuple[str, ...] = LIBRARIES) -> str:
    """The versions of Python, flowsim and the named packages; none of them is imported."""
    named = [f"flowsim {installed_version()}"]
    for package in packages:
        with suppress(PackageNotFoundError):
            named.append(f"{package} {version(package)}")
    return ", ".join([f"python {platform.python_version()}", *named])


@lru_cache
def source_versions() -> str:
    """The versions of what computes, with the commit where flowsim runs from its sources."""
    return f"{package_versions(LIBRARIES[:5])}, commit {_commit()}"


@lru_cache
def _commit() -> str:
    """The commit of the source tree that runs, "unknown" for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


#: AdamW as in AM Table 2, where its numbers are not torch's.
PAPERS_ADAMW: dict[str, Any] = {
    "beta2": 0.95, "weight_decay": 1e-3, "schedule": "cosine", "clip": 1.0,
}  # fmt: skip


def adam_words(numbers: Mapping[str, Any]) -> list[str]:
    """Words for Adam's or AdamW's numbers: the papers' recipe, or what differs from torch's."""
    if "beta2" not in numbers:
        return []
    if all(numbers.get(name) == value for name, value in PAPERS_ADAMW.items()):
        return ["the papers' recipe"]
    decay, clip = numbers.get("weight_decay", 0.0), numbers.get("clip")
    arguments = [f"β₁ = {numbers['beta1']:g}"] if numbers.get("beta1", 0.9) != 0.9 else []
    arguments += [f"β₂ = {numbers['beta2']:g}"] if numbers["beta2"] != 0.999 else []
    arguments += [f"weight decay {decay:g}"] if decay not in (0.0, 1e-2) else []
    arguments += [f"clipped at {clip:g}"] if clip not in (None, "none") else []
    return arguments + ["cosine schedule"] * (numbers.get("schedule") == "cosine")
