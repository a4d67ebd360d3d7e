"""The reduced models by the names that the command line and the records use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel
from flowsim.models.linear import LinearAttentionModel
from flowsim.models.rank_one import RELU_WIDTH, RankOneModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.models.untied import UntiedModel

MODELS = ("canonical", "uniform", "linear", "untied", "rank-one")
#: N, the positions of the models that have them, unless given; everywhere.
DEFAULT_LENGTH = 8


@dataclass(frozen=True)
class ModelChoice:
    """A reduced model without its chain.

    Args:
        name: one of canonical (e, w), uniform and linear (e, w, a), untied (e, u, w), rank-one.
        length: N, the positions of the uniform and the rank-one model; by default 8 there.
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
            object.__setattr__(self, "length", DEFAULT_LENGTH)
        if not positions and self.length is not None:
            raise InputError(f"the {self.name} model has no length; omit it")
        if self.name != "rank-one" and (self.attention or not self.tied):
            raise InputError("only the rank-one model is chosen with attention or untied")
        if self.name == "rank-one" and self.bias != "optimal":
            raise InputError("the rank-one model always has its bias as a coordinate; omit bias")

    def on(self, chain: BinaryChain) -> ReducedModel:
        """The model on a chain, built once and kept while it is among the last eight.

        Raises:
            InputError: a bias or an N that is wrong or too large.
        """
        return _built(self, chain)

    @classmethod
    def of(cls, model: ReducedModel) -> ModelChoice:
        """The choice that gives a model of this catalogue again, on whatever chain."""
        dynamic = bool(getattr(model, "dynamic_bias", False))
        return cls(
            model.name,
            getattr(model, "length", None),
            "dynamic" if dynamic else "optimal",
            bool(getattr(model, "attention", False)),
            bool(getattr(model, "tied", True)),
        )

    def settings(self) -> dict[str, str]:
        """Texts that identify the model."""
        return {"model" if k == "name" else k: str(v) for k, v in asdict(self).items()}

    @classmethod
    def from_settings(cls, texts: dict[str, str]) -> ModelChoice:
        """The inverse of ``settings``."""
        length = None if texts["length"] == "None" else int(texts["length"])
        on = {"True": True, "False": False}
        return cls(texts["model"], length, texts["bias"], on[texts["attention"]], on[texts["tied"]])


@lru_cache(maxsize=8)
def _built(choice: ModelChoice, chain: BinaryChain) -> ReducedModel:
    if choice.name == "rank-one":
        return RankOneModel(chain, choice.length or 0, choice.attention, choice.tied)
    if choice.name == "uniform":
        return AttentionModel(chain, choice.length or 0, choice.bias)
    closed = {"canonical": CanonicalModel, "linear": LinearAttentionModel, "untied": UntiedModel}
    return closed[choice.name](chain, choice.bias)


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
        InputError: an unknown name, an option that the model does not have, or an N that is wrong
            or too large.
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
    """What a record says of its model and chain, for ``model_of`` to build them from."""
    chain = model.chain
    return {**option_attributes(model), "p": chain.p, "q": chain.q, "regime": chain.regime}


def option_attributes(model: ReducedModel) -> dict[str, object]:
    """What a record says of its model alone: name, coordinates, N and options."""
    choice = ModelChoice.of(model)
    return {
        "model": choice.name,
        "coordinates": model.coordinates,
        **({} if choice.length is None else {"length": choice.length}),
        "bias": choice.bias,
        "attention": int(choice.attention),
        "tied": int(choice.tied),
        **({"relu_width": RELU_WIDTH} if choice.attention else {}),
    }


def model_of(
    attributes: Mapping[str, Any], p: float | None = None, q: float | None = None
) -> ReducedModel:
    """The reduced model that a record is about.

    Args:
        attributes: of a record that ``read_record`` returned.
        p, q: the chain, of records that hold several; by default the record's.

    Raises:
        InputError: the record names no model or none of this catalogue, or no one chain.
    """
    p, q = attributes.get("p") if p is None else p, attributes.get("q") if q is None else q
    if p is None or q is None:
        raise InputError("the record is not of one chain: give p and q")
    name = attributes.get("model")
    if name not in MODELS:
        raise InputError(f"the record's model is {name!r}, not one of {', '.join(MODELS)}")
    length = attributes.get("length") if name in ("uniform", "rank-one") else None
    own = name == "rank-one"  # a comparison has these of its transformer too
    choice = ModelChoice(
        name,
        None if length is None else int(length),
        str(attributes.get("bias", "optimal")),
        own and bool(attributes.get("attention", False)),
        bool(attributes.get("tied", True)) or not own,
    )
    return choice.on(BinaryChain(p, q))
