"""The command ``compare``: what the reduced flow predicts against what the full model does."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from flowsim.cli import options
from flowsim.cli import options_compare as opts
from flowsim.cli.output import DISAGREES, FIGURES, judge, report
from flowsim.errors import InputError


def compare(
    p: options.P = None,
    q: options.Q = None,
    model: opts.Predictor = "canonical",
    trainer: opts.Trainer = "gd",
    grid: opts.Grid = None,
    w_range: opts.WRange = None,
    e_range: opts.ERange = None,
    a: opts.A = None,
    cloud: opts.Cloud = None,
    sigma: opts.Sigma = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="The starts (and chain) of a stored record.")
    ] = None,
    d: options.Dim = "8",
    length: options.Positions = "8",
    noise: opts.Noise = None,
    seed: opts.Seed = "0",
    horizon: opts.Horizon = None,
    steps: opts.Steps = None,
    batch: options.Batch = "16",
    learning_rate: opts.LearningRate = None,
    require: opts.Require = None,
    device: opts.Device = "cpu",
    out: options.Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    as_json: options.Json = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Train the full transformer from reduced starts, and compare with what the flow predicts.

    \b
    Example:
      flowsim compare --p 0.5 --q 0.8 --model rank-one --trainer gd --grid 20x20
    """
    began = time.perf_counter()
    _check(p, q, model, trainer, grid, w_range, e_range, a, cloud, sigma, source,
           batch, learning_rate, horizon)  # fmt: skip
    from flowsim.records.atomic import check_output, write_atomically
    from flowsim.records.netcdf import write_record
    from flowsim.records.provenance import provenance

    stem = f"compare_{model}_{trainer}"
    out = out or Path(f"{stem}.png" if p is None else f"{stem}_p{p:g}_q{q:g}.png")
    record_path, checkpoint = out.with_suffix(".nc"), out.with_suffix(".safetensors")
    check_output(out, "--out", FIGURES, overwrite)
    check_output(record_path, "--out (its record)", (".nc",), overwrite)

    import torch

    from flowsim.drawing.comparison import draw_comparison
    from flowsim.portraits.summaries import comparison_summary
    from full_model.comparison.choices import Comparison
    from full_model.comparison.compare import compare as run
    from full_model.comparison.points import cloud_points, grid_points, stored_points

    chain = None if p is None else options.chain(p, q)
    dimensions = 3 if model == "uniform" or a is not None else 2
    shape: dict[str, Any] = {}
    if source is not None:
        points, chain = stored_points(source, chain, length, d, dimensions)
        shape = {"starts": f"record {source.name}"}
    elif cloud is not None:
        points = cloud_points(cloud, sigma, seed, dimensions)
        shape = {"starts": "cloud", "sigma": sigma}
    else:
        columns, rows = grid or (20, 20)
        window = w_range or (-2.0, 2.0), e_range or (-2.0, 2.0)
        points = grid_points(columns, rows, *window, a if a is not None or dimensions < 3 else 0.5)
        shape = {"starts": "grid", "columns": columns, "rows": rows}
    assert chain is not None
    settings = Comparison(
        chain.p, chain.q, model, trainer, d, length, noise or 0.0, seed, horizon, steps, batch,
        learning_rate, device,
    )  # fmt: skip
    if not (settings.noise or settings.stochastic):
        torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    with _progress(len(points), quiet) as progress:
        record = run(settings, points, checkpoint, resume, overwrite, progress)
    record.attrs = provenance({**record.attrs, **shape})
    figure = draw_comparison(record)
    write_record(record, record_path)
    write_atomically(out, figure.savefig)
    summary = comparison_summary(record)
    report(summary, {"figure": out, "record": record_path}, began, _text, as_json, quiet)
    agreement = summary["agreement"]
    if require is not None and (agreement is None or agreement < require):
        raise typer.Exit(DISAGREES)
    judge(None, summary["unresolved_outcomes"] + summary["unresolved_predictions"])


def _check(
    p: Any, q: Any, model: str, trainer: str, grid: Any, w_range: Any, e_range: Any, a: Any,
    cloud: Any, sigma: Any, source: Any, batch: int, learning_rate: Any, horizon: Any,
) -> None:  # fmt: skip
    """Options that must or must not come together."""
    if source is None or (p is None) != (q is None):
        options.chain(p, q)
    window = [x for x in (grid, w_range, e_range) if x is not None]
    if (source is not None) + (cloud is not None) + bool(window) > 1:
        raise InputError("give one of --grid (with its ranges), --cloud and --from")
    if (cloud is None) != (sigma is None):
        raise InputError("--sigma goes with --cloud, and --cloud with --sigma")
    if a is not None and (model == "canonical" or cloud is not None or source is not None):
        raise InputError("--a goes with a grid and --model uniform or rank-one")
    sampled = trainer in ("sgd", "adamw")
    if not sampled and (batch, learning_rate) != (16, None):
        raise InputError("--batch and --learning-rate go with --trainer sgd or adamw")


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Any]:
    """A bar of runs decided, on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit=" runs", leave=False, delay=0.5) as bar:

        def show(done: int, _: int, text: str) -> None:
            bar.set_postfix_str(text, refresh=False)
            bar.update(done - bar.n)
            bar.refresh()

        yield show


def _text(s: dict[str, Any]) -> str:
    low, high = s["agreement_interval"]
    share = "none decided" if s["agreement"] is None else f"{s['agreement']:.2%}"
    lines = [
        f"{s['model']} model against {s['trainer']} of the full transformer, p = {s['p']:g}, "
        f"q = {s['q']:g} ({s['regime']}), d = {s['d']}, N = {s['length']}, {s['points']} starts",
        f"agreement                {share} ({s['agreeing']} of {s['decided']}; "
        f"95 % interval {low:.2%} to {high:.2%})",
        f"unresolved               {s['unresolved_outcomes']} runs, "
        f"{s['unresolved_predictions']} predictions",
    ]
    for row, columns in s["confusion"].items():
        found = ", ".join(f"{name} {n}" for name, n in columns.items() if n)
        if found:
            lines.append(f"predicted {row:<14} found {found}")
    lines.append(f"figure {s['figure']}, record {s['record']}, {s['seconds']:.1f} s")
    return "\n".join(lines)
