"""How often Gaussian starts of every scale reach the global minima, beside the integral."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.errors import InputError
from flowsim.flow.limits import find_limits
from flowsim.landscape.basins import SADDLE_ENERGY, reaches_global_minimum
from flowsim.landscape.gaussian_integral import gaussian_limits, gaussian_probability
from flowsim.landscape.labels import Label
from flowsim.markov import GapChain
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel, energy
from flowsim.models.catalogue import model_attributes
from flowsim.models.in_context.induction import InductionModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.states.states_attention import StatesAttentionModel
from flowsim.models.states.states_plane import StatesModel
from flowsim.records.provenance import provenance
from flowsim.scan.statistics import wilson_interval
from flowsim.training.optimizer_choice import OptimizerChoice
from flowsim.training.reduced import ReducedTraining

#: Scales between which float64 holds every start of a cloud, its energy and its orbit.
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-12, 1e3

#: Nearer to the separatrix than this in energy, a label may be unresolved but counts as no error.
_ENERGY_BAND = 1e-9


def gaussian_record(
    model: ReducedModel,
    sigmas: np.ndarray,
    samples: int = 4096,
    seed: int = 0,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    optimizer: OptimizerChoice | None = None,
) -> xr.Dataset:
    """The probability of reaching the global minima against σ: flow beside integral.

    For every σ a cloud of canonical starts, (e, w) or with attention (e, w, a), of S states
    (e, w, v), is drawn from N(0, σ²I) and followed by ``find_limits``; those of the rank-one model
    are lifted. The integral over the canonical model's analytic basin, or that of the plane of S
    states, is only compared with what the flow found. A seed draws the same (e, w) for every model
    without attention. Of the induction model (α, β) is drawn, and there is no integral.

    Args:
        model: any tied model whose bias is minimised out or, in the rank-one model, starts there.
        sigmas: standard deviations, increasing, shape (n,), each from 1e-12 to 1000.
        samples: starts per σ.
        seed: of the one generator that draws all clouds.
        rtol, atol: error allowed per step, as in ``find_limits``.
        progress: called with the number of starts done, or with an optimizer of steps taken.
        optimizer: train from the same starts as well, by its map in the rank-one model.

    Returns:
        Dataset over sigma: integral, of the canonical model or that of S states, and none of the
        induction model; fraction, the
        share of starts that reached the global minima; fraction_low and fraction_high, its 95 %
        Wilson interval, widened by the unresolved starts; count_<label>. For these two models also
        wrong, the starts whose label contradicts the analytic basin although |E − E_s| > 1e-9.
        With an optimizer also learned, learned_low, learned_high: the share of the starts that it
        brought to the bigram within its steps, and the Wilson interval of that share.
        Attributes hold the settings, the limits of the integral, counts and, for these two, the
        largest drift of the energy relative to max(1, |E|).

    Raises:
        InputError: a model, scale or number of samples that is not as above.
    """
    sigmas = _checked(model, sigmas, samples)
    training = None if optimizer is None else ReducedTraining(model, optimizer)
    generator = torch.Generator().manual_seed(seed)
    shape = (len(sigmas), samples, 3 if _has_attention(model) else 2)
    start = torch.randn(shape, dtype=torch.float64, generator=generator)
    start *= torch.from_numpy(sigmas).reshape(-1, 1, 1)
    theta = model.from_canonical(start) if isinstance(model, RankOneModel) else start
    shown = progress if training is None else None
    limits = find_limits(model, theta, rtol, atol, progress=shown)

    record = _counted(limits.label, sigmas, samples)
    if not isinstance(model, InductionModel):
        record = _beside_the_integral(record, model)
    record.attrs |= {
        "kind": "gaussian",
        **model_attributes(model),
        "samples": samples,
        "seed": seed,
        "rtol": "default" if rtol is None else rtol,
        "atol": atol,
        "unresolved": int(record["count_unresolved"].sum()),
    }
    if training is not None and optimizer is not None:
        found = training.run(theta.reshape(-1, theta.shape[-1]), progress).label
        learned = (found == Label.GLOBAL_MINIMUM).reshape(len(sigmas), samples).sum(1).numpy()
        low, high = wilson_interval(learned, samples)
        columns = {"learned": learned / samples, "learned_low": low, "learned_high": high}
        record = record.assign({name: ("sigma", column) for name, column in columns.items()})
        record.attrs |= optimizer.attributes()
    if isinstance(model, CanonicalModel):
        record = _against_the_closed_form(record, model.chain, start, limits.theta, limits.label)
    elif isinstance(model, StatesModel):
        plane = model.canonical(start), model.canonical(limits.theta)
        record = _against_the_closed_form(record, model.chain, *plane, limits.label)
    record.attrs = provenance(record.attrs)
    return record


def _checked(model: ReducedModel, sigmas: np.ndarray, samples: int) -> np.ndarray:
    """The scales as an array; InputError for what ``gaussian_record`` does not take."""
    lifted = isinstance(model, RankOneModel)
    tied = getattr(model, "tied", True) and "u" not in model.coordinates
    if not tied or (not lifted and "b" in model.coordinates):
        raise InputError("Gaussian starts (e, w) or (e, w, a) need a tied model, bias optimal")
    sigmas = np.asarray(sigmas, dtype=np.float64)
    increasing = sigmas.ndim == 1 and sigmas.size > 0 and bool((np.diff(sigmas) > 0).all())
    if not (increasing and sigmas[0] >= SMALLEST_SIGMA and sigmas[-1] <= LARGEST_SIGMA):
        raise InputError(
            f"sigma must increase from at least {SMALLEST_SIGMA:g} to at most {LARGEST_SIGMA:g}"
        )
    if samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}")
    return sigmas


def _has_attention(model: ReducedModel) -> bool:
    return "a" in model.coordinates or bool(getattr(model, "attention", False))


def _counted(label: Tensor, sigmas: np.ndarray, samples: int) -> xr.Dataset:
    """Counts of every label and the share of the global minima with its interval, per σ."""
    record = xr.Dataset(coords={"sigma": sigmas})
    counts = {code: (label == code).sum(dim=1).numpy() for code in Label}
    reached, unknown = counts[Label.GLOBAL_MINIMUM], counts[Label.UNRESOLVED]
    record["fraction"] = ("sigma", reached / samples)
    record["fraction_low"] = ("sigma", wilson_interval(reached, samples)[0])
    record["fraction_high"] = ("sigma", wilson_interval(reached + unknown, samples)[1])
    for code, count in counts.items():
        record[f"count_{code.name.lower()}"] = ("sigma", count)
    return record


def _beside_the_integral(record: xr.Dataset, model: ReducedModel) -> xr.Dataset:
    """The record with the integral over the analytic basin, and how often intervals miss it."""
    plane = model.plane if isinstance(model, StatesAttentionModel) else model
    per_e, per_w = plane.to_canonical if isinstance(plane, StatesModel) else (1.0, 1.0)
    ratio, sigmas = per_w / per_e, record["sigma"].to_numpy()
    exact = [gaussian_probability(model.chain, per_e * float(sigma), ratio) for sigma in sigmas]
    record["integral"] = ("sigma", np.array(exact))
    missed = (record["integral"] < record["fraction_low"]) | (
        record["integral"] > record["fraction_high"]
    )
    small, large = gaussian_limits(model.chain, ratio)
    limits = {"limit_small_sigma": small, "limit_large_sigma": large}
    return record.assign_attrs(limits, intervals_missed=int(missed.sum()))


def _against_the_closed_form(
    record: xr.Dataset, chain: GapChain, start: Tensor, end: Tensor, label: Tensor
) -> xr.Dataset:
    """The record with the labels that contradict the analytic basin, and the energy's drift."""
    expected, level = reaches_global_minimum(chain, start), energy(start)
    clear = ~((level - SADDLE_ENERGY).abs() <= _ENERGY_BAND)
    known = label != Label.UNRESOLVED
    wrong = clear & known & ((label == Label.GLOBAL_MINIMUM) != expected)
    record["wrong"] = ("sigma", wrong.sum(dim=1).numpy())
    normal = end[..., 1].abs() > 1e-300  # below that w is not followed any further
    drift = (energy(end) - level).abs() / level.abs().clamp_min(1)
    drift = torch.where(normal, drift, torch.nan)
    record.attrs["wrong"] = int(wrong.sum())
    record.attrs["largest_relative_energy_drift"] = float(np.nanmax(drift.numpy(), initial=0))
    return record
