"""The reduced models by the names that the command line and the records use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from flowsim.chain import BinaryChain
from flowsim.chains.priors import Prior
from flowsim.errors import InputError
from flowsim.markov import GapChain, SymmetricChain
from flowsim.models.base import ReducedModel
from flowsim.models.canonical import CanonicalModel
from flowsim.models.in_context.induction import DIRICHLET, InductionModel
from flowsim.models.linear import LinearAttentionModel
from flowsim.models.rank_one import RELU_WIDTH, RankOneModel
from flowsim.models.states.states_attention import StatesAttentionModel
from flowsim.models.states.states_plane import HIDDEN_PER_STATE, StatesModel
from flowsim.models.uniform.model import AttentionModel
from flowsim.models.untied import UntiedModel

MODELS = ("canonical", "uniform", "linear", "untied", "rank-one", "states", "induction")
#: The models that have positions, and those chosen with or without attention.
_WITH_LENGTH, _WITH_ATTENTION = ("uniform", "rank-one", "induction"), ("rank-one", "states")
#: N, the positions of the models that have them, unless given; everywhere.
DEFAULT_LENGTH = 8
_OF_STATES = ("states", "hidden_per_state")


def has_length(name: str, attention: bool) -> bool:
    """Whether the model of that name has positions; that of S states has them with attention."""
    return name in _WITH_LENGTH or (name == "states" and attention)


@dataclass(frozen=True)
class ModelChoice:
    """A reduced model without its chain.

    Args:
        name: one of canonical (e, w), uniform and linear (e, w, a), untied (e, u, w), rank-one,
            states (e, w), with attention (e, w, v), induction (alpha, beta).
        length: N, the positions of the uniform and the rank-one model and of S states with
            attention, or the symbols of a sequence of the induction model; by default 8 there.
        bias: "optimal" or "dynamic" (b as last coordinate); the rank-one model always has b.
        attention: give the rank-one model, or that of S states, its attention layer.
        tied: whether the rank-one model's unembedding is its embedding.
        states: S, of the states model, which needs it.
        hidden_per_state: m, of the states model; by default 4 there.

    Raises:
        InputError: an unknown name, or an option that the model does not have.
    """

    name: str = "canonical"
    length: int | None = None
    bias: str = "optimal"
    attention: bool = False
    tied: bool = True
    states: int | None = None
    hidden_per_state: int | None = None

    def __post_init__(self) -> None:
        if self.name not in MODELS:
            raise InputError(f"model must be one of {', '.join(MODELS)}, not {self.name!r}")
        positions = has_length(self.name, self.attention)
        if positions and self.length is None:
            object.__setattr__(self, "length", DEFAULT_LENGTH)
        if not positions and self.length is not None:
            without = " without attention" if self.name == "states" else ""
            raise InputError(f"the {self.name} model has no length{without}; omit it")
        if self.attention and self.name not in _WITH_ATTENTION:
            raise InputError("only rank-one and states are chosen with attention")
        if not self.tied and self.name != "rank-one":
            raise InputError("only the rank-one model is chosen untied")
        if self.name == "rank-one" and self.bias != "optimal":
            raise InputError("the rank-one model always has its bias as a coordinate; omit bias")
        if self.name == "induction" and self.bias != "optimal":
            raise InputError("the induction model has no bias; omit it")
        self._check_states()

    def _check_states(self) -> None:
        """InputError unless the states model, and only it, has its options; m by default."""
        if self.name != "states":
            if (self.states, self.hidden_per_state) != (None, None):
                raise InputError("states and hidden_per_state go with the states model; omit them")
            return
        if self.bias != "optimal":
            raise InputError("the states model's bias is zero by symmetry; omit bias")
        if self.states is None:
            raise InputError("the states model needs states, their number")
        if self.hidden_per_state is None:
            object.__setattr__(self, "hidden_per_state", HIDDEN_PER_STATE)

    def chain(self, p: float | None = None, q: float | None = None) -> Any:
        """The chain of those probabilities that the model is for.

        Of the induction model it is the law of kernels, Dirichlet(1) rows, and has neither.

        Raises:
            InputError: p or q is missing, or given of a model that has none; or they are no
                probabilities.
        """
        if self.name == "induction":
            if (p, q) != (None, None):
                raise InputError(
                    "the induction model draws the kernel of every sequence: omit p and q"
                )
            return DIRICHLET
        if p is None:
            raise InputError(f"the chain of the {self.name} model needs p")
        if self.states is None:
            if q is None:
                raise InputError(f"the chain of the {self.name} model needs q beside p")
            return BinaryChain(p, q)
        if q is not None:
            raise InputError("the states model takes no q: its chain stays with probability 1 - p")
        return SymmetricChain(self.states, p)

    def on(self, chain: GapChain | Prior) -> ReducedModel:
        """The model on a chain, built once and kept while it is among the last eight.

        Raises:
            InputError: a bias or an N that is wrong or too large, or another kind of chain.
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
            model.chain.states if isinstance(model, (StatesModel, StatesAttentionModel)) else None,
            getattr(model, "hidden_per_state", None),
        )

    def settings(self) -> dict[str, str]:
        """Texts that identify the model."""
        own = {"model" if k == "name" else k: str(v) for k, v in asdict(self).items()}
        return own if self.states else {k: v for k, v in own.items() if k not in _OF_STATES}

    @classmethod
    def from_settings(cls, texts: dict[str, str]) -> ModelChoice:
        """The inverse of ``settings``."""
        length = None if texts["length"] == "None" else int(texts["length"])
        on = {"True": True, "False": False}
        own = [int(texts[name]) if name in texts else None for name in _OF_STATES]
        switches = on[texts["attention"]], on[texts["tied"]]
        return cls(texts["model"], length, texts["bias"], *switches, *own)


@lru_cache(maxsize=8)
def _built(choice: ModelChoice, chain: GapChain | Prior) -> ReducedModel:
    if choice.name == "induction":
        if not isinstance(chain, Prior):
            raise InputError(f"the induction model needs a law of kernels, not {chain!r}")
        return InductionModel(choice.length or 0, chain)
    if choice.name == "states":
        if not isinstance(chain, SymmetricChain) or chain.states != choice.states:
            raise InputError(f"the model of {choice.states} states is not for {chain!r}")
        assert choice.hidden_per_state is not None
        if choice.attention:
            return StatesAttentionModel(chain, choice.length or 0, choice.hidden_per_state)
        return StatesModel(chain, choice.hidden_per_state)
    if not isinstance(chain, BinaryChain):
        raise InputError(f"the {choice.name} model is of binary chains, not for {chain!r}")
    if choice.name == "rank-one":
        return RankOneModel(chain, choice.length or 0, choice.attention, choice.tied)
    if choice.name == "uniform":
        return AttentionModel(chain, choice.length or 0, choice.bias)
    closed = {"canonical": CanonicalModel, "linear": LinearAttentionModel, "untied": UntiedModel}
    return closed[choice.name](chain, choice.bias)


def reduced_model(
    name: str,
    chain: GapChain | Prior,
    length: int | None = None,
    bias: str = "optimal",
    attention: bool = False,
    tied: bool = True,
    hidden_per_state: int | None = None,
) -> ReducedModel:
    """The reduced model of that name on a chain.

    Args:
        name: canonical, uniform, linear, untied, rank-one, states or induction.
        chain: the data; of the induction model a law of kernels, such as ``DirichletPrior(2)``.
        length, bias, attention, tied, hidden_per_state: as in :class:`ModelChoice`.

    Raises:
        InputError: an unknown name, an option that the model does not have, or an N that is wrong
            or too large.
    """
    states = chain.states if name == "states" else None
    return ModelChoice(name, length, bias, attention, tied, states, hidden_per_state).on(chain)


def model(
    name: str, p: float | None = None, q: float | None = None, **options: Any
) -> ReducedModel:
    """The reduced model of that name on the chain with P(0→1) = p and P(1→0) = q.

    Args:
        name: canonical, uniform, linear, untied, rank-one, states or induction.
        p, q: probabilities strictly between 0 and 1; of the states model p alone, the probability
            to leave a state; of the induction model neither.
        options: length, bias, attention, tied, states, hidden_per_state, as in
            :class:`ModelChoice`.

    Raises:
        InputError: as :func:`reduced_model`, or p or q outside (0, 1).
    """
    choice = ModelChoice(name, **options)
    return choice.on(choice.chain(p, q))


def model_attributes(model: ReducedModel) -> dict[str, object]:
    """What a record says of its model and chain, for ``model_of`` to build them from."""
    chain = model.chain
    if isinstance(chain, Prior):
        return {**option_attributes(model), "prior": _prior_text(chain)}
    chances = {name: getattr(chain, name) for name in ("p", "q") if hasattr(chain, name)}
    return {**option_attributes(model), **chances, "regime": chain.regime}


def _prior_text(prior: Prior) -> str:
    """A law of kernels as records have it; "dirichlet" is that of the models by name."""
    return "dirichlet" if prior.settings() == DIRICHLET.settings() else repr(prior)


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
        **({"relu_width": RELU_WIDTH} if choice.name == "rank-one" and choice.attention else {}),
        **{name: getattr(choice, name) for name in _OF_STATES if choice.states},
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
    name = attributes.get("model")
    if name == "induction":
        if attributes.get("prior") != "dirichlet":
            raise InputError(
                f"the record's kernels are from {attributes.get('prior')}: build the model by "
                "flowsim.InductionModel"
            )
        return ModelChoice(name, int(attributes["length"])).on(DIRICHLET)
    if p is None or (q is None and name != "states"):
        raise InputError("the record is not of one chain: give p and q")
    if name not in MODELS:
        raise InputError(f"the record's model is {name!r}, not one of {', '.join(MODELS)}")
    own = name == "rank-one"  # a comparison has these of its transformer too
    attention = own and bool(attributes.get("attention", False))
    attention |= name == "states" and "v" in attributes.get("coordinates", ())
    length = attributes.get("length") if has_length(name, attention) else None
    choice = ModelChoice(
        name,
        None if length is None else int(length),
        str(attributes.get("bias", "optimal")),
        attention,
        bool(attributes.get("tied", True)) or not own,
        *(int(attributes[n]) if name == "states" else None for n in _OF_STATES),
    )
    return choice.on(choice.chain(p, q))


def chain_of(attributes: Mapping[str, Any]) -> GapChain:
    """The chain that a record is about, of its attributes; InputError if it is of several."""
    if attributes.get("model") == "states" and "p" in attributes:
        return SymmetricChain(int(attributes["states"]), attributes["p"])
    if "p" not in attributes or "q" not in attributes:
        raise InputError("the record is not of one chain")
    return BinaryChain(attributes["p"], attributes["q"])
