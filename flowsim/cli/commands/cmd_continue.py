"""The command ``continue``: critical points, ends and shares over a parameter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from flowsim.cli import options
from flowsim.cli.groups import ModelFigure, refuse
from flowsim.cli.options import PARAMETERS, WORK, Assignment, flag, option, settings
from flowsim.cli.output import neutral_command, progress, report, write_figure
from flowsim.errors import InputError


@dataclass(frozen=True)
class Continue(ModelFigure):
    over: Annotated[
        Assignment | None,
        option(PARAMETERS, "NAME=LOW:HIGH:COUNT", "The parameter: a numeric argument of the model, "
               "learning_rate, momentum or weight_decay of --optimizer, or sigma of the starts.",
               parser=settings),
    ] = None  # fmt: skip
    second: Annotated[
        Assignment | None,
        option(PARAMETERS, "NAME=LOW:HIGH:COUNT", "A second parameter: follow the folds, crossings "
               "and flips over both.", "--and", parser=settings),
    ] = None  # fmt: skip
    near: Annotated[
        list[Assignment] | None,
        option(PARAMETERS, "NAME=X", "Follow only the one nearest to that value of --over, at "
               "a value of --and: give both.", parser=options.assignment),
    ] = None  # fmt: skip
    points: options.PointsFile = None
    edge: Annotated[
        bool, flag(WORK, "--edge", "Also draw how far every end is from the nearest other one's "
                   "basin, in one or two coordinates."),
    ] = False  # fmt: skip
    seed: options.Seed = 0
    resume: options.Resume = False


def continue_(given: Continue) -> None:
    """Follow critical points over a parameter, and the share of every end beside them.

    Branches go on around folds; folds, pitchforks, transcritical points and flips are named with
    their place. Critical points are searched at every value, so branches that touch no other are
    found. Shares are of the starts of --points, or of 200 normal draws of deviation 1.5. With
    --optimizer the branches are fixed and periodic points of its steps. With --and the folds,
    pitchforks, transcritical points and flips are drawn in the plane of two parameters.

    \b
    Examples:
      flowsim continue --model mine.py:DoubleWell --over g=-0.6:0.6:25
      flowsim continue --p 0.5 --q 0.3 --over q=0.2:0.8:13
      flowsim continue --model mine.py:DoubleWell --optimizer gd --over learning_rate=0.1:1.3:25
      flowsim continue --p 0.5 --q 0.8 --over sigma=0.05:3:20
      flowsim continue --model mine.py:Cusp --over b=-3:3:5 --and a=-2:1:5
    """
    if given.over is None or not isinstance(given.over.value, options.Numbers):
        raise InputError("--over NAME=LOW:HIGH:COUNT is needed: the parameter and its values")
    if given.second is not None and not isinstance(given.second.value, options.Numbers):
        raise InputError("--and needs NAME=LOW:HIGH:COUNT: the second parameter and its values")
    import torch

    from flowsim.bifurcation import continuation, fold_curves
    from flowsim.bifurcation.find import sampled
    from flowsim.records.attributes import source_versions
    from flowsim.scan.follow import starting_coordinates, to_model
    from flowsim.scan.starts import Points
    from flowsim.scan.store import kept

    several = [x for x in (given.over, given.second) if x is not None]
    name, values = several[0]
    for parameter, each in several:
        if getattr(given, parameter, 0.0) is None:  # where the model starts from
            given = replace(given, **{parameter: next(iter(each))})
    spec = given.spec()
    near = None if given.near is None else dict(given.near)
    if near is not None and given.second is None:
        raise InputError("--near chooses one of the folds that --and follows: give --and")
    if given.second is not None:
        refuse(given, ("edge",), "distances are over one parameter, without --and")
    refuse(given, ("fix",), "critical points are of all coordinates")
    figure, stored = given.files_of(
        "continuation" if given.second is None else "folds", "_".join(x.key for x in several)
    )
    model, starts = spec.build(), None
    if given.points is not None:
        from flowsim.interface import cloud_names

        read = Points.read(given.points, starting_coordinates(model, cloud_names(model.plane)))
        starts = to_model(model, read.names, read.block(0, read.shape[0]))
    optimizer = given.choice_of_optimizer(given.model, given.seed)
    settings = {
        **spec.settings(),
        **({} if given.points is None else read.settings()),
        "command": neutral_command(),
        "versions": source_versions(),
    }
    count = len(values)
    if given.second is not None:
        count = len(sampled(torch.arange(len(given.second.value)))) if near is None else 1
    with (
        kept(stored, settings, given.resume, given.overwrite) as keep,
        progress(count, "values", given.quiet) as meter,
    ):
        more = (starts, optimizer, given.seed, meter.advance)
        if given.second is None:
            record = continuation(spec, name, list(values), *more, edge=given.edge, keep=keep)
        else:
            second, others = given.second
            record = fold_curves(spec, name, list(values), second, list(others), *more, near, keep)
        summary = write_figure(record, figure, stored, **given.look())
    report(summary, {"figure": figure, "record": stored}, given)
