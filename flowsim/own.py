"""Models that users bring: of a formula, in a file or in a package; and the check of their loss."""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from flowsim.interface import Model


def from_loss(
    formula: Callable[..., Tensor], name: str = "", metric: tuple[float, ...] = ()
) -> Model:
    """Make a model of a loss that is given as a formula alone.

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

    def loss(self: Model, theta: Tensor) -> Tensor:
        """The formula of the columns of θ."""
        return formula(*theta.unbind(-1))

    return of_formula(formula, name, metric, loss=loss, formula=staticmethod(formula))


def of_formula(
    formula: Callable[..., Any], title: str, metric: tuple[float, ...], /, **members: Any
) -> Model:
    """Make a model with these members, whose coordinates are the arguments of a formula.

    Arguments with a default are constants.
    """
    from flowsim.interface import Model

    arguments = inspect.signature(formula).parameters.values()
    coordinates = tuple(a.name for a in arguments if a.default is a.empty)
    title = title or getattr(formula, "__name__", "formula").strip("<>")
    check_coordinates(title, coordinates)
    members |= {"metric": metric} if metric else {}
    members |= {"coordinates": coordinates, "__module__": formula.__module__, "__doc__": title}
    return type(title, (Model,), members)()


def check_own(model: Model, theta: Tensor) -> Tensor:
    """Check loss, gradient, field and Jacobian of a user's model at the starts (n, k).

    Returns the starts, those outside the domain of the loss or of the field as NaN.

    Raises:
        InputError: the loss cannot be followed from any start, or is not written as it must be.
    """
    import torch

    name = model.name
    check_coordinates(name, getattr(model, "coordinates", None))
    rows = theta.isfinite().all(1).nonzero()[:, 0]
    finite = theta[rows]
    if not len(finite):
        return theta
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
    inside = torch.ones(len(finite), dtype=torch.bool, device=theta.device)
    for what in ("loss", "gradient", "field"):
        found = _called(name, what, getattr(model, what), finite)
        if what != "loss":
            _check_shape(name, what, found, finite.shape)
        inside &= found.reshape(len(finite), -1).isfinite().all(1)
        if not bool(inside.any()):
            values = zip(model.coordinates, finite[0].tolist(), strict=True)
            place = ", ".join(f"{coordinate} = {value:g}" for coordinate, value in values)
            raise InputError(f"the {what} of {name} is finite at no start, such as {place}")
    tried = finite[inside][:2]
    jacobian = _called(name, "jacobian", model.jacobian, tried)
    _check_shape(name, "jacobian", jacobian, (*tried.shape, tried.shape[1]))
    theta = theta.clone()
    theta[rows[~inside]] = torch.nan
    return theta


def _check_shape(title: str, what: str, found: Tensor, shape: tuple[int, ...]) -> None:
    """Raise InputError unless what a model returned as ``what`` has this shape."""
    if tuple(found.shape) != tuple(shape):
        raise InputError(
            f"the {what} of {title} has the shape {tuple(found.shape)}; it must be {tuple(shape)}"
        )


def _called(title: str, what: str, function: Callable[[Tensor], Any], theta: Tensor) -> Any:
    """Call a model's function at θ; where it fails, raise InputError with both names."""
    try:
        return function(theta)
    except InputError:
        raise
    except RuntimeError as error:
        if "does not require grad" in str(error):
            raise InputError(
                f"the loss of {title} is not differentiable: it must be written in torch, of θ"
            ) from None
        raise InputError(f"the {what} of {title} failed: {first_line_of(error)}") from None
    except Exception as error:
        raise InputError(f"the {what} of {title} failed: {first_line_of(error)}") from None


def load_class(target: str, file: tuple[str, str] | None = None) -> type[Model]:
    """The class that ``mine.py:Class`` or ``package.module:Class`` names; the file is run.

    Args:
        target: as on the command line.
        file: the path and the text of the file, where they are not to be read again.

    Raises:
        InputError: no such file or module, an error in it, or no such class of models.
    """
    home, _, name = target.rpartition(":")
    is_file = home.endswith(".py")
    if not name.isidentifier() or not (is_file or all(map(str.isidentifier, home.split(".")))):
        raise InputError(
            f"a model of your own is FILE.py:Class or package.module:Class, not {target!r}"
        )
    if not is_file:
        try:
            return _class_of(import_module(home), target)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the module {home} cannot be imported: {first_line_of(error)}"
            ) from None
    if file is None:
        path = Path(home)
        try:
            file = str(path.resolve()), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InputError(f"the model's file {home!r} cannot be read: {reason}") from None
    return _class_of(_module_of(home, *file), target)


@cache
def _module_of(home: str, path: str, text: str) -> ModuleType:
    """Run a file's text once, and return its module."""
    import cloudpickle

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
        raise InputError(f"the model's file {home!r} failed: {first_line_of(error)}") from None
    finally:
        sys.path.pop(0)
    return module


def _class_of(module: ModuleType, target: str) -> type[Model]:
    """Return the class of models in a module; InputError if there is none of that name."""
    from flowsim.interface import Model

    home, _, name = target.rpartition(":")
    if not hasattr(module, name):
        found = vars(module).items()
        own = [name for name, x in found if isinstance(x, type) and issubclass(x, Model)]
        own = [name for name in own if name != "Model"]
        has = f"; it has {', '.join(own)}" if own else ", nor any other model"
        raise InputError(f"{home!r} has no class {name}{has}")
    return check_class(getattr(module, name), target)


def check_class(kind: Any, target: str) -> type[Model]:
    """Return the class of models; InputError for another object, or wrong coordinates."""
    from flowsim.interface import Model

    if not (isinstance(kind, type) and issubclass(kind, Model)):
        raise InputError(f"{target} is no class derived from flowsim.Model")
    names = getattr(kind, "coordinates", None)
    if names is not None and not isinstance(names, property):
        check_coordinates(target, names)
    return kind


def check_coordinates(title: str, names: Any) -> None:
    """Raise InputError unless a model's coordinates are names that differ."""
    good = isinstance(names, (tuple, list)) and names and all(isinstance(n, str) for n in names)
    if not good or len(set(names)) < len(names):
        raise InputError(
            f'{title} needs coordinates, such as coordinates = ("x", "y"): names that differ, '
            f"not {names!r}"
        )
    for one in names:
        if not one.isprintable() or one != one.strip() or not one or set(one) & {*"/,=:\\"}:
            raise InputError(
                f"{title} cannot have a coordinate called {one!r}: a name has letters or signs, "
                "none of / , = : or a backslash, and no space around it"
            )


def source_file(kind: type) -> tuple[str, str] | None:
    """Return path and text of the file that ``load_class`` ran for a class; None for others."""
    found: tuple[str, str] | None = vars(sys.modules.get(kind.__module__, object)).get(
        "__flowsim_file__"
    )
    return found


def source_digest(kind: type) -> str:
    """Return the SHA-256 digest of a class's source text, see ``source_of``."""
    return hashlib.sha256(source_of(kind).encode()).hexdigest()


def source_of(kind: type) -> str:
    """Return the text of a class's file, or else of the class; "" where Python does not know it."""
    if (file := source_file(kind)) is not None:
        return file[1]
    formula = getattr(kind, "formula", None)
    with suppress(OSError, TypeError):
        return inspect.getsource(kind if formula is None else formula)
    # of a notebook's class: the cell that defines one of its methods
    for method in filter(inspect.isfunction, vars(kind).values()):
        text = "".join(linecache.getlines(method.__code__.co_filename))
        with suppress(SyntaxError):  # of a cell with magic commands
            for part in ast.walk(ast.parse(text)):
                if isinstance(part, ast.ClassDef) and part.name == kind.__name__:
                    return ast.get_source_segment(text, part) or ""
        if f"class {kind.__name__}" in text:
            return text
    return ""


def first_line_of(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
