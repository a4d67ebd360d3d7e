"""What a scan found, as one labelled record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
import xarray as xr

from flowsim.flow.confirm import confirm
from flowsim.flow.how import Stage
from flowsim.landscape.ends import Ends
from flowsim.records.describe import described
from flowsim.records.provenance import provenance
from flowsim.scan.follow import as_variables, name_ends, names_of_codes, to_model
from flowsim.scan.plan import Scan
from flowsim.scan.statistics import (
    count_labels,
    largest_drifts,
    result_attributes,
    share_variables,
)


def scan_record(
    scan: Scan,
    columns: Mapping[str, np.ndarray],
    settings: dict[str, str],
    stage: Stage | None = None,
) -> xr.Dataset:
    """The record of a scan, as ``scan_basins`` describes it.

    Args:
        scan: what was computed.
        columns: what ``follow`` found, by name, of the scan's shape; they are not copied.
        settings: stored as JSON, to compare with those of another run.
        stage: as of ``write_scan``.
    """
    starts, ends = scan.starts, Ends(scan.model_at(0))
    columns = name_ends(ends, columns)
    names = names_of_codes(ends, columns["label"])
    several = {name: list(v) for name in "pq" if isinstance(v := getattr(scan, name), tuple)}
    record = xr.Dataset(coords={**several, **starts.coords(), "basin": names})
    record = record.assign(as_variables(columns, scan.dims, scan.fraction, names))
    if starts.scattered:  # no axis tells them
        each = scan if starts.drawn else starts
        rows = scan.starts_of(0, prod(each.shape))
        for i, name in enumerate(starts.names):
            record[f"start_{name}"] = (each.dims, rows[:, i].reshape(each.shape))
    counts = count_labels(columns["label"].reshape(*scan.shape[: scan.families], -1), len(names))
    record = record.assign(share_variables(counts, scan.dims, starts.drawn))
    attributes = {
        **provenance(scan.attributes()),
        **result_attributes(counts, largest_drifts(columns), names),
        **ends.attributes(),
        **_confirmed(scan, columns["label"].reshape(-1), stage, ends),
        "settings": json.dumps(settings),
    }
    return described(record.assign_attrs(attributes))


def _confirmed(scan: Scan, label: np.ndarray, stage: Stage | None, ends: Ends) -> dict[str, int]:
    """How many labels of a sample torchdiffeq finds again: attributes ``confirm_…``."""
    count = min(scan.confirm, scan.size)
    drawn = np.sort(np.random.default_rng(0).choice(scan.size, count, replace=False))
    found: dict[str, int] = {}
    by_chain: dict[Any, list[int]] = {}
    for point in drawn.tolist():
        by_chain.setdefault(scan.chain_of(point), []).append(point)
    counted = stage("points checked by torchdiffeq", count) if stage and count else None
    for points in by_chain.values():
        model = scan.model_at(points[0])
        rows = np.concatenate([scan.starts_of(i, i + 1) for i in points])
        theta = to_model(model, scan.starts.names, torch.from_numpy(rows))
        counts = confirm(model, theta, label[points].tolist(), len(points), 0, counted, ends)
        found = {name: found.get(name, 0) + n for name, n in counts.items()}
    return found
