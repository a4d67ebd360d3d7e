"""A model as a value: its name and its arguments, for commands, scans, records and workers.

The arguments of a model are those of the constructor of a class. A built-in model has a light
dataclass in the ``__init__.py`` of its folder, whose fields say their defaults and their help and
whose ``build`` imports the model; so the command line knows all arguments before torch is imported.
A class of a user is its own.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from flowsim.errors import InputError
from flowsim.own import (
    check_class,
    check_coordinates,
    first_line_of,
    load_class,
    source_digest,
    source_file,
)

if TYPE_CHECKING:
    from flowsim.interface import Model
    from flowsim.markov import GapChain

#: The class with the arguments of every built-in model: one more model is one more line.
BUILT_IN = {
    "canonical": "flowsim.models.canonical:Canonical",
    "uniform": "flowsim.models.uniform:Uniform",
    "linear": "flowsim.models.linear:Linear",
    "untied": "flowsim.models.untied:Untied",
    "rank-one": "flowsim.models.rank_one:RankOne",
    "states": "flowsim.models.states:States",
    "induction": "flowsim.models.induction:Induction",
    "memory": "flowsim.models.memory:Memory",
}

#: Chains that a constructor may take as its ``chain``: it then has their arguments instead.
_CHAINS = {
    "BinaryChain": "flowsim.chain:BinaryChain",
    "SymmetricChain": "flowsim.markov:SymmetricChain",
}


@dataclass(frozen=True)
class Parameter:
    """An argument of a model."""

    default: Any  # unless given; where it must be given, the explorer's first value
    help: str  # a few words
    required: bool = False  # whether it must be given
    #: The argument that must be given and true for it; its own name, if it may be left out.
    requires: str = ""
    noun: str = ""  # its name in a sentence, where that is another
    slider: tuple[float, float] | None = None  # the smallest and the largest that is shown

    def field(self) -> Any:
        """Return the dataclass field that declares this argument."""
        metadata = {"parameter": self}
        return field(metadata=metadata) if self.required else field(
            default=self.default, metadata=metadata)  # fmt: skip

    @property
    def is_number(self) -> bool:
        """Return whether its values are numbers; they may be if the default is None."""
        return self.default is None or type(self.default) in (int, float)

    def read(self, stored: Any) -> Any:
        """Return the value that a record's attribute or a text stores."""
        kind = type(self.default)
        return stored in ("True", 1) if kind is bool else kind(stored)


def built_in(model: str) -> Any:
    """Return the class with the arguments of a built-in model; InputError for another name."""
    if model not in BUILT_IN:
        if model == "flips":
            raise InputError("flips is now the canonical model on a hidden process, such as "
                             "flips:p=0.9,q=0.9,epsilon=0.2")  # fmt: skip
        meant = get_close_matches(str(model).lower().replace("_", "-"), BUILT_IN, 1, 0.75)
        hint = f": is {meant[0]} meant?" if meant else ""
        raise InputError(f"model must be one of {', '.join(BUILT_IN)}, not {model!r}{hint}")
    return import_object(BUILT_IN[model])


def _class_of(target: str | type[Model]) -> Any:
    """Return the class whose constructor takes the arguments of models of this target."""
    if not isinstance(target, str):
        return check_class(target, repr(target))
    return load_class(target) if ":" in target else built_in(target)


def import_object(home: str) -> Any:
    """Import an object by its home, "module:name"."""
    module, name = home.split(":")
    return getattr(import_module(module), name)


@cache
def parameters(kind: type) -> Mapping[str, Parameter]:
    """Return the arguments of a class's constructor, by name; for a chain, those of the chain."""
    if kind.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    declared = getattr(kind, "__dataclass_fields__", {})
    found: dict[str, Parameter] = {}
    for name, about in list(inspect.signature(kind.__init__).parameters.items())[1:]:  # type: ignore[misc]
        if about.kind in (about.VAR_POSITIONAL, about.VAR_KEYWORD):
            continue
        if name == "chain" and (chain := _chain_class(kind)) is not None:
            found |= parameters(chain)
            continue
        required = about.default is about.empty
        usual = Parameter(None if required else about.default, name, required)
        known = declared[name].metadata if name in declared else {}
        found[name] = known.get("parameter", usual)
    return found


def _chain_class(kind: type) -> type | None:
    """Return the class of the chain that a class's constructor takes; None if it takes none."""
    about = inspect.signature(kind).parameters.get("chain")
    written = getattr(about, "annotation", "")
    home = _CHAINS.get(getattr(written, "__name__", str(written)).rpartition(".")[2])
    return None if home is None else cast(type, import_object(home))


def models_with(parameter: str) -> dict[str, Parameter]:
    """Return a parameter in every built-in model that has it, by the model's name."""
    by_model = {model: parameters(built_in(model)) for model in BUILT_IN}
    return {model: found[parameter] for model, found in by_model.items() if parameter in found}


def or_list(names: Iterable[str]) -> str:
    """Return names as a sentence lists them: "a, b or c"."""
    *first, last = names
    return " or ".join([", ".join(first), last] if first else [last])


@dataclass(frozen=True)
class ModelSpec:
    """The name of a model, and its arguments.

    It can be hashed, compared and pickled, and a worker builds the model of it.

    Args:
        target: a built-in model: canonical (e, w), uniform and linear (e, w, a), untied (e, u, w),
            rank-one, states (e, w), with attention (e, w, v), induction (alpha, beta),
            memory; or a class of your own, as FILE.py:Class or package.module:Class, whose file is
            run, or as the class itself.
        arguments: by name, such as p, q and length; defaults are filled in, and None counts as not
            given.

    Attributes:
        kind: the class whose constructor takes the arguments.

    Raises:
        InputError: an unknown name, an argument that the model does not have or that is missing,
            or a file that cannot be run.

    >>> import flowsim
    >>> spec = flowsim.ModelSpec("rank-one", {"p": 0.5, "q": 0.8, "length": 16})
    >>> spec.get("length"), spec.get("tied"), spec.replace(p=0.2).get("p")
    (16, True, 0.2)
    >>> spec.build().coordinates
    ('e', 'rho', 'w1', 'w2', 'b')
    """

    target: str | type[Model]
    arguments: tuple[tuple[str, Any], ...] | Mapping[str, Any] = ()
    kind: type = field(default=None, repr=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind or _class_of(self.target))
        given = {name: x for name, x in dict(self.arguments).items() if x is not None}
        object.__setattr__(self, "arguments", tuple(_complete(self, given).items()))

    @property
    def name(self) -> str:
        """The name of the model in records."""
        return self.target if isinstance(self.target, str) else self.target.__name__

    @property
    def is_own(self) -> bool:
        """Return whether the model is a class of a user."""
        return not (isinstance(self.target, str) and self.target in BUILT_IN)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """All arguments that models of this name can have."""
        return parameters(self.kind)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments by name."""
        return dict(self.arguments)

    def get(self, parameter: str, default: Any = None) -> Any:
        """Return an argument; ``default`` where the model does not have it."""
        return self.options.get(parameter, default)

    def replace(self, **arguments: Any) -> ModelSpec:
        """Return the spec of the same model with these arguments changed."""
        return ModelSpec(self.target, {**self.options, **arguments}, self.kind)

    def build(self) -> Model:
        """Build the model, or return the one built before, of the last eight that were asked for.

        Raises:
            InputError: a value that the model refuses.
        """
        return _built(self)

    def chain(self) -> Any:
        """Return the chain on which the model is trained; InputError for a wrong probability."""
        return self.kind(**self.options).chain()

    def values(self, parameter: str, values: Iterable[float]) -> tuple[Any, ...]:
        """Return several values of a numeric argument, as it takes them: whole numbers, or floats.

        Raises:
            InputError: the model does not have the argument, it is no number, the values do not
                increase, or a value is not whole that has to be.
        """
        given = [x.item() if hasattr(x, "item") else x for x in values]
        self.replace(**{parameter: given[0] if given else 0})
        about = self.parameters[parameter]
        if not about.is_number or not all(type(x) in (int, float) for x in given):
            raise InputError(f"several values of {parameter} of {self.name} must be numbers")
        whole = isinstance(about.default, int)
        if whole and any(x != int(x) for x in given):
            raise InputError(f"{parameter} of {self.name} takes whole numbers")
        if not given or not all(a < b for a, b in pairwise([*given, math.inf])):
            raise InputError(f"several values of {parameter} must increase")
        kind = int if whole else float if type(about.default) is float else type(given[0])
        return tuple(kind(x) for x in given)

    def settings(self) -> dict[str, str]:
        """Return texts by name that identify the model: name, arguments, a user's source."""
        texts = {"model": self.name, **{name: str(x) for name, x in self.options.items()}}
        return texts | ({"source_digest": source_digest(self.kind)} if self.is_own else {})

    @classmethod
    def first(cls, target: str, **arguments: Any) -> ModelSpec:
        """Return a spec with these arguments, and with the explorer's first values of the rest.

        The rest are arguments that must be given; others have their defaults.
        """
        kind = _class_of(target)
        known = parameters(kind).items()
        begun = {name: about.default for name, about in known if about.required}
        given = {name: value for name, value in arguments.items() if value is not None}
        return cls(target, begun | given, kind)

    @classmethod
    def fitting(cls, target: str, **arguments: Any) -> ModelSpec:
        """Return the spec of a built-in model, with those of the given arguments that it takes."""
        kind = built_in(target)
        own = {name: x for name, x in arguments.items() if has_parameter(kind, name, arguments)}
        return cls(target, own, kind)

    @classmethod
    def of(cls, model: Model) -> ModelSpec:
        """Return the spec that builds a model again.

        Raises:
            InputError: a model that has not kept an argument of its constructor by name.
        """
        kind = type(model)
        return cls(kind, kept_arguments(model)) if is_own(model) else spec_of(attributes_of(model))

    def __hash__(self) -> int:
        return hash((self.name, repr(self.arguments)))

    def __reduce__(self) -> Any:
        if (file := source_file(self.kind)) is not None:  # the text that was run travels with it
            return _from_file, (self.target, self.arguments, *file)
        return ModelSpec, (self.target, self.arguments)


def _from_file(target: str, arguments: Any, path: str, text: str) -> ModelSpec:
    """Make a spec from its pickle, with the class in the file's text that travels with it."""
    return ModelSpec(target, arguments, load_class(target, (path, text)))


@lru_cache(maxsize=8)
def _built(spec: ModelSpec) -> Model:
    """Build the model of a spec; InputError where a user's class fails."""
    arguments = spec.options
    if not spec.is_own:
        found: Model = spec.kind(**arguments).build()
        return found
    try:
        own = dict(arguments)
        if (chain := _chain_class(spec.kind)) is not None:
            own["chain"] = chain(**{name: own.pop(name) for name in parameters(chain)})
        found = spec.kind(**own)
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise InputError(f"{spec.name}({given}) failed: {first_line_of(error)}") from None
    check_coordinates(spec.name, getattr(found, "coordinates", None))
    found.name = spec.name
    return found


def is_own(model: Model | type[Model]) -> bool:
    """Return whether a model is not of this package."""
    kind = model if isinstance(model, type) else type(model)
    return not kind.__module__.startswith("flowsim.")


def options_of(model: Model) -> dict[str, Any]:
    """Return the arguments of a built-in model but for those of its data; none for others."""
    from flowsim.interface import RecordedModel

    return model.options() if isinstance(model, RecordedModel) else {}


def attributes_of(model: Model) -> dict[str, Any]:
    """Return the attributes of a record that say which model it is."""
    from flowsim.interface import RecordedModel

    if isinstance(model, RecordedModel):
        return model.attributes()
    return {"model": model.name, "coordinates": model.coordinates}


def kept_arguments(model: Model) -> dict[str, Any]:
    """Return the arguments with which a model was made, as far as it has kept them by name."""
    names, chain = parameters(cast(Any, type(model))), getattr(model, "chain", None)
    homes = {name: home for name in names for home in (chain, model) if hasattr(home, name)}
    return {name: getattr(home, name) for name, home in homes.items()}


def has_parameter(kind: type, parameter: str, given: Mapping[str, Any]) -> bool:
    """Return whether a model of this class, made with the given arguments, has the parameter."""
    about = parameters(kind).get(parameter)
    return about is not None and (not about.requires or bool(given.get(about.requires)))


def _complete(spec: ModelSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every argument of a spec's model by name, in order: as given, or by default.

    Raises:
        InputError: an argument that the model does not have, that is missing, or is a word in place
            of a number.
    """
    known, model = spec.parameters, spec.name if spec.is_own else f"the {spec.name} model"
    given = given if spec.is_own else cast(Any, spec.kind).completed(given)
    for name in given.keys() - known.keys():
        if spec.is_own:
            takes = ", ".join(known) or "no arguments"
            raise InputError(f"{model} has no argument {name}; it takes {takes}")
        if name in (lacks := cast(Any, spec.kind).lacks):
            raise InputError(f"{model} {lacks[name]}")
        if not (having := models_with(name)):
            every = dict.fromkeys(n for kind in BUILT_IN for n in parameters(built_in(kind)))
            there = f"there are {', '.join(every)}, and N is length"
            raise InputError(f"no model has an option {name!r}; {there}")
        noun = next(iter(having.values())).noun or name
        raise InputError(f"{model} has no {noun}; omit it, or choose {or_list(having)}")
    missing = [name for name, about in known.items() if about.required and name not in given]
    if missing and spec.is_own:
        raise InputError(f"{model} needs {', '.join(missing)}: give --set {missing[0]}=…")
    if missing:
        words = ", ".join(known[name].help for name in missing)
        raise InputError(f"{model} needs {' and '.join(missing)}: {words}")
    for name, value in given.items():
        about = known[name]
        if not has_parameter(spec.kind, name, given):
            raise InputError(f"{model} has no {name} without {about.requires}; omit it")
        if isinstance(value, str) and isinstance(about.default, (int, float)):
            usual = f"a number, as {about.default!r} is" if about.is_number else "True or False"
            raise InputError(f"{model}: {name} must be {usual}, not {value!r}")
    return {name: given.get(name, about.default) for name, about in known.items()
            if has_parameter(spec.kind, name, given)}  # fmt: skip


def spec_of(attributes: Mapping[str, Any], **given: Any) -> ModelSpec:
    """Return the spec of the built-in model that a record is about.

    Args:
        attributes: of a record that ``read_record`` returned.
        given: arguments of which the record holds several values, such as p, q and length.

    Raises:
        InputError: the record names no built-in model, or several values of an argument.
    """
    name = attributes.get("model")
    if name == "flips":  # a model of its own before version 0.3
        flips = "flips:p={p},q={q},epsilon={flip}".format(**attributes)
        return ModelSpec("canonical", {"process": flips, "bias": attributes["bias"]})
    if name not in BUILT_IN:
        raise InputError(f"the record's model is {name!r}, not one of {', '.join(BUILT_IN)}")
    kind = built_in(name)
    known = parameters(kind)
    stored = {**attributes, **{key: value for key, value in given.items() if value is not None}}
    found = {n: about.read(stored[n]) for n, about in known.items() if n in stored}
    several = [n for n, about in known.items() if n not in stored and about.is_number
               and has_parameter(kind, n, found)]  # fmt: skip
    if several:
        raise InputError(f"the record is not of one {' and one '.join(several)}: give "
                         f"{' and '.join(several)}")  # fmt: skip
    return ModelSpec.fitting(name, **found)


def model(name: str, p: float | None = None, q: float | None = None, **arguments: Any) -> Model:
    """The built-in model of that name, such as on the chain with P(0→1) = p and P(1→0) = q.

    Args:
        name: canonical, uniform, linear, untied, rank-one, states, induction or memory.
        p, q: probabilities strictly between 0 and 1; of the states model p alone, the probability
            to leave a state; of the induction model neither.
        arguments: length, bias, attention, tied, states, hidden_per_state, flip, as the model has
            them.

    Raises:
        InputError: as :class:`ModelSpec`, or a value that the model refuses.

    >>> import flowsim
    >>> flowsim.model("rank-one", 0.5, 0.8, length=8).coordinates
    ('e', 'rho', 'w1', 'w2', 'b')
    """
    return ModelSpec(name, {"p": p, "q": q, **arguments}).build()


def model_from_attributes(
    attributes: Mapping[str, Any], p: float | None = None, q: float | None = None, **given: Any
) -> Model:
    """The built-in model that a record is about.

    Args:
        attributes: of a record that ``read_record`` returned.
        p, q, given: arguments, such as length, of which the record holds several values.

    Raises:
        InputError: the record names no built-in model, or holds several and not all is given.

    >>> import flowsim
    >>> model = flowsim.model("canonical", 0.5, 0.8)
    >>> record = flowsim.scan(model, {"e": [0.5], "w": [-1.0]})
    >>> flowsim.spec.model_from_attributes(record.attrs).chain
    BinaryChain(p=0.5, q=0.8)
    """
    if callable(attributes):
        raise InputError("give a record's attributes; flowsim.from_loss makes a formula a model")
    return spec_of(attributes, p=p, q=q, **given).build()


model_of = model_from_attributes  # its name before version 0.3


def chain_of(attributes: Mapping[str, Any]) -> GapChain:
    """Return the chain of a record's model; of a record that names none, of the canonical one.

    Raises:
        InputError: the record is not of one chain.
    """
    kind = built_in(attributes.get("model", next(iter(BUILT_IN))))
    known = parameters(kind)
    found = {name: about.read(attributes[name]) for name, about in known.items()
             if name in attributes}  # fmt: skip
    needed = {name for name, about in known.items() if about.required}
    if not hasattr(kind, "chain") or not needed <= found.keys():
        raise InputError("the record is not of one chain")
    chain: GapChain = kind(**found).chain()
    return chain
