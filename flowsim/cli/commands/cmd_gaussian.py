"""The command ``gaussian``: where Gaussian initializations of every scale end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from flowsim.cli import options
from flowsim.cli.groups import ModelFigure, Tolerances, refuse
from flowsim.cli.options import STARTS, Spread, option, spread
from flowsim.cli.output import progress, write_and_report
from flowsim.errors import InputError

#: Starts of one run, which are held in memory.
MAX_STARTS = 10_000_000


@dataclass(frozen=True)
class Gaussian(ModelFigure, Tolerances):
    kind = "gaussian"
    sigma: Annotated[
        Spread | None,
        option(STARTS, "LOW:HIGH:COUNT",
               "Standard deviations, evenly spaced in the logarithm.  [default: 0.02:3:40]",
               parser=spread),
    ] = None  # fmt: skip
    samples: Annotated[
        int | None,
        option(STARTS, "M", "Starts per sigma.  [default: 4096, or 256 with --optimizer]",
               min=1, max=MAX_STARTS),
    ] = None  # fmt: skip
    seed: options.Seed = 0


def gaussian(given: Gaussian) -> None:
    """Draw how often Gaussian starts reach each end, against σ, and say the best σ.

    Starts of any model are drawn from N(0, σ²) in the coordinates of its plane, and followed. The
    best σ is the one whose starts reach the least loss most often; its chance is given with a 95 %
    interval. Where the basins of the plane are known in closed form, their integral is drawn too.
    Starts of the rank-one model are lifted. With --optimizer they are also trained by its steps.

    \b
    Examples:
      flowsim gaussian --p 0.5 --q 0.8 --sigma 0.02:3:40
      flowsim gaussian --model mine.py:DoubleWell --sigma 0.1:2:8
    """
    given.check_optimizer(given.model)  # the flow of the same starts keeps its tolerances
    refuse(given, ("fix",), "every coordinate is drawn")
    samples = given.samples or (4096 if given.optimizer is None else 256)
    sigma = (given.sigma or spread("0.02:3:40")).sigma
    if isinstance(sigma, dict):
        raise InputError("--sigma is one scale for all coordinates here: LOW:HIGH:COUNT")
    sigmas = sigma if isinstance(sigma, tuple) else (sigma,)
    total, unit = len(sigmas) * samples, "starts"
    if total > MAX_STARTS:
        raise InputError(
            f"--sigma and --samples ask for {total} starts; at most {MAX_STARTS} go in one run"
        )
    spec = given.spec()
    figure, stored = given.files_of("gaussian")
    import numpy as np

    from flowsim.scan.gaussian import gaussian

    model = spec.build()
    optimizer = given.choice_of_optimizer(given.model, given.seed)
    given.check_optimizer_size(model, total)
    if optimizer is not None:
        total, unit = total * optimizer.steps, "steps"
    with progress(total, unit, given.quiet) as meter:
        record = gaussian(
            model, np.array(sigmas), samples, given.seed, given.rtol, given.atol,
            progress=meter.advance, optimizer=optimizer, max_steps=given.max_steps,
        )  # fmt: skip
    write_and_report(record, figure, stored, given)
