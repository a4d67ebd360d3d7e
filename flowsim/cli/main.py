"""The command line: arguments in, records and figures out, one sentence for every error.

Heavy imports happen inside the commands, after the options were checked, so that ``--help`` and
error messages appear at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from flowsim.cli import cmd_compare as cli_compare
from flowsim.cli import cmd_gaussian as cli_gaussian
from flowsim.cli import cmd_scan as cli_scan
from flowsim.cli import cmd_train as cli_full
from flowsim.cli import options
from flowsim.cli import scan_report as cli_scan_record
from flowsim.cli.output import BAD_INPUT, FIGURES, INTERRUPTED, judge, report
from flowsim.errors import InputError, Interrupted

#: typer's own complaint about options and commands, of which BadParameter is one kind.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="flowsim",
    help="Gradient flow of transformers on binary Markov chains, from initialization to basin.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command(short_help="Draw basins of attraction, or orbits in three dimensions.")
def portrait(
    p: options.P = None,
    q: options.Q = None,
    out: options.Out = None,
    resolution: options.Resolution = None,
    w_range: options.WRange = None,
    e_range: options.ERange = None,
    attention: options.Attention = "none",
    length: options.Length = None,
    a: options.Slice = None,
    view: options.View = "plane",
    rtol: options.Rtol = None,
    atol: options.Atol = "1e-12",
    energy: bool = typer.Option(False, "--energy", help="Draw energy contours."),
    source: options.Source = None,
    as_json: options.Json = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw basins of attraction of gradient flow in the (w, e) plane, or orbits in (w, e, a).

    \b
    Examples:
      flowsim portrait --p 0.5 --q 0.8
      flowsim portrait --p 0.5 --q 0.8 --attention uniform --length 1024 --a 0.5
    """
    began = time.perf_counter()
    if source is None:
        _check_portrait(p, q, attention, length, a, view, resolution, e_range)
        if energy and attention != "none":
            raise InputError(_NO_ENERGY)
    elif {p, q, resolution, w_range, e_range, length, a, rtol} != {None} or attention != "none":
        raise InputError(
            "--from redraws a stored record, which has its own p, q and settings: "
            "only --out, --energy, --json, --overwrite and --quiet go with it"
        )
    if out is None:
        stem = "portrait" if attention == "none" else f"portrait_{attention}_{view}"
        out = source.with_suffix(".png") if source else Path(f"{stem}_p{p:g}_q{q:g}.png")

    from flowsim.records.atomic import check_output, write_atomically
    from flowsim.records.netcdf import read_record, write_record

    check_output(out, "--out", FIGURES, overwrite)
    record_path = source or out.with_suffix(".nc")
    if source is not None:
        record = read_record(source, "portrait", "phase space", "scan")
        if energy and "energy" not in record:
            raise InputError(_NO_ENERGY)
    else:
        check_output(record_path, "--out (its record)", (".nc",), overwrite)
        resolution = resolution or (64 if attention == "uniform" else 208)
        window = {"w_range": w_range, "e_range": e_range}
        window = {name: value for name, value in window.items() if value is not None}
        record = _compute(p, q, attention, length, a, view, resolution, window, rtol, atol, quiet)
    figure, summary, text = _draw(record, energy)
    if source is None:
        write_record(record, record_path)
    write_atomically(out, figure.savefig)
    report(summary, {"figure": out, "record": record_path}, began, text, as_json, quiet)
    judge(summary.get("oracle_wrong"), summary["unresolved"])


def _draw(record: Any, energy: bool) -> tuple[Any, dict[str, Any], Callable[[Any], str]]:
    """The figure of a record of any kind, its summary, and what turns that into text."""
    from flowsim.drawing.front import draw
    from flowsim.portraits.summaries import summarize

    texts = {"portrait": _portrait_text, "scan": cli_scan_record.text}
    text = texts.get(record.attrs["kind"], _phase_space_text)
    return draw(record, energy=energy), summarize(record), text


app.command(short_help="Find where each of many initializations ends.")(cli_scan.scan)
app.command(short_help="Draw how success depends on the scale of a Gaussian start.")(
    cli_gaussian.gaussian
)
app.command(short_help="Check the papers' theorems on the full transformer.")(cli_full.verify)
app.command(short_help="Train the full transformer.")(cli_full.train)
app.command(short_help="Compare full training with what the reduced flow predicts.")(
    cli_compare.compare
)

_NO_ENERGY = "--energy draws the conserved energy of the model without attention; omit it here"


def _check_portrait(
    p: Any, q: Any, attention: str, length: Any, a: Any, view: str, resolution: Any, e_range: Any
) -> None:
    """Options that must or must not come together."""
    options.chain(p, q)
    if (attention == "uniform") != (length is not None):
        raise InputError("--length N, the positions averaged over, goes with --attention uniform")
    if attention == "none" and (a is not None or view == "3d"):
        raise InputError("--a and --view 3d need --attention uniform or --attention linear")
    if view == "3d" and not (a is None and resolution is None and e_range is None):
        raise InputError("--a, --resolution and --e-range shape the plane; omit them in --view 3d")


def _compute(
    p: float,
    q: float,
    attention: str,
    length: int | None,
    a: float | None,
    view: str,
    resolution: int,
    window: dict[str, Any],
    rtol: float | None,
    atol: float,
    quiet: bool,
) -> Any:
    """The record of either view."""
    import torch

    from flowsim.cli.progress import progress_bar
    from flowsim.models.catalogue import reduced_model

    torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    name = "canonical" if attention == "none" else attention
    model = reduced_model(name, options.chain(p, q), length)
    if view == "3d":
        from flowsim.portraits.in_space import NEAR_STARTS, STARTS, phase_space_record

        tolerances: dict[str, Any] = {} if rtol is None else {"rtol": rtol, "atol": atol}
        with progress_bar(len(STARTS) + len(NEAR_STARTS), "orbits", quiet) as advance:
            return phase_space_record(model, **window, **tolerances, progress=advance)

    from flowsim.portraits.in_plane import portrait_record

    with progress_bar(resolution**2, "cells", quiet) as advance:
        return portrait_record(
            model, **window, resolution=resolution, rtol=rtol, atol=atol,
            fixed={"a": a or 0.0} if attention != "none" else {},
            progress=advance,
        )  # fmt: skip


def _portrait_text(s: dict[str, Any]) -> str:
    fraction, drift = s["fraction"], s["largest_energy_drift"]
    oracle = (
        f"{s['oracle_agree']} of {s['oracle_cells']} cells "
        f"({s['oracle_cut']} more are cut by a boundary)"
    )
    lines = [
        f"p = {s['p']:g}, q = {s['q']:g}, p + q = {s['switching_factor']:.15g} ({s['regime']})",
        f"entropy rate (global minimum)        {s['entropy_rate']:.6f} nats",
        f"stationary entropy (bad minimum)     {s['stationary_entropy']:.6f} nats",
        f"window reaching the global minima    {fraction['global_minimum']:.2%}",
        f"window trapped in local minima       {fraction['local_minimum']:.2%}",
        f"cells: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['cells']}",
        f"agreeing with the analytic basins    {oracle if s['oracle_cells'] else 'no closed form'}",
        f"largest drift of a conserved energy  {'none known' if drift is None else f'{drift:.1e}'}",
        f"figure {s['figure']}, record {s['record']}, {s['seconds']:.1f} s",
    ]
    return "\n".join(lines)


def _phase_space_text(s: dict[str, Any]) -> str:
    lines = [
        f"p = {s['p']:g}, q = {s['q']:g} ({s['regime']}), {s['model']}",
        f"orbits to the global minima {s['orbits']['global_minimum']}, "
        f"trapped {s['orbits']['local_minimum']}, saddle {s['orbits']['saddle']}, "
        f"unresolved {s['unresolved']}",
        f"figure {s['figure']}, record {s['record']}, {s['seconds']:.1f} s",
    ]
    return "\n".join(lines)


def main() -> None:
    """Entry point: run the command, turn bad input into one sentence and exit code 2."""
    try:
        code = app(options.join_ranges(sys.argv[1:]) or ["--help"], standalone_mode=False)
    except _UsageError as error:
        _fail(error.format_message())
    except InputError as error:
        _fail(str(error))
    except Interrupted as error:
        print(f"flowsim: {error}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("flowsim: interrupted; nothing is left half written", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str) -> None:
    print(f"flowsim: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(BAD_INPUT)
