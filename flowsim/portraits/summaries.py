"""The numbers of a record, ready for JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import xarray as xr

from flowsim.curves import curves_of
from flowsim.errors import InputError
from flowsim.labels import Label
from flowsim.records.attributes import as_json, axes_of, became_of, end_names, fixed_of, meanings
from flowsim.records.ends import NO_BASIN, all_alike, per_end
from flowsim.spec import chain_of
from flowsim.training.trained import AT_UNIGRAM, LEARNED_SAMPLED


def summarize(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a record of any kind by its numbers, ready for JSON.

    Args:
        record: of one of flowsim's functions or from ``read_record``; of an open one only the
            small parts are read.

    Returns:
        The chain, the model and its settings; counts by label, under "cells" or "points" and the
        labels' names; "fraction", the share of each basin; and what the kind of record adds, such
        as losses, agreement and drifts. Numbers that are not known are None.

    Raises:
        InputError: an unknown kind.

    >>> import flowsim, numpy as np
    >>> axis = np.linspace(-2, 2, 10)
    >>> record = flowsim.scan(flowsim.model("canonical", 0.5, 0.8), {"e": axis, "w": axis})
    >>> summary = flowsim.summarize(record)
    >>> summary["points"], summary["global_minimum"], summary["local_minimum"]
    (100, 46, 54)
    """
    summaries = {
        "portrait": _portrait,
        "phase space": phase_space_summary,
        "scan": scan_summary,
        "boundary": lambda record: {
            **_about_model(record), **_starting_with(record, "refine_"),
            "unresolved": record.attrs["refine_unresolved"],
        },
        "gaussian": gaussian_summary,
        "continuation": continuation_summary,
        "fold curves": fold_curves_summary,
        "comparison": comparison_summary,
        "training": training_summary,
        "optimizers": optimizers_summary,
        "noise": noise_summary,
    }  # fmt: skip
    if not isinstance(record, xr.Dataset):
        raise InputError(f"summarize takes a record, such as portrait(model), not {record!r}")
    kind = record.attrs.get("kind")
    if kind not in summaries:
        known = ", ".join(summaries)
        raise InputError(f"records of kind {kind} have no summary; known are {known}")
    return {name: as_json(value) for name, value in summaries[kind](record).items()}


#: The name of ``summarize`` for portraits.
portrait_summary = summarize


def _about_model(record: xr.Dataset) -> dict[str, Any]:
    """The attributes on the chain, the model and its settings, and the names of the ends."""
    names = ["title", "subtitle", "process", "p", "q", "states", "hidden_per_state", "regime",
             "model", "length", "attention", "tied", "bias", "prior"]  # fmt: skip
    named = end_names(record.attrs)
    return _attributes(record, *names) | ({"end_names": named} if named else {})


def _attributes(record: xr.Dataset, *names: str) -> dict[str, Any]:
    """The attributes of these names, if the record has them."""
    return {name: record.attrs[name] for name in names if name in record.attrs}


def _basins(record: xr.Dataset) -> list[str]:
    """The names along the record's ``basin``: what is unresolved, and the ends."""
    return [str(name) for name in record["basin"].to_numpy()]


def _fixed_values(record: xr.Dataset) -> dict[str, Any]:
    """The values of held coordinates, each by its name and all together under ``fixed``."""
    fixed = fixed_of(record.attrs)
    return {**fixed, "fixed": fixed}


def _starting_with(record: xr.Dataset, *prefixes: str) -> dict[str, Any]:
    """The attributes whose names begin with one of these."""
    return {name: value for name, value in record.attrs.items() if name.startswith(prefixes)}


def _portrait(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a portrait: cells by end, agreement with closed forms, drifts, critical points."""
    if "optimizer" in record.attrs:
        return trained_summary(record)
    a, cells, names = record.attrs, record["label"].size, meanings(record["label"])
    counts = {name: int(a[f"cells_{name}"]) for name in names}
    across, up = axes_of(record)
    points = [{"kind": curve.kind, across: x, up: y}
              for curve in curves_of(record, across, up) for x, y in curve.points]  # fmt: skip
    known: dict[str, Any] = {}
    with suppress(InputError):
        chain = chain_of(a)
        data = ("switching_factor", "entropy_rate", "stationary_entropy", "mutual_information",
                "target_logit_gap")  # fmt: skip
        known = {name: getattr(chain, name) for name in data if hasattr(chain, name)}
    return {
        **_about_model(record),
        **known,
        "cells": cells,
        "fraction": {n: counts[n] / cells for n in names if n in _ends(names) or counts[n]},
        "saddle": sum(counts[name] for name in names if name.startswith("saddle")),
        "unresolved": counts["unresolved"],
        **{f"oracle_{name}": a[f"oracle_{name}"] for name in ("cells", "agree", "wrong", "cut")},
        "largest_energy_drift": a["largest_energy_drift"],
        **_fixed_values(record),
        **_starting_with(record, "confirm_", "certified_", "proven_", "unproven_",
                         "share_differs", "cells_differ", "orbits_unfinished"),
        "critical_points": points,
        **{x.attrs["counted_as"]: (x > 0).sum() for x in record.values()
           if "counted_as" in x.attrs},
        "ends": per_end(record),
    }  # fmt: skip


def _ends(names: Sequence[str]) -> list[str]:
    """The names of ends that have a basin."""
    return [name for name in names if not name.startswith(NO_BASIN)]


def phase_space_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a view in space: orbits by end."""
    counts = {n: record.attrs[f"orbits_{n}"] for n in meanings(record["orbit_label"])}
    unresolved = counts.pop("unresolved")
    more = _starting_with(record, "confirm_", "orbits_unfinished")
    return {**_about_model(record), "orbits": counts, "unresolved": unresolved, **more}


def trained_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a portrait of an optimizer: cells by what its runs became, and by the flow."""
    cells = record["label"].size
    counts = _counted(became_of(record))
    by_flow = {f"flow_{name}": count for name, count in _counted(record["flow_label"]).items()}
    return {
        **_about_model(record),
        **_training_settings(record),
        "cells": cells,
        "fraction": {name: count / cells for name, count in (counts | by_flow).items()},
        **_fixed_values(record),
        "unresolved": record.attrs["cells_unresolved"],
        **{name: counts.get(name, 0) for name in ("periodic", "diverged")},
        "flow_unresolved": by_flow["flow_unresolved"],
    }


def _counted(variable: xr.DataArray) -> dict[str, int]:
    """Count the starts of each code, by its name; that of unresolved ones is last."""
    names = meanings(variable)
    counts = np.bincount(variable.to_numpy().ravel(), minlength=len(names)).tolist()
    return {names[i]: counts[i] for i in (*range(1, len(names)), 0)}


def _training_settings(record: xr.Dataset) -> dict[str, Any]:
    """The optimizer's settings and ``periods``: how many runs repeat every n steps, by n.

    {} for a record without an optimizer.
    """
    names = ("optimizer", "learning_rate", "steps", "loss", "schedule", "batch", "momentum",
             "beta1", "beta2", "weight_decay", "clip", "d", "nudge", "training_seed")  # fmt: skip
    if "optimizer" not in record.attrs:
        return {}
    steps, runs = np.unique(record.get("period", np.zeros(0)), return_counts=True)
    periods = {str(n): int(count) for n, count in zip(steps, runs, strict=True) if n}
    return _attributes(record, *names) | ({"periods": periods} if periods else {})


def scan_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a scan: sizes, counts and shares by basin, drifts, and the refined boundary."""
    names = _basins(record)
    counts = {name: int(record.attrs[f"points_{name}"]) for name in names}
    basins = {}
    for name in _ends(names):
        here = record.sel(basin=name)
        basins[name] = {"fraction": [here["share"].min(), here["share"].max()]}
        if "share_low" in record:  # a grid has no sampling error
            basins[name]["wilson"] = [here["share_low"].min(), here["share_high"].max()]
    trained = _training_settings(record)
    if (became := became_of(record)).name != "label":
        trained[str(became.name)] = _counted(became)
    return {
        **_about_model(record),
        **trained,
        "dimensions": dict(record["label"].sizes),
        "points": sum(counts.values()),
        **counts,
        "saddle": sum(counts[name] for name in names if name.startswith("saddle")),
        "basins": basins,
        **_starting_with(record, "largest_drift_", "refine_", "confirm_"),
        "ends": per_end(record),
    }


def gaussian_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize Gaussian starts: shares at every σ, the limits, and counts of wrong labels."""
    columns = ("sigma", "integral", "fraction", "fraction_low", "fraction_high", "learned",
               "learned_low", "learned_high")  # fmt: skip
    names = ("samples", "seed", "limit_small_sigma", "limit_large_sigma", "intervals_missed",
             "unresolved", "wrong", "largest_relative_energy_drift")  # fmt: skip
    return {
        **_about_model(record),
        **_training_settings(record),
        **_attributes(record, *names),
        **({"integral_of": record["integral"].attrs["of"]}
           if "integral" in record and record["integral"].attrs.get("of") else {}),
        **{name: record[name] for name in columns if name in record},
        **{f"{kind}s": {name: record[kind].sel(basin=name) for name in _basins(record)}
           for kind in ("share", "trained_share") if kind in record},
        **_starting_with(record, "best_"),
    }  # fmt: skip


def comparison_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a comparison: agreement, the confusion table, and why runs were left open."""
    a = record.attrs
    names = ["trainer", "d", "architecture", "noise", "noise_on", "points", "different_starts",
             "decided", "agreeing", "unresolved_outcomes", "unresolved_predictions",
             "agreement_means"]  # fmt: skip
    if "predicted_by" in a:
        names += ["predicted_by", "steps", "learned", "learned_predictions", "nudge"]
    labels = [str(name) for name in record["predicted_label"].to_numpy()]
    found = _about_model(record) | _attributes(record, *names)
    found["agreement"] = a["agreement"] if a["decided"] else None
    if "agreement_low" in a:  # where something was drawn at random
        found["agreement_interval"] = [a["agreement_low"], a["agreement_high"]]
    if "end_reason" in record:
        reasons, codes = meanings(record["end_reason"]), record["end_reason"]
        values = zip(np.atleast_1d(codes.attrs["flag_values"]), reasons, strict=True)
        counts = {name: (codes == code).sum() for code, name in values if code}
        found["left_open"] = {name: count for name, count in counts.items() if count}
    if "flow_predicted" in record:
        learned = record["outcome"] == Label.GLOBAL_MINIMUM
        found["by_flow"] = {
            label.name.lower(): {"runs": here.sum(), "learned": (learned & here).sum()}
            for label in Label
            if (here := record["flow_predicted"] == label).any()
        }
    rows = record["confusion"].to_numpy()
    found["confusion"] = {name: dict(zip(labels, row, strict=True))
                          for name, row in zip(labels, rows, strict=True)}  # fmt: skip
    return found


def training_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize training: final losses, what they are compared with, and failures."""
    a = json.loads(record.attrs["settings"])
    final = record["loss"].isel(step=-1).to_numpy()
    alone = ("p", "q", "entropy_rate", "stationary_entropy")
    found: dict[str, Any] = {name: record[name][0] for name in alone if name in record}
    if "p" in record:
        open_gap = record["stationary_entropy"] - record["entropy_rate"]
        above = final - record["entropy_rate"].to_numpy()
        share = above / open_gap.where(open_gap > 0).to_numpy()
        found["at_bigram"] = (share <= LEARNED_SAMPLED).sum()
        found["at_unigram"] = (np.abs(share - 1) <= AT_UNIGRAM).sum()
    if "baseline_loss" in record:
        names = record["baseline"].to_numpy(), record["baseline_loss"].to_numpy()[0]
        found["baselines"] = dict(zip(*names, strict=True))
    return {
        **_attributes(record, "states", "order", "prior", "baselines_missing"),
        **found,
        "trainer": a["recipe"]["trainer"],
        "models": final.size,
        "loss": final,
        "loss_is": record.attrs["loss_is"],
        "not_finite": (record["finite"] == 0).sum(),
    }


def optimizers_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a comparison of optimizers with the flow.

    For each: the share of starts that it brings elsewhere than the flow, and to each end.
    """
    cells, shares, others = record["elsewhere"].size, {}, {}
    for who in map(str, record["follower"].to_numpy()):
        one = record.sel(follower=who)
        shares[who] = {n: c / cells for n, c in _counted(one["label"]).items() if c}
        if who != "flow":
            others[who] = one["share_elsewhere"]
    return {
        "model": record.attrs["model"],
        "cells": cells,
        "elsewhere_than_flow": others,
        "cells_all_agree": all_alike(record).sum(),
        "shares": shares,
    }


def continuation_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize a continuation: events by kind, and shares at the first and last value."""
    parameter = str(record.attrs["parameter"])
    values = record[parameter].to_numpy()
    share = record["share"].to_numpy()
    return {
        "model": record.attrs["model"],
        "parameter": parameter,
        "from": values[0],
        "to": values[-1],
        "branches": int(record["branch_number"].max(initial=-1)) + 1
        if record.sizes["branch_point"] else 0,
        **_attributes(record, "left_out"),
        "events": [
            {"kind": str(kind), parameter: value}
            for kind, value in zip(record["event_kind"].to_numpy(),
                                   record["event_value"].to_numpy(), strict=True)
        ],
        "share": {name: {"first": share[0, i], "last": share[-1, i]}
                  for i, name in enumerate(_basins(record)) if share[:, i].any()},
        **({"smallest_distance": {name: away for name in _basins(record)
            if np.isfinite(away := record["edge_distance"].sel(basin=name).min())}}
           if "edge_distance" in record else {}),
    }  # fmt: skip


def fold_curves_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize curves of folds: how many of each kind, and the cusps."""
    names = [str(record.attrs[name]) for name in ("parameter", "second")]
    cusps = record["cusp_value"].to_numpy(), record["cusp_second"].to_numpy()
    kinds = record["curve_kind"].to_numpy().tolist()
    return {
        "model": record.attrs["model"],
        "curves": {kind: kinds.count(kind) for kind in sorted({*kinds})},
        "cusps": [dict(zip(names, place, strict=True)) for place in zip(*cusps, strict=True)],
    }


def noise_summary(record: xr.Dataset) -> dict[str, Any]:
    """Summarize ends under noise: the share of every end at each temperature, with its interval.

    Shares are of the paths from all starts together.
    """
    without, rows = _counted(record["label"]), []
    for warmth in record["temperature"].to_numpy():
        for name in _basins(record):
            before = without[name] / record["label"].size
            here = record.sel(temperature=warmth, basin=name)
            share, low, high = (here[f"total_share{x}"].item() for x in ("", "_low", "_high"))
            if share or before:
                rows.append({"temperature": warmth, "end": name, "share": share, "low": low,
                             "high": high, "without_noise": before})  # fmt: skip
    counts = record["total_count"].transpose("temperature", "basin").to_numpy()
    return {
        **_about_model(record),
        **_fixed_values(record),
        **_attributes(record, "time", "step", "seeds", "seed"),
        "paths": counts[0].sum(),
        "unresolved": counts[:, 0].sum(),
        "ends": rows,
    }
