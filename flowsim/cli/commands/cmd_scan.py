"""The command ``scan``: where each of many initializations ends, computed into one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowsim.cli import options
from flowsim.cli.commands.optimizer_options import OptimizerOptions
from flowsim.cli.commands.scan_starts import StartOptions, starts_of
from flowsim.cli.groups import Printed, ReducedModelOptions, Tolerances
from flowsim.cli.output import judge_summary, neutral_command, report
from flowsim.cli.texts import Summary
from flowsim.cli.values import Numbers, probabilities
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.models.base import ReducedModel
    from flowsim.scan.starts import Starts

#: How labels are called beside a count, in the order of display.
SHOWN = {1: "minima", 2: "trapped", 3: "saddle", 0: "unresolved"}

_CHANCES = "between 0 and 1, or LOW:HIGH:COUNT of them."


@dataclass(frozen=True)
class ScanOptions(StartOptions, ReducedModelOptions, OptimizerOptions, Tolerances, Printed):
    """The options of ``scan``."""

    p: Annotated[
        Numbers | None,
        typer.Option(
            parser=probabilities, metavar="P", help=f"P(0→1), {_CHANCES}",
            rich_help_panel=options.CHAIN,
        ),
    ] = None  # fmt: skip
    q: Annotated[
        Numbers | None,
        typer.Option(
            parser=probabilities, metavar="Q", help=f"P(1→0), {_CHANCES}",
            rich_help_panel=options.CHAIN,
        ),
    ] = None  # fmt: skip
    fraction: Annotated[
        float | None,
        typer.Option(
            min=1e-15, max=1 - 1e-15, metavar="X", rich_help_panel=options.WORK,
            help="Also record the time until the excess loss has fallen to X of its start.",
        ),
    ] = None  # fmt: skip
    refine: Annotated[
        int | None,
        typer.Option(
            min=1, max=20, metavar="K", rich_help_panel=options.WORK,
            help="Halve the cells that the boundary of the basins crosses, K times.",
        ),
    ] = None  # fmt: skip
    integrator: options.Integrator = "flowsim"
    confirm: options.Confirm = None
    jobs: options.Jobs = 1
    scheduler: options.Scheduler = None
    resume: options.Resume = False
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=options.OUTPUT,
            help="Record of the scan, .nc.  [default: named after model, chain and starts]",
        ),
    ] = None  # fmt: skip
    overwrite: options.Overwrite = False

    def chances(self) -> tuple[Numbers | None, Numbers | None]:
        """All p and all q; no q of the states model, and neither of the induction model."""
        if self.model == "induction":
            self.choice().chain(_first(self.p), _first(self.q))
            return None, None
        if self.model == "states":
            if self.states is None or self.p is None:
                raise InputError(
                    "--model states needs --states and --p, the probability to leave one"
                )
            if self.q is not None:
                self.choice().chain(self.p[0], self.q[0])
            return self.p, None
        if self.p is None or self.q is None:
            raise InputError("--p and --q are needed: probabilities, or ranges LOW:HIGH:COUNT")
        return self.p, self.q

    def first_model(self) -> ReducedModel:
        """The model on the first of the chains."""
        choice = self.choice()
        return choice.on(choice.chain(*map(_first, self.chances())))

    def path(self) -> Path:
        """--out, or a name that says model, chain and starts."""
        words = ["scan", *self.words(), *self.optimizer_words()]
        for name, values in zip("pq", self.chances(), strict=True):
            if values is None:
                continue
            ends = values if len(values) == 1 else (values[0], values[-1])
            words.append(name + "to".join(f"{value:g}" for value in ends))
        refined = [] if self.refine is None else [f"refine{self.refine}"]
        return self.out or Path("_".join([*words, *self.start_words(), *refined]) + ".nc")


def _first(values: Numbers | None) -> float | None:
    return None if values is None else values[0]


def scan(given: ScanOptions) -> None:
    """Follow gradient flow from many initializations to its limits and record every one.

    Starts are a grid of cells (--grid, with --e-range and the like, and --fix for what does not
    vary), the points of a file (--points), or normal draws around zero (--cloud with --sigma). The
    rank-one model takes canonical starts (e, w), or (e, w, a) with --attention, unless another of
    its coordinates is named. With --optimizer the starts of the rank-one model are trained instead.
    flowsim portrait --from draws the record.

    \b
    Examples:
      flowsim scan --p 0.5 --q 0.8 --grid 512x512
      flowsim scan --p 0.5 --q 0.8 --grid 64x64 --refine 5
      flowsim scan --p 0.1:0.9:9 --q 0.1:0.9:9 --cloud 1000 --sigma e=0.1,w=1
      flowsim scan --p 0.5 --q 0.8 --model rank-one --optimizer adamw --grid 64x64
      flowsim scan --model induction --length 9 --grid 64x64 --range alpha=-6:6
    """
    began = time.perf_counter()
    _check(given)
    import torch

    torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    model = given.first_model()
    starts = starts_of(given, model, given.fixed())
    if given.refine is not None:
        _check_refine(starts, given.refine)
    out = given.path()
    summary = _run(given, starts, model, out)
    report("scan", summary, {"record": out}, began, given)
    judge_summary(summary)


def _check(given: ScanOptions) -> None:
    """Options that must or must not come together."""
    given.chances()
    if given.jobs > 1 and given.scheduler is not None:
        raise InputError("--jobs and --scheduler are two ways to compute a scan: give one of them")
    given.check_optimizer(given.model, given.rtol, given.atol, given.integrator)
    if given.optimizer is not None and (given.fraction, given.refine) != (None, None):
        raise InputError("--fraction and --refine are of the flow; omit them with --optimizer")
    given.check_starts(seeded=given.optimizer is not None)
    if given.fix and given.points is not None:
        raise InputError(
            "--fix goes with --grid and --cloud; a file of points has every coordinate"
        )
    one = all(values is None or len(values) == 1 for values in given.chances())
    alone = given.grid is not None and one and min(given.grid) > 1
    if given.refine is not None and not alone:
        raise InputError("--refine goes with --grid, of two cells or more a side, at one p and q")


def _check_refine(starts: Starts, levels: int) -> None:
    from flowsim.boundary.in_record import check_memory

    if len(starts.dims) not in (2, 3):
        raise InputError(
            f"--refine needs two or three coordinates that vary, not {len(starts.dims)}"
        )
    check_memory(starts.shape, levels)


def _run(given: ScanOptions, starts: Starts, model: ReducedModel, out: Path) -> Summary:
    """Compute the record, refine its boundary, and return what it says."""
    import xarray as xr

    from flowsim.boundary.in_record import refine_scan
    from flowsim.cli.progress import progress
    from flowsim.portraits.summaries import summarize
    from flowsim.scan.plan import Scan
    from flowsim.scan.store import write_scan

    p, q = (v[0] if v is not None and len(v) == 1 else v for v in given.chances())
    task = Scan(
        given.choice(), p, q, starts, given.fraction, given.rtol, given.atol,
        integrator=given.integrator, confirm=_sample(given, model),
        optimizer=given.choice_of_optimizer(given.seed),
    )  # fmt: skip
    given.check_optimizer_size(model, min(task.size, task.chunk))
    with progress(task.size, "points", given.quiet) as meter:
        write_scan(
            task, out, given.resume, given.overwrite, given.jobs, given.scheduler,
            lambda labels: meter.labels(labels, SHOWN), neutral_command(), meter.then,
        )  # fmt: skip
    if given.refine is not None:

        @contextmanager
        def bar(total: int) -> Iterator[Callable[[int], object]]:
            with progress(total, "starts", given.quiet) as meter:
                yield meter.advance

        refine_scan(out, model, given.refine, given.rtol, given.atol, bar)
    with xr.open_dataset(out, engine="h5netcdf") as record:
        return summarize(record)


def _sample(given: ScanOptions, model: ReducedModel) -> int:
    """How many points torchdiffeq decides again: none where it, or an optimizer, decides all."""
    from flowsim.flow.confirm import sample_size

    if given.confirm is not None:
        return given.confirm
    flow = given.integrator == "flowsim" and given.optimizer is None
    return sample_size(model) if flow else 0
