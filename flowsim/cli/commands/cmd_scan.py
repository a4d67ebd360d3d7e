"""The command ``scan``: where each of many initializations ends, computed into one record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flowsim.cli import options
from flowsim.cli.groups import (
    SET,
    HiddenProcess,
    OptimizerOptions,
    Printed,
    StartsOptions,
    Tolerances,
    Window,
    Workers,
    refuse,
)
from flowsim.cli.options import CHAIN, MODEL, OUTPUT, SOME, WORK, option
from flowsim.cli.output import neutral_command, progress, report
from flowsim.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from flowsim.interface import Model
    from flowsim.scan.starts import Starts

#: Names of labels next to a count, in the order of display; and the numbers of found ends.
SHOWN = {1: "minima", 2: "trapped", 3: "saddle", 0: "unresolved"}
FOUND = {1: "decided", 0: "unresolved"}

_CHANCES = "between 0 and 1, or LOW:HIGH:COUNT of them."


@dataclass(frozen=True)
class ScanOptions(
    StartsOptions, Workers, Window, HiddenProcess, OptimizerOptions, Tolerances, Printed
):
    p: Annotated[
        options.Numbers | None,
        option(CHAIN, "P", f"P(0→1), {_CHANCES}", parser=options.probabilities),
    ] = None
    q: Annotated[
        options.Numbers | None,
        option(CHAIN, "Q", f"P(1→0), {_CHANCES}", parser=options.probabilities),
    ] = None
    length: Annotated[
        options.Counts | None,
        option(SOME, "N", f"{options.having('length')}: number of positions, or LOW:HIGH:COUNT.  "
               f"[default: {options.DEFAULT_LENGTH}]", parser=options.lengths, show_default=False),
    ] = None  # type: ignore[assignment]  # fmt: skip
    set: Annotated[
        list[options.Assignment] | None,
        option(MODEL, "NAME=VALUE", f"{SET}, or LOW:HIGH:COUNT of its values; may be repeated.",
               "--set", parser=options.settings),
    ] = None  # fmt: skip
    fraction: Annotated[
        float | None,
        option(WORK, "X",
               "Also record the time until the excess loss has fallen to X of its start.",
               min=1e-15, max=1 - 1e-15),
    ] = None  # fmt: skip
    refine: Annotated[
        int | None,
        option(WORK, "K", "Halve the cells that the boundary of the basins crosses, K times.",
               min=1, max=20),
    ] = None  # fmt: skip
    edge: options.Edge = False
    integrator: options.Integrator = "flowsim"
    confirm: options.Confirm = None
    out: Annotated[
        Path | None,
        option(OUTPUT, "FILE",
               "Record of the scan, .nc.  [default: named after model, chain and starts]"),
    ] = None  # fmt: skip
    overwrite: options.Overwrite = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the model, with the first of several values."""
        return {
            name: x[0] if isinstance(x, tuple) else x for name, x in super().arguments().items()
        }

    def over(self) -> dict[str, tuple[float, ...]]:
        """Return the values of the arguments that have several, by name."""
        given = super().arguments()
        return {name: x for name, x in given.items() if isinstance(x, tuple) and len(x) > 1}

    def length_word(self, length: int) -> str:
        """Return the word for N in a file's name: the first and last of several."""
        several = self.length or ()
        return f"N{several[0]}to{several[-1]}" if len(several) > 1 else super().length_word(length)

    def path(self) -> Path:
        """Return the record's path: --out, or a name that says model, chain and starts."""
        words = ["scan", *self.name_parts(), *self.optimizer_words()]
        for name, values in (("p", self.p or ()), ("q", self.q or ())):
            ends = dict.fromkeys((*values[:1], *values[-1:]))
            words += [name + "to".join(f"{value:g}" for value in ends)] if ends else []
        if self.grid is not None:
            words.append(f"grid{'x'.join(map(str, self.grid))}")
        else:
            words.append(f"cloud{self.cloud}" if self.points is None else self.points.stem)
        words += [] if self.refine is None else [f"refine{self.refine}"]
        return self.out or Path(f"{'_'.join(words)}.nc")


def scan(given: ScanOptions) -> None:
    """Follow gradient flow from many initializations to its limits and record every one.

    Starts are a grid of cells (--grid, with --window, and --fix for what does not vary), the points
    of a file (--points), or normal draws around zero (--cloud with --sigma). The rank-one model
    takes canonical starts (e, w), or (e, w, a) with --attention, unless another of its coordinates
    is named. With --optimizer the starts of the rank-one model are trained instead. flowsim
    portrait --from draws the record.

    \b
    Examples:
      flowsim scan --p 0.5 --q 0.8 --grid 512x512
      flowsim scan --p 0.5 --q 0.8 --grid 64x64 --refine 5
      flowsim scan --p 0.1:0.9:9 --q 0.1:0.9:9 --cloud 1000 --sigma e=0.1,w=1
      flowsim scan --p 0.5 --q 0.8 --model rank-one --optimizer adamw --grid 64x64
      flowsim scan --p 0.5 --q 0.8 --model uniform --length 2:16:8 --grid 64x64x16
      flowsim scan --model induction --length 9 --grid 64x64 --window alpha=-6:6
      flowsim scan --model mine.py:DoubleWell --set g=0:1:11 --grid 64x64
    """
    spec = given.spec()
    _check(given)
    model, out = spec.build(), given.path()
    starts = _starts_of(given, model, given.fixed())
    if given.refine is not None:
        from flowsim.boundary.in_record import check_memory

        if len(starts.dims) not in (2, 3):
            varied = len(starts.dims)
            raise InputError(f"--refine needs two or three coordinates that vary, not {varied}")
        check_memory(starts.shape, given.refine)
    import xarray as xr

    from flowsim.boundary.in_record import edge_of_scan, refine_scan
    from flowsim.flow.reference import sample_size
    from flowsim.portraits.summaries import summarize
    from flowsim.scan.plan import Scan
    from flowsim.scan.store import write_scan

    # where torchdiffeq or an optimizer decides all starts, none is decided again
    flow = given.integrator == "flowsim" and given.optimizer is None
    confirm = given.confirm if given.confirm is not None else sample_size(model) if flow else 0
    task = Scan(
        spec, starts, given.over(), given.fraction, given.rtol, given.atol,
        integrator=given.integrator, confirm=confirm, device=given.device,
        optimizer=given.choice_of_optimizer(given.model, given.seed), max_steps=given.max_steps,
    )  # fmt: skip
    given.check_optimizer_size(task.model_at(task.size - 1), min(task.size, task.chunk))
    named = model.end_losses() is not None
    with progress(task.size, "points", given.quiet) as meter:

        def count(labels: np.ndarray) -> None:
            meter.labels(labels if named else labels.clip(0, 1), SHOWN if named else FOUND)

        write_scan(
            task, out, given.resume, given.overwrite, given.jobs, given.scheduler,
            count, neutral_command(), meter.then,
        )  # fmt: skip
    if given.refine is not None:

        @contextmanager
        def bar(total: int) -> Iterator[Callable[[int], object]]:
            with progress(total, "starts", given.quiet) as meter:
                yield meter.advance

        refine_scan(out, model, given.refine, given.rtol, given.atol, bar)
    if given.edge:
        with progress(task.size, "distances", given.quiet):
            edge_of_scan(out, model)
    with xr.open_dataset(out, engine="h5netcdf") as record:
        summary = summarize(record)
    report(summary, {"record": out}, given)


def _check(given: ScanOptions) -> None:
    """Raise InputError for options that do not go together."""
    given.check_workers()
    of_flow = "rtol", "atol", "integrator", "fraction", "refine", "edge"
    given.check_optimizer(given.model, *of_flow)
    if (given.grid, given.points, given.cloud).count(None) != 2:
        raise InputError("give the starts: one of --grid, --points and --cloud")
    if given.cloud is not None and given.sigma is None:
        raise InputError(
            "--cloud needs --sigma, the spread of its draws: a number, LOW:HIGH:COUNT or e=S,w=S"
        )
    if given.cloud is None:
        refuse(given, ("sigma",), "only a --cloud has a spread")
        random = () if given.optimizer is not None else ("seed",)
        refuse(given, random, "nothing but --cloud and --optimizer is random here")
    if given.grid is None:
        refuse(given, ("window",), "only a --grid has a window")
    if given.points is not None:
        refuse(given, ("fix",), "a file of points has every coordinate")
    if given.over():
        refuse(given, ("edge",), "distances are of one model: give one p and q and N")
    alone = given.grid is not None and not given.over() and min(given.grid) > 1
    if given.refine is not None and not alone:
        raise InputError(
            "--refine goes with --grid, two cells or more a side, at one p and q and N"
        )


def _starts_of(given: ScanOptions, model: Model, fixed: dict[str, float]) -> Starts:
    """Return the starts, in coordinates of the model, of which ``fixed`` are held at a value."""
    from flowsim.scan.starts import Cloud, Grid, Points, cell_centres

    sigma, windows = None if given.sigma is None else given.sigma.sigma, given.windows()
    mentioned = [*windows, *fixed, *(sigma if isinstance(sigma, dict) else ())]
    names = next((n for n in model.plane.defaults.starts if set(mentioned) <= set(n)), None)
    if names is None:
        own = model.coordinates
        name = next(name for name in mentioned if name not in own)
        raise InputError(f"the model has no coordinate {name!r}; it has {', '.join(own)}")
    free = [name for name in names if name not in fixed]
    if given.points is not None:
        return Points.read(given.points, names)
    if given.cloud is not None and sigma is not None:
        return Cloud(free, given.cloud, sigma, fixed, given.seed)
    cells = given.grid or ()
    if len(cells) != len(free) or not free:
        raise InputError(
            f"--grid needs one number of cells for each of {', '.join(free) or 'no coordinate'}: "
            f"{len(free)}, not {len(cells)}; --fix NAME=VALUE holds a coordinate"
        )
    for name in windows:
        if name not in free:
            raise InputError(f"{name} has a range and is also fixed")
    axes, usual = {}, {**model.plane.defaults.space, **model.plane.window}
    for name, count in zip(free, cells, strict=True):
        low, high = windows.get(name, usual.get(name, (-3.0, 3.0)))
        axes[name] = cell_centres(low, high, count)
    return Grid(axes, fixed)
