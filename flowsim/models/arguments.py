"""Arguments that several built-in models share; no torch is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

from flowsim.chain import BinaryChain
from flowsim.errors import InputError
from flowsim.spec import Parameter, import_object

if TYPE_CHECKING:
    from flowsim.chains.hidden import SeenChain
    from flowsim.interface import Model

LENGTH = Parameter(8, "positions N", slider=(1, 64))
BIAS = Parameter("optimal", "optimal, or dynamic: a coordinate")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of a built-in model; the first line of a subclass's docstring is its help.

    Attributes:
        home: the class of the model, as module:Class.
        title: the entry of a menu.
        lacks: why the model does not have arguments of others, by name: "has no bias".
        of_chain: the arguments that make the chain which the class takes first, if it takes one.
    """

    home: ClassVar[str]
    title: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    of_chain: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def completed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with those that others imply; InputError where they contradict."""
        return given

    def build(self) -> Model:
        """Return the model with these arguments; InputError for a value that it refuses."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.of_chain}
        chain = [cast(Any, self).chain()] if self.of_chain else []
        model: Model = import_object(self.home)(*chain, **own)
        return model


@dataclass(frozen=True, kw_only=True)
class OnBinaryChain(Arguments):
    """Arguments of a model whose class takes a binary chain, and the other arguments."""

    of_chain: ClassVar[tuple[str, ...]] = ("p", "q")

    p: float = Parameter(0.5, "chance of 1 after 0", required=True, slider=(0.001, 0.999)).field()
    q: float = Parameter(0.8, "chance of 0 after 1", required=True, slider=(0.001, 0.999)).field()

    def chain(self) -> BinaryChain:
        """Return the binary chain of p and q."""
        return BinaryChain(self.p, self.q)


@dataclass(frozen=True, kw_only=True)
class ReadsOneSymbol(OnBinaryChain):
    """Arguments of a model that may read one symbol: a hidden process may take a chain's place.

    p and q are then those of the process's first-order projection.
    """

    of_chain = ("p", "q", "process")

    process: str = Parameter(
        "", "a hidden process of which it reads one symbol", requires="process",
        noun="hidden process",
    ).field()  # fmt: skip

    @classmethod
    def completed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with p and q of the process's projection, if a process is given."""
        if not given.get("process"):
            return {name: value for name, value in given.items() if name != "process"}
        seen = _projection(given["process"])
        for name, value in (("p", seen.p), ("q", seen.q)):
            if abs(given.get(name, value) - value) > 1e-9:  # a record's may differ by rounding
                raise InputError(f"the process gives p and q: omit {name}")
        return {**given, "process": seen.process.name, "p": seen.p, "q": seen.q}

    def chain(self) -> BinaryChain:
        """Return the projection of the process, or the binary chain of p and q without one."""
        return _projection(self.process) if self.process else super().chain()


def _projection(text: str) -> SeenChain:
    """Return the first-order projection of the hidden process that the text spells."""
    from flowsim.chains.hidden import SeenChain, parse_process

    return SeenChain.of(parse_process(text))
