"""The command ``gaussian``: where Gaussian initializations of every scale end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flowsim.cli import options
from flowsim.cli.output import FIGURES, judge, report
from flowsim.errors import InputError

#: Starts of one run, which are held in memory.
MAX_STARTS = 10_000_000


def sigma_range(text: str) -> tuple[float, float, int]:
    """LOW:HIGH:COUNT, increasing, of scales that float64 can follow."""
    low, _, rest = text.partition(":")
    high, _, count = rest.partition(":")
    bounds, number = (options.number(low), options.number(high)), count.strip()
    if not (1e-12 <= bounds[0] < bounds[1] <= 1000 and number.isdecimal() and int(number) >= 2):
        raise typer.BadParameter(
            "must be LOW:HIGH:COUNT, increasing from at least 1e-12 to at most 1000, "
            f"with a COUNT of at least 2, not {text!r}."
        )
    return *bounds, int(number)


def gaussian(
    p: options.P = None,
    q: options.Q = None,
    sigma: Annotated[
        Any,
        typer.Option(
            parser=sigma_range, metavar="LOW:HIGH:COUNT", help="Scales, evenly spaced in log σ."
        ),
    ] = "0.02:3:40",
    samples: Annotated[
        Any, typer.Option(parser=options.positive_integer, metavar="M", help="Starts per scale.")
    ] = "4096",
    seed: Annotated[
        Any, typer.Option(parser=options.seed, metavar="S", help="Seed of the starts.")
    ] = "0",
    rtol: options.Rtol = None,
    atol: options.Atol = "1e-12",
    out: options.Out = None,
    as_json: options.Json = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw the probability that (e, w) ~ N(0, σ²I) reaches the global minima, against σ.

    The gradient flow of seeded starts is compared with the integral over the analytic basin.

    \b
    Example:
      flowsim gaussian --p 0.5 --q 0.8 --sigma 0.02:3:40
    """
    began = time.perf_counter()
    chain = options.chain(p, q)
    low, high, count = sigma
    if count * samples > MAX_STARTS:
        raise InputError(
            f"--sigma and --samples ask for {count * samples} starts; at most {MAX_STARTS} go in "
            "one run"
        )
    out = out or Path(f"gaussian_p{p:g}_q{q:g}.png")

    from flowsim.records.atomic import check_output, write_atomically
    from flowsim.records.netcdf import write_record

    check_output(out, "--out", FIGURES, overwrite)
    record_path = out.with_suffix(".nc")
    check_output(record_path, "--out (its record)", (".nc",), overwrite)

    import numpy as np
    import torch

    from flowsim.cli.progress import progress_bar
    from flowsim.drawing.gaussian_curve import draw_gaussian
    from flowsim.models.canonical import CanonicalModel
    from flowsim.scan.gaussian import gaussian_record

    torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    model, sigmas = CanonicalModel(chain), np.geomspace(low, high, count)
    with progress_bar(count * samples, "starts", quiet) as advance:
        record = gaussian_record(model, sigmas, samples, seed, rtol, atol, progress=advance)
    figure = draw_gaussian(record)
    write_record(record, record_path)
    write_atomically(out, figure.savefig)

    summary = _summary(record)
    report(summary, {"figure": out, "record": record_path}, began, _text, as_json, quiet)
    judge(summary["wrong"], summary["unresolved"])


def _summary(record: Any) -> dict[str, Any]:
    """The numbers of the record, ready for JSON; one list entry per σ."""
    names = (
        "p", "q", "regime", "samples", "seed", "limit_small_sigma", "limit_large_sigma",
        "intervals_missed", "unresolved", "wrong", "largest_relative_energy_drift",
    )  # fmt: skip
    numbers = {name: getattr(a := record.attrs[name], "item", lambda a=a: a)() for name in names}
    columns = ("sigma", "integral", "fraction", "fraction_low", "fraction_high")
    return numbers | {name: record[name].to_numpy().tolist() for name in columns}


def _text(s: dict[str, Any]) -> str:
    lines = [
        f"p = {s['p']:g}, q = {s['q']:g} ({s['regime']})",
        "   sigma  integral   flow      95 % interval",
    ]
    columns = ("sigma", "integral", "fraction", "fraction_low", "fraction_high")
    lines += [
        f"{sigma:8.4g}  {exact:.6f}  {found:.6f}  {low:.6f} to {high:.6f}"
        for sigma, exact, found, low, high in zip(*(s[name] for name in columns), strict=True)
    ]
    lines += [
        f"limits: {s['limit_small_sigma']:g} as sigma goes to 0, "
        f"{s['limit_large_sigma']:g} as sigma grows",
        f"intervals that miss the integral     {s['intervals_missed']} of {len(s['sigma'])}",
        f"labels: wrong {s['wrong']}, unresolved {s['unresolved']}, "
        f"total {s['samples'] * len(s['sigma'])}",
        f"largest relative drift of the energy {s['largest_relative_energy_drift']:.1e}",
        f"figure {s['figure']}, record {s['record']}, {s['seconds']:.1f} s",
    ]
    return "\n".join(lines)
