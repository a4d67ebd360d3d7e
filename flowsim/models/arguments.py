"""Arguments that several built-in models share; no torch is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from flowsim.chain import BinaryChain
from flowsim.spec import Parameter, import_object

if TYPE_CHECKING:
    from flowsim.interface import Model

LENGTH = Parameter(8, "positions", shown=(1, 64))
BIAS = Parameter("optimal", "optimal, or dynamic: a coordinate")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of a built-in model; the first line of a subclass's docstring is its help.

    Attributes:
        home: the class of the model, as module:Class.
        title: the entry of a menu.
        lacks: why the model does not have arguments of others, by name: "has no bias".
    """

    home: ClassVar[str]
    title: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}

    def build(self) -> Model:
        """The model; InputError for a value that it refuses."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class OnBinaryChain(Arguments):
    """Arguments of a model whose class takes a binary chain, and the other arguments.

    Attributes:
        of_chain: the arguments that make the chain.
    """

    of_chain: ClassVar[tuple[str, ...]] = ("p", "q")

    p: float = Parameter(0.5, "chance of 1 after 0", required=True, shown=(0.001, 0.999)).field()
    q: float = Parameter(0.8, "chance of 0 after 1", required=True, shown=(0.001, 0.999)).field()

    def chain(self) -> BinaryChain:
        return BinaryChain(self.p, self.q)

    def build(self) -> Model:
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.of_chain}
        model: Model = import_object(self.home)(self.chain(), **own)
        return model
