"""The numbers of a record, ready for JSON."""

from __future__ import annotations

from typing import Any

import xarray as xr

from flowsim.chain import BinaryChain


def portrait_summary(record: xr.Dataset) -> dict[str, Any]:
    """The numbers of a portrait record, ready for JSON.

    p, q, regime, entropies in nats, the fraction of the window in each basin, counts of cells, how
    many agree with the analytic basins, and the largest energy drift of any orbit.
    """
    a = record.attrs
    chain = BinaryChain(a["p"], a["q"])
    cells = record["label"].size
    names = str(record["label"].attrs["flag_meanings"]).split()
    counts = {name: int(a[f"cells_{name}"]) for name in names}
    return {
        "p": chain.p,
        "q": chain.q,
        "switching_factor": chain.switching_factor,
        "regime": chain.regime,
        "entropy_rate": chain.entropy_rate,
        "stationary_entropy": chain.stationary_entropy,
        "mutual_information": chain.mutual_information,
        "target_logit_gap": chain.target_logit_gap,
        "cells": cells,
        "fraction": {n: counts[n] / cells for n in ("global_minimum", "local_minimum")},
        "saddle": counts["saddle"],
        "unresolved": counts["unresolved"],
        "oracle_cells": int(a["oracle_cells"]),
        "oracle_agree": int(a["oracle_agree"]),
        "oracle_wrong": int(a["oracle_wrong"]),
        "oracle_cut": int(a["oracle_cut"]),
        "largest_energy_drift": drift if (drift := float(a["largest_energy_drift"])) >= 0 else None,
        "model": a["model"],
        **({"length": int(a["length"])} if "length" in a else {}),
        **({"a": float(a["a"])} if "a" in a else {}),
    }


def phase_space_summary(record: xr.Dataset) -> dict[str, Any]:
    """The numbers of a phase-space record, ready for JSON: settings and orbits by label."""
    a = record.attrs
    names = str(record["orbit_label"].attrs["flag_meanings"]).split()
    counts = {name: int(a[f"orbits_{name}"]) for name in names}
    unresolved = counts.pop("unresolved")
    kept = {name: a[name] for name in ("p", "q", "regime", "model")}
    kept |= {"length": int(a["length"])} if "length" in a else {}
    return {**kept, "orbits": counts, "unresolved": unresolved}
