"""A folder of safetensors files, one for each step of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from flowsim.errors import InputError


class Checkpoint(NamedTuple):
    """The weights of a run after so many steps.

    Attributes:
        step: the last number in the name of the file, or of its folder.
        weights: tensors by name.
    """

    step: int
    weights: dict[str, Tensor]


def read_checkpoints(folder: str | Path) -> list[Checkpoint]:
    """Read the checkpoints of a folder, such as ``step_200.safetensors``, in order of their steps.

    A folder may also hold one folder a step, such as ``checkpoint-200/model.safetensors``, where
    weights may be in several files.

    Raises:
        InputError: no such folder, no such files in it, a name without a number, a damaged file, or
            weights that two files of one step have.

    >>> import tempfile, torch
    >>> from safetensors.torch import save_file
    >>> from flowsim.exchange.checkpoints import read_checkpoints
    >>> folder = tempfile.mkdtemp()
    >>> for step in (0, 10):
    ...     save_file({"w": torch.full((2,), float(step))}, f"{folder}/step_{step}.safetensors")
    ...
    >>> [(one.step, one.weights["w"].tolist()) for one in read_checkpoints(folder)]
    [(0, [0.0, 0.0]), (10, [10.0, 10.0])]
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(Path(folder).glob("*.safetensors")) or sorted(
        Path(folder).glob("*/*.safetensors")
    )
    if not files:
        raise InputError(f"{str(folder)!r} is no folder with .safetensors files")
    found: dict[int, dict[str, Tensor]] = {}
    for file in files:
        name = file.name if file.parent == Path(folder) else file.parent.name
        digits = re.findall(r"\d+", re.sub(r"-\d+-of-\d+|\.safetensors$", "", name))
        if not digits:
            raise InputError(f"the name {name!r} says no step, as step_200.safetensors does")
        try:
            weights = load_file(file)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{str(file)!r} is no safetensors file: {error}") from None
        known = found.setdefault(int(digits[-1]), {})
        if twice := known.keys() & weights.keys():
            raise InputError(f"two files of step {digits[-1]} have the weights {min(twice)!r}")
        known |= weights
    return [Checkpoint(step, found[step]) for step in sorted(found)]
