"""Which reduced models a full transformer can be compared with, and from which starts."""

from __future__ import annotations

from collections.abc import Collection

from flowsim.errors import InputError
from flowsim.models.catalogue import MODELS, ModelChoice, family_of, or_list
from flowsim.training.recipe import MAPPED

#: The models at whose points a full transformer can begin.
COMPARABLE = tuple(name for name in MODELS if family_of(name).lifts)


def check_comparable(name: str) -> None:
    """InputError unless full transformers can begin at points of models of that name."""
    if name not in COMPARABLE:
        raise InputError(
            f"no full transformer begins where --model {name} does: choose {or_list(COMPARABLE)}"
        )


def exact_model(choice: ModelChoice) -> str:
    """The model of the manifold that training of the choice's transformer keeps to."""
    return MAPPED[0] if choice.states is None else choice.name


def check_sampled(name: str, trainer: str) -> None:
    """InputError unless training by SGD and AdamW is predicted in the model's coordinates."""
    if name not in MAPPED:
        mapped = or_list(MAPPED)
        raise InputError(
            f"{trainer} is predicted by its map in {mapped} coordinates: give --trainer gd or "
            f"flow, or --model {mapped}"
        )


def lifted_from(choice: ModelChoice, held: Collection[str] = ()) -> tuple[str, ...]:
    """The coordinates of a comparison's starts.

    Args:
        choice: the reduced model.
        held: coordinates that the starts must have.

    Raises:
        InputError: the model has no such starts, or with attention none at all.
    """
    check_comparable(choice.name)
    lifts = family_of(choice.name).lifts
    if choice.attention:
        lifts = tuple(names for names in lifts if "a" in names)
        if not lifts:
            raise InputError(
                f"the {choice.name} model is compared without attention: omit --attention"
            )
    fitting = [names for names in lifts if set(held) <= set(names) - {"e", "w"}]
    if not fitting:
        some = [name for name in COMPARABLE if any("a" in lift for lift in family_of(name).lifts)]
        raise InputError(f"--fix a=X goes with a grid and --model {or_list(some)}")
    return fitting[0]
