"""What the models of one name are chosen with, and how they are built.

Every folder of models has its ``Family`` in a file ``family.py``. That file imports no model before
one is built, so that the command line can name all options at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowsim.chain import BinaryChain
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.interface import Model


@dataclass(frozen=True)
class Option:
    """What a model is chosen with, or a number of its data.

    On the command line it is ``--set NAME=VALUE``, unless ``cli.groups`` gives it a name.

    Attributes:
        default: its value unless given.
        help: a few words.
        needed: whether it must be given; the default is then what the explorer begins with.
        only_with: the switch without which the model does not have it.
        word: what a sentence calls it, where that is not its name.
    """

    default: Any
    help: str
    needed: bool = False
    only_with: str = ""
    word: str = ""

    def read(self, stored: Any) -> Any:
        """The value of its text, or of what a record says."""
        kind = type(self.default)
        return stored in ("True", 1) if kind is bool else kind(stored)


#: N, of every model that has positions.
LENGTH = Option(8, "positions")
BIAS = Option("optimal", "optimal, or dynamic: a coordinate")
#: Coordinates of starts without attention, and with it.
PLANAR, SPATIAL = ("e", "w"), ("e", "w", "a")
#: The probabilities of a binary chain.
BINARY = {"p": Option(0.5, "chance of 1 after 0"), "q": Option(0.8, "chance of 0 after 1")}


def located(home: str) -> Callable[..., Model]:
    """The class that module:Class names."""
    module, kind = home.split(":")
    found: Callable[..., Model] = getattr(import_module(module), kind)
    return found


@dataclass(frozen=True)
class Family:
    """The models of one name; here those of binary chains, whose options are arguments of a class.

    Attributes:
        name: the name on the command line and in records.
        help: the name with the coordinates, a few words.
        title: what a menu calls it.
        home: the class, as module:Class.
        options: what a model is chosen with, by name.
        data: the probabilities of its chain, by name: p and q, p alone, or none.
        tied: whether the unembedding is the embedding, where that is no option.
        lifts: the sets of coordinates at which a full transformer can begin, the usual one first.
        without: why the models lack what others have, by name: "has no bias".
    """

    name: str
    help: str
    title: str
    home: str
    options: Mapping[str, Option] = field(default_factory=dict)
    data: Mapping[str, Option] = field(default_factory=lambda: BINARY)
    tied: bool = True
    lifts: tuple[tuple[str, ...], ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)

    def chain(self, options: Mapping[str, Any], **chances: float) -> Any:
        """What a model is trained on, of its options and of the probabilities in ``data``."""
        return BinaryChain(**chances)

    def read_chain(self, attributes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """What the model of a record was trained on; InputError if it is not one chain."""
        if not self.data.keys() <= attributes.keys():
            needed = " and ".join(self.data)
            raise InputError(f"the record is not of one chain: give {needed}")
        return self.chain(options, **{name: attributes[name] for name in self.data})

    def build(self, chain: Any, options: Mapping[str, Any]) -> Model:
        """The model on a chain; InputError for a chain of another kind, or a wrong option."""
        if not isinstance(chain, BinaryChain):
            raise InputError(f"the {self.name} model is of binary chains, not for {chain!r}")
        return located(self.home)(chain, **options)

    def has(self, name: str, chosen: Mapping[str, Any]) -> bool:
        """Whether a model chosen so has the option of that name."""
        option = self.options.get(name)
        return option is not None and (not option.only_with or bool(chosen.get(option.only_with)))

    def complete(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Every option that the model has, in order: as chosen, or by default.

        Raises:
            InputError: an option that it needs is missing, or one lacks the switch it goes with.
        """
        found = {}
        for name, option in self.options.items():
            if self.has(name, chosen):
                if option.needed and name not in chosen:
                    raise InputError(f"the {self.name} model needs {name}, {option.help}")
                found[name] = chosen.get(name, option.default)
            elif name in chosen:
                raise InputError(
                    f"the {self.name} model has no {name} without {option.only_with}; omit it"
                )
        return found
