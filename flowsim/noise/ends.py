"""The chances of the ends of starts under noise, as one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import torch
import xarray as xr

from flowsim.errors import InputError, require_integer
from flowsim.flow.orbits import find_limits
from flowsim.interface import Model
from flowsim.landscape.ends import Ends
from flowsim.noise.langevin import diffuse, step_of
from flowsim.records.attributes import described, fixed_attributes, provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.records.netcdf import flags
from flowsim.running import expect, quickly
from flowsim.scan.follow import to_model
from flowsim.scan.record import share_variables
from flowsim.scan.starts import Starts, as_starts


@quickly
def end_probabilities(
    model: Model,
    starts: Starts | dict[str, np.ndarray],
    temperature: float | Sequence[float],
    time: float,
    generator: torch.Generator,
    seeds: int = 100,
    fixed: dict[str, float] | None = None,
    step: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> xr.Dataset:
    """Estimate the probabilities of the ends after Langevin noise has acted for a time.

    From every start K paths follow dθ = −G⁻¹∇L dt + √(2T) G^−½ dB for the time, as ``diffuse``
    does, and then the flow without noise, whose end is counted.

    Args:
        model: any model.
        starts, fixed: as of ``scan``: a ``Grid``, ``Points`` or ``Cloud``, or values by axis.
        temperature: T in nats, or several that increase.
        time: for which the noise acts, of the flow.
        generator: of the noise.
        seeds: K, paths from each start at each temperature.
        step: as of ``diffuse``.
        progress: called with the number of paths done; True shows a bar on stderr.

    Returns:
        Dataset over temperature, the starts' dimensions and basin: count, share, and the share's
        95 % Wilson interval share_low, share_high; total_count and so on of all starts together;
        over the starts label, the end without noise.

    Raises:
        InputError: temperatures that do not increase, or what ``diffuse`` and ``scan`` raise.

    >>> import flowsim, torch
    >>> well = flowsim.from_loss(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "well")
    >>> starts = flowsim.Points(["x", "y"], [[0.0, 0.0]])
    >>> generator = torch.Generator().manual_seed(0)
    >>> found = flowsim.noise.end_probabilities(well, starts, 0.05, 4.0, generator, seeds=400)
    >>> bool(abs(found.share.sel(basin="minimum_1") - 0.5).item() < 0.1)
    True
    """
    starts = as_starts(model, starts, fixed)
    warmth = np.atleast_1d(np.asarray(temperature, dtype=float))
    if warmth.ndim != 1 or not len(warmth) or (np.diff(warmth) <= 0).any():
        raise InputError("several temperatures must increase")
    if "temperature" in starts.coords():
        raise InputError("a record of noise has a variable 'temperature' already: call the "
                         "coordinate another name, such as temperature_")  # fmt: skip
    require_integer("seeds", seeds, 1)
    count = prod(starts.shape)
    theta = to_model(model, starts.names, starts.block(0, count))
    step = step_of(model, theta, time) if step is None else step
    ends = Ends(model)
    alone = ends.identify(find_limits(model, theta)).numpy()
    expect(progress, len(warmth) * count * seeds)
    found = []
    for value in warmth.tolist():
        moved = diffuse(model, theta.repeat_interleave(seeds, 0), value, time, generator, step)
        reached = ends.identify(find_limits(model, moved))
        found.append(reached.numpy().reshape(*starts.shape, seeds))
        if progress is not None:
            progress(count * seeds)
    codes, names = np.stack(found), ends.names
    counts = np.stack([(codes == code).sum(axis=-1) for code in range(len(names))], axis=-1)
    record = xr.Dataset(coords={"temperature": warmth, **starts.coords(), "basin": names})
    record = record.assign(share_variables(counts, ("temperature", *starts.dims, "seed"), True))
    together = share_variables(counts.reshape(len(warmth), -1, len(names)).sum(axis=1),
                               ("temperature", "seed"), is_random=True)  # fmt: skip
    record = record.assign({f"total_{name}": column for name, column in together.items()})
    label = alone.reshape(starts.shape)
    record["label"] = (starts.dims, label, flags(names, label.dtype))
    if starts.scattered:
        rows = starts.block(0, count).reshape(*starts.shape, -1)
        for i, name in enumerate(starts.names):
            record[f"start_{name}"] = (starts.dims, rows[..., i])
    fixed = {str(name): float(v) for name, v in record.coords.items() if not v.dims}
    record.attrs = provenance({
        "kind": "noise",
        **model_attributes(model),
        **fixed_attributes(fixed),
        **starts.attributes(),
        **ends.attributes(),
        "noise": "Langevin",
        "time": float(time),
        "step": float(step),
        "seeds": seeds,
        "seed": generator.initial_seed(),
    })  # fmt: skip
    return described(record, model.long_names)
