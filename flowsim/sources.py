"""Classes of models that users bring, in a file or a package, and the text they come from."""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.interface import Model


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
    """The module of a file with that text; it is run once, from its text."""
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
    """The class of models in a module; InputError if there is none of that name."""
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
    """The class of models; InputError for another object, or wrong coordinates."""
    from flowsim.interface import Model

    if not (isinstance(kind, type) and issubclass(kind, Model)):
        raise InputError(f"{target} is no class derived from flowsim.Model")
    names = getattr(kind, "coordinates", None)
    if names is not None and not isinstance(names, property):
        check_coordinates(target, names)
    return kind


def check_coordinates(title: str, names: Any) -> None:
    """InputError unless a model's coordinates are names that differ."""
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
    """The path and the text of the file that ``load_class`` ran for a class."""
    found: tuple[str, str] | None = vars(sys.modules.get(kind.__module__, object)).get(
        "__flowsim_file__"
    )
    return found


def source_digest(kind: type) -> str:
    return hashlib.sha256(source_of(kind).encode()).hexdigest()


def source_of(kind: type) -> str:
    """The text of the file, or else of the class; empty where Python does not know it."""
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
    """The kind of an error and the first line of its message."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
