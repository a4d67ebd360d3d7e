"""Reduced models that a full transformer can be compared with, and their starts."""

from __future__ import annotations

from collections.abc import Collection

from flowsim.errors import InputError
from flowsim.spec import ModelSpec, or_list
from flowsim.training.optimizer_choice import MAPPED

_PLANAR, _SPATIAL = ("e", "w"), ("e", "w", "a")
#: The coordinates of starts at which a full transformer can begin, by model; the usual ones first.
LIFTS = {
    "canonical": (_PLANAR,),
    "uniform": (_SPATIAL,),
    "rank-one": (_PLANAR, _SPATIAL),
    "states": (_PLANAR,),
}
COMPARABLE = tuple(LIFTS)


def check_comparable(model: str) -> None:
    """InputError unless full transformers can begin at points of the model."""
    if model not in COMPARABLE:
        raise InputError(
            f"no full transformer begins where --model {model} does: choose {or_list(COMPARABLE)}"
        )


def exact_model(spec: ModelSpec) -> str:
    """Name the model in whose coordinates a transformer without noise stays when it is trained."""
    return MAPPED[0] if spec.get("states") is None else spec.name


def check_sampled(model: str, trainer: str) -> None:
    """InputError unless training by SGD and AdamW is predicted in the model's coordinates."""
    if model not in MAPPED:
        mapped = or_list(MAPPED)
        raise InputError(
            f"{trainer} is predicted by its map in {mapped} coordinates: give --trainer gd or "
            f"flow, or --model {mapped}"
        )


def lifted_from(model: str, attention: bool, fixed: Collection[str] = ()) -> tuple[str, ...]:
    """Name the coordinates of a comparison's starts, (e, w) or (e, w, a), with those in ``fixed``.

    InputError if the model has no such starts, or with attention none at all.
    """
    check_comparable(model)
    lifts: tuple[tuple[str, ...], ...] = LIFTS[model]
    if attention:
        lifts = tuple(names for names in lifts if "a" in names)
        if not lifts:
            raise InputError(f"the {model} model is compared without attention: omit --attention")
    fitting = [names for names in lifts if set(fixed) <= set(names) - {"e", "w"}]
    if not fitting:
        some = [other for other, names in LIFTS.items() if _SPATIAL in names]
        raise InputError(f"--fix a=X goes with a grid and --model {or_list(some)}")
    return fitting[0]
