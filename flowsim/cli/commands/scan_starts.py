"""The starts that the options of ``scan`` describe: a grid, the points of a file, or a cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from flowsim.cli import options
from flowsim.cli.output import require_file
from flowsim.cli.values import Interval, Window, window
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.models.base import ReducedModel
    from flowsim.scan.starts import Starts

_DEFAULT_RANGE = {"a": (-1.0, 1.0)}


@dataclass(frozen=True)
class StartOptions:
    """Where a scan starts."""

    grid: options.Grid = None
    e_range: options.ERange = None
    w_range: options.WRange = None
    a_range: options.ARange = None
    ranges: Annotated[
        list[Window] | None,
        typer.Option(
            "--range", parser=window, metavar="NAME=LOW:HIGH", rich_help_panel=options.WINDOW,
            help="Window in any coordinate; may be repeated.  [default: -3:3]",
        ),
    ] = None  # fmt: skip
    points: options.PointsFile = None
    cloud: options.Cloud = None
    sigma: options.Sigma = None
    seed: options.Seed = 0

    def windows(self) -> dict[str, Interval]:
        """The window of every coordinate that has one; InputError if one has two."""
        named = {"e": self.e_range, "w": self.w_range, "a": self.a_range}
        found = {name: bounds for name, bounds in named.items() if bounds is not None}
        for name, bounds in self.ranges or ():
            if name in found:
                raise InputError(f"{name} has two ranges: give it one of them")
            found[name] = bounds
        return found

    def start_words(self) -> list[str]:
        """The starts as a file's name says them."""
        if self.grid is not None:
            return [f"grid{'x'.join(map(str, self.grid))}"]
        if self.points is not None:
            return [self.points.stem]
        return [f"cloud{self.cloud}"]

    def check_starts(self, seeded: bool = False) -> None:
        """InputError unless one kind of starts is given, with what goes with it.

        Args:
            seeded: whether the seed has another use than drawing a cloud.
        """
        if (self.grid, self.points, self.cloud).count(None) != 2:
            raise InputError("give the starts: one of --grid, --points and --cloud")
        if self.cloud is not None and self.sigma is None:
            raise InputError(
                "--cloud needs --sigma, the spread of its draws: a number, LOW:HIGH:COUNT or "
                "e=S,w=S"
            )
        if self.cloud is None and self.sigma is not None:
            raise InputError("--sigma, the spread of draws, goes with --cloud")
        if self.cloud is None and self.seed and not seeded:
            raise InputError("--seed goes with --cloud or --optimizer: nothing else here is random")
        if self.windows() and self.grid is None:
            raise InputError("ranges go with --grid")
        if self.points is not None:
            require_file(self.points)


def starts_of(given: StartOptions, model: ReducedModel, fixed: dict[str, float]) -> Starts:
    """The starts, in coordinates of the model.

    Args:
        given: the options, checked.
        model: whose coordinates they are.
        fixed: coordinates held at a value.
    """
    from flowsim.scan.points import Points
    from flowsim.scan.starts import Cloud

    sigma = None if given.sigma is None else given.sigma.sigma
    spread = list(sigma) if isinstance(sigma, dict) else []
    names = _coordinates(model, [*given.windows(), *fixed, *spread])
    free = [name for name in names if name not in fixed]
    if given.points is not None:
        return Points.read(given.points, names)
    if given.cloud is not None and sigma is not None:
        return Cloud(free, given.cloud, sigma, fixed, given.seed)
    return _grid(given, free, fixed)


def _grid(given: StartOptions, free: list[str], fixed: dict[str, float]) -> Starts:
    from flowsim.scan.starts import Grid, cell_centres

    cells, windows = given.grid or (), given.windows()
    if len(cells) != len(free) or not free:
        raise InputError(
            f"--grid needs one number of cells for each of {', '.join(free) or 'no coordinate'}: "
            f"{len(free)}, not {len(cells)}; --fix NAME=VALUE holds a coordinate"
        )
    for name in windows:
        if name not in free:
            raise InputError(f"{name} has a range and is also fixed")
    axes = {}
    for name, count in zip(free, cells, strict=True):
        low, high = windows.get(name, _DEFAULT_RANGE.get(name, (-3.0, 3.0)))
        axes[name] = cell_centres(low, high, count)
    return Grid(axes, fixed)


def _coordinates(model: ReducedModel, mentioned: list[str]) -> tuple[str, ...]:
    """The coordinates of the starts, given those that the options mention."""
    from flowsim.models.rank_one import RankOneModel

    names = tuple(model.coordinates)
    if isinstance(model, RankOneModel):
        canonical = ("e", "w", "a") if model.attention else ("e", "w")
        if set(mentioned) <= {*canonical, "b"}:
            names = (*canonical, "b") if "b" in mentioned else canonical
    for name in mentioned:
        if name not in names:
            raise InputError(f"the model has no coordinate {name!r}; it has {', '.join(names)}")
    return names
