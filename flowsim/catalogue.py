"""The reduced models by the names that the command line and the records use."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from flowsim.attention import AttentionModel
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.landscape import reaches_global_minimum
from flowsim.linear_attention import LinearAttentionModel, linear_reaches_global_minimum
from flowsim.models import CanonicalModel, ReducedModel


def reduced_model(
    chain: BinaryChain, attention: str = "none", length: int | None = None, bias: str = "optimal"
) -> ReducedModel:
    """The tied reduced model with the given attention.

    Args:
        chain: the data.
        attention: "none" (canonical, θ = (e, w)), "uniform" or "linear" (θ = (e, w, a)).
        length: N, the positions that uniform attention averages over; required there.
        bias: "optimal" or "dynamic" (b as last coordinate).

    Raises:
        InputError: unknown attention or bias, or an N that is missing, wrong or too large.
    """
    if attention == "none":
        return CanonicalModel(chain, bias)
    if attention == "linear":
        return LinearAttentionModel(chain, bias)
    if attention != "uniform":
        raise InputError(f"attention must be none, uniform or linear, not {attention!r}")
    if length is None:
        raise InputError("uniform attention needs a length N, the positions it averages over")
    return AttentionModel(chain, length, bias)


def analytic_basin(model: ReducedModel) -> Callable[[Tensor], Tensor] | None:
    """The closed form of the basin of the global minima, θ (..., k) → bool (...), or None.

    The canonical model has one, and the one with linear attention, bias minimised out.
    """
    if isinstance(model, CanonicalModel) and not model.dynamic_bias:
        return lambda theta: reaches_global_minimum(model.chain, theta)
    if isinstance(model, LinearAttentionModel) and not model.dynamic_bias:
        return lambda theta: linear_reaches_global_minimum(model.chain, theta)
    return None
