"""The protocol of what follows starts, and the solver of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from torch import Tensor

from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.labelling import EndStates
from flowsim.flow.options import Limits, Steps
from flowsim.interface import Model, SolverDefaults


class Solver(Protocol):
    """Follows the gradient flow of one model from many starts.

    A solver of another kind has these members; a model returns it from ``Model.flow``.

    Attributes:
        defaults: tolerances, and numbers of steps and of starts, unless others are given.
        batched: whether starts are advanced together in torch. A start more then costs little, and
            the starts may be on a CUDA device.
        variable: the independent variable, in which torchdiffeq follows the model too.
    """

    @property
    def defaults(self) -> SolverDefaults:
        """Tolerances and numbers of steps where none are given."""
        ...

    @property
    def batched(self) -> bool:
        """True if starts are advanced together in torch."""
        ...

    @property
    def variable(self) -> Literal["time", "logit gap"]:
        """The independent variable of the steps."""
        ...

    def ends(self, start: Tensor, steps: Steps, once: bool = False) -> Iterator[EndStates]:
        """Follow starts (n, k) to their ends; yield their end states part by part, in order.

        ``label_ends`` labels them. With ``once`` a start need not be followed again to be sure of
        its side of a boundary.
        """
        ...

    def paths(self, start: Tensor, times: Tensor, steps: Steps) -> Tensor:
        """Return θ (T, n, k) at the times (T, n), from ``start`` (n, k) at times[0]; else NaN."""
        ...

    def times(self, start: Tensor, ends: Limits, fraction: float, steps: Steps) -> Tensor:
        """Return the times (n,) when ``fraction`` of the excess loss over the end's is left.

        NaN if never. The starts (n, k) move, and their ends are resolved.
        """
        ...


def solver_of(model: Model) -> Solver:
    """Return the solver of the model's own choice, or the one for any loss.

    >>> import flowsim
    >>> solver_of(flowsim.model("canonical", 0.5, 0.8)).variable
    'logit gap'
    """
    solver: Solver | None = model.flow()
    return RosenbrockSolver(model) if solver is None else solver
