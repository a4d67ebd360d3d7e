"""The command ``scan``: where each of many initializations ends, computed into one record."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowsim.cli import options
from flowsim.cli.output import judge, report
from flowsim.cli.scan_report import text
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.models.base import ReducedModel
    from flowsim.scan.starts import Starts

#: Options that change no result; a record's command leaves them out.
_NEUTRAL_FLAGS = {"--resume", "--overwrite", "--json", "--quiet"}
_NEUTRAL_VALUES = {"--jobs", "--scheduler", "--out"}

_DEFAULT_RANGE = {"a": (-1.0, 1.0)}


def scan(
    p: options.Chances = None,
    q: options.Chances = None,
    model: options.Model = "canonical",
    length: options.Positions = None,
    bias: options.Bias = "optimal",
    attention: Annotated[
        bool, typer.Option("--attention", help="Give the rank-one model its attention.")
    ] = False,
    untied: Annotated[bool, typer.Option("--untied", help="Untie the rank-one model.")] = False,
    grid: options.Cells = None,
    e_range: options.ERange = None,
    w_range: options.WRange = None,
    a_range: options.ARange = None,
    ranges: options.Ranges = None,
    fix: options.Fixed = None,
    points: options.PointsFile = None,
    cloud: options.Samples = None,
    sigma: options.Sigma = None,
    seed: options.Seed = None,
    fraction: options.Fraction = None,
    refine: options.Refine = None,
    rtol: options.Rtol = None,
    atol: options.Atol = "1e-12",
    jobs: options.Jobs = "1",
    scheduler: options.Scheduler = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an unfinished scan, or begin.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Record of the scan, .nc.")] = Path("scan.nc"),
    as_json: options.Json = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Follow gradient flow from many initializations to its limits and record every one.

    Starts are a grid of cells (--grid, with --e-range and the like, and --fix for what does not
    vary), the points of a file (--points), or normal draws around zero (--cloud with --sigma). The
    rank-one model takes canonical starts (e, w), or (e, w, a) with --attention, unless another of
    its coordinates is named.

    \b
    Examples:
      flowsim scan --p 0.5 --q 0.8 --grid 512x512
      flowsim scan --p 0.5 --q 0.8 --grid 64x64 --refine 5
      flowsim scan --p 0.1:0.9:9 --q 0.1:0.9:9 --cloud 1000 --sigma e=0.1,w=1
    """
    began = time.perf_counter()
    if p is None or q is None:
        raise InputError("--p and --q are needed: probabilities, or ranges LOW:HIGH:COUNT")
    if jobs > 1 and scheduler is not None:
        raise InputError("--jobs and --scheduler are two ways to compute a scan: give one of them")
    named = {"e": e_range, "w": w_range, "a": a_range, **dict(ranges or ())}
    window = {name: bounds for name, bounds in named.items() if bounds is not None}
    if (grid, points, cloud).count(None) != 2:
        raise InputError("give the starts: one of --grid, --points and --cloud")
    if (cloud is None) != (sigma is None) or (cloud is None and seed is not None):
        raise InputError("--sigma, the spread of the starts, and --seed go with --cloud")
    if refine is not None and (grid is None or len(p) * len(q) > 1 or min(grid) < 2):
        raise InputError("--refine goes with --grid, of two cells or more a side, at one p and q")
    if window and grid is None:
        raise InputError("ranges go with --grid")
    if fix and points is not None:
        raise InputError(
            "--fix goes with --grid and --cloud; a file of points has every coordinate"
        )

    import torch
    import xarray as xr

    from flowsim.boundary.in_record import check_memory, refine_scan
    from flowsim.chain import BinaryChain
    from flowsim.cli.progress import label_bar, progress_bar
    from flowsim.landscape.labels import Label
    from flowsim.models.catalogue import ModelChoice
    from flowsim.scan.plan import Scan
    from flowsim.scan.points import Points
    from flowsim.scan.starts import Cloud, Grid, cell_centres
    from flowsim.scan.store import write_scan

    torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    choice = ModelChoice(model, length, bias, attention, not untied)
    fixed = dict(fix or ())
    if len(fixed) < len(fix or ()):
        raise InputError("--fix names a coordinate twice")
    spread = list(sigma) if isinstance(sigma, dict) else []
    names = _coordinates(choice.on(BinaryChain(p[0], q[0])), [*window, *fixed, *spread])
    free = [name for name in names if name not in fixed]
    starts: Starts
    if grid is not None:
        _check_grid(grid, free, window)
        if refine is not None:
            _check_refine(names, free, choice.on(BinaryChain(p[0], q[0])))
            check_memory(grid, refine)
        axes = {}
        for name, count in zip(free, grid, strict=True):
            low, high = window.get(name, _DEFAULT_RANGE.get(name, (-3.0, 3.0)))
            axes[name] = cell_centres(low, high, count)
        starts = Grid(axes, fixed)
    elif points is not None:
        starts = Points.read(points, names)
    else:
        starts = Cloud(free, cloud, sigma, fixed, seed or 0)
    one_p, one_q = (v if len(v) > 1 else v[0] for v in (p, q))
    task = Scan(choice, one_p, one_q, starts, fraction, rtol, atol)
    shown = {1: "minima", 2: "trapped", 3: "saddle", 0: "unresolved"}
    assert shown.keys() == {label.value for label in Label}
    with label_bar(task.size, shown, quiet) as advance:
        write_scan(task, out, resume, overwrite, jobs, scheduler, advance, _command())
    if refine is not None:
        bar = partial(progress_bar, unit="starts", quiet=quiet)
        refine_scan(out, choice.on(BinaryChain(p[0], q[0])), refine, rtol, atol, bar)
    with xr.open_dataset(out, engine="h5netcdf") as record:
        from flowsim.portraits.summaries import summarize

        summary = summarize(record)
    report(summary, {"record": out}, began, text, as_json, quiet)
    unresolved = summary["unresolved"] + summary.get("refine_unresolved", 0)
    judge(summary.get("refine_disagree"), unresolved)


def _coordinates(model: ReducedModel, mentioned: list[str]) -> tuple[str, ...]:
    """The coordinates of the starts, given those that the options mention."""
    from flowsim.models.rank_one import RankOneModel

    names = model.coordinates
    if isinstance(model, RankOneModel):
        canonical = ("e", "w", "a") if model.attention else ("e", "w")
        if set(mentioned) <= {*canonical, "b"}:
            names = (*canonical, "b") if "b" in mentioned else canonical
    for name in mentioned:
        if name not in names:
            raise InputError(f"the model has no coordinate {name!r}; it has {', '.join(names)}")
    return names


def _check_grid(grid: tuple[int, ...], free: list[str], window: dict[str, Any]) -> None:
    if len(grid) != len(free) or not free:
        raise InputError(
            f"--grid needs one number of cells for each of {', '.join(free) or 'no coordinate'}: "
            f"{len(free)}, not {len(grid)}; --fix NAME=VALUE holds a coordinate"
        )
    for name in window:
        if name not in free:
            raise InputError(f"{name} has a range and is also fixed")


def _check_refine(names: Sequence[str], free: list[str], model: ReducedModel) -> None:
    if tuple(names) != model.coordinates:
        raise InputError("--refine needs a grid in the model's own coordinates")
    if len(free) not in (2, 3):
        raise InputError(f"--refine needs two or three coordinates that vary, not {len(free)}")


def _command() -> str:
    """The command line without what changes no result."""
    kept, words = [], options.join_ranges(sys.argv[1:])
    while words:
        word = words.pop(0)
        if word in _NEUTRAL_VALUES:
            del words[:1]
        elif word not in _NEUTRAL_FLAGS and word.partition("=")[0] not in _NEUTRAL_VALUES:
            kept.append(word)
    return shlex.join(["flowsim", *kept])
