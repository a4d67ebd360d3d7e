"""Data, settings and initial weights of a run, validated."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from flowsim.arrays import resolve_device
from flowsim.chain import BinaryChain
from flowsim.chains.hidden import HiddenMarkovProcess
from flowsim.chains.higher_order import OrderChain
from flowsim.chains.priors import FinitePrior, MixturePrior, Prior
from flowsim.errors import InputError, require_integer
from flowsim.markov import MarkovChain, SymmetricChain
from flowsim.training.optimizer_choice import REDUCED
from flowsim.training.optimizer_choice import Recipe as Recipe
from flowsim.training.optimizer_choice import papers_recipe as papers_recipe
from full_model.lift.initial import initial_weights
from full_model.model import sources
from full_model.model.architecture import Architecture, Weights
from full_model.model.population import PopulationLoss, check_enumeration

Data = MarkovChain | OrderChain | Prior | HiddenMarkovProcess


def symbols_of(data: Data) -> int:
    """The number of symbols that sequences of the data consist of."""
    return data.symbols if isinstance(data, HiddenMarkovProcess) else data.states


def order_of(data: Data) -> int:
    """The order k of a chain or of a prior's kernels; 0 of a hidden process, which has none."""
    return 0 if isinstance(data, HiddenMarkovProcess) else data.order


def source_of(data: Data) -> sources.SequenceSource:
    """Make the source of a chain's, hidden process's or prior's sequences, for all models."""
    if isinstance(data, Prior):
        return sources.PriorSource(data)
    if isinstance(data, HiddenMarkovProcess):
        return sources.HiddenSource(data)
    if isinstance(data, MarkovChain):
        if (data.kernel > 0).all() and data.states <= 256:
            return sources.MarkovSource.of(data)
        data = OrderChain(data.kernel)
    return sources.ChainSource(data)


def _settings_of(data: Data) -> dict[str, Any]:
    """Describe data by a dictionary ready for JSON; data with the same one is the same."""
    if isinstance(data, Prior):
        return data.settings()
    if isinstance(data, HiddenMarkovProcess):
        return {"prior": "hidden", "transitions": data.transitions.tolist()}
    own = {"prior": "fixed", "states": data.states, "order": data.order}
    if isinstance(data, SymmetricChain):
        return {**own, "p": data.p}
    return {**own, "kernel": data.kernel.tolist()}


def words_of(data: Data) -> str:
    """Name the law of the data's kernels: "fixed" for a chain, "hidden", or the prior's name.

    A mixture has the names of all parts with their weights.
    """
    if isinstance(data, HiddenMarkovProcess):
        return "hidden"
    if not isinstance(data, Prior):
        return "fixed"
    if isinstance(data, MixturePrior):
        parts = zip(data.parts, data.weights.tolist(), strict=True)
        return ",".join(f"{words_of(part)}:{weight:g}" for part, weight in parts)
    if isinstance(data, FinitePrior):
        count = len(data.kernels)
        return "one kernel" if count == 1 else f"{count} kernels"
    beta = getattr(data, "beta", 1.0)
    return str(data.settings()["prior"]) + (f"({beta:g})" if beta != 1 else "")


def require_one(p: object, q: object, data: object) -> None:
    """InputError unless either p and q or data is given."""
    if (p is None) != (q is None) or (p is None) == (data is None):
        raise InputError("a run trains on p and q, or on data: give the one or the other")


def check_data(arch: Architecture, recipe: Recipe, data: Data | None, init: str) -> None:
    """InputError, in one sentence, for data that does not fit the transformer or its trainer."""
    states = 2 if data is None else symbols_of(data)
    if arch.states != states:
        raise InputError(f"a model on {arch.states} states cannot train on {states}")
    if data is not None:
        if arch.length <= order_of(data):
            raise InputError(
                f"length must be above the order {order_of(data)}, of which kernels predict, "
                f"not {arch.length}"
            )
        if arch.states > arch.d + 1:
            raise InputError(
                f"{arch.states} states need d of at least {arch.states - 1} to be told apart from "
                f"one another alike, not {arch.d}"
            )
        if init not in ("gaussian", "given"):
            raise InputError(f"a {init} start is one of binary chains, with p and q")
    if recipe.loss != "population":
        return
    if isinstance(data, Prior) and not data.has_bayes:
        raise InputError(
            f"the exact loss of {words_of(data)} kernels on {data.states} states needs Bayes's "
            "predictor, which is not known; train on sampled batches, by sgd or adamw"
        )
    first_order = data is None or (isinstance(data, MarkovChain) and bool((data.kernel > 0).all()))
    if arch.attention != "none" or not first_order:
        check_enumeration(arch, arch.length)


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides a run's numbers.

    Args:
        arch: the architecture; ``arch.length`` is N.
        recipe: the trainer and its numbers.
        p, q: switching probabilities of binary chains, one for all models or one per model.
        data: instead of them, the one chain of all models, on any number of states and of any
            order, a hidden Markov process, or the law of kernels drawn anew for every sequence.
        seeds: one per model; a model's start depends on its own seed alone.
        init: kind of start, see ``initial_weights``, or "given" (weights passed to ``train``).
        init_std, init_value, noise: see ``initial_weights``.
        theta: one canonical point (e, w[, a]) for all or one per model, for init "lifted"; the bias
            is the one that is optimal there.
        data_seed: seed of the batches; the held-out sequences use the next one.
        telemetry_every: measure after this many steps (and at the start and the end).
        checkpoint_every: write a checkpoint after this many steps (and at the end).
        test_batch: held-out sequences per model, for losses that cannot be enumerated cheaply and
            for the probes.
        dtype: "float64" or "float32".
        device: "cpu", "cuda", or "auto" (CUDA if there is one).

    Raises:
        InputError: a value out of range, counts of p, q, seeds and theta that do not match, both p,
            q and data or neither, data that does not fit the transformer, another start than
            "gaussian" or "given" on data, CUDA asked for and missing, or an exact loss of too many
            sequences.

    >>> import full_model
    >>> arch, recipe = full_model.Architecture(d=4, length=4), full_model.Recipe("gd", steps=20)
    >>> settings = full_model.RunSettings(arch, recipe, (0.5,), (0.8,), seeds=(0, 1))
    >>> settings.members
    2
    """

    arch: Architecture
    recipe: Recipe
    p: tuple[float, ...] | None = None
    q: tuple[float, ...] | None = None
    seeds: tuple[int, ...] = (0,)
    init: str = "gaussian"
    init_std: float = 0.02
    init_value: float = 1.0
    noise: float = 0.0
    theta: tuple[tuple[float, ...], ...] | None = None
    data_seed: int = 0
    telemetry_every: int = 100
    checkpoint_every: int = 1000
    test_batch: int = 64
    dtype: str = "float64"
    device: str = "cpu"
    data: Data | None = None
    members: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("telemetry_every", "checkpoint_every", "test_batch"):
            require_integer(name, getattr(self, name), 1)
        require_integer("data_seed", self.data_seed, 0)
        require_one(self.p, self.q, self.data)
        check_data(self.arch, self.recipe, self.data, self.init)
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"dtype must be float32 or float64, not {self.dtype!r}")
        object.__setattr__(self, "device", resolve_device(self.device))
        counts = {len(self.seeds)}
        counts |= {len(x) for x in (self.p, self.q) if x is not None}
        counts |= {len(self.theta)} if self.theta is not None else set()
        members = max(counts)
        if not counts <= {1, members} or 0 in counts:
            raise InputError(
                f"p, q, seeds and theta must count one or {members} each, not "
                f"{', '.join(str(c) for c in sorted(counts))}"
            )
        for name in ("p", "q", "seeds"):
            if getattr(self, name) is None:
                continue
            value = tuple(getattr(self, name))
            object.__setattr__(self, name, value * members if len(value) == 1 else value)
        for seed in self.seeds:
            require_integer("seed", seed, 0)
        if (self.init == "lifted") != (self.theta is not None):
            raise InputError('theta goes with init "lifted", and init "lifted" with theta')
        if self.theta is not None:
            points = tuple(tuple(point) for point in self.theta)
            if {len(point) for point in points} not in ({2}, {3}):
                raise InputError("theta must hold points (e, w) or points (e, w, a)")
            if not all(isinstance(x, (int, float)) for point in points for x in point):
                raise InputError("the coordinates of theta must be numbers")
            object.__setattr__(self, "theta", points)
        object.__setattr__(self, "members", members)
        _ = self.every_data

    @property
    def every_data(self) -> list[Data]:
        """The data of every model, a list of M."""
        if self.data is not None:
            return [self.data] * self.members
        assert self.p is not None and self.q is not None
        return [BinaryChain(p, q) for p, q in zip(self.p, self.q, strict=True)]

    def source(self) -> sources.SequenceSource:
        """Make the source of sequences: one chain or prior for all models, or a chain each."""
        if self.data is not None:
            return source_of(self.data)
        chains = [chain for chain in self.every_data if isinstance(chain, BinaryChain)]
        return sources.MarkovSource.of(chains[0] if len(set(chains)) == 1 else chains)

    def as_dict(self) -> dict[str, Any]:
        """All settings as a dictionary ready for JSON."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        recipe = {k: x for k, x in asdict(self.recipe).items() if k not in REDUCED}
        found |= {"arch": asdict(self.arch), "recipe": recipe}
        if self.data is not None:
            found["data"] = _settings_of(self.data)
        return json.loads(json.dumps(found))


def starting_weights(settings: RunSettings) -> Weights:
    """The run's first weights, float64 on the CPU, (M, *shape).

    >>> import full_model
    >>> arch, recipe = full_model.Architecture(d=4, length=4), full_model.Recipe("gd", steps=20)
    >>> settings = full_model.RunSettings(arch, recipe, (0.5,), (0.8,), seeds=(0, 1))
    >>> tuple(full_model.starting_weights(settings)["embedding"].shape)
    (2, 4)
    """
    theta, bias = None, torch.zeros(settings.members, dtype=torch.float64)
    excess: torch.Tensor | float = 1.0
    if settings.p is not None and settings.q is not None:
        excess = torch.tensor(settings.p, dtype=torch.float64) + torch.tensor(settings.q) - 1
    if settings.theta is not None:
        theta = torch.tensor(settings.theta, dtype=torch.float64).expand(settings.members, -1)
        clean = initial_weights(settings.arch, "lifted", settings.seeds, theta=theta)
        bias = PopulationLoss(settings.arch, settings.source()).optimal_bias(clean)
    return initial_weights(
        settings.arch,
        settings.init,
        settings.seeds,
        std=settings.init_std,
        theta=theta,
        bias=bias,
        noise=settings.noise,
        excess=excess,
        value=settings.init_value,
    )
