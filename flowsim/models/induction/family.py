"""The induction head by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError
from flowsim.models.family import LENGTH, Family, located

if TYPE_CHECKING:
    from flowsim.interface import Model

_OWN_KERNELS = "draws the kernel of every sequence: omit p and q"


class _Induction(Family):
    """The head on a law of kernels, which stands where other models have their chain."""

    def chain(self, options: Mapping[str, Any], **chances: float) -> Any:
        from flowsim.models.induction.model import DIRICHLET

        return DIRICHLET

    def read_chain(self, attributes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        if attributes.get("prior") != "dirichlet":
            raise InputError(
                f"the record's kernels are from {attributes.get('prior')}: build the model by "
                "flowsim.InductionModel"
            )
        return self.chain(options)

    def build(self, chain: Any, options: Mapping[str, Any]) -> Model:
        from flowsim.chains.priors import Prior

        if not isinstance(chain, Prior):
            raise InputError(f"the induction model needs a law of kernels, not {chain!r}")
        return located(self.home)(options["length"], chain)


FAMILY = _Induction(
    "induction",
    "induction (alpha, beta), kernels drawn anew per sequence",
    "Induction: kernels drawn anew",
    "flowsim.models.induction.model:InductionModel",
    {"length": LENGTH},
    data={},
    without={"p": _OWN_KERNELS, "q": _OWN_KERNELS},
)
