"""The command line: arguments in, records and figures out, one sentence for every error.

Heavy imports happen inside the commands, after the options were checked, so that ``--help`` and
error messages appear at once.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flowsim.chain import BinaryChain
from flowsim.errors import InputError

FIGURES = (".png", ".pdf", ".svg")
MAX_RESOLUTION = 4000

#: Exit codes beside 0 (done) and 1 (a fault in flowsim itself).
BAD_INPUT, UNRESOLVED, INTERRUPTED = 2, 3, 130

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


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _probability(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1:
        raise typer.BadParameter(f"must be a number strictly between 0 and 1, not {text!r}.")
    return value


def _tolerance(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 0.1:
        raise typer.BadParameter(f"must be a positive number of at most 0.1, not {text!r}.")
    return value


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    bounds = _number(low), _number(high)
    if not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1]:
        raise typer.BadParameter(f"must be LOW:HIGH, finite and increasing, not {text!r}.")
    return bounds


def _resolution(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MAX_RESOLUTION:
        raise typer.BadParameter(f"must be an integer from 2 to {MAX_RESOLUTION}, not {text!r}.")
    return int(text)


@app.callback()
def _root() -> None:
    """Keeps ``portrait`` a named command while it is the only one."""


@app.command()
def portrait(
    p: Annotated[
        Any, typer.Option(parser=_probability, metavar="P", help="P(0→1), in (0, 1).")
    ] = None,
    q: Annotated[
        Any, typer.Option(parser=_probability, metavar="Q", help="P(1→0), in (0, 1).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Figure: .png, .pdf or .svg; the record (.nc) is written beside it."),
    ] = None,
    resolution: Annotated[
        Any, typer.Option(parser=_resolution, metavar="N", help="Cells along each axis.")
    ] = "208",
    w_range: Annotated[
        Any, typer.Option(parser=_range, metavar="LOW:HIGH", help="Window in w.")
    ] = "-3:3",
    e_range: Annotated[
        Any, typer.Option(parser=_range, metavar="LOW:HIGH", help="Window in e.")
    ] = "-3:3",
    rtol: Annotated[
        Any, typer.Option(parser=_tolerance, metavar="X", help="Relative error per step.")
    ] = "1e-11",
    atol: Annotated[
        Any, typer.Option(parser=_tolerance, metavar="X", help="Absolute error per step.")
    ] = "1e-12",
    energy: Annotated[bool, typer.Option("--energy", help="Draw energy contours.")] = False,
    source: Annotated[
        Path | None, typer.Option("--from", help="Redraw a record without integrating.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Draw the basins of attraction of gradient flow in the (w, e) plane.

    Example: flowsim portrait --p 0.5 --q 0.8
    """
    began = time.perf_counter()
    if source is None and (p is None or q is None):
        raise InputError("--p and --q are needed: two probabilities strictly between 0 and 1")
    if source is not None and not (p is None and q is None):
        raise InputError("--from redraws a stored record, which has its own p and q; omit --p, --q")
    if out is None:
        out = source.with_suffix(".png") if source else Path(f"portrait_p{p:g}_q{q:g}.png")

    from flowsim import results

    results.check_output(out, "--out", FIGURES, overwrite)
    if source is not None:
        record = results.read_record(source, "portrait")
    else:
        record_path = out.with_suffix(".nc")
        results.check_output(record_path, "--out (its record)", (".nc",), overwrite)

        import torch

        from flowsim.models import CanonicalModel
        from flowsim.phase_portrait import portrait_record
        from flowsim.progress import progress_bar

        torch.set_num_threads(1)  # a second thread only slows arrays of this size down
        with progress_bar(resolution**2, "cells", quiet) as advance:
            record = portrait_record(
                CanonicalModel(BinaryChain(p, q)),
                w_range,
                e_range,
                resolution,
                rtol,
                atol,
                progress=advance,
            )
        results.write_record(record, record_path)

    from flowsim.portrait import draw_portrait

    figure = draw_portrait(record, energy)
    results.write_atomically(out, figure.savefig)
    summary = results.portrait_summary(record)
    files = {"figure": str(out), "record": str(source or out.with_suffix(".nc"))}
    summary |= {"seconds": round(time.perf_counter() - began, 3), **files}
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    elif not quiet:
        typer.echo(_portrait_text(summary))
    if summary["unresolved"]:
        raise typer.Exit(UNRESOLVED)


def _portrait_text(s: dict[str, Any]) -> str:
    fraction = s["fraction"]
    lines = [
        f"p = {s['p']:g}, q = {s['q']:g}, p + q = {s['switching_factor']:g} ({s['regime']})",
        f"entropy rate (global minimum)        {s['entropy_rate']:.6f} nats",
        f"stationary entropy (bad minimum)     {s['stationary_entropy']:.6f} nats",
        f"window reaching the global minima    {fraction['global_minimum']:.2%}",
        f"window trapped in local minima       {fraction['local_minimum']:.2%}",
        f"cells: saddle {s['saddle']}, unresolved {s['unresolved']}, total {s['cells']}",
        f"agreeing with the analytic basins    {s['oracle_agree']} of {s['oracle_cells']} cells "
        f"({s['oracle_cut']} more are cut by a boundary)",
        f"largest energy drift                 {s['largest_energy_drift']:.1e}",
        f"figure {s['figure']}, record {s['record']}, {s['seconds']:.1f} s",
    ]
    return "\n".join(lines)


def _join_ranges(arguments: list[str]) -> list[str]:
    """``--w-range -3 3`` as ``--w-range=-3:3``: both spellings are accepted."""
    joined: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.endswith("-range") and len(rest) > 1 and not math.isnan(_number(rest[1])):
            word = f"{word}={rest.pop(0)}:{rest.pop(0)}"
        joined.append(word)
    return joined


def main() -> None:
    """Entry point: run the command, turn bad input into one sentence and exit code 2."""
    try:
        code = app(_join_ranges(sys.argv[1:]), standalone_mode=False)
    except _UsageError as error:
        _fail(error.format_message())
    except InputError as error:
        _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("flowsim: interrupted; nothing is left half written", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str) -> None:
    print(f"flowsim: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(BAD_INPUT)
