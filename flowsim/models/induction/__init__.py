"""The arguments of the induction head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from flowsim.errors import InputError
from flowsim.models.arguments import LENGTH, Arguments
from flowsim.spec import Parameter, import_object

if TYPE_CHECKING:
    from flowsim.interface import Model

_OWN_KERNELS = "draws the kernel of every sequence: omit p and q"


@dataclass(frozen=True, kw_only=True)
class Induction(Arguments):
    """induction (alpha, beta), kernels drawn anew per sequence"""

    home = "flowsim.models.induction.model:InductionModel"
    title = "Induction: kernels drawn anew"
    lacks: ClassVar = {"p": _OWN_KERNELS, "q": _OWN_KERNELS}

    length: int = LENGTH.field()
    prior: str = Parameter("dirichlet", "distribution of the kernels").field()

    def build(self) -> Model:
        """Return the model with Dirichlet(1) rows; InputError for another law of kernels."""
        if self.prior != "dirichlet":
            raise InputError(
                f"the kernels are from {self.prior}: build the model by "
                "flowsim.InductionModel(length, prior)"
            )
        model: Model = import_object(self.home)(self.length)
        return model
