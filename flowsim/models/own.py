"""Models that users bring: a class in a file or a package, an object, or a formula alone."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import linecache
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError
from flowsim.models.family import Family, Option

if TYPE_CHECKING:
    from torch import Tensor

    from flowsim.interface import Model

#: A record keeps the source of a model up to this size.
MOST_SOURCE = 65_536


def is_own(model: Model | type[Model]) -> bool:
    """Whether a model is not of this package."""
    kind = model if isinstance(model, type) else type(model)
    return not kind.__module__.startswith("flowsim.")


@dataclass(frozen=True, kw_only=True)
class OwnFamily(Family):
    """The models of one class that a user brought.

    Attributes:
        kind: the class.
        file: its path and the text of the file, where it was loaded from one.
        made: the one model, where an object was brought and not a class.
    """

    kind: type[Model]
    file: tuple[str, str] | None = None
    made: Model | None = None

    def chain(self, options: Mapping[str, Any], **chances: float) -> None:
        """Nothing: such a model has no data beside its options."""

    def build(self, chain: Any, options: Mapping[str, Any]) -> Model:
        """The model; InputError if the class refuses its arguments."""
        if self.made is not None:
            return self.made
        try:
            found = self.kind(**options)
        except Exception as error:
            raise InputError(f"{self.name}({_given(options)}) failed: {_why(error)}") from None
        found.name = self.name
        return found

    def complete(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Every argument: as chosen, or by default; InputError if one is missing or unknown."""
        missing = [name for name, about in self.options.items()
                   if about.needed and name not in chosen]  # fmt: skip
        if missing:
            raise InputError(f"{self.name} needs {', '.join(missing)}: give --set {missing[0]}=…")
        for name in chosen:
            if name not in self.options:
                takes = ", ".join(self.options) or "no arguments"
                raise InputError(f"{self.name} has no argument {name}; it takes {takes}")
            usual = self.options[name].default
            if isinstance(chosen[name], str) and isinstance(usual, (int, float)):
                raise InputError(
                    f"{self.name}: {name} must be a number, as {usual!r} is, not {chosen[name]!r}"
                )
        return {name: chosen.get(name, about.default) for name, about in self.options.items()}

    def __reduce__(self) -> Any:
        if self.made is not None:
            return family_of_model, (self.made,)
        if self.file is None:
            return family_of_class, (self.kind, self.name)
        return _loaded, (self.name, *self.file)


def family_of_class(kind: type[Model], name: str = "") -> OwnFamily:
    """The family of a class: its options are the arguments of its constructor.

    Raises:
        InputError: it is no class of models, or it has no coordinates.
    """
    from flowsim.interface import Model

    if not (isinstance(kind, type) and issubclass(kind, Model)):
        raise InputError(f"{name or kind!r} is no class derived from flowsim.Model")
    name = name or kind.__name__
    names = getattr(kind, "coordinates", None)
    if names is not None and not isinstance(names, property):
        check_coordinates(name, names)
    return OwnFamily(
        name=name,
        help=f"{name} ({', '.join(names)})" if isinstance(names, tuple) else name,
        title=name.rpartition(":")[2],
        home="",
        options=MappingProxyType(_arguments(kind)),
        data={},
        kind=kind,
        file=vars(sys.modules.get(kind.__module__, object)).get("__flowsim_file__"),
    )


def family_of_model(model: Model) -> OwnFamily:
    """The family of one model that a user made."""
    return replace(family_of_class(type(model), model.name), made=model)


def check_coordinates(name: str, names: Any) -> None:
    """InputError unless a model's coordinates are names that differ."""
    good = isinstance(names, (tuple, list)) and names and all(isinstance(n, str) for n in names)
    if not good or len(set(names)) < len(names):
        raise InputError(
            f'{name} needs coordinates, such as coordinates = ("x", "y"): names that differ, '
            f"not {names!r}"
        )
    for one in names:
        if not one.isprintable() or one != one.strip() or not one or set(one) & {*"/,=:\\"}:
            raise InputError(
                f"{name} cannot have a coordinate called {one!r}: a name has letters or signs, "
                "none of / , = : or a backslash, and no space around it"
            )


def load_family(spec: str) -> OwnFamily:
    """The models that ``mine.py:Class`` or ``package.module:Class`` names; the file is run.

    Raises:
        InputError: no such file or module, an error in it, or no such class of models.
    """
    home, _, kind = spec.rpartition(":")
    is_file = home.endswith(".py")
    if not kind.isidentifier() or not (is_file or all(map(str.isidentifier, home.split(".")))):
        raise InputError(
            f"a model of your own is FILE.py:Class or package.module:Class, not {spec!r}"
        )
    if not is_file:
        try:
            module = import_module(home)
        except Exception as error:
            raise InputError(f"the module {home} cannot be imported: {_why(error)}") from None
        return _class_of(module, home, kind, spec)
    path = Path(home)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the model's file {home!r} cannot be read: {reason}") from None
    return _loaded(spec, str(path.resolve()), text)


@cache
def _loaded(spec: str, path: str, text: str) -> OwnFamily:
    """The models of a class in a file with that text; it is run once, from its text."""
    import cloudpickle

    home, _, kind = spec.rpartition(":")
    digest = hashlib.sha256(f"{path}\n{text}".encode()).hexdigest()[:16]
    module = ModuleType(f"model_file_{digest}")
    module.__file__, vars(module)["__flowsim_file__"] = path, (path, text)
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)  # a worker has no such module
    sys.path.insert(0, str(Path(path).parent))
    try:
        exec(compile(text, path, "exec"), vars(module))  # what the user named is run, as asked
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise InputError(f"the model's file {home!r} failed: {_why(error)}") from None
    finally:
        sys.path.pop(0)
    return _class_of(module, home, kind, spec)


def _class_of(module: ModuleType, home: str, kind: str, spec: str) -> OwnFamily:
    from flowsim.interface import Model

    if not hasattr(module, kind):
        found = vars(module).items()
        own = [name for name, x in found if isinstance(x, type) and issubclass(x, Model)]
        own = [name for name in own if name != "Model"]
        has = f"; it has {', '.join(own)}" if own else ", nor any other model"
        raise InputError(f"{home!r} has no class {kind}{has}")
    return family_of_class(getattr(module, kind), spec)


def _arguments(kind: type[Model]) -> dict[str, Option]:
    """The arguments of a class's constructor."""
    if kind.__init__ is object.__init__:
        return {}
    found = {}
    for name, about in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if about.kind in (about.VAR_POSITIONAL, about.VAR_KEYWORD):
            continue
        needed = about.default is about.empty
        found[name] = Option(None if needed else about.default, name, needed)
    return found


def argument(text: str) -> Any:
    """The number, truth value or word that a text on the command line spells."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return found if isinstance(found, (bool, int, float)) else text


def options_of(model: Model) -> dict[str, Any]:
    """The arguments with which a model of a user was made, as far as it has kept them by name."""
    return {name: getattr(model, name) for name in _arguments(type(model)) if hasattr(model, name)}


def source_attributes(model: Model) -> dict[str, str]:
    """What a record keeps of a model of a user: arguments, source if not too long, its digest."""
    if not is_own(model):
        return {}
    kind, kept = type(model), {"arguments": json.dumps(options_of(model), default=repr)}
    text = source_of(kind)
    if not text:
        return kept
    kept["source_digest"] = source_digest(kind)
    return {**kept, "source": text} if len(text.encode()) <= MOST_SOURCE else kept


def source_digest(kind: type[Model]) -> str:
    """The SHA-256 digest of a class's source."""
    return hashlib.sha256(source_of(kind).encode()).hexdigest()


def source_of(kind: type[Model]) -> str:
    """The text of the file, or else of the class; empty where Python does not know it."""
    file = vars(sys.modules.get(kind.__module__, object)).get("__flowsim_file__")
    if file is not None:
        return str(file[1])
    formula = getattr(kind, "formula", None)
    try:
        return inspect.getsource(kind if formula is None else formula)
    except (OSError, TypeError):
        return _in_a_cell(kind)


def _in_a_cell(kind: type) -> str:
    """The text of a class of a notebook, which has no file: its cell's, where a method is."""
    for method in filter(inspect.isfunction, vars(kind).values()):
        text = "".join(linecache.getlines(method.__code__.co_filename))
        with suppress(SyntaxError):  # of a cell with magic commands
            for part in ast.walk(ast.parse(text)):
                if isinstance(part, ast.ClassDef) and part.name == kind.__name__:
                    return ast.get_source_segment(text, part) or ""
        if f"class {kind.__name__}" in text:
            return text
    return ""


def from_loss(
    formula: Callable[..., Tensor], name: str = "", metric: tuple[float, ...] = ()
) -> Model:
    """A model of a formula alone.

    Args:
        formula: the loss as a function of the coordinates, each a tensor of the same shape; what
            has a default is a constant.
        name: of the model; by default that of the function.
        metric: the diagonal of G; by default ones.

    Raises:
        InputError: the function has no arguments without a default.

    >>> import flowsim
    >>> well = flowsim.from_loss(lambda x, y, g=0.2: (x**2 - 1) ** 2 / 4 + y**2 / 2 + g * x, "well")
    >>> well.coordinates
    ('x', 'y')
    """
    from flowsim.interface import Model

    arguments = inspect.signature(formula).parameters.values()
    coordinates = tuple(a.name for a in arguments if a.default is a.empty)
    title = name or getattr(formula, "__name__", "formula").strip("<>")
    check_coordinates(title, coordinates)

    def loss(self: Model, theta: Tensor) -> Tensor:
        return formula(*theta.unbind(-1))

    own = {"coordinates": coordinates, "loss": loss, "formula": staticmethod(formula)}
    if metric:
        own["metric"] = metric
    kind = type(title, (Model,), {**own, "__module__": formula.__module__, "__doc__": title})
    return kind()


def check_own(model: Model, theta: Tensor) -> None:
    """InputError, in one sentence, for a loss that cannot be followed from the starts (n, k)."""
    import torch

    name = model.name
    check_coordinates(name, model.coordinates)
    finite = theta[theta.isfinite().all(1)]
    if not len(finite):
        return
    few = torch.cat([finite[:2], 1.01 * finite[:1] + 0.01])
    given = few.clone()
    loss = _called(name, "loss", model.loss, given)
    if not isinstance(loss, torch.Tensor):
        raise InputError(f"the loss of {name} is {type(loss).__name__}, not a tensor: use torch")
    if loss.shape != few.shape[:1]:
        shapes = f"{tuple(loss.shape)} for θ of shape {tuple(few.shape)}"
        raise InputError(f"the loss of {name} has the shape {shapes}; it must be ({len(few)},)")
    if loss.dtype != few.dtype:
        raise InputError(f"the loss of {name} is {loss.dtype}; it must be float64, as θ is")
    if not torch.equal(given, few):
        raise InputError(f"the loss of {name} changes its argument θ; it must leave it as it is")
    alone = torch.cat([_called(name, "loss", model.loss, few[i : i + 1]) for i in range(len(few))])
    if not torch.allclose(alone, loss.detach(), rtol=1e-9, atol=1e-12, equal_nan=True):
        raise InputError(f"the loss of {name} mixes the rows of a batch, which are separate starts")
    whole = _called(name, "loss", model.loss, finite)
    if not bool(whole.isfinite().all()):
        _not_finite(model, "loss", finite, whole)
    for what, rows in (("gradient", finite), ("field", finite), ("jacobian", finite[:2])):
        found = _called(name, what, getattr(model, what), rows)
        shape = (len(rows), *((rows.shape[1],) * (2 if what == "jacobian" else 1)))
        if tuple(found.shape) != shape:
            raise InputError(
                f"the {what} of {name} has the shape {tuple(found.shape)}; it must be {shape}"
            )
        if what != "jacobian" and not bool(found.isfinite().all()):
            _not_finite(model, what, finite, found.sum(1))


def _not_finite(model: Model, what: str, theta: Tensor, values: Tensor) -> None:
    row = int((~values.isfinite()).nonzero()[0, 0])
    named = zip(model.coordinates, theta[row].tolist(), strict=True)
    place, value = ", ".join(f"{n} = {v:g}" for n, v in named), float(values[row].detach())
    raise InputError(f"the {what} of {model.name} is {value:g} at the start {place}")


def _called(name: str, what: str, function: Callable[[Tensor], Any], theta: Tensor) -> Any:
    try:
        return function(theta)
    except InputError:
        raise
    except RuntimeError as error:
        if "does not require grad" in str(error):
            raise InputError(
                f"the loss of {name} is not differentiable: it must be written in torch, of θ"
            ) from None
        raise InputError(f"the {what} of {name} failed: {_why(error)}") from None
    except Exception as error:
        raise InputError(f"the {what} of {name} failed: {_why(error)}") from None


def _why(error: BaseException) -> str:
    """The kind of an error and its first line."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _given(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
