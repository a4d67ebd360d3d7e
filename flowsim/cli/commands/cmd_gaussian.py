"""The command ``gaussian``: where Gaussian initializations of every scale end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from flowsim.cli import options
from flowsim.cli.groups import (
    FigureFiles,
    ModelOnChain,
    Printed,
    Tolerances,
    chain_words,
    only_redraws,
)
from flowsim.cli.output import judge_summary, report, write_figure
from flowsim.cli.redraw import redraw
from flowsim.cli.values import Spread, spread
from flowsim.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

#: Starts of one run, which are held in memory.
MAX_STARTS = 10_000_000


@dataclass(frozen=True)
class Gaussian(ModelOnChain, Tolerances, FigureFiles, Printed):
    """The options of ``gaussian``."""

    sigma: Annotated[
        Spread | None,
        typer.Option(
            parser=spread, metavar="LOW:HIGH:COUNT", rich_help_panel=options.STARTS,
            help="Standard deviations, evenly spaced in the logarithm.  [default: 0.02:3:40]",
        ),
    ] = None  # fmt: skip
    samples: Annotated[
        int,
        typer.Option(
            min=1, max=MAX_STARTS, metavar="M", help="Starts per sigma.",
            rich_help_panel=options.STARTS,
        ),
    ] = 4096  # fmt: skip
    seed: options.Seed = 0


def gaussian(given: Gaussian) -> None:
    """Draw the probability that Gaussian starts (e, w) reach the global minima, against σ.

    Seeded starts of any tied model, (e, w, a) with attention, beside the integral over the
    canonical model's analytic basin, or the plane of S states'. Starts of the rank-one model are
    lifted.

    \b
    Example:
      flowsim gaussian --p 0.5 --q 0.8 --sigma 0.02:3:40
    """
    began = time.perf_counter()
    if given.source is not None:
        only_redraws(given)
        redraw(given.source, given, given, kinds=("gaussian",))
        return
    sigmas = _sigmas(given)
    chain = given.chain_of_model()
    figure, stored = given.names("gaussian", *given.words(), *chain_words(chain.p, given.q))
    record = _compute(given, sigmas)
    summary = write_figure(record, figure, stored)
    files = {"figure": figure, "record": stored}
    report("gaussian", summary, files, began, given)
    judge_summary(summary)


def _sigmas(given: Gaussian) -> tuple[float, ...]:
    """The scales, at least one."""
    found = (given.sigma or spread("0.02:3:40")).sigma
    if isinstance(found, dict):
        raise InputError("--sigma is one scale for all coordinates here: LOW:HIGH:COUNT")
    sigmas = found if isinstance(found, tuple) else (found,)
    if len(sigmas) * given.samples > MAX_STARTS:
        raise InputError(
            f"--sigma and --samples ask for {len(sigmas) * given.samples} starts; at most "
            f"{MAX_STARTS} go in one run"
        )
    return sigmas


def _compute(given: Gaussian, sigmas: tuple[float, ...]) -> xr.Dataset:
    """Follow the starts of every scale."""
    import numpy as np
    import torch

    from flowsim.cli.progress import progress
    from flowsim.scan.gaussian import gaussian_record

    torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    model = given.choice().on(given.chain_of_model())
    if given.fixed():
        raise InputError("--fix has no use here: every coordinate is drawn")
    scales: np.ndarray = np.array(sigmas)
    with progress(len(sigmas) * given.samples, "starts", given.quiet) as meter:
        return gaussian_record(
            model, scales, given.samples, given.seed, given.rtol, given.atol,
            progress=meter.advance,
        )  # fmt: skip
