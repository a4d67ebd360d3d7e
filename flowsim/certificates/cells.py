"""Certificates of a portrait's cells: for which of them the label is proven."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import xarray as xr
from torch import Tensor

from flowsim.certificates.interval import bounds
from flowsim.certificates.tubes import followed
from flowsim.certificates.wells import Landscape
from flowsim.errors import InputError
from flowsim.interface import EndLosses, Model
from flowsim.labels import Rule

#: Sides of the blocks of cells whose starts are followed together, and how near its recorded limit
#: a proven minimum is, in parts of the window.
_BLOCKS, _NEAR = (16, 8, 4, 2, 1), 1e-3


def check_certifiable(model: Model) -> None:
    """Check that ends of a model can be proven, before they are integrated.

    Raises:
        InputError: a field that is no gradient flow, or a loss whose bounds are not known.
    """
    if type(model).field is not Model.field:
        raise InputError("certificates are of gradient flows")
    origin = np.zeros((1, len(model.coordinates)))
    bounds(model, origin, origin)


def with_certificates(
    record: xr.Dataset, model: Model, theta: Tensor, window: Mapping[str, tuple[float, float]],
    found: Landscape | None = None,
) -> xr.Dataset:  # fmt: skip
    """The record with ``certified``, 1 of cells whose end is proven by interval bounds.

    Proven is, for the loss as float64 states it and the flow −G⁻¹∇L from the centre of the cell: it
    falls below the lowest pass of a well, or below the loss of all other ends that the model names
    (rule ``below_pass``), or it comes so near a minimum that it ends there, or it never leaves an
    orthant in which the ``floor`` of the model's end losses is above the best. The rest keeps its
    label by integration.

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
    names, losses, shape = model.coordinates, model.end_losses(), theta.shape[:-1]
    code = record["label"].to_numpy()
    meanings = str(record["label"].attrs["flag_meanings"]).split()
    start = theta.detach().numpy().reshape(-1, len(names))
    ends = np.stack([record[f"limit_{name}"].to_numpy().ravel() for name in names], 1)
    root = np.sqrt(np.array(model.metric, float))
    size = float(np.linalg.norm([high - low for low, high in window.values()]))
    trap_loss = None
    if losses is not None and not losses.degenerate:
        trap_loss = losses.trap - 1e-12 * abs(losses.trap)
    open_ = np.array([not name.startswith(("unresolved", "saddle")) for name in meanings])[code]
    proof = np.where(open_.ravel() & held_above_best(model, losses, start), -4, -1)
    for side in _BLOCKS:
        groups = _blocks(code, open_ & (proof.reshape(shape) == -1), side)
        if not groups:
            continue
        middles = np.array([rows[len(rows) // 2] for rows in groups])
        radius = np.array([
            np.linalg.norm((start[rows] - start[middle]) * root, axis=1).max() * (1 + 1e-12)
            for rows, middle in zip(groups, middles, strict=True)
        ])  # fmt: skip
        proofs = followed(model, start[middles], radius, ends[middles], size, found, trap_loss)
        for rows, found_proof in zip(groups, proofs, strict=True):
            proof[rows] = found_proof
    proof = _checked(proof, code.ravel(), ends, meanings, found, size)
    below = (proof >= 0) | (proof == -3)
    rule = np.where(below.reshape(shape), int(Rule.BELOW_PASS), record["rule"].to_numpy())
    words = {"long_name": "the end is proven by interval bounds"}
    dims = record["label"].dims
    record = record.assign(
        certified=(dims, (proof != -1).reshape(shape).astype(np.int8), words),
        rule=(dims, rule.astype(record["rule"].dtype), record["rule"].attrs),
    )
    counts = {
        "certified_share": float((proof != -1).mean()),
        "certified_below_pass": float(below.mean()),
    }
    return (record if found is None else _with_wells(record, model, found)).assign_attrs(counts)


def held_above_best(model: Model, losses: EndLosses | None, start: np.ndarray) -> np.ndarray:
    """Mask of starts (n, k) in orthants that none leaves and whose ``floor`` is above the best.

    A coordinate keeps its sign if its slope is 0 wherever it is 0.
    """
    held = np.zeros(len(start), bool)
    if losses is None or losses.floor is None:
        return held
    whole, signs = np.tile([-np.inf, np.inf], (start.shape[1], 1)), []
    for i, sides in enumerate(whole):
        wall = whole.copy()
        wall[i] = 0
        slope = bounds(model, *wall.T[:, None])[1][0, i]
        signs.append([(-np.inf, 0), (0, np.inf)] if slope.lo == 0 == slope.hi else [tuple(sides)])
    for orthant in product(*signs):
        low, high = np.array(orthant, float).T
        if bounds(model, low[None], high[None], losses.floor)[0].lo[0] > losses.best * (1 + 1e-12):
            held |= ((low <= start) & (start <= high)).all(1)
    return held


def _blocks(code: np.ndarray, left: np.ndarray, side: int) -> list[np.ndarray]:
    """Numbers of the cells that are left in every block whose ends are all one."""
    number = np.arange(code.size).reshape(code.shape)
    found = []
    for i in range(0, code.shape[0], side):
        for j in range(0, code.shape[1], side):
            part = slice(i, i + side), slice(j, j + side)
            rows = number[part][left[part]]
            if len(rows) and (code[part] == code[part][0, 0]).all():
                found.append(rows)
    return found


def _checked(
    proof: np.ndarray, code: np.ndarray, ends: np.ndarray, meanings: list[str],
    found: Landscape | None, size: float,
) -> np.ndarray:  # fmt: skip
    """The proofs, of which none may contradict a label.

    Raises:
        InputError: one does.
    """
    best = code == meanings.index("global_minimum") if "global_minimum" in meanings else code < 0
    wrong = ((proof == -3) & ~best) | ((proof == -4) & best)
    for number, well in enumerate([] if found is None else found.wells):
        wrong |= (proof == number) & (np.linalg.norm(ends - well.minimum, axis=1) > _NEAR * size)
    if wrong.any():
        raise InputError(
            f"{int(wrong.sum())} labels by integration contradict a proof: lower --rtol"
        )
    return proof


def _with_wells(record: xr.Dataset, model: Model, found: Landscape) -> xr.Dataset:
    """The record with the wells: minima, levels, and counts of proven critical points."""
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
