"""The command ``scan``: where each of many initializations ends, computed into one record."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowsim import options
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.models import ReducedModel
    from flowsim.starts import Starts

UNRESOLVED, DISAGREES = 3, 4

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
    compile_: Annotated[
        bool,
        typer.Option("--compile", help="Compile the step: slow to begin, then half the time."),
    ] = False,
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

    Examples: flowsim scan --p 0.5 --q 0.8 --grid 512x512

    flowsim scan --p 0.5 --q 0.8 --grid 64x64 --refine 5

    flowsim scan --p 0.1:0.9:9 --q 0.1:0.9:9 --model linear --cloud 1000 --sigma 0.1:2:10
    """
    began = time.perf_counter()
    if p is None or q is None:
        raise InputError("--p and --q are needed: probabilities, or ranges LOW:HIGH:COUNT")
    if jobs > 1 and scheduler is not None:
        raise InputError("--jobs and --scheduler are two ways to compute a scan: give one of them")
    named = {"e": e_range, "w": w_range, "a": a_range, **dict(ranges or ())}
    window = {name: bounds for name, bounds in named.items() if bounds is not None}
    if (grid, points, cloud).count(None) != 2:
        raise InputError("the starts are one of --grid, --points and --cloud")
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

    from flowsim.catalogue import ModelChoice
    from flowsim.chain import BinaryChain
    from flowsim.landscape import Label
    from flowsim.points import Points
    from flowsim.progress import label_bar
    from flowsim.scans import Scan
    from flowsim.starts import Cloud, Grid, cell_centres
    from flowsim.store import write_scan

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
    task = Scan(choice, one_p, one_q, starts, fraction, rtol, atol, compile_)
    shown = {1: "minima", 2: "trapped", 3: "saddle", 0: "unresolved"}
    assert shown.keys() == {label.value for label in Label}
    with label_bar(task.size, shown, quiet) as advance:
        write_scan(task, out, resume, overwrite, jobs, scheduler, advance, _command())
    if refine is not None:
        _refine(out, choice.on(BinaryChain(p[0], q[0])), refine, rtol, atol)
    with xr.open_dataset(out, engine="h5netcdf") as record:
        summary = summarize(record)
    summary |= {"seconds": round(time.perf_counter() - began, 3), "record": str(out)}
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    elif not quiet:
        typer.echo(text(summary))
    if summary.get("refine_disagree"):
        print("flowsim: some labels disagree with the closed form of the basins", file=sys.stderr)
        raise typer.Exit(DISAGREES)
    if summary["unresolved"] or summary.get("refine_unresolved"):
        raise typer.Exit(UNRESOLVED)


def _coordinates(model: ReducedModel, mentioned: list[str]) -> tuple[str, ...]:
    """The coordinates of the starts, given those that the options mention."""
    from flowsim.rank_one import RankOneModel

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


def _refine(out: Path, model: ReducedModel, levels: int, rtol: float | None, atol: float) -> None:
    """Put the refined boundary into a finished scan's record, unless it is there already."""
    from flowsim.boundary import add_boundary
    from flowsim.results import read_record, write_record

    record = read_record(out, "scan")
    if record.attrs.get("refine_levels") != levels:
        write_record(add_boundary(record, model, levels, rtol, atol), out)


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


def draw(record: Any) -> Any:
    """The figure of a scan: with curves and arrows where it lies in the (w, e) plane."""
    attributes, dims = record.attrs, record["label"].dims
    if "boundary_face" in record:
        from flowsim.portrait_boundary import draw_refined

        return draw_refined(record)
    plain = attributes["model"] in ("CanonicalModel", "AttentionModel", "LinearAttentionModel")
    if sorted(dims) == ["e", "w"] and plain and "b" not in record.coords:
        from flowsim.phase_portrait import portrait_of_scan
        from flowsim.portrait import draw_portrait
        from flowsim.portrait_scan import check_grid

        check_grid(record)
        figure = draw_portrait(portrait_of_scan(record))
        if "boundary_e" in record:
            from flowsim.portrait_boundary import overlay_boundary

            overlay_boundary(record, figure.axes[0])
        return figure
    if "boundary_curve" in record:
        from flowsim.portrait_boundary import draw_refined

        return draw_refined(record)
    from flowsim.portrait_scan import draw_scan

    return draw_scan(record)


def summarize(record: Any) -> dict[str, Any]:
    """The numbers of a record, of which only the small parts are read."""
    attributes = record.attrs
    names = str(record["basin"].attrs["flag_meanings"]).split()
    shares = record[["share", "share_low", "share_high"]]
    sizes = {str(dim): int(n) for dim, n in record["label"].sizes.items()}
    counts = {name: int(attributes[f"points_{name}"]) for name in names}
    drifts = {k: float(v) for k, v in attributes.items() if k.startswith("largest_drift_")}
    basins = {}
    for i, name in enumerate(names[1:3], start=1):
        here = shares.isel(basin=i)
        basins[name] = {
            "fraction": [float(here["share"].min()), float(here["share"].max())],
            "wilson": [float(here["share_low"].min()), float(here["share_high"].max())],
        }
    return {
        **{name: attributes[name] for name in ("p", "q", "regime", "model") if name in attributes},
        "dimensions": sizes,
        "points": sum(counts.values()),
        **{name: counts[name] for name in names},
        "basins": basins,
        **drifts,
        **{k: _plain(v) for k, v in attributes.items() if k.startswith("refine_")},
    }


def _plain(value: Any) -> float | int | None:
    """A number of a record as JSON has it; None for what is not known."""
    number = value.item() if hasattr(value, "item") else value
    return None if number != number else number


def text(s: dict[str, Any]) -> str:
    if "p" in s and "q" in s:
        chain = f"p = {s['p']:g}, q = {s['q']:g} ({s['regime']})"
    else:
        chain = ", ".join(f"{n} = {s[n]:g}" if n in s else f"{n} varies" for n in "pq")
    sizes = " x ".join(f"{n} {name}" for name, n in s["dimensions"].items())
    drifts = [v for name, v in s.items() if name.startswith("largest_drift_")]
    lines = [
        f"{s['model']}, {chain}: {sizes}",
        f"reaching the global minima             {_share(s['basins']['global_minimum'])}",
        f"trapped in local minima                {_share(s['basins']['local_minimum'])}",
        f"points: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['points']}",
        "largest drift of a conserved quantity  "
        + (f"{max(drifts):.1e}" if drifts else "none known"),
        *([_boundary(s)] if "refine_levels" in s else []),
        ", ".join(
            [
                *(f"{kind} {s[kind]}" for kind in ("figure", "record") if kind in s),
                f"{s['seconds']:.1f} s",
            ]
        ),
    ]
    return "\n".join(lines)


def _boundary(s: dict[str, Any]) -> str:
    words = (
        f"boundary: {s['refine_evaluated']} starts of {s['refine_full']} in the full grid "
        f"({s['refine_fraction']:.2%})"
    )
    if s["refine_distance"] is None:
        return words
    return f"{words}, {s['refine_distance']:.2f} finest cells from the analytic one"


def _share(basin: dict[str, Any]) -> str:
    low, high = basin["fraction"]
    share = f"{low:.2%}" if low == high else f"{low:.2%} to {high:.2%}"
    return f"{share} (95 % interval {basin['wilson'][0]:.2%} to {basin['wilson'][1]:.2%})"
