"""The reduced models by the names that the command line and the records use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError
from flowsim.models.family import Family
from flowsim.models.own import (
    OwnFamily,
    family_of_model,
    is_own,
    load_family,
    options_of,
    source_attributes,
    source_digest,
)
from flowsim.models.words import model_captions

if TYPE_CHECKING:
    from flowsim.interface import Model
    from flowsim.markov import GapChain

#: The folder of every model: one more is one more line.
_FOLDERS = {
    "canonical": "canonical",
    "uniform": "uniform",
    "linear": "linear",
    "untied": "untied",
    "rank-one": "rank_one",
    "states": "states",
    "induction": "induction",
    "flips": "flips",
}
MODELS = tuple(_FOLDERS)


@cache
def family_of(name: str) -> Family:
    """What the models of a name are chosen with; InputError for a name that is not listed."""
    if name not in _FOLDERS:
        meant = get_close_matches(str(name).lower().replace("_", "-"), MODELS, 1, 0.75)
        hint = f": is {meant[0]} meant?" if meant else ""
        raise InputError(f"model must be one of {', '.join(MODELS)}, not {name!r}{hint}")
    found: Family = import_module(f"flowsim.models.{_FOLDERS[name]}.family").FAMILY
    return found


def families_with(option: str) -> list[Family]:
    """The families that have an option of that name."""
    return [family for family in map(family_of, MODELS) if option in family.options]


def or_list(names: Iterable[str]) -> str:
    """a, b or c."""
    *some, last = names
    return " or ".join([", ".join(some), last] if some else [last])


class ModelChoice:
    """A reduced model without its chain.

    Args:
        name: one of canonical (e, w), uniform and linear (e, w, a), untied (e, u, w), rank-one,
            states (e, w), with attention (e, w, v), induction (alpha, beta); or a class of your
            own, as FILE.py:Class or package.module:Class, whose file is run.
        length: N, the positions of the uniform and the rank-one model and of S states with
            attention, or the symbols of a sequence of the induction model; by default 8 there.
        options: bias, attention, tied, states, hidden_per_state, as the model's family has them;
            None, or a switch as it is without the option, says nothing. Of a class of your own the
            arguments of its constructor.

    Attributes:
        name, options: the name, and every option that the model has, by name.
        length, bias, …: the same; of a model without the option what says nothing.
        family: all that is known of models of this name.

    Raises:
        InputError: an unknown name, or an option that the model does not have.

    >>> import flowsim
    >>> choice = flowsim.ModelChoice("rank-one", length=16, attention=True)
    >>> choice.name, choice.length, choice.options["attention"]
    ('rank-one', 16, True)
    """

    name: str
    family: Family
    options: Mapping[str, Any]

    def __init__(self, name: str = "canonical", length: int | None = None, **options: Any) -> None:
        given = {k: v for k, v in {"length": length, **options}.items() if v is not None}
        if ":" in name:
            own = load_family(name)
            self._set(own, own.complete(given))
            return
        family = family_of(name)
        for option in [option for option in given if option not in family.options]:
            if not families_with(option):
                names = dict.fromkeys(n for model in MODELS for n in family_of(model).options)
                there = f"there are {', '.join(names)}, and N is length"
                raise InputError(f"no model has an option {option!r}; {there}")
            if given.pop(option) != _without(option):
                raise InputError(_lacks(family, option))
        self._set(family, family.complete(given))

    def _set(self, family: Family, options: Mapping[str, Any]) -> None:
        kept = MappingProxyType(dict(options))
        vars(self).update(name=family.name, family=family, options=kept)

    def __getattr__(self, name: str) -> Any:
        options = vars(self).get("options", {})
        if name not in options and (name.startswith("_") or not families_with(name)):
            raise AttributeError(f"no model has an option {name!r}")
        return options[name] if name in options else _without(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a choice of model is not changed, but made anew")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelChoice):
            return False
        return self.family == other.family and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(tuple(self.settings().items()))

    def __repr__(self) -> str:
        own = [f"{name}={value!r}" for name, value in self.options.items()]
        return f"ModelChoice({', '.join([repr(self.name), *own])})"

    def __reduce__(self) -> Any:
        if isinstance(self.family, OwnFamily):
            return ModelChoice.of_family, (self.family, dict(self.options))
        return ModelChoice.from_settings, (self.settings(),)

    def chain(self, p: float | None = None, q: float | None = None) -> Any:
        """The chain of those probabilities that the model is for.

        Of the induction model it is the law of kernels, Dirichlet(1) rows, and has neither.

        Raises:
            InputError: p or q is missing, or given of a model that has none; or they are no
                probabilities.
        """
        family = self.family
        given = {name: value for name, value in (("p", p), ("q", q)) if value is not None}
        for name in given.keys() - family.data.keys():
            raise InputError(_lacks(family, name))
        for name in family.data:
            if name not in given:
                beside = f" beside {', '.join(given)}" if given else ""
                raise InputError(f"the chain of the {self.name} model needs {name}{beside}")
        return family.chain(self.options, **given)

    def replace(self, **options: Any) -> ModelChoice:
        """The same choice with other options; InputError for one that the model does not have."""
        chosen = {**self.options, **options}
        if isinstance(self.family, OwnFamily):
            return ModelChoice.of_family(self.family, self.family.complete(chosen))
        return ModelChoice(self.name, **chosen)

    def on(self, chain: Any) -> Model:
        """The model on a chain, built once and kept while it is among the last eight.

        Raises:
            InputError: a bias or an N that is wrong or too large, or another kind of chain.
        """
        return _built(self, chain)

    @classmethod
    def of(cls, model: Model) -> ModelChoice:
        """The choice that gives a model again, on whatever chain."""
        if is_own(model):
            return cls.of_family(family_of_model(model), options_of(model))
        return cls.of_family(family_of(model.name), model.options())

    @classmethod
    def of_family(cls, family: Family, options: Mapping[str, Any]) -> ModelChoice:
        """The choice of a family that is known, with every option that its model has."""
        found = cls.__new__(cls)
        found._set(family, options)
        return found

    def settings(self) -> dict[str, str]:
        """Texts that identify the model."""
        texts = {"model": self.name, **{name: str(value) for name, value in self.options.items()}}
        if isinstance(self.family, OwnFamily):
            texts["source_digest"] = source_digest(self.family.kind)
        return texts

    @classmethod
    def from_settings(cls, texts: Mapping[str, str]) -> ModelChoice:
        """The inverse of ``settings``."""
        return _stored(texts)


def _without(option: str) -> Any:
    """The value that a model without the option has: a switch's usual one, or no number."""
    usual = families_with(option)[0].options[option].default
    return usual if isinstance(usual, (bool, str)) else None


def _lacks(family: Family, name: str) -> str:
    """Why a family has not what others have."""
    if name in family.without:
        return f"the {family.name} model {family.without[name]}"
    having = families_with(name)
    word = (having[0].options[name].word if having else "") or name
    others = or_list(other.name for other in having) if having else ""
    omit = f"omit it, or choose {others}" if others else "omit it"
    return f"the {family.name} model has no {word}; {omit}"


def _stored(stored: Mapping[str, Any]) -> ModelChoice:
    """The choice of a record's attributes or of settings, of which others are left alone."""
    family = family_of(str(stored["model"]))
    found = {name: option.read(stored[name]) for name, option in family.options.items()
             if name in stored}  # fmt: skip
    own = {name: value for name, value in found.items() if family.has(name, found)}
    return ModelChoice(family.name, **own)


@lru_cache(maxsize=8)
def _built(choice: ModelChoice, chain: Any) -> Model:
    return choice.family.build(chain, choice.options)


def reduced_model(name: str, chain: Any, length: int | None = None, **options: Any) -> Model:
    """The reduced model of that name on a chain.

    Args:
        name: canonical, uniform, linear, untied, rank-one, states, induction or flips.
        chain: the data; of the induction model a law of kernels, such as ``DirichletPrior(2)``.
        length, options: as in :class:`ModelChoice`; what the chain itself says may be left out.

    Raises:
        InputError: an unknown name, an option that the model does not have, or an N that is wrong
            or too large.

    >>> import flowsim
    >>> flowsim.reduced_model("induction", flowsim.DirichletPrior(2), length=8).coordinates
    ('alpha', 'beta')
    """
    needed = [option for option, about in family_of(name).options.items() if about.needed]
    of_chain = {option: getattr(chain, option) for option in needed if hasattr(chain, option)}
    return ModelChoice(name, length, **{**of_chain, **options}).on(chain)


def model(name: str, p: float | None = None, q: float | None = None, **options: Any) -> Model:
    """The reduced model of that name on the chain with P(0→1) = p and P(1→0) = q.

    Args:
        name: canonical, uniform, linear, untied, rank-one, states, induction or flips.
        p, q: probabilities strictly between 0 and 1; of the states model p alone, the probability
            to leave a state; of the induction model neither.
        options: length, bias, attention, tied, states, hidden_per_state, as in
            :class:`ModelChoice`.

    Raises:
        InputError: as :func:`reduced_model`, or p or q outside (0, 1).

    >>> import flowsim
    >>> flowsim.model("rank-one", 0.5, 0.8, length=8).coordinates
    ('e', 'rho', 'w1', 'w2', 'b')
    """
    choice = ModelChoice(name, **options)
    return choice.on(choice.chain(p, q))


def model_attributes(model: Model, varied: Sequence[str] = ()) -> dict[str, Any]:
    """What a record says of its model and data, for ``model_of`` to build them from.

    With ``varied``, names of what several models differ in, only what they have in common.
    """
    left = {*varied, *(("regime",) if {"p", "q"} & set(varied) else ())}
    known = {name: value for name, value in model.attributes().items() if name not in left}
    return {**known, **source_attributes(model), **model_captions(model, varied)}


def model_of(
    attributes: Mapping[str, Any],
    p: float | None = None,
    q: float | None = None,
    length: int | None = None,
) -> Model:
    """The reduced model that a record is about.

    Args:
        attributes: of a record that ``read_record`` returned.
        p, q, length: the chain and N, of records that hold several; by default the record's.

    Raises:
        InputError: the record names no model or none of this catalogue, no one chain or no one N.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.scan_basins(model, {"e": [0.5], "w": [-1.0]})
    >>> flowsim.model_of(record.attrs).chain
    BinaryChain(p=0.5, q=0.8)
    """
    if callable(attributes):
        raise InputError("model_of takes a record's attributes; from_loss makes a formula a model")
    name = attributes.get("model")
    if name not in _FOLDERS:
        raise InputError(f"the record's model is {name!r}, not one of {', '.join(MODELS)}")
    given = {"p": p, "q": q, "length": length}
    stored = {**attributes, **{key: value for key, value in given.items() if value is not None}}
    choice = _stored(stored)
    if choice.length is not None and "length" not in stored:
        raise InputError("the record is not of one N: give length")
    return choice.on(choice.family.read_chain(stored, choice.options))


def chain_of(attributes: Mapping[str, Any]) -> GapChain:
    """The chain that a record is about, of its attributes; InputError if it is of several."""
    named = {"model": MODELS[0], **attributes}
    data = family_of(named["model"]).data
    if not data or not data.keys() <= named.keys():
        raise InputError("the record is not of one chain")
    choice = _stored(named)
    found: GapChain = choice.family.read_chain(named, choice.options)
    return found
