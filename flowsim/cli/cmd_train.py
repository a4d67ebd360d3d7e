"""The commands that work on the full transformer: ``verify`` and ``train``."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flowsim.cli import options
from flowsim.cli.output import DISAGREES, judge, report
from flowsim.errors import InputError


def verify(
    p: options.P = None,
    q: options.Q = None,
    d: options.Dim = "4",
    length: options.Positions = "6",
    seeds: options.Count = "8",
    as_json: options.Json = False,
) -> None:
    """Check the papers' theorems on the full transformer, by enumeration of all sequences.

    Prints a table of claim, expected, found and error; exit code 4 when one fails.

    \b
    Example:
      flowsim verify --p 0.5 --q 0.8 --d 4 --length 6
    """
    chain = options.chain(p, q)
    from full_model.theorems.verify import format_claims
    from full_model.theorems.verify import verify as check

    claims = check(chain, d, length, range(seeds))
    if as_json:
        typer.echo(json.dumps([claim.as_dict() for claim in claims], indent=2))
    else:
        typer.echo(format_claims(claims))
    if not all(claim.passed for claim in claims):
        raise typer.Exit(DISAGREES)


def train(
    p: options.P = None,
    q: options.Q = None,
    d: options.Dim = "8",
    length: options.Positions = "64",
    layers: options.Layers = "1",
    heads: options.Heads = "1",
    hidden: Annotated[
        Any,
        typer.Option(
            parser=options.positive_integer, metavar="R", help="Feed-forward width.  [default: 4d]"
        ),
    ] = None,
    untied: Annotated[bool, typer.Option("--untied", help="Untie the last linear map.")] = False,
    trainer: Annotated[
        Any,
        typer.Option(
            parser=options.one_of("flow", "gd", "sgd", "adamw"),
            metavar="NAME",
            help="flow, gd (both on the exact population loss), sgd or adamw (sampled batches).",
        ),
    ] = "adamw",
    steps: options.Steps = "1000",
    batch: options.Batch = "16",
    learning_rate: Annotated[
        Any,
        typer.Option(
            parser=options.positive,
            metavar="X",
            help="Learning rate.  [default: 1e-3 for adamw, else 0.1]",
        ),
    ] = None,
    horizon: Annotated[
        Any, typer.Option(parser=options.positive, metavar="T", help="Final time of the flow.")
    ] = "100",
    init: Annotated[
        Any,
        typer.Option(
            parser=options.one_of("gaussian", "rank-one", "recommended", "lifted"),
            metavar="KIND",
            help="gaussian, rank-one, recommended, or lifted (with --theta).",
        ),
    ] = "gaussian",
    theta: Annotated[
        Any,
        typer.Option(parser=options.point, metavar="E,W[,A]", help="Reduced point to lift."),
    ] = None,
    noise: Annotated[
        Any, typer.Option(parser=options.positive, metavar="STD", help="Noise on every weight.")
    ] = None,
    seeds: options.Count = "1",
    seed: Annotated[
        Any, typer.Option(parser=options.seed, metavar="S", help="Seed of the first model.")
    ] = "0",
    telemetry_every: options.Every = "100",
    dtype: Annotated[
        Any,
        typer.Option(
            parser=options.one_of("float32", "float64"),
            metavar="TYPE",
            help="Arithmetic: float32 or float64.",
        ),
    ] = "float64",
    device: Annotated[
        Any,
        typer.Option(
            parser=options.one_of("cpu", "cuda", "auto"),
            metavar="DEVICE",
            help="cpu, cuda (an error where there is none) or auto.",
        ),
    ] = "cpu",
    out: Annotated[Path, typer.Option(help="Record of the run, .nc.")] = Path("train.nc"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint; by default beside the record.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    as_json: options.Json = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Train the full transformer, one or many models at once, and record what it learned.

    \b
    Example:
      flowsim train --p 0.5 --q 0.8 --trainer gd --length 6 --steps 2000
    """  # fmt: skip
    began = time.perf_counter()
    chain = options.chain(p, q)
    from flowsim.cli.training_progress import terminal_progress
    from flowsim.records.atomic import check_output
    from flowsim.records.netcdf import write_record
    from flowsim.records.provenance import provenance
    from full_model.model.architecture import Architecture
    from full_model.training.recipe import Recipe
    from full_model.training.run import train as run
    from full_model.training.settings import RunSettings

    check_output(out, "--out", (".nc",), overwrite)
    checkpoint = checkpoint or out.with_suffix(".safetensors")
    if (init == "lifted") != (theta is not None):
        raise InputError("--theta E,W or E,W,A goes with --init lifted, and --init lifted with it")
    recipe = Recipe(
        trainer, steps=steps, batch=batch, learning_rate=learning_rate, horizon=horizon,
        clip=1.0 if trainer == "adamw" else None,
    )  # fmt: skip
    settings = RunSettings(
        Architecture(d, length, layers, heads, hidden, tied=not untied),
        recipe,
        (chain.p,),
        (chain.q,),
        seeds=tuple(range(seed, seed + seeds)),
        init=init,
        noise=noise or 0.0,
        theta=None if theta is None else (theta,),
        data_seed=seed,
        telemetry_every=telemetry_every,
        dtype=dtype,
        device=device,
    )
    with terminal_progress(settings, quiet) as progress:
        record, _ = run(settings, checkpoint, resume, overwrite, progress=progress)
    record.attrs = provenance({"kind": "training", **record.attrs})
    try:
        write_record(record, out)
    except InputError as error:
        raise InputError(
            f"{error}; nothing is lost: the trained weights are in {checkpoint}, and the same "
            "command with --resume writes the record"
        ) from None
    final = record["loss"].isel(step=-1).to_numpy()
    summary = {
        "p": chain.p,
        "q": chain.q,
        "trainer": trainer,
        "models": settings.members,
        "loss": [x if math.isfinite(x) else None for x in final.tolist()],
        "loss_is": record.attrs["loss_is"],
        "entropy_rate": chain.entropy_rate,
        "stationary_entropy": chain.stationary_entropy,
        "not_finite": int((record["finite"] == 0).sum()),
    }
    files = {"record": out, "checkpoint": checkpoint}
    report(summary, files, began, _train_text, as_json, quiet)
    judge(None, summary["not_finite"])  # a model that diverged ended nowhere


def _train_text(s: dict[str, Any]) -> str:
    losses = ", ".join("diverged" if loss is None else f"{loss:.6f}" for loss in s["loss"][:8])
    more = " …" if s["models"] > 8 else ""
    diverged = [f"models that diverged               {s['not_finite']}"] * bool(s["not_finite"])
    return "\n".join(
        [
            *diverged,
            f"{s['trainer']} at p = {s['p']:g}, q = {s['q']:g}: loss {losses}{more} nats",
            f"entropy rate (bigram)           {s['entropy_rate']:.6f} nats",
            f"stationary entropy (unigram)    {s['stationary_entropy']:.6f} nats",
            f"record {s['record']}, checkpoint {s['checkpoint']}, {s['seconds']:.1f} s",
        ]
    )
