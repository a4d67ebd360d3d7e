"""The command ``noise``: how likely each end is under Langevin noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from flowsim.cli import options
from flowsim.cli.groups import FigureFiles, HiddenProcess, ModelOnChain, Window, chain_words
from flowsim.cli.options import NOISE, STARTS, WINDOW, Spread, option
from flowsim.cli.output import progress, write_and_report
from flowsim.errors import InputError


@dataclass(frozen=True)
class Noise(HiddenProcess, ModelOnChain, Window, FigureFiles):
    kind = "noise"
    temperature: Annotated[
        Spread | None,
        option(NOISE, "T", "Temperature in nats: a number, or LOW:HIGH:COUNT evenly spaced in the "
               "logarithm.", parser=options.spread),
    ] = None  # fmt: skip
    time: Annotated[
        float | None,
        option(NOISE, "X", "Time of the flow for which the noise acts.", min=1e-12, max=1e12),
    ] = None
    seeds: Annotated[int, option(NOISE, "K", "Paths from every start.", min=1, max=10**6)] = 100
    step: Annotated[
        float | None,
        option(NOISE, "X", "Step in time.  [default: 0.05 over the fastest rate]",
               min=1e-12, max=1e12),
    ] = None  # fmt: skip
    resolution: Annotated[
        int, option(WINDOW, "N", "Cells along each axis.", min=1, max=options.MAX_RESOLUTION)
    ] = 24
    points: Annotated[
        Path | None,
        option(STARTS, "FILE", "Starts in place of the window's cells: .csv with a column for each "
               "coordinate, .npy, or .nc.", "--points"),
    ] = None  # fmt: skip
    seed: options.Seed = 0


def noise(given: Noise) -> None:
    """Say how likely each end is after Langevin noise has acted for a time.

    From every start K paths follow dθ = −∇L dt + √(2T) dB, and then the flow without noise, whose
    end is counted. At one temperature a map shows where paths end elsewhere; over several the share
    of every end, of all starts together, with Wilson's interval.

    \b
    Examples:
      flowsim noise --p 0.5 --q 0.8 --temperature 0.003 --time 100
      flowsim noise --p 0.5 --q 0.8 --temperature 1e-4:1:9 --time 100 --points starts.csv
      flowsim noise --model mine.py:DoubleWell --temperature 0.05 --time 10 --window x=-2:2,y=-2:2
    """
    if given.temperature is None or given.time is None:
        raise InputError("--temperature and --time are needed: of the noise, and for how long")
    if isinstance(given.temperature.sigma, dict):
        raise InputError("--temperature is a number or LOW:HIGH:COUNT")
    spec = given.spec()
    figure, stored = given.names("noise", *given.name_parts(), *chain_words(given.p, given.q))
    import numpy as np
    import torch

    from flowsim.interface import check_fixed, with_axes
    from flowsim.noise.ends import end_probabilities
    from flowsim.scan.starts import Grid, Points, Starts, cell_centres

    model = spec.build()
    starts: Starts
    if given.points is None:
        plane = with_axes(model, *given.windows()).plane
        sides = {**plane.window, **given.windows()}
        axes = {n: cell_centres(*sides[n], given.resolution) for n in reversed(plane.window)}
        starts = Grid(axes, check_fixed(plane, given.fixed()))
    elif given.window or given.fix:
        raise InputError("--points has every coordinate: omit --window and --fix")
    else:
        starts = Points.read(given.points, next(iter(model.plane.defaults.starts)))
    warmth = np.atleast_1d(np.asarray(given.temperature.sigma, dtype=float))
    total = len(warmth) * int(np.prod(starts.shape)) * given.seeds
    with progress(total, "paths", given.quiet) as meter:
        record = end_probabilities(
            model, starts, warmth.tolist(), given.time,
            torch.Generator().manual_seed(given.seed), given.seeds, step=given.step,
            progress=meter.advance,
        )  # fmt: skip
    write_and_report(record, figure, stored, given)
