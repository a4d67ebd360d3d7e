"""Critical points, ends and their shares over a parameter, as one record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from flowsim.arrays import Numbers
from flowsim.bifurcation.find import Diagram, diagram
from flowsim.bifurcation.system import STEP_NUMBERS, StepMap, System, with_decay
from flowsim.boundary.in_record import edge_attributes
from flowsim.errors import InputError
from flowsim.flow.orbits import find_limits
from flowsim.interface import Model, Range, cloud_names, starts_of
from flowsim.labels import BASINS
from flowsim.landscape.ends import End, Ends
from flowsim.records.attributes import described, provenance
from flowsim.records.model_attributes import model_attributes
from flowsim.running import Arrays, Keep, keep_nothing, quickly
from flowsim.scan.follow import to_model
from flowsim.scan.record import share_variables
from flowsim.spec import ModelSpec
from flowsim.training.descent import descend
from flowsim.training.optimizer_choice import OptimizerChoice

#: Starts, and the deviation of their normal draws, unless given.
_STARTS, _SIGMA = 200, 1.5


@dataclass
class _Identities:
    """Ends that keep their name from one value of the parameter to the next.

    Attributes:
        named: all names so far, in the order in which they were given.
        ends: by name, the end where it was first found.
        alive: by name, the ends at the latest value.
    """

    named: list[str] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)
    alive: dict[str, End] = field(default_factory=dict)

    def matched(self, found: list[End], leads: dict[str, int]) -> list[str]:
        """Name the ends ``found`` at the next value: as at the value before, or by new names.

        ``leads`` has, by former name, the code in ``found`` (from 1, 0 for none) of the end whose
        basin now holds the former end. Returns the names, in the order of ``found``.
        """
        names: dict[int, str] = {}
        pairs = []
        for name, before in self.alive.items():
            for i, end in enumerate(found):
                if end.kind != before.kind:
                    continue
                if not bool(before.theta.isfinite().all()):
                    if bool(((end.theta == before.theta) | end.theta.isfinite()).all()):
                        pairs.append((0.0, name, i))
                elif leads.get(name) == i + 1 or (
                    not leads.get(name) and torch.allclose(end.theta, before.theta, atol=1e-9)
                ):  # from a kink it may not be known where the flow leads
                    pairs.append((float((end.theta - before.theta).norm()), name, i))
        for _, name, i in sorted(pairs):
            if i not in names and name not in names.values():
                names[i] = name
        for i, end in enumerate(found):
            if i not in names:
                count = sum(name.startswith(end.kind) for name in self.named) + 1
                names[i] = f"{end.kind}_{count}"
                self.named.append(names[i])
                self.ends[names[i]] = replace(end, name=names[i])
        self.alive = {names[i]: end for i, end in enumerate(found)}
        return [names[i] for i in range(len(found))]


@quickly
def continuation(
    spec: ModelSpec | str,
    parameter: str,
    values: Iterable[float],
    starts: Numbers | None = None,
    optimizer: OptimizerChoice | None = None,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    sigma: Callable[[float], float] | None = None,
    edge: bool = False,
    keep: Keep = keep_nothing,
) -> xr.Dataset:
    """Branches of critical points over a parameter, and the share of every end beside them.

    Zeros of the field F(θ; p) are searched at every value from the starts, the ends of their
    trajectories, and what the model knows; each that lies on no known branch begins one, which is
    followed by pseudo-arclength to both sides, around folds too. So disjoint branches are found.
    With an optimizer F is the step map minus θ, whose zeros are fixed and periodic points.

    A continuum that stays where it is, such as a line, is followed at one of its points; one that
    moves with the parameter is not followed, which the attribute left_out says.

    A fold solves F = 0, F_θ v = 0 together; other events are zeros of a rate along the branch. An
    end at one value is the end at the next whose basin holds it; of several the nearest one.

    Args:
        spec: the model, a ``ModelSpec`` or its name.
        parameter: a numeric argument of the model; with an optimizer learning_rate, momentum or
            weight_decay, λ of L + ½λθᵀGθ; or sigma, the deviation of the starts, on which shares
            alone depend.
        values: increasing, at least two; branches fill the range between the first and the last.
        starts: shape (n, k), whose ends have the shares; by default 200 normal draws of deviation
            1.5, in the coordinates that the model draws.
        optimizer: "gd" or "momentum" with its numbers, as ``OptimizerChoice.named`` gives it.
        seed: of the draws.
        progress: called with the number of values done; True shows a bar on stderr.
        sigma: of a value of the parameter, the factor of ``starts`` or the deviation of the draws,
            such as ``lambda d: d**-0.5`` of a width d, which need not be an argument of the model.
        edge: also find how far every end is from the nearest place with another end,
            ``edge_distance``, of ends that are points in one or two coordinates.
        keep: computes and keeps what takes long; see ``flowsim.scan.store.kept``.

    Returns:
        Dataset with branch_value, branch_<c>, branch_unstable (directions in which a point is
        left), branch_number and branch_period over branch points; event_kind (fold, pitchfork,
        transcritical, hopf, flip, neimark-sacker), event_value and event_<c>; and over the
        parameter and basin count, share, share_low, share_high (95 % Wilson), end_<c> and
        edge_distance, infinite where all ends within reach of the starts are one.

    Raises:
        InputError: a parameter that the model does not have or that is no real number, values
            that do not increase, starts of a wrong shape, no critical point at all, only continua
            that move, a continuum of fixed points of a step map, or distances of other ends.

    >>> import flowsim
    >>> class Well(flowsim.Model):
    ...     coordinates = ("x",)
    ...     def __init__(self, g=0.0):
    ...         self.g = g
    ...     def loss(self, theta):
    ...         return (theta[..., 0] ** 2 - 1) ** 2 / 4 + self.g * theta[..., 0]
    ...
    >>> record = flowsim.continuation(flowsim.ModelSpec(Well), "g", [-0.5, 0.0, 0.5])
    >>> record.event_kind.values.tolist(), record.event_value.values.round(6)
    (['fold', 'fold'], array([-0.3849,  0.3849]))
    """
    spec = spec if isinstance(spec, ModelSpec) else ModelSpec(spec)
    step = step_of(optimizer, parameter)
    spec = with_decay(spec) if parameter == "weight_decay" else spec
    if parameter == "sigma" and parameter not in spec.parameters and sigma is None:
        sigma = float
    free = sigma is not None and parameter not in spec.parameters
    values = values_of(spec, parameter, values, step, free)
    system = System(spec, parameter, float(values[0]), float(values[-1]), step)
    first = system.model(float(values[0]))
    named = first.end_losses() is not None
    if edge and (step is not None or named or len(first.coordinates) > 2):
        raise InputError("edge distances are of ends of the flow that are points, in one or two "
                         "coordinates")  # fmt: skip
    drawn, theta = starts is None, given_or_drawn(first, starts, seed)
    identities, counts, places, limits = _Identities(), [], [], []
    for value in values.tolist():
        if sigma is not None:
            theta = given_or_drawn(first, starts, seed, sigma(value))
        names, codes, ends, reached = _ends_at(system, value, theta, optimizer, identities, keep)
        counts.append({n: int((codes == i).sum()) for i, n in enumerate(["unresolved", *names])})
        places.append(dict(zip(names, ends, strict=bool(ends))))
        limits.append(reached)
        if progress is not None:
            progress(1)
    branches = keep(
        lambda: _branches(diagram(system, torch.as_tensor(values).double(), theta, limits), system)
    )
    basins = list(BASINS) if named else ["unresolved", *identities.named]
    record = xr.Dataset({
        name: ("event" if name.startswith("event_") else "branch_point", column)
        for name, column in branches.items() if name != "moving"
    })  # fmt: skip
    total = np.array([[row.get(name, 0) for name in basins] for row in counts])
    shares = share_variables(total, (parameter, "start"), is_random=True)
    record = record.assign_coords({parameter: values, "basin": basins}).assign(shares)
    if not named:
        for i, name in enumerate(first.coordinates):
            column = [
                [float(row[b].theta[i]) if b in row else np.nan for b in basins] for row in places
            ]
            record[f"end_{name}"] = ((parameter, "basin"), np.array(column))
    if edge:
        within = _window(
            torch.stack([*theta, *(end.theta for row in places for end in row.values())])
        )
        away = [
            keep(partial(_distances, system.model(value), row, basins, within))["away"]
            for value, row in zip(values.tolist(), places, strict=True)
        ]
        about = edge_attributes(first, [*first.coordinates])
        record["edge_distance"] = ((parameter, "basin"), np.array(away), about)
    shown = Ends(first)
    shown.found = list(identities.ends.values())
    record.attrs = provenance({
        "kind": "continuation",
        "parameter": parameter,
        "gradient_flow": int(type(first).field is Model.field),
        **model_attributes(first, system.own, system.model(values[-1])),
        **shown.attributes(),
        **({"left_out": "continua of critical points that move with the parameter"}
           if branches["moving"] else {}),
        **({"starts": f"normal draws, sigma {_SIGMA if sigma is None else f'of {parameter}'}",
            "seed": seed} if drawn else {}),
        **(optimizer.on(first).attributes() if optimizer is not None else {}),
    })  # fmt: skip
    return described(record, first.long_names)


def step_of(optimizer: OptimizerChoice | None, parameter: str) -> StepMap | None:
    """The step map of an optimizer; None for the flow."""
    if optimizer is None:
        if parameter in (*STEP_NUMBERS, "weight_decay"):
            raise InputError(f"{parameter} is of an optimizer: choose gd or momentum")
        return None
    if optimizer.name not in ("gd", "momentum"):
        raise InputError(
            f"the step map of {optimizer.name} is not continued: choose gd or momentum"
        )
    assert optimizer.learning_rate is not None
    return StepMap(optimizer.learning_rate, optimizer.momentum)


def values_of(
    spec: ModelSpec, parameter: str, values: Iterable[float], step: StepMap | None,
    starts_only: bool = False,
) -> np.ndarray:  # fmt: skip
    """The parameter's values as an array; InputError for what ``continuation`` does not take.

    With ``starts_only`` the model does not have the parameter, on which the starts alone depend.
    """
    if starts_only or (step is not None and parameter in STEP_NUMBERS):
        found = np.asarray(list(values), dtype=float)
        if len(found) < 2 or not (np.diff(found) > 0).all() or found[0] < 0:
            raise InputError(f"values of {parameter} must be at least two, and increase from 0")
        return found
    given = spec.values(parameter, values)
    if isinstance(spec.parameters[parameter].default, int) and spec.parameters[parameter].required:
        raise InputError(f"{parameter} takes whole numbers: there are no branches between them")
    if len(given) < 2:
        raise InputError(f"branches over {parameter} need at least two values")
    return np.asarray(given, dtype=float)


def given_or_drawn(
    model: Model, starts: Numbers | None, seed: int, sigma: float | None = None
) -> Tensor:
    """Starts (n, k): those given, times ``sigma``, or 200 normal draws of that deviation, else 1.5.

    The draws are in the coordinates that the model's plane draws.
    """
    if sigma is not None and not 0 < sigma < math.inf:
        raise InputError(f"sigma must be positive, not {sigma}")
    if starts is not None:
        theta = starts_of(model, starts)
        return theta if sigma is None else theta * sigma
    generator = torch.Generator().manual_seed(seed)
    own = len(model.coordinates) == 1
    names = model.coordinates if own else cloud_names(model.plane)
    rows = torch.randn(_STARTS, len(names), dtype=torch.float64, generator=generator)
    rows *= _SIGMA if sigma is None else sigma
    return rows if own else to_model(model, names, rows)


def _ends_at(
    system: System, value: float, starts: Tensor, optimizer: OptimizerChoice | None,
    identities: _Identities, keep: Keep,
) -> tuple[list[str], Tensor, list[End], Tensor]:  # fmt: skip
    """Follow the starts (n, k) at one value of the parameter and name the ends that they reach.

    ``identities`` has the ends at the value before and takes these; ``keep`` computes, and may
    store, the limits. Returns the ends' names; the code of each start's end, (n,), 0 for none and
    i for ``names[i − 1]``; the ends; and their places, (m, k). Of a model that names its ends there
    are no ends returned, and the places are the limits of the first 64 starts.
    """
    model = system.model(value)
    before = {n: end.theta for n, end in identities.alive.items() if end.theta.isfinite().all()}
    rows = torch.cat([starts, *(theta[None] for theta in before.values())])

    def follow() -> Arrays:
        if optimizer is None:
            limits: Any = find_limits(model, rows)
        else:
            steps = optimizer
            if system.parameter in STEP_NUMBERS and not system.own:
                steps = replace(steps, **{system.parameter: value})  # type: ignore[arg-type]
            limits = descend(model, rows, steps)
        return {name: getattr(limits, name).numpy() for name in ("label", "theta", "loss")}

    found = keep(follow)
    label, theta, loss = (torch.from_numpy(found[name]) for name in ("label", "theta", "loss"))
    ends = Ends(model)
    codes = ends.codes(label, theta, loss)
    if ends.named:
        return list(BASINS[1:]), codes[: len(starts)], [], theta[:64]
    leads = dict(zip(before, codes[len(starts) :].tolist(), strict=True))
    names = identities.matched(ends.found, leads)
    reached = torch.stack([end.theta for end in ends.found]) if ends.found else starts[:0]
    return names, codes[: len(starts)], ends.found, reached


def _window(points: Tensor) -> list[Range]:
    """Ranges around points (n, k), a quarter wider than they are spread to both sides."""
    points = points[points.isfinite().all(1)]
    low, high = points.amin(0), points.amax(0)
    beside = torch.where(high > low, (high - low) / 4, 1.0)
    return list(zip((low - beside).tolist(), (high + beside).tolist(), strict=True))


def _distances(
    model: Model, ends: dict[str, End], basins: list[str], within: list[Range]
) -> Arrays:
    """The distance of each end, by name, to the nearest place whose trajectory ends elsewhere.

    As the array ``away`` over the names ``basins``; NaN of names without an end that is a point.
    Places are looked for ``within`` these ranges of the coordinates.
    """
    from flowsim.boundary.distance import edge_distance  # loads scipy.interpolate

    points = {name: end.theta for name, end in ends.items()
              if not end.dimension and bool(end.theta.isfinite().all())}  # fmt: skip
    found = {}
    if points:
        window = dict(zip(model.coordinates, within, strict=True))
        away = edge_distance(model, torch.stack([*points.values()]), window).distance
        found = dict(zip(points, away.tolist(), strict=True))
    return {"away": np.array([found.get(name, math.nan) for name in basins])}


def _branches(found: Diagram, system: System) -> Arrays:
    """The branches and events as columns of a record, by name, and ``moving`` of the diagram."""
    k = len(system.coordinates)
    empty = torch.zeros(0, k).double()
    points = torch.cat([empty, *(branch.state[:, :k] for branch in found.branches)]).numpy()
    sizes = [len(branch.value) for branch in found.branches]
    columns: dict[str, np.ndarray] = {
        "branch_number": np.repeat(np.arange(len(sizes)), sizes),
        "branch_period": np.repeat([branch.period for branch in found.branches], sizes),
        "branch_value": np.concatenate([np.zeros(0), *(b.value.numpy() for b in found.branches)]),
        "branch_unstable": np.concatenate(
            [np.zeros(0, int), *(branch.unstable.numpy() for branch in found.branches)]
        ),
    }
    columns |= {f"branch_{name}": points[:, i] for i, name in enumerate(system.coordinates)}
    columns |= {
        "event_kind": np.array([event.kind for event in found.events], dtype=str),
        "event_value": np.array([event.value for event in found.events]),
        "event_branch": np.array([event.branch for event in found.events], dtype=int),
        "moving": np.array(found.moving),
    }
    for i, name in enumerate(system.coordinates):
        columns[f"event_{name}"] = np.array([float(event.state[i]) for event in found.events])
    return columns
