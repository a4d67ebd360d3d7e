"""The command ``portrait``: basins in the (w, e) plane, orbits in space, and any record redrawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from flowsim.cli import options
from flowsim.cli.groups import ModelFigure, Tolerances, Window, refuse
from flowsim.cli.options import OPTIMIZER, OUTPUT, STARTS, WINDOW, flag, option
from flowsim.cli.output import progress, write_and_report
from flowsim.errors import InputError


@dataclass(frozen=True)
class Portrait(ModelFigure, Window, Tolerances):
    resolution: Annotated[
        int | None,
        option(WINDOW, "N",
               "Cells along each axis.  [default: 208; 64 where the flow is slow to follow]",
               min=2, max=options.MAX_RESOLUTION),
    ] = None  # fmt: skip
    view: Annotated[
        Literal["plane", "3d"],
        option(WINDOW, "VIEW", "plane: basins in (w, e); 3d: orbits in (w, e, a) of a model with "
               "attention, or of three coordinates."),
    ] = "plane"  # fmt: skip
    points: Annotated[
        Path | None,
        option(STARTS, "FILE",
               "Draw the orbits of these starts: .csv with a column for each axis, .npy, or .nc.",
               "--points"),
    ] = None  # fmt: skip
    integrator: options.Integrator = "flowsim"
    confirm: options.Confirm = None
    device: options.Device = "cpu"
    seed: Annotated[
        int,
        option(OPTIMIZER, "S", "Seed of the batches and of the nudge.",
               min=0, max=options.MAX_SEED),
    ] = 0  # fmt: skip
    compare_optimizers: Annotated[
        bool,
        flag(OPTIMIZER, "--compare-optimizers", "Follow every start by the flow, gd, momentum, "
             "Adam, AdamW and sign descent, and draw where they end differently; --steps and "
             "--learning-rate hold for all."),
    ] = False  # fmt: skip
    edge: options.Edge = False
    certify: Annotated[
        bool,
        flag(options.WORK, "--certify", "Also prove by interval bounds where cells end, of smooth "
             "losses, and outline the proven ones."),
    ] = False  # fmt: skip
    nullclines: Annotated[
        bool, flag(OUTPUT, "--nullclines", "Draw where one component of the flow changes its sign.")
    ] = False
    manifolds: Annotated[
        bool,
        flag(OUTPUT, "--manifolds", "Draw the stable manifolds of saddles, of two coordinates."),
    ] = False
    energy: Annotated[bool, flag(OUTPUT, "--energy", "Draw contours of the energy.")] = False
    show: Annotated[
        Literal["label", "hitting_time"],
        option(OUTPUT, "WHAT", "With --from and a scan: label, where starts end; or "
               "hitting_time, how long they take (scan --fraction)."),
    ] = "label"  # fmt: skip
    no_orbits: Annotated[bool, flag(OUTPUT, "--no-orbits", "Leave the orbits out.")] = False
    overlay: Annotated[
        list[Path] | None,
        option(OUTPUT, "FILE", "Lay runs of training over the plane: a record of flowsim train, "
               "or a .csv with a column for each axis (and one called run for several); may be "
               "repeated.", "--overlay", exists=True, dir_okay=False),
    ] = None  # fmt: skip

    def curves(self) -> list[str]:
        """Return the names of further curves that are to be drawn."""
        return [name for name in ("nullclines", "manifolds") if getattr(self, name)]

    def look(self) -> dict[str, Any]:
        """Return the arguments of ``draw`` that the options give."""
        own = {"energy": self.energy, "show": self.show, "orbits": not self.no_orbits}
        return {**super().look(), **own, "paths": self.overlay or None}


def portrait(given: Portrait) -> None:
    """Draw basins of attraction of gradient flow in the (w, e) plane, or orbits in space.

    A start (e, w) of the rank-one model is the point that the full transformer is lifted from; of
    the untied model it is the tied one, u = e, unless --fix holds u. The induction model has a
    plane of its own, (alpha, beta). For your own model --window names the two axes. --from draws
    any record again, also one of scan, gaussian, compare or train. With --optimizer the basins are
    those of training by its steps, beside those of the flow.

    \b
    Examples:
      flowsim portrait --p 0.5 --q 0.8
      flowsim portrait --p 0.5 --q 0.8 --model rank-one --length 8
      flowsim portrait --p 0.5 --q 0.8 --model uniform --length 1024 --fix a=0.5
      flowsim portrait --p 0.5 --q 0.8 --model rank-one --optimizer adamw
      flowsim portrait --p 0.5 --q 0.8 --compare-optimizers --resolution 32
      flowsim portrait --p 0.5 --q 0.8 --points starts.csv
      flowsim portrait --model induction --length 9
      flowsim portrait --model mine.py:DoubleWell --window x=-2:2,y=-2:2
      flowsim portrait --model mine.py:Three --window y=-2:2,z=-1:1 --fix x=0.3
      flowsim portrait --model mine.py:Three --view 3d
    """
    spec = given.spec()
    _check(given)
    view = ["3d"] if given.view == "3d" else ["optimizers"] * given.compare_optimizers
    from flowsim.flow.solver import solver_of
    from flowsim.interface import chosen_axes, conserved_names, with_axes

    model = spec.build()
    if given.view == "plane":
        model = with_axes(model, *given.windows())
    chosen = chosen_axes(model)  # axes other than the model's usual ones
    figure, stored = given.files_of("portrait", *view, *chosen)
    plane = model.plane
    for path in given.overlay or ():
        from flowsim.drawing.overlay import path_columns

        path_columns(path, plane.x, plane.y)
    conserved = conserved_names(model) if len(model.coordinates) == 2 else ()
    if given.energy and "energy" not in conserved:
        raise InputError(
            f"--energy draws a conserved energy, and the plane of the {model.name} model, as "
            "chosen, has none; omit it here"
        )
    resolution = given.resolution or solver_of(model).defaults.resolution
    if given.compare_optimizers:
        from flowsim.portraits.optimizers import compare_optimizers

        resolution = given.resolution or min(resolution, 48)
        with progress(resolution**2, "starts", given.quiet) as meter:
            record = compare_optimizers(
                model, given.windows(), given.fixed(), resolution, given.learning_rate,
                given.steps or 3000, meter.advance, meter.then,
            )  # fmt: skip
    elif given.view == "3d":
        from flowsim.portraits.in_space import phase_space

        usual, atol = plane.defaults, 1e-10 if given.rtol is None else given.atol
        with progress(len(usual.far) + len(usual.near), "orbits", given.quiet) as meter:
            record = phase_space(
                model, given.windows(), given.rtol, atol, meter.advance, meter.then,
                given.max_steps,
            )  # fmt: skip
    else:
        from flowsim.portraits.in_plane import portrait
        from flowsim.scan.starts import Points

        names = plane.y, plane.x
        starts = None if given.points is None else Points.read(given.points, names)
        total, unit = resolution**2, "cells"
        optimizer = given.choice_of_optimizer(given.model, given.seed)
        if optimizer is not None:
            given.check_optimizer_size(model, total)
            total, unit = total * optimizer.steps, "steps"
        with progress(total, unit, given.quiet) as meter:
            record = portrait(
                model, given.windows(), resolution, given.rtol, given.atol, given.fixed(),
                meter.advance, given.integrator, given.confirm, meter.then, optimizer,
                given.device, starts, max_steps=given.max_steps, edge=given.edge,
                certify=given.certify, curves=given.curves(),
            )  # fmt: skip
    write_and_report(record, figure, stored, given)


#: Options of the flow in the plane, and of how the plane is drawn.
_OF_FLOW = "confirm", "points", "edge", "certify"
_OF_PLANE = "no_orbits", "overlay", "nullclines", "manifolds"


def _check(given: Portrait) -> None:
    """Raise InputError for options that do not go together."""
    refuse(given, ("show",), "only --from draws what a scan's record shows")
    if given.compare_optimizers:
        refuse(given, ("view", "optimizer", "d", "nudge", "rtol", "energy", *_OF_FLOW, *_OF_PLANE),
               "--compare-optimizers goes with --window, --fix, --resolution, --steps and "
               "--learning-rate alone")  # fmt: skip
        return
    given.check_optimizer(given.model, "view", "rtol", "atol", "integrator", *_OF_FLOW)
    if given.optimizer is None:
        refuse(given, ("seed",), "nothing but --optimizer is random here")
    if given.view == "3d":
        refuse(given, ("fix", "resolution", "integrator", "device", *_OF_FLOW, *_OF_PLANE),
               "--view 3d draws no plane")  # fmt: skip
