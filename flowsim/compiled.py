"""Functions compiled by numba, kept on disk between processes.

numba looks only at a function's own file when it asks whether the code kept on disk is still
right, not at the functions that it calls. Here the folder is named after the text of every file
of both packages that holds compiled functions, so that a change in one of them compiles all of
them anew.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numba
from numba.core.event import Event, Listener, register
from numba.core.options import DefaultOptions

config: Any = numba.config
_LOG = logging.getLogger(__name__)


class _Compilation(Listener):
    """Logs, once, that code is compiled, which numba does where it has not found it on disk.

    Compiling makes many small objects that stay: while it runs Python does not search them for
    garbage, which would take a sixth to a third of the time.
    """

    def __init__(self) -> None:
        self.depth, self.collects, self.logged = 0, False, False

    def on_start(self, event: Event) -> None:
        """Note that numba starts to compile: log it, the first time, and stop garbage searches."""
        if not self.logged:
            self.logged = True
            _LOG.info("compiling the integrator, once on this machine (about 15 s)")
        if self.depth == 0:
            self.collects = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Event) -> None:
        """Let Python search for garbage again, after the outermost of nested compilations."""
        self.depth -= 1
        if self.depth == 0 and self.collects:
            gc.enable()


COMPILATION = _Compilation()
register("numba:compile", COMPILATION)


@cache
def code_folder() -> str:
    """Return the folder of compiled code: NUMBA_CACHE_DIR, or one in the user's cache."""
    if config.CACHE_DIR:
        return str(config.CACHE_DIR)
    digest = hashlib.sha256(numba.__version__.encode())
    root = Path(__file__).parents[1]
    for package in ("flowsim", "full_model"):
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_bytes()
            if any(word in text for word in (b"@compiled", b"@template", b"@hook")):
                digest.update(str(path.relative_to(root)).encode() + b"\0" + text)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "flowsim" / f"numba-{digest.hexdigest()[:16]}"
    with suppress(OSError):  # numba then looks for another place
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    return str(folder)


def compiled(
    function: Callable[..., Any] | None = None,
    *,
    contract: bool = False,
    reassoc: bool = False,
    inline: bool = False,
    no_cpython_wrapper: bool = False,
    nrt: bool = False,
    tag: str = "",
) -> Any:
    """Decorator: compile ``function`` on its first call and keep the code on disk.

    Compiled functions call one another by their global names only: numba compiles anew in every
    process what is passed as an argument or captured. An engine that serves many models is written
    once, of templates, and copied for each model (``template``, ``specialise``). What the compiler
    may do to sums is stated for each function, since numba would otherwise take it from the
    caller. With numba's own switch NUMBA_DISABLE_JIT=1 nothing is compiled: for debuggers, and
    ``tests/mutants.py``.

    Args:
        function: what to compile.
        contract: a product and a sum may be rounded once.
        reassoc: that, and sums may be taken in any order, so that loops use vectors.
        inline: its code is copied to where it is called. A call that passes arrays costs as much
            as some ten multiplications.
        no_cpython_wrapper: called by compiled functions only, so that Python needs no way in.
        nrt: it makes arrays, or returns any. All others use those of their callers, and numba does
            not count the users of each: counting, at every look at a field of a workspace, took a
            third to a half of the time of a step.
        tag: which of several copies of one function this is: part of the name of its file on disk.
    """
    if function is None:
        return partial(
            compiled, contract=contract, reassoc=reassoc, inline=inline,
            no_cpython_wrapper=no_cpython_wrapper, nrt=nrt, tag=tag,
        )  # fmt: skip
    if tag:  # two copies have the same bytecode: numba tells them apart by this name alone
        function.__qualname__ = f"{function.__name__}__{tag}"
    if config.DISABLE_JIT:
        return function
    allowed: Any = {"contract"} if contract or reassoc else False
    if reassoc:
        allowed |= {"reassoc", "nsz"}
    # nothing is called from C; other threads go on meanwhile, such as those that answer a page
    options: Any = {"no_cfunc_wrapper": True, "forceinline": inline, "nogil": True}
    options["no_cpython_wrapper"] = no_cpython_wrapper
    if hasattr(DefaultOptions, "_nrt"):  # a name that numba may change
        options["_nrt"] = nrt
    decorated = numba.njit(error_model="numpy", fastmath=allowed, **options)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, code_folder()
    try:
        decorated.enable_caching()
    except RuntimeError:  # no folder can be written: compiled anew in every process
        pass
    finally:
        config.CACHE_DIR = before
    return decorated


def template(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: a function of an engine, of which ``specialise`` makes a copy for every model.

    Args:
        function: its global names may be other templates, and hooks.
        options: as of ``compiled``.
    """
    if function is None:
        return partial(template, **options)
    function.__template__ = options  # type: ignore[attr-defined]
    return function


def hook(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a stub that says what a model's own function is given and returns.

    Its body is what is done for a model without that function.
    """
    function.__template__ = {"no_cpython_wrapper": True}  # type: ignore[attr-defined]
    return function


def specialise(modules: Sequence[ModuleType], tag: str, **hooks: Callable[..., Any]) -> Any:
    """Return a compiled copy of an engine's functions that calls a model's own functions.

    Args:
        modules: of the engine, in the order of their imports: the one with the hooks first. Of
            every template in them a copy is made, whose globals are the copies made before.
        tag: the model's name; two engines of one tag would share their files on disk.
        hooks: compiled functions by the names of the stubs that they replace.

    Returns:
        The copies of all templates, as attributes.

    Raises:
        TypeError: a hook that no module has.
    """
    made: dict[int, Any] = {}
    copies: dict[str, Any] = {}
    wanted = dict(hooks)
    for module in modules:
        space: dict[str, Any] = dict(vars(module))
        own = {
            n: v for n, v in space.items() if _is_template(v) and v.__module__ == module.__name__
        }
        for name, value in space.items():
            if id(value) in made:
                space[name] = made[id(value)]
        for name, plain in own.items():
            copy = wanted.pop(name, None)
            if copy is None:
                copy = FunctionType(plain.__code__, space, name, plain.__defaults__)
                copy.__module__, copy.__doc__ = module.__name__, plain.__doc__
                copy = compiled(copy, tag=tag, **plain.__template__)
            space[name] = made[id(plain)] = copies[name] = copy
    if wanted:
        raise TypeError(f"the engine has no hook {', '.join(wanted)}")
    return SimpleNamespace(**copies)


def _is_template(value: Any) -> bool:
    """Return whether a module's member is a function marked by ``template`` or ``hook``."""
    return isinstance(value, FunctionType) and hasattr(value, "__template__")
