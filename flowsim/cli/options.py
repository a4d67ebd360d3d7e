"""The options that commands share, each defined once; ``groups`` puts them together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from flowsim.cli.values import (
    Assignment,
    Cells,
    Interval,
    Ranges,
    Setting,
    Spread,
    assignment,
    cells,
    interval,
    model_name,
    probability,
    ranges,
    setting,
    spread,
    states,
)
from flowsim.models.catalogue import MODELS, families_with, family_of, or_list
from flowsim.models.family import LENGTH

#: Sections of a command's help, in their order.
CHAIN, MODEL, OPTIMIZER, STARTS, FULL, WINDOW, ACCURACY, WORK, OUTPUT = SECTIONS = (
    "Chain", "Reduced model", "Optimizer", "Starts", "Full transformer",
    "Window", "Accuracy", "Work", "Output",
)  # fmt: skip

#: Positions N where none are given.
DEFAULT_LENGTH: int = LENGTH.default
MAX_RESOLUTION = 4000
MAX_SEED = 2**62

TrainerName = Literal["flow", "gd", "sgd", "adamw"]
DeviceName = Literal["cpu", "cuda", "auto"]


def _with(option: str, about: bool = False) -> str:
    """The models that have an option, and what it is there."""
    named = []
    for family in families_with(option):
        own = family.options[option]
        only = f" with --{own.only_with}" if own.only_with else ""
        named.append(f"{family.name}{only}{f': {own.help}' if about else ''}")
    return "; ".join(named) if about else or_list(named)


P = Annotated[
    float | None,
    typer.Option(
        parser=probability, metavar="P", help="P(0→1), between 0 and 1.", rich_help_panel=CHAIN
    ),
]
Q = Annotated[
    float | None,
    typer.Option(
        parser=probability, metavar="Q", help="P(1→0), between 0 and 1.", rich_help_panel=CHAIN
    ),
]
States = Annotated[
    int | None,
    typer.Option(
        parser=states, metavar="S", rich_help_panel=CHAIN,
        help="S states: left with probability P, for any other one alike.",
    ),
]  # fmt: skip
Model = Annotated[
    str,
    typer.Option(
        parser=model_name, metavar="NAME", rich_help_panel=MODEL,
        autocompletion=lambda: list(MODELS),
        help=f"{'; '.join(family_of(name).help for name in MODELS)}; or a model of your own, "
        "FILE.py:Class or package.module:Class, whose code is run.",
    ),
]  # fmt: skip
Set = Annotated[
    list[Setting] | None,
    typer.Option(
        "--set", parser=setting, metavar="NAME=VALUE", rich_help_panel=MODEL,
        help="An argument of your own model's constructor; may be repeated.",
    ),
]  # fmt: skip
Length = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**6, metavar="N",
        help=f"Positions, of {_with('length')}.  [default: {DEFAULT_LENGTH}]",
        rich_help_panel=MODEL, show_default=False,
    ),
]  # fmt: skip
Attention = Annotated[
    bool,
    typer.Option(
        "--attention",
        rich_help_panel=MODEL,
        help=f"With attention ({_with('attention', about=True)}).",
    ),
]
Untied = Annotated[
    bool,
    typer.Option(
        "--untied", rich_help_panel=MODEL,
        help=f"With untied weights ({_with('tied', about=True)}).",
    ),
]  # fmt: skip
HiddenPerState = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**6, metavar="M", rich_help_panel=MODEL, show_default=False,
        help=f"Hidden units for each state, of {_with('hidden_per_state')}.  [default: 4]",
    ),
]  # fmt: skip
Bias = Annotated[
    Literal["optimal", "dynamic"],
    typer.Option(
        metavar="KIND",
        help="optimal: the bias minimises the loss at every point; dynamic: it is a last "
        "coordinate, b.",
        rich_help_panel=MODEL,
    ),
]
Fix = Annotated[
    list[Assignment] | None,
    typer.Option(
        parser=assignment, metavar="NAME=X", rich_help_panel=MODEL,
        help="Hold a coordinate at a value, such as a=0.5 or u=1; may be repeated.",
    ),
]  # fmt: skip
Windows = Annotated[
    Ranges | None,
    typer.Option(
        "--window", parser=ranges, metavar="RANGES", rich_help_panel=WINDOW,
        help="Window, as x=-2:2,y=-1:1, in the axes of the model's plane; of your own model in any "
        "coordinates. A plane has the first across and the second up.",
    ),
]  # fmt: skip
WRange = Annotated[
    Interval | None,
    typer.Option(
        parser=interval, metavar="LOW:HIGH", help="Window in w.  [default: -3:3]",
        rich_help_panel=WINDOW,
    ),
]  # fmt: skip
ERange = Annotated[
    Interval | None,
    typer.Option(
        parser=interval, metavar="LOW:HIGH", help="Window in e.  [default: -3:3]",
        rich_help_panel=WINDOW,
    ),
]  # fmt: skip
ARange = Annotated[
    Interval | None,
    typer.Option(
        parser=interval, metavar="LOW:HIGH", help="Window in a.  [default: -1:1]",
        rich_help_panel=WINDOW,
    ),
]  # fmt: skip
Rtol = Annotated[
    float | None,
    typer.Option(
        min=1e-14, max=1e-4, metavar="X", rich_help_panel=ACCURACY,
        help="Relative error per step.  [default: the model's own, 1e-10 or 1e-6]",
    ),
]  # fmt: skip
Atol = Annotated[
    float,
    typer.Option(
        min=1e-14, max=1e-4, metavar="X", rich_help_panel=ACCURACY,
        help="Absolute error per step.",
    ),
]  # fmt: skip
Integrator = Annotated[
    Literal["flowsim", "torchdiffeq"],
    typer.Option(
        metavar="NAME", rich_help_panel=ACCURACY,
        help="flowsim, its own engines; or torchdiffeq, which decides every start by itself, "
        "much more slowly.",
    ),
]  # fmt: skip
Confirm = Annotated[
    int | None,
    typer.Option(
        min=0, max=1_000_000, metavar="N", rich_help_panel=ACCURACY,
        help="Starts that torchdiffeq decides again, drawn at random.  [default: 256; 16 where the "
        "loss is no function of the logit gap]",
    ),
]  # fmt: skip
Grid = Annotated[
    Cells | None,
    typer.Option(
        parser=cells, metavar="ExW", rich_help_panel=STARTS,
        help="Cells along e and w (and every further coordinate that is not fixed), as 64x64.",
    ),
]  # fmt: skip
Cloud = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**12, metavar="M", help="M normal draws around zero (for every sigma).",
        rich_help_panel=STARTS,
    ),
]  # fmt: skip
Sigma = Annotated[
    Spread | None,
    typer.Option(
        parser=spread, metavar="S", rich_help_panel=STARTS,
        help="Standard deviation of the draws: a number, LOW:HIGH:COUNT evenly spaced in the "
        "logarithm, or e=S,w=S.",
    ),
]  # fmt: skip
PointsFile = Annotated[
    Path | None,
    typer.Option(
        "--points", metavar="FILE", rich_help_panel=STARTS,
        help="The starts of a file: .csv with named columns, .npy, or a record (.nc).",
    ),
]  # fmt: skip
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_SEED, metavar="S", help="Seed of everything random.", rich_help_panel=STARTS
    ),
]
Dim = Annotated[
    int,
    typer.Option(
        min=1, max=10**6, metavar="D", help="Embedding dimension d.", rich_help_panel=FULL
    ),
]
Positions = Annotated[
    int,
    typer.Option(min=1, max=10**9, metavar="N", help="Context length N.", rich_help_panel=FULL),
]
Count = Annotated[
    int,
    typer.Option(
        min=1, max=10**6, metavar="M", help="How many seeds, one model each.",
        rich_help_panel=FULL,
    ),
]  # fmt: skip
Batch = Annotated[
    int,
    typer.Option(
        min=1, max=10**9, metavar="B", help="Sequences per step and model, for sgd and adamw.",
        rich_help_panel=FULL,
    ),
]  # fmt: skip
Rate = Annotated[
    float | None,
    typer.Option(
        min=1e-300, max=1e300, metavar="X", rich_help_panel=FULL,
        help="Learning rate.  [default: 1e-3 for adamw, else 0.1]",
    ),
]  # fmt: skip
Noise = Annotated[
    float,
    typer.Option(
        min=0, max=1e3, metavar="STD", help="Deviation of normal noise on the weights.",
        rich_help_panel=FULL,
    ),
]  # fmt: skip
Jobs = Annotated[
    int,
    typer.Option(
        min=1, max=4096, metavar="N", help="Processes that share the work.", rich_help_panel=WORK
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Use a running dask cluster, tcp://host:port.",
        rich_help_panel=WORK,
    ),
]  # fmt: skip
Device = Annotated[
    DeviceName,
    typer.Option(
        metavar="DEVICE", help="cpu, cuda (an error where there is none) or auto.",
        rich_help_panel=WORK,
    ),
]  # fmt: skip
Figure = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", rich_help_panel=OUTPUT,
        help="Figure: .png, .pdf or .svg; the record (.nc) is written beside it.",
    ),
]  # fmt: skip
Source = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="RECORD", rich_help_panel=OUTPUT,
        help="Redraw a record; nothing is computed.",
    ),
]  # fmt: skip
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue an unfinished run.", rich_help_panel=WORK),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=OUTPUT),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace existing files.", rich_help_panel=OUTPUT),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=OUTPUT)
]
