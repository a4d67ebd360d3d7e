"""Results of a small scan in memory, as one labelled record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
import xarray as xr

from flowsim.flow.options import Stage
from flowsim.flow.reference import confirm
from flowsim.interface import Model
from flowsim.landscape.ends import Ends
from flowsim.records.attributes import described, provenance
from flowsim.records.ends import with_ends
from flowsim.running import expect, quickly
from flowsim.scan.follow import as_variables, follow, name_ends, names_of_codes, shaped, to_model
from flowsim.scan.plan import Scan
from flowsim.scan.starts import Starts, as_starts
from flowsim.training.optimizer_choice import OptimizerChoice


def scan_record(
    scan: Scan,
    columns: Mapping[str, np.ndarray],
    settings: dict[str, str],
    next_stage: Stage | None = None,
) -> xr.Dataset:
    """Build the record of a scan, as ``scan_basins`` describes it, from the columns of its points.

    The columns, each of the scan's shape, are not copied; ``settings`` becomes an attribute.
    """
    starts = scan.starts
    ends = [Ends(scan.model_for(case)) for case in range(scan.cases)]
    if len(ends) == 1 or ends[0].named:
        columns = name_ends(ends[0], columns)
        names = names_of_codes(ends[0], columns["label"])
    else:  # codes that are alike in all models
        parts = {name: column.reshape(len(ends), -1) for name, column in columns.items()}
        own = [name_ends(end, {name: column[case] for name, column in parts.items()})["label"]
               for case, end in enumerate(ends)]  # fmt: skip
        rank = {"minimum": 0, "infinity": 1, "saddle": 2}
        there = {e.name: (rank.get(e.kind, 3), e.kind, int(e.name[len(e.kind) + 1 :] or 0))
                 for end in ends for e in end.found}  # fmt: skip
        names = ["unresolved", *sorted(there, key=lambda name: there[name])]
        codes = [np.array([names.index(name) for name in end.names])[label]
                 for end, label in zip(ends, own, strict=True)]  # fmt: skip
        shape = columns["label"].shape
        columns = {**columns, "label": np.stack(codes).reshape(shape).astype(own[0].dtype)}
    several = {name: list(values) for name, values in scan.several.items()}
    record = xr.Dataset(coords={**several, **starts.coords(), "basin": names})
    record = record.assign(as_variables(columns, scan.dims, scan.model_at(0), scan.fraction, names))
    if starts.scattered:  # no axis tells them
        each = scan if starts.is_random else starts
        rows = scan.starts_of(0, prod(each.shape))
        for i, name in enumerate(starts.names):
            record[f"start_{name}"] = (each.dims, rows[:, i].reshape(each.shape))
    label = columns["label"].reshape(*scan.shape[: scan.families], -1)
    counts = np.stack([(label == code).sum(axis=-1) for code in range(len(names))], axis=-1)
    record = record.assign(share_variables(counts, scan.dims, starts.is_random))
    record = record if scan.fraction is None else with_ends(record)
    totals = counts.reshape(-1, len(names)).sum(axis=0).tolist()
    confirmed: dict[str, int] = {}
    drawn = np.random.default_rng(0).choice(scan.size, min(scan.confirm, scan.size), replace=False)
    by_case: dict[int, list[int]] = {}
    for point in np.sort(drawn).tolist():
        by_case.setdefault(scan.case_of(point), []).append(point)
    stage = next_stage if len(drawn) else None
    counted = stage("points checked by torchdiffeq", len(drawn)) if stage else None
    for case, points in by_case.items():
        model, known = scan.model_for(case), ends[case if len(ends) > 1 else 0]
        rows = np.concatenate([scan.starts_of(i, i + 1) for i in points])
        theta = to_model(model, starts.names, torch.from_numpy(rows))
        found = columns["label"].reshape(-1)[points].tolist()
        if not known.named:
            found = [known.names.index(names[code]) for code in found]
        checks = confirm(model, theta, found, len(points), 0, counted, known)
        confirmed = {name: confirmed.get(name, 0) + n for name, n in checks.items()}
    attributes = {
        **provenance(scan.attributes()),
        **{f"points_{name}": total for name, total in zip(names, totals, strict=True)},
        **{f"largest_{name}": float(np.nanmax(column, initial=0.0))
           for name, column in columns.items() if name.startswith("drift_")},
        **confirmed,
        "settings": json.dumps(settings),
    }  # fmt: skip
    if len(ends) == 1:
        attributes |= ends[0].attributes()
    elif shared := ends[0].attributes().get("ends"):
        called = {name: name.replace("_", " ") for name in names[1:]}
        attributes["end_names"] = json.dumps(called, ensure_ascii=False)
        attributes["ends"] = f"{shared} in each model"
    return described(record.assign_attrs(attributes), scan.model_at(0).long_names)


@quickly
def scan_basins(
    model: Model,
    starts: Starts | dict[str, np.ndarray],
    fixed: dict[str, float] | None = None,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    fraction: float | None = None,
    integrator: str = "flowsim",
    optimizer: OptimizerChoice | None = None,
    device: str = "cpu",
    max_steps: int | None = None,
) -> xr.Dataset:
    """Find the limit of every start of a scan, in memory; ``write_scan`` is for scans to disk.

    Args:
        model: the reduced model.
        starts: a ``Grid``, ``Points`` or ``Cloud``; or the axes of a grid: values of each varied
            coordinate, in the order of the record's dimensions.
        fixed: with axes, the value of every other coordinate.
        rtol, atol, max_steps: error allowed per step, and attempted steps, as in ``find_limits``.
        progress: called with the number of starts done; True shows a bar on
            stderr.
        fraction: also find the physical time until the excess loss has fallen to this part of its
            start; by default not, since it costs several times as much as the limits.
        integrator: "torchdiffeq" decides every start by its odeint alone (``reference_limits``).
        optimizer: train from every start instead of following the flow; for the rank-one model.
            Progress then counts steps.
        device: "cuda" follows the starts of a model without a compiled engine on the GPU; "auto"
            does if there is one.

    Returns:
        Dataset over the dimensions of the starts: label, status and rule (flags);
        limit_<coordinate>; limit_loss (nats); gradient_norm; if asked for, hitting_time (NaN of
        starts that do not end in the global minima) and settling_time (of all that end);
        evaluations of the field; drift_<conserved> = |Q(end) − Q(start)|, NaN where the quantity
        is not defined; start_<coordinate> of starts that are not a grid. Over the basins, by name,
        and over sigma where it varies: count and share and, of a ``Cloud``, the share's 95 %
        Wilson interval share_low, share_high. Attributes as of a stored scan: model, chain,
        settings, points by label, largest drifts and provenance.

        With an optimizer: label, status and rule, progress, loss, open_share, learned_step
        and end_<coordinate>, as ``Trained`` has them.

    Raises:
        InputError: the starts have other coordinates than the model, or what ``find_limits`` and
            ``hitting_times`` refuse.

    >>> import flowsim, numpy as np
    >>> axis = np.linspace(-2, 2, 10)
    >>> record = flowsim.scan(flowsim.model("canonical", 0.5, 0.8), {"e": axis, "w": axis})
    >>> float(record.share.sel(basin="global_minimum"))
    0.46
    """
    starts = as_starts(model, starts, fixed)
    size = int(np.prod(starts.shape))
    scan = Scan(
        model, starts, {}, fraction, rtol, atol, size, integrator, optimizer=optimizer,
        device=device, max_steps=max_steps,
    )  # fmt: skip
    theta = to_model(model, starts.names, starts.block(0, size))
    expect(progress, len(theta) * (1 if optimizer is None else optimizer.steps))
    points = follow(model, theta, replace(scan.options, progress=progress), fraction)
    return scan_record(scan, shaped(points, starts.shape), scan.settings())


#: Standard normal quantile of a two-sided interval at 95 %.
_Z95 = 1.959963984540054


def share_variables(
    counts: np.ndarray, dims: Sequence[str], is_random: bool
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Variables count, share and, of drawn starts, its 95 % interval, over (…, basin).

    ``counts`` (…, basin) are of starts by their ends; ``dims`` begin with the names of its other
    dimensions.
    """
    over, total = (*dims[: counts.ndim - 1], "basin"), counts.sum(axis=-1, keepdims=True)
    named = {"count": counts, "share": counts / total}
    if is_random:
        named["share_low"], named["share_high"] = wilson_interval(counts, total)
    return {name: (over, values) for name, values in named.items()}


def wilson_interval(
    successes: np.ndarray, trials: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the 95 % score interval of a probability, by successes k of n trials.

    Wilson 1927: |k/n − P| = z √(P(1 − P)/n).
    """
    centre = successes + _Z95**2 / 2
    spread = _Z95 * np.sqrt(successes * (trials - successes) / trials + _Z95**2 / 4)
    low, high = (centre - spread) / (trials + _Z95**2), (centre + spread) / (trials + _Z95**2)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)
