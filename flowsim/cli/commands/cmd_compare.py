"""The command ``compare``: what the reduced flow predicts against what the full model does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from flowsim.cli import options
from flowsim.cli.groups import (
    FigureFiles,
    ModelOnChain,
    StartsOptions,
    Window,
    Workers,
    chain_words,
    check_enumeration,
    refuse,
)
from flowsim.cli.options import FULL, OUTPUT, TRAINING, option
from flowsim.cli.output import neutral_command, progress, write_and_report
from flowsim.errors import InputError
from flowsim.memory import require_memory
from flowsim.models.states import HIDDEN_PER_STATE
from flowsim.spec import ModelSpec, built_in, has_parameter, parameters

if TYPE_CHECKING:
    from torch import Tensor

    from flowsim.markov import GapChain


@dataclass(frozen=True)
class Compare(StartsOptions, Workers, ModelOnChain, Window, FigureFiles):
    kind = "comparison"
    horizon: Annotated[
        float | None,
        option(TRAINING, "T", "Time after which a run of flow or gd is left undecided.  "
               "[default: 100 times the slowest time scale]", min=1e-9, max=1e15),
    ] = None  # fmt: skip
    steps: Annotated[
        int | None,
        option(TRAINING, "K", "Steps of sgd and AdamW; of flow and gd the largest number, after "
               "which a run is left undecided.  [default: 8000; flow and gd: 20000]",
               min=1, max=10**9),
    ] = None  # fmt: skip
    length: options.Positions = options.DEFAULT_LENGTH
    trainer: Annotated[
        Literal["flow", "gd", "sgd", "momentum", "adam", "adamw", "adamw-papers"],
        option(TRAINING, "NAME",
               "flow or gd, on the exact population loss; sgd, momentum (0.9), adam, adamw or "
               "adamw-papers, on sampled batches."),
    ] = "gd"  # fmt: skip
    d: options.Dim = 8
    noise: options.Noise = 0.0
    noise_on: Annotated[
        Literal["all", "attention", "others"],
        option(FULL, "PART",
               "Weights that the noise is added to: all, those of attention, or all others."),
    ] = "all"  # fmt: skip
    batch: options.Batch = 16
    learning_rate: options.Rate = None
    require: Annotated[
        float | None,
        option(OUTPUT, "SHARE", "Exit with 4 if a smaller share of the decided runs agrees.",
               min=0, max=1),
    ] = None  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the model.

        One without a length leaves --length to the transformer alone.
        """
        found = super().arguments()
        has_length = has_parameter(built_in(self.model), "length", found)
        return found if has_length else found | {"length": None}

    @property
    def units(self) -> int | None:
        """Hidden units per state; None without --states."""
        return None if self.states is None else self.hidden_per_state or HIDDEN_PER_STATE

    def hidden(self) -> int:
        """Return the number of hidden units of the transformer."""
        return 4 * self.d if not (self.states and self.units) else self.states * self.units

    def dimensions(self) -> int:
        """Return 3 where starts are (e, w, a), else 2."""
        from full_model.comparison.comparable import lifted_from

        return len(lifted_from(self.model, self.attention, self.fixed()))


def compare(given: Compare) -> None:
    """Train full transformers from reduced starts, and compare with what the flow predicts.

    Each start is lifted into a transformer with softmax attention and all its weights. Without
    noise these runs follow the rank-one flow by theory, and the comparison with it checks that
    theory and code agree; with --noise they leave it, and how many still agree is an estimate.
    All other trainers are predicted by their own maps in rank-one coordinates, on the same
    batches: learned or not after as many steps. Without noise training equals that map until
    rounding errors, which Adam amplifies on lifted starts, separate them.

    --model states trains transformers with S logits by flow or gd, from points (e, w) of a plane
    that training without noise does not leave; with noise the exact loss sums over S^N sequences.

    Starts are a grid in e and w, each from -2 to 2 unless --window says more (with --fix a=X where
    there is attention; 0.5 by default), those of a file or record (--points), or normal draws
    (--cloud with --sigma).

    \b
    Examples:
      flowsim compare --p 0.5 --q 0.8 --model rank-one --trainer gd --grid 20x20
      flowsim compare --model states --states 3 --p 0.8 --noise 0.02 --length 4
    """
    _check(given)
    own, words = {"S": given.states, "m": given.hidden_per_state}, [given.model, given.trainer]
    words += [f"{letter}{value}" for letter, value in own.items() if value]
    words += [] if given.points is None else [given.points.stem]
    needed = [name for name, x in parameters(built_in(given.model)).items() if x.required]
    if all(vars(given)[name] is not None for name in needed):
        words += chain_words(given.p, given.q)
    figure, stored = given.names("compare", *words)
    import torch

    from flowsim.records.attributes import provenance
    from full_model.comparison.choices import Comparison
    from full_model.comparison.compare import compare as run

    points, chain, starts = _starts(given)
    noisy = given.noise > 0 and given.noise_on != "others"
    exact = given.trainer in ("flow", "gd")
    if (points.shape[1] == 3 or noisy) and exact:
        sampled = "" if given.states else "; or sampled batches, --trainer sgd or adamw"
        check_enumeration(given.length, sampled, given.states or 2)
    batch = 0 if exact else given.batch
    at_rest = 4.0 * len(points) * given.d * (given.length + 4 * given.d + 2 * given.hidden())
    smaller = "--length, --d, --states, --hidden-per-state or number of starts"
    require_memory(
        f"a comparison of {len(points)} starts at N = {given.length}, d = {given.d}",
        8 * (at_rest + float(batch) * (given.length + 1) * len(points)),
        f"--batch, {smaller}" if batch else smaller,
    )
    settings = Comparison(
        chain.p, getattr(chain, "q", None), given.model, given.trainer, given.d, given.length,
        given.noise, given.noise_on, given.seed, given.horizon, given.steps, given.batch,
        given.learning_rate, given.device, states=given.states,
        hidden_per_state=given.hidden_per_state,
    )  # fmt: skip
    if not settings.stochastic:
        torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    with progress(len(points), "runs", given.quiet) as meter:

        def show(done: int, total: int, text: str) -> None:
            meter.total = total  # of mirrored starts only one is trained
            meter.update(done, text)

        record = run(
            settings, points, stored.with_suffix(".safetensors"), given.resume, given.overwrite,
            show, given.jobs, given.scheduler, given.cloud is not None,
        )  # fmt: skip
    record.attrs = provenance(record.attrs) | {"command": neutral_command()} | starts
    write_and_report(record, figure, stored, given, given.require)


def _check(given: Compare) -> None:
    """Raise InputError for options that do not go together."""
    from full_model.comparison.comparable import check_comparable, check_sampled

    check_comparable(given.model)
    if given.points is None or given.states or (given.p, given.q) != (None, None):
        given.spec()  # else a record of binary starts may have a chain
    ModelSpec.first(given.model, **given.arguments())
    window = given.grid or given.window
    if (given.points is not None) + (given.cloud is not None) + bool(window) > 1:
        raise InputError("give one of --grid (with its window), --cloud and --points")
    if given.cloud is not None and given.sigma is None:
        raise InputError("--cloud needs --sigma, the spread of its draws: a number")
    one = given.sigma is None or isinstance(given.sigma.sigma, float)
    if not one or (given.sigma is not None and given.cloud is None):
        raise InputError("--sigma, one number here, goes with --cloud")
    if given.grid is not None and len(given.grid) != 2:
        raise InputError("--grid needs two numbers of cells here, along e and along w, as 20x20")
    refuse(given, ("bias", "untied"), "tied transformers are compared, each with the best bias")
    given.dimensions()
    if given.fix and not window and (given.cloud is not None or given.points is not None):
        raise InputError("--fix a=X goes with a grid")
    sampled = given.trainer not in ("flow", "gd")
    given.check_workers()
    if sampled:
        check_sampled(given.model, given.trainer)
    if not given.noise:
        refuse(given, ("noise_on",), "there is no --noise")
    if not sampled:
        reason = f"--trainer {given.trainer} takes the exact loss, at a rate of its own"
        refuse(given, ("batch", "learning_rate"), reason)


def _starts(given: Compare) -> tuple[Tensor, GapChain, dict[str, object]]:
    """Return the starts, (n, 2) or (n, 3), their chain, and a record's attributes about them."""
    import torch

    from flowsim.scan.starts import Points
    from full_model.comparison.points import (
        check_points,
        cloud_points,
        grid_points,
        stored_points,
    )

    dimensions = given.dimensions()
    if given.points is not None:
        file, chain = given.points, None if given.p is None else given.spec().chain()
        if file.suffix.lower() == ".nc":
            units = given.units
            points, chain = stored_points(file, chain, given.length, given.d, dimensions, units)
        else:
            names = ("e", "w", "a")[:dimensions]
            table = Points.read(file, names)
            read = table.block(0, table.shape[0])[:, [table.names.index(n) for n in names]]
            points, chain = check_points(torch.from_numpy(read.copy())), given.spec().chain()
        return points, chain, {"starts": f"points of {file.name}"}
    if given.cloud is not None and given.sigma is not None:
        sigma = given.sigma.sigma
        assert isinstance(sigma, float)
        points = cloud_points(given.cloud, sigma, given.seed, dimensions)
        return points, given.spec().chain(), {"starts": "cloud", "sigma": sigma}
    rows, columns = given.grid or (20, 20)
    a = given.fixed().get("a", 0.5) if dimensions == 3 else None
    points = grid_points(columns, rows, given.windows(), a)
    return points, given.spec().chain(), {"starts": "grid", "columns": columns, "rows": rows}
