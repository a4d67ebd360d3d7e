"""The command ``portrait``: basins in the (w, e) plane, orbits in space, and any record redrawn."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flowsim.cli import options
from flowsim.cli.commands.optimizer_options import OptimizerOptions
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
from flowsim.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from flowsim.models.base import ReducedModel


@dataclass(frozen=True)
class Portrait(ModelOnChain, OptimizerOptions, Tolerances, FigureFiles, Printed):
    """The options of ``portrait``."""

    w_range: options.WRange = None
    e_range: options.ERange = None
    resolution: Annotated[
        int | None,
        typer.Option(
            min=2, max=options.MAX_RESOLUTION, metavar="N", rich_help_panel=options.WINDOW,
            help="Cells along each axis.  [default: 208; 64 where the flow is slow to follow]",
        ),
    ] = None  # fmt: skip
    view: Annotated[
        Literal["plane", "3d"],
        typer.Option(
            metavar="VIEW", rich_help_panel=options.WINDOW,
            help="plane: basins in (w, e); 3d: orbits in (w, e, a) of a model with attention.",
        ),
    ] = "plane"  # fmt: skip
    a_range: options.ARange = None
    integrator: options.Integrator = "flowsim"
    confirm: options.Confirm = None
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=options.MAX_SEED, metavar="S", rich_help_panel=options.OPTIMIZER,
            help="Seed of the batches and of the nudge.",
        ),
    ] = 0  # fmt: skip
    energy: Annotated[
        bool,
        typer.Option(
            "--energy", help="Draw contours of the energy.", rich_help_panel=options.OUTPUT
        ),
    ] = False
    show: Annotated[
        Literal["label", "hitting_time"],
        typer.Option(
            metavar="WHAT", rich_help_panel=options.OUTPUT,
            help="Of a scan, with --from: label, where starts end; or hitting_time, how long they "
            "take (scan --fraction).",
        ),
    ] = "label"  # fmt: skip


def portrait(given: Portrait) -> None:
    """Draw basins of attraction of gradient flow in the (w, e) plane, or orbits in (w, e, a).

    A start (e, w) of the rank-one model is the point that the full transformer is lifted from; of
    the untied model it is the tied one, u = e, unless --fix holds u. The induction model has a
    plane of its own, (alpha, beta). With --from, any record is
    drawn again: of scan, gaussian, compare and train too. With --optimizer the basins are those of
    training by its steps, beside those of the flow.

    \b
    Examples:
      flowsim portrait --p 0.5 --q 0.8
      flowsim portrait --p 0.5 --q 0.8 --model rank-one --length 8
      flowsim portrait --p 0.5 --q 0.8 --model uniform --length 1024 --fix a=0.5
      flowsim portrait --p 0.5 --q 0.8 --model rank-one --optimizer adamw
      flowsim portrait --model induction --length 9
    """
    began = time.perf_counter()
    if given.source is not None:
        only_redraws(given)
        redraw(given.source, given, given, given.energy, given.show)
        return
    figure, stored = given.names("portrait", *_words(given))
    record = _compute(given)
    summary = write_figure(record, figure, stored, given.energy)
    kind = str(record.attrs["kind"])
    report(kind, summary, {"figure": figure, "record": stored}, began, given)
    judge_summary(summary)


def _words(given: Portrait) -> list[str]:
    """What the files are named after; InputError for options that do not fit."""
    given.chain_of_model()
    _check(given)
    view = ["3d"] if given.view == "3d" else []
    return [*given.words(), *given.optimizer_words(), *view, *chain_words(given.p, given.q)]


def _check(given: Portrait) -> None:
    """Options that must or must not come together."""
    given.check_optimizer(given.model, given.rtol, given.atol, given.integrator)
    if given.optimizer is None and given.seed:
        raise InputError("--seed goes with --optimizer: nothing else here is random")
    if given.optimizer is not None and (given.view == "3d" or given.confirm is not None):
        raise InputError("--view 3d and --confirm are of the flow; omit them with --optimizer")
    if given.show != "label":
        raise InputError("--show goes with --from and the record of a scan")
    if given.energy and given.model != "canonical":
        raise InputError("--energy draws the conserved energy of the canonical model; omit it here")
    if given.model == "induction" and (given.w_range, given.e_range) != (None, None):
        raise InputError("the induction model's plane is (alpha, beta): omit --w-range, --e-range")
    if given.view == "plane" and given.a_range is not None:
        raise InputError("--a-range goes with --view 3d; in the plane --fix a=X chooses the slice")
    if given.view == "3d":
        rank_one = given.model == "rank-one" and given.attention
        if given.model not in ("uniform", "linear") and not rank_one:
            raise InputError(
                "--view 3d shows (w, e, a): it needs --model uniform, linear, or rank-one with "
                "--attention"
            )
        plane = (given.resolution, given.confirm) != (None, None) or given.integrator != "flowsim"
        if given.fix or plane:
            raise InputError(
                "--fix, --resolution, --integrator and --confirm go with the plane; omit them in "
                "--view 3d"
            )


def _compute(given: Portrait) -> xr.Dataset:
    """The record of either view."""
    import torch

    torch.set_num_threads(1)  # a second thread only slows arrays of this size down
    model = given.choice().on(given.chain_of_model())
    if given.optimizer is not None:
        return _trained(given, model)
    return _space(given, model) if given.view == "3d" else _plane(given, model)


def _trained(given: Portrait, model: ReducedModel) -> xr.Dataset:
    from flowsim.cli.progress import progress
    from flowsim.portraits.trained_in_plane import trained_portrait

    optimizer, resolution = given.choice_of_optimizer(given.seed), given.resolution or 64
    assert optimizer is not None
    cells, followed = resolution**2, 0
    given.check_optimizer_size(model, cells)
    with progress(cells * optimizer.recipe.steps, "steps", given.quiet) as meter:

        def follow(more: int) -> None:
            nonlocal followed
            followed += more
            meter.reach(meter.done, f"then {followed} of {cells} cells by the flow")

        return trained_portrait(
            model,
            optimizer,
            given.w_range or (-3.0, 3.0),
            given.e_range or (-3.0, 3.0),
            resolution,
            given.fixed(),
            meter.advance,
            follow,
        )


def _plane(given: Portrait, model: ReducedModel) -> xr.Dataset:
    from flowsim.cli.progress import progress
    from flowsim.portraits.in_plane import portrait_record
    from flowsim.portraits.starts_in_plane import usual_resolution

    resolution = given.resolution or usual_resolution(model)
    with progress(resolution**2, "cells", given.quiet) as meter:
        return portrait_record(
            model,
            given.w_range,
            given.e_range,
            resolution,
            given.rtol,
            given.atol,
            given.fixed(),
            meter.advance,
            given.integrator,
            given.confirm,
            meter.then,
        )


def _space(given: Portrait, model: ReducedModel) -> xr.Dataset:
    from flowsim.cli.progress import progress
    from flowsim.portraits.in_space import NEAR_STARTS, STARTS, WINDOW, phase_space_record

    with progress(len(STARTS) + len(NEAR_STARTS), "orbits", given.quiet) as meter:
        return phase_space_record(
            model,
            given.w_range or WINDOW["w"],
            given.e_range or WINDOW["e"],
            given.a_range or WINDOW["a"],
            given.rtol,
            1e-10 if given.rtol is None else given.atol,
            meter.advance,
            meter.then,
        )
