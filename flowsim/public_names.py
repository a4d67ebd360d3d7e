"""Names of packages that load on first use, and a sentence for wrong arguments of public calls.

A call that works is not looked at. One that fails inside is looked at afterwards: an argument that
its annotation does not allow is named, and any other error passes unchanged.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, wraps
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from types import FunctionType, NoneType
from typing import Any

from flowsim.errors import InputError

#: For an annotation: the accepted types, or the module of the classes, and their name in a message.
_KINDS: dict[str, tuple[tuple[type, ...] | str, str]] = {
    "Model": (
        "flowsim.interface:Model",
        'a model, such as flowsim.model("canonical", 0.5, 0.8) or one derived from flowsim.Model',
    ),
    "BinaryChain": ("flowsim.chain:BinaryChain", "a chain, such as flowsim.BinaryChain(0.5, 0.8)"),
    "SymmetricChain": (
        "flowsim.markov:SymmetricChain",
        "a chain, such as flowsim.chains.SymmetricChain(3, 0.8)",
    ),
    "MarkovChain": ("flowsim.markov:MarkovChain", "a chain, such as flowsim.MarkovChain(kernel)"),
    "OrderChain": ("flowsim.chains.higher_order:OrderChain", "an OrderChain"),
    "GapChain": ("flowsim.markov:GapChain", "a chain, such as flowsim.BinaryChain(0.5, 0.8)"),
    "Prior": ("flowsim.chains.priors:Prior", "a prior, such as flowsim.chains.DirichletPrior(2)"),
    "Dataset": ("xarray:Dataset", "a record, such as portrait or read_record gives"),
    "Architecture": (
        "full_model.model.architecture:Architecture",
        "an Architecture, such as full_model.Architecture(d=8, length=4)",
    ),
    "Recipe": ("flowsim.training.optimizer_choice:Recipe", "a flowsim.training.Recipe"),
    "OptimizerChoice": (
        "flowsim.training.optimizer_choice:OptimizerChoice",
        "a flowsim.OptimizerChoice",
    ),
    "InductionModel": (
        "flowsim.models.induction.model:InductionModel",
        "a flowsim.models.InductionModel",
    ),
    "ReducedNetwork": ("flowsim.reduction.found:ReducedNetwork", "what flowsim.reduce found"),
    "Scan": ("flowsim.scan.plan:Scan", "a flowsim.scan.Scan"),
    "Generator": ("torch:Generator", "a torch.Generator"),
    "Tensor": ((Real, Iterable), "numbers"),
    "ndarray": ((Real, Iterable), "numbers"),
    "Path": ((PathLike,), "the path of a file"),
    "Mapping": ((Mapping,), "values by name"),
    "dict": ((Mapping,), "values by name"),
    "Sequence": ((Iterable,), "a list"),
    "Iterable": ((Iterable,), "a list"),
    "tuple": ((tuple, list), "a tuple"),
    "Callable": ((Callable,), "a function"),  # type: ignore[dict-item]
    "str": ((str,), "a text"),
    "int": ((Integral,), "an integer"),
    "float": ((Real,), "a number"),
    "None": ((NoneType,), ""),
}


def names_of(file: str) -> dict[str, str]:
    """Return the module of every name that the stub (.pyi) beside a package's file imports.

    Modules are named within the package, "" being the package. A line of the stub is
    "from package.module import name as name".
    """
    with open(file.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    homes = {words[3]: words[1].partition(".")[2] for words in lines if words[4:5] == ["as"]}
    return dict(sorted(homes.items()))


def public_object(module: str, attribute: str) -> Any:
    """Return the function or class of a module, made to refuse wrong arguments in one sentence."""
    home = import_module(module)
    offered = getattr(home, attribute)
    if isinstance(offered, FunctionType) and not hasattr(offered, "refuses"):
        offered = _refusing(offered, attribute)
        setattr(home, attribute, offered)
    elif isinstance(offered, type) and not issubclass(offered, Enum):
        start = vars(offered).get("__init__")
        if isinstance(start, FunctionType) and not hasattr(start, "refuses"):
            type.__setattr__(offered, "__init__", _refusing(start, attribute))
    return offered


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make ``__getattr__``, ``__dir__`` and ``__all__`` of a package that loads on first use.

    Args:
        package: its name.
        homes: the module of every name, within flowsim or full_model.
    """
    whole = package.partition(".")[0]

    def get(attribute: str) -> Any:
        if attribute not in homes:
            raise AttributeError(f"module {package!r} has no attribute {attribute!r}")
        return public_object(f"{whole}.{homes[attribute]}", attribute)

    return get, lambda: sorted(homes), sorted(homes)


def _refusing(function: FunctionType, public_name: str) -> Any:
    """Wrap a function, so that wrong arguments raise an InputError in place of another error."""

    @wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except InputError:
            raise
        except (TypeError, AttributeError, ValueError, LookupError, RuntimeError):
            wrong = _what_is_wrong(inspect.signature(function), public_name, args, keywords)
            if wrong is None:
                raise
            raise InputError(wrong) from None

    called.refuses = True  # type: ignore[attr-defined]
    return called


def _what_is_wrong(
    signature: inspect.Signature, public_name: str, args: tuple[Any, ...], keywords: dict[str, Any]
) -> str | None:
    """Return a sentence on the first argument that is missing, unknown or of another kind.

    None if all can be used.
    """
    try:
        given = signature.bind(*args, **keywords).arguments
    except TypeError as error:
        names = ", ".join(key for key in signature.parameters if key != "self")
        return f"{public_name}({names}): {error}"
    for key, value in given.items():
        kinds, expected = _allowed(str(signature.parameters[key].annotation))
        allowed = isinstance(value, kinds) and (str in kinds or not isinstance(value, str))
        if kinds and not allowed:
            text = " ".join(repr(value).split())
            found = text if len(text) <= 60 else f"a {type(value).__name__}"
            return f"{public_name} takes {expected} as {key}, not {found}"
    return None


@cache
def _allowed(annotation: str) -> tuple[tuple[type, ...], str]:
    """Return the classes that an annotation names, and their words; none if one is not known."""
    while "[" in annotation:  # what is in lists and dictionaries is not looked at
        annotation, count = re.subn(r"\[[^\[\]]*\]", "", annotation)
        if not count:
            return (), ""
    kinds: list[type] = []
    expected: list[str] = []
    for part in annotation.split("|"):
        found = _KINDS.get(part.strip().rpartition(".")[2])
        if found is None:
            return (), ""
        where, word = found
        if isinstance(where, str):
            home, _, name = where.partition(":")
            where = (getattr(import_module(home), name),)
        kinds += where
        expected += [word] if word and word not in expected else []
    return tuple(kinds), " or ".join(expected)
