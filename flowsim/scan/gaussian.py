"""Share of Gaussian starts of every scale that reach the global minima, beside the integral."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from flowsim.errors import InputError
from flowsim.flow.options import SolverOptions
from flowsim.flow.orbits import limits_by
from flowsim.interface import Model, closed_basin, cloud_names
from flowsim.labels import Label
from flowsim.landscape.ends import Ends
from flowsim.records.attributes import provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.running import quickly
from flowsim.scan.follow import to_model
from flowsim.scan.record import share_variables, wilson_interval
from flowsim.training.descent import descend
from flowsim.training.optimizer_choice import OptimizerChoice

#: Scales between which float64 holds every start of a cloud, its energy and its orbit: below,
#: products of three coordinates would be no numbers.
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-100, 1e3

#: Nearer to the separatrix than this in energy, a label may be unresolved but counts as no error.
_ENERGY_BAND = 1e-9
#: Ends share the least loss if theirs is above it by at most this part of the range of losses.
_ALIKE = 1e-6


@quickly
def gaussian(
    model: Model,
    sigmas: np.ndarray,
    samples: int = 4096,
    seed: int = 0,
    rtol: float | None = None,
    atol: float = 1e-12,
    progress: Callable[[int], object] | None = None,
    optimizer: OptimizerChoice | None = None,
    max_steps: int | None = None,
) -> xr.Dataset:
    """Find the ends of Gaussian starts over σ, for built-in models beside an integral.

    For every σ a cloud of canonical starts, (e, w) or with attention (e, w, a), of S states
    (e, w, v), is drawn from N(0, σ²I) and followed by ``find_limits``; those of the rank-one model
    are lifted. The integral over the canonical model's analytic basin, or that of the plane of S
    states, is only compared with what the flow found. A seed draws the same (e, w) for every model
    without attention. Of the induction model (α, β) is drawn, and there is no integral. Of a model
    of one's own all coordinates are drawn, and every end that is found has its share.

    Attributes ``best_sigma``, ``best_chance``, ``best_low`` and ``best_high`` say which σ reaches
    the least loss most often, judged by the lower end of Wilson's interval, and with what chance.

    Args:
        model: any tied model whose bias is minimised out or, in the rank-one model, starts there;
            or one of your own.
        sigmas: standard deviations, increasing, shape (n,); of built-in models each from 1e-100 to
            1000.
        samples: starts per σ.
        seed: of the one generator that draws all clouds.
        rtol, atol, max_steps: error allowed per step, and attempted steps, as in ``find_limits``.
        progress: called with the number of starts done, or with an optimizer of steps taken;
            True shows a bar on stderr.
        optimizer: train from the same starts as well.

    Returns:
        Dataset over sigma: integral, of the canonical model or that of S states, and none of the
        induction model; fraction, the
        share of starts that reached the global minima; fraction_low and fraction_high, its 95 %
        Wilson interval, widened by the unresolved starts; count_<label>. Of ends that are found
        also share, share_low and share_high over sigma and basin, and fraction is that of the first
        of them. For the canonical model and S states also
        wrong, the starts whose label contradicts the analytic basin although |E − E_s| > 1e-9.
        With an optimizer also learned, learned_low, learned_high: the share of the starts that it
        brought to the bigram within its steps, and the Wilson interval of that share; of ends that
        are found trained_share, trained_share_low, trained_share_high.
        Attributes hold the settings, the limits of the integral, counts and, for these two, the
        largest drift of the energy relative to max(1, |E|).

    Raises:
        InputError: a model, scale or number of samples that is not as above.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.gaussian(model, [0.3, 1.0], samples=200)
    >>> record.integral.values.round(3), record.wrong.values
    (array([0.044, 0.381]), array([0, 0]))
    """
    names = cloud_names(model.plane)
    sigmas = np.asarray(sigmas, dtype=np.float64)
    increasing = sigmas.ndim == 1 and sigmas.size > 0 and bool((np.diff(sigmas) > 0).all())
    bounded = model.end_losses() is not None
    if not bounded and not (increasing and sigmas[0] > 0 and np.isfinite(sigmas[-1])):
        raise InputError("sigma must increase, and be positive and finite")
    if bounded and not (increasing and sigmas[0] >= SMALLEST_SIGMA and sigmas[-1] <= LARGEST_SIGMA):
        raise InputError(
            f"sigma must increase from at least {SMALLEST_SIGMA:g} to at most {LARGEST_SIGMA:g}"
        )
    if samples < 1:
        raise InputError(f"samples must be at least 1, not {samples}")
    options = SolverOptions(rtol, atol, max_steps, progress=progress if optimizer is None else None)
    optimizer = optimizer if optimizer is None else optimizer.on(model)
    generator = torch.Generator().manual_seed(seed)
    shape = (len(sigmas), samples, len(names))
    start = torch.randn(shape, dtype=torch.float64, generator=generator)
    start *= torch.from_numpy(sigmas).reshape(-1, 1, 1)
    theta = to_model(model, names, start.reshape(-1, len(names))).reshape(*shape[:2], -1)
    limits = limits_by(model, theta, options)

    ends = Ends(model)
    flat = limits.label.flatten(), limits.theta.flatten(0, 1), limits.loss.flatten()
    end_codes = ends.codes(*flat).reshape(limits.label.shape)
    trained = None
    if optimizer is not None:
        steps = descend(model, theta.reshape(-1, theta.shape[-1]), optimizer, progress)
        trained = ends.identify(steps).reshape(end_codes.shape)
    record = xr.Dataset(coords={"sigma": sigmas})
    counts = torch.stack([(end_codes == code).sum(1) for code in range(len(ends.names))]).numpy()
    unknown = counts[Label.UNRESOLVED]
    reached = counts[Label.GLOBAL_MINIMUM] if len(counts) > 1 else 0 * unknown
    low, high = wilson_interval(reached, samples)[0], wilson_interval(reached + unknown, samples)[1]
    columns = {"fraction": reached / samples, "fraction_low": low, "fraction_high": high}
    columns |= {f"count_{name}": count for name, count in zip(ends.names, counts, strict=True)}
    record = record.assign({name: ("sigma", column) for name, column in columns.items()})
    if not ends.named:
        record = record.assign_coords(basin=ends.names)
        for prefix, found in (("", end_codes), ("trained_", trained)):
            if found is not None:
                each = torch.stack([(found == i).sum(1) for i in range(len(ends.names))], dim=1)
                named = share_variables(each.numpy(), ("sigma", "start"), is_random=True)
                del named["count"]
                record = record.assign({f"{prefix}{name}": x for name, x in named.items()})
        if ends.found:
            text = f"share of the starts that end at the first end: {ends.found[0].name}"
            record["fraction"].attrs["long_name"] = text
    end_losses = model.end_losses()
    integral = None if end_losses is None or end_losses.integral is None else end_losses.integral()
    if integral is not None:
        exact = np.array([integral.probability(float(sigma)) for sigma in sigmas])
        record["integral"] = ("sigma", exact, {"of": integral.of} if integral.of else {})
        record.attrs |= {
            "limit_small_sigma": integral.small,
            "limit_large_sigma": integral.large,
            "intervals_missed": int(((exact < low) | (exact > high)).sum()),
        }
    record.attrs |= {
        "kind": "gaussian",
        **model_attributes(model),
        **ends.attributes(),
        "samples": samples,
        "seed": seed,
        **options.attributes(),
        "unresolved": int(record["count_unresolved"].sum()),
    }
    losses, best = np.array([end.loss for end in ends.found]), [int(Label.GLOBAL_MINIMUM)]
    if not ends.named:
        known = losses[np.isfinite(losses)]
        alike = known.min() + _ALIKE * np.ptp(known) if len(known) else -np.inf
        best = [i + 1 for i, x in enumerate(losses) if np.isfinite(x) and x <= alike]
    if best:  # the σ that reaches the least loss most often, by the lower end of the interval
        reached = np.isin(end_codes.numpy(), best).sum(1)
        least, most = wilson_interval(reached, samples)
        at = int(np.argmax(least))
        chances = {"chance": reached[at] / samples, "low": least[at], "high": most[at]}
        record.attrs["best_sigma"] = float(sigmas[at])
        record.attrs |= {f"best_{name}": float(x) for name, x in chances.items()}
    if optimizer is not None:
        record.attrs |= optimizer.attributes()
    if trained is not None and ends.named:
        learned = (trained == Label.GLOBAL_MINIMUM).sum(1).numpy()
        low, high = wilson_interval(learned, samples)
        columns = {"learned": learned / samples, "learned_low": low, "learned_high": high}
        record = record.assign({name: ("sigma", column) for name, column in columns.items()})
    if integral is not None:
        expected, energy = closed_basin(model, theta), integral.energy
        if expected is not None and energy is not None:  # labels against the analytic basin
            level, end = energy(theta), energy(limits.theta)
            clear = ~((level - integral.saddle_energy).abs() <= _ENERGY_BAND)
            clear &= limits.label != Label.UNRESOLVED
            wrong = clear & ((limits.label == Label.GLOBAL_MINIMUM) != expected)
            record["wrong"] = ("sigma", wrong.sum(dim=1).numpy())
            # a coordinate that keeps its sign is not followed below that
            normal = model.plane.project(limits.theta)[..., 1].abs() > 1e-300
            drift = torch.where(normal, (end - level).abs() / level.abs().clamp_min(1), torch.nan)
            largest = float(np.nanmax(drift.numpy(), initial=0))
            record.attrs |= {"wrong": int(wrong.sum()), "largest_relative_energy_drift": largest}
    *first, last = names
    drawn = " and ".join([", ".join(first), last] if first else [last])
    record["sigma"].attrs["long_name"] = f"standard deviation σ of {drawn}"
    record.attrs = provenance(record.attrs)
    return record
