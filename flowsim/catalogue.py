"""The reduced models by the names that the command line and the records use."""

from __future__ import annotations

from flowsim.attention import AttentionModel
from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.linear_attention import LinearAttentionModel
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
