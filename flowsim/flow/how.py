"""How starts are followed, as one value that is checked once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowsim.arrays import resolve_device
from flowsim.errors import InputError

#: What decides where starts end: this package's engines, or torchdiffeq's odeint alone.
INTEGRATORS = ("flowsim", "torchdiffeq")
#: Called before a stage of the work with what is counted and how many; returns what counts them.
Stage = Callable[[str, int], Callable[[int], object]]


@dataclass(frozen=True)
class How:
    """How starts are followed, and who is told of it.

    Attributes:
        rtol, atol, max_steps: as in ``find_limits``.
        integrator: one of ``INTEGRATORS``.
        optimizer: an ``OptimizerChoice``, whose steps are taken instead of following the flow.
        confirm: how many labels of a sample torchdiffeq decides again; None for the usual number.
        progress: called with the number of starts done, or of steps taken by an optimizer.
        stage: called before a further stage of the work; see ``Stage``.
        device: where the engine for any loss follows them: "cpu", or "cuda"; "auto" takes CUDA if
            there is one.

    Raises:
        InputError: a tolerance that is not positive, an unknown integrator, a negative sample, a
            device that is not there, or CUDA for an optimizer or torchdiffeq.
    """

    rtol: float | None = None
    atol: float = 1e-12
    max_steps: int | None = None
    integrator: str = "flowsim"
    optimizer: Any = None
    confirm: int | None = None
    progress: Callable[[int], object] | None = None
    stage: Stage | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.rtol is not None and not 0 < self.rtol < math.inf:
            raise InputError(f"rtol must be a positive number, not {self.rtol}")
        if not 0 <= self.atol < math.inf:
            raise InputError(f"atol must be a number that is not negative, not {self.atol}")
        if self.integrator not in INTEGRATORS:
            known = ", ".join(INTEGRATORS)
            raise InputError(f"integrator must be one of {known}, not {self.integrator!r}")
        if self.confirm is not None and self.confirm < 0:
            raise InputError(f"confirm must not be negative, not {self.confirm}")
        if self.confirm and self.optimizer is not None:
            raise InputError("confirm goes with the flow: torchdiffeq follows no optimizer")
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.device != "cpu" and (self.optimizer is not None or self.integrator != "flowsim"):
            raise InputError("optimizers and torchdiffeq run on the CPU: omit the device")

    def counted(self, what: str, count: int) -> Callable[[int], object] | None:
        """Announce a stage of the work; returns what to call with the number done."""
        return None if self.stage is None else self.stage(what, count)

    def attributes(self) -> dict[str, Any]:
        """What a record says of it: tolerances, or the optimizer's numbers."""
        if self.optimizer is not None:
            return dict(self.optimizer.attributes())
        usual = {"integrator": "flowsim", "device": "cpu"}
        other = {name: own for name, word in usual.items() if (own := getattr(self, name)) != word}
        return {"rtol": "default" if self.rtol is None else self.rtol, "atol": self.atol, **other}
