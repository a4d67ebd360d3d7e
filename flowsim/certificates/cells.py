"""Certificates of a portrait's cells: for which of them the label is proven."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from torch import Tensor

from flowsim.certificates.interval import bounds
from flowsim.certificates.tubes import proven_ends
from flowsim.certificates.wells import Landscape
from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.labels import Label, Rule

#: Distance of a proven minimum from its recorded limit, at most, in parts of the window.
_NEAR = 1e-3


def check_certifiable(model: Model) -> None:
    """Refuse a model whose ends cannot be proven, before they are integrated."""
    if type(model).field is not Model.field:
        raise InputError("certificates are of gradient flows")
    origin = np.zeros((1, len(model.coordinates)))
    bounds(model, origin, origin)


def with_certificates(
    record: xr.Dataset, model: Model, theta: Tensor, window: Mapping[str, tuple[float, float]],
    found: Landscape | None = None,
) -> xr.Dataset:  # fmt: skip
    """Add ``certified`` to a record, 1 of cells whose end is proven by interval bounds.

    Proven is, for the loss as float64 states it and the flow −G⁻¹∇L from the centre of the cell: it
    falls below the lowest pass of a well, or below the loss of all other ends that the model names
    (rule ``below_pass``), or it comes so near a minimum that it ends there; or a theorem of the
    model, ``decided`` of its end losses, says so. The rest keeps its label by integration.

    Args:
        record: with labels over a grid, and limits.
        model: a smooth gradient flow.
        theta: the starts, (n, m, k).
        window: ranges of the plane's axes.
        found: the wells in it, of a model of two coordinates.

    Returns:
        The record, with ``well_…`` over the wells of a model of two coordinates, and counts.

    Raises:
        InputError: labels contradict a proof; the loss has no bounds.
    """
    losses, rows = model.end_losses(), theta.detach().reshape(-1, theta.shape[-1])
    code = record["label"].to_numpy().ravel()
    meanings = str(record["label"].attrs["flag_meanings"]).split()
    ends = np.stack([record[f"limit_{name}"].to_numpy().ravel() for name in model.coordinates], 1)
    size = float(np.linalg.norm([high - low for low, high in window.values()]))
    proof, trap_loss = np.full(len(code), -1), -np.inf
    if losses is not None and not losses.degenerate:
        trap_loss = losses.trap - 1e-12 * abs(losses.trap)
        if losses.decided is not None:
            known = losses.decided(rows).numpy()
            proof[known != Label.UNRESOLVED] = -4
            _check((proof == -4) & (known != code))
    unknown = [meaning.startswith(("unresolved", "saddle")) for meaning in meanings]
    open_ = (proof == -1) & ~np.array(unknown)[code] & np.isfinite(ends).all(1)
    left = np.flatnonzero(open_)
    proof[left] = proven_ends(model, rows[left], ends[left], size, found, trap_loss)
    _check((proof == -3) & (code != Label.GLOBAL_MINIMUM))
    for number, well in enumerate([] if found is None else found.wells):
        far = np.linalg.norm(ends - well.minimum, axis=1) > _NEAR * size
        _check((proof == number) & far)
    proof = proof.reshape(record["label"].shape)
    below = (proof >= 0) | (proof == -3)
    rule = np.where(below, int(Rule.BELOW_PASS), record["rule"].to_numpy())
    words = {
        "long_name": "the end is proven by interval bounds",
        "drawn_as": "proof",
        "legend": "end proven",
    }
    dims = record["label"].dims
    record = record.assign(
        certified=(dims, (proof != -1).astype(np.int8), words),
        rule=(dims, rule.astype(record["rule"].dtype), record["rule"].attrs),
    )
    counts = {
        "certified_share": float((proof != -1).mean()),
        "certified_below_pass": float(below.mean()),
    }
    return (record if found is None else _with_wells(record, model, found)).assign_attrs(counts)


def _check(wrong: np.ndarray) -> None:
    """InputError if the mask ``wrong``, of labels that contradict a proof, is anywhere True."""
    if wrong.any():
        raise InputError(
            f"{int(wrong.sum())} labels by integration contradict a proof: lower --rtol"
        )


def _with_wells(record: xr.Dataset, model: Model, found: Landscape) -> xr.Dataset:
    """Add the wells to a record: minima, levels, and counts of proven critical points."""
    minima = np.array([well.minimum for well in found.wells]).reshape(-1, len(model.coordinates))
    words = {"long_name": "lower bound of the lowest pass of the well"}
    return record.assign(
        {
            "well_level": ("well", np.array([well.level for well in found.wells]), words),
            **{f"well_{name}": ("well", minima[:, i]) for i, name in enumerate(model.coordinates)},
        }
    ).assign_attrs(
        {f"proven_{kind}": count for kind, count in found.critical.items()},
        unproven_critical=found.open,
    )
