"""What a comparison measured at each of its saved times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flowsim.errors import InputError

_PREFIX = "history/"


class History:
    """Lines of measurements, one per saved time.

    Attributes:
        times: the saved times so far, increasing.
        lines: by name, one tensor per time.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.lines: dict[str, list[Tensor]] = {}

    def append(self, at: float, line: dict[str, Tensor]) -> None:
        """One more line; every line has the same names."""
        self.times.append(at)
        for name, values in line.items():
            self.lines.setdefault(name, []).append(values)

    def columns(self) -> dict[str, Tensor]:
        """Each name's measurements, (time, …)."""
        return {name: torch.stack(lines) for name, lines in self.lines.items()}

    def tensors(self) -> dict[str, Tensor]:
        """``columns`` under the names they have in a checkpoint."""
        return {_PREFIX + name: column for name, column in self.columns().items()}

    def restore(self, path: Path, tensors: dict[str, Tensor], times: Any) -> None:
        """Take over what a checkpoint holds.

        Raises:
            InputError: a column that is missing or too short.
        """
        columns = {
            name.removeprefix(_PREFIX): column
            for name, column in tensors.items()
            if name.startswith(_PREFIX)
        }
        counts = {len(column) for column in columns.values()}
        if not (isinstance(times, list) and times and counts == {len(times)}):
            raise InputError(f"{path} is not a usable checkpoint: its history is incomplete")
        self.times = [float(t) for t in times]
        self.lines = {name: list(column.unbind(0)) for name, column in columns.items()}
