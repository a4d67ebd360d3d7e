"""The reduced models by the names that the command line and the records use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel
from flowsim.models.linear import LinearAttentionModel
from flowsim.models.rank_one import RankOneModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.models.untied import UntiedModel

MODELS = ("canonical", "uniform", "linear", "untied", "rank-one")


@dataclass(frozen=True)
class ModelChoice:
    """A reduced model without its chain.

    Args:
        name: one of canonical (e, w), uniform and linear (e, w, a), untied (e, u, w), rank-one.
        length: N, the positions of the uniform and the rank-one model; required there.
        bias: "optimal" or "dynamic" (b as last coordinate); the rank-one model always has b.
        attention: give the rank-one model its attention layer.
        tied: whether the rank-one model's unembedding is its embedding.

    Raises:
        InputError: an unknown name, or an option that the model does not have.
    """

    name: str = "canonical"
    length: int | None = None
    bias: str = "optimal"
    attention: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        if self.name not in MODELS:
            raise InputError(f"model must be one of {', '.join(MODELS)}, not {self.name!r}")
        positions = self.name in ("uniform", "rank-one")
        if positions and self.length is None:
            raise InputError(f"the {self.name} model needs a length N, its number of positions")
        if not positions and self.length is not None:
            raise InputError(f"the {self.name} model has no length; omit it")
        if self.name != "rank-one" and (self.attention or not self.tied):
            raise InputError("only the rank-one model is chosen with attention or untied")
        if self.name == "rank-one" and self.bias != "optimal":
            raise InputError("the rank-one model always has its bias as a coordinate; omit bias")

    def on(self, chain: BinaryChain) -> ReducedModel:
        """The model on a chain; InputError for a bias or an N that is wrong or too large."""
        if self.name == "rank-one":
            return RankOneModel(chain, self.length or 0, self.attention, self.tied)
        if self.name == "uniform":
            return AttentionModel(chain, self.length or 0, self.bias)
        closed = {
            "canonical": CanonicalModel,
            "linear": LinearAttentionModel,
            "untied": UntiedModel,
        }
        return closed[self.name](chain, self.bias)

    def settings(self) -> dict[str, str]:
        """Texts that identify the model."""
        return {"model" if k == "name" else k: str(v) for k, v in asdict(self).items()}

    @classmethod
    def from_settings(cls, texts: dict[str, str]) -> ModelChoice:
        """The inverse of ``settings``."""
        length = None if texts["length"] == "None" else int(texts["length"])
        on = {"True": True, "False": False}
        return cls(texts["model"], length, texts["bias"], on[texts["attention"]], on[texts["tied"]])


def reduced_model(
    name: str,
    chain: BinaryChain,
    length: int | None = None,
    bias: str = "optimal",
    attention: bool = False,
    tied: bool = True,
) -> ReducedModel:
    """The reduced model of that name on a chain.

    Args:
        name: canonical, uniform, linear, untied or rank-one.
        chain: the data.
        length, bias, attention, tied: as in :class:`ModelChoice`.

    Raises:
        InputError: an unknown name, an option that the model does not have, or an N that is
            missing, wrong or too large.
    """
    return ModelChoice(name, length, bias, attention, tied).on(chain)


def model(name: str, p: float, q: float, **options: Any) -> ReducedModel:
    """The reduced model of that name on the chain with P(0→1) = p and P(1→0) = q.

    Args:
        name: canonical, uniform, linear, untied or rank-one.
        p, q: probabilities strictly between 0 and 1.
        options: length, bias, attention, tied, as in :class:`ModelChoice`.

    Raises:
        InputError: as :func:`reduced_model`, or p or q outside (0, 1).
    """
    return reduced_model(name, BinaryChain(p, q), **options)


def model_attributes(model: ReducedModel) -> dict[str, object]:
    """What a record says of the model it is about: name, coordinates, N, p, q and the regime."""
    return {
        "model": model.name,
        "coordinates": model.coordinates,
        **({"length": model.length} if hasattr(model, "length") else {}),
        "p": model.chain.p,
        "q": model.chain.q,
        "regime": model.chain.regime,
    }
