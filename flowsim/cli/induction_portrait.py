"""``portrait --model induction``: the plane (α, β) of the induction head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

#: The options of ``portrait`` that go with the induction model.
_OWN = {"model", "length", "resolution", "confirm", "out", "as_json", "overwrite", "quiet"}
_RESOLUTION, _CONFIRM = 48, 16


def induction_words(given: Any) -> list[str]:
    """What the files are named after; InputError for what the induction model does not have."""
    plain = type(given)()
    for name, value in vars(given).items():
        if name not in _OWN and value != getattr(plain, name):
            raise InputError(
                f"the induction model draws its chains and has a window of its own: omit "
                f"--{name.replace('_', '-')}"
            )
    return given.words()


def compute_induction(given: Any) -> xr.Dataset:
    """The record of the plane."""
    import torch

    from flowsim.cli.progress import progress
    from flowsim.models.in_context.induction import InductionModel
    from flowsim.portraits.induction_plane import induction_record

    torch.set_num_threads(1)
    model = InductionModel(given.positions())
    resolution = given.resolution or _RESOLUTION
    count = _CONFIRM if given.confirm is None else given.confirm
    with progress(resolution**2, "cells", given.quiet) as meter:
        return induction_record(model, resolution=resolution, confirm=count, progress=meter.advance)
