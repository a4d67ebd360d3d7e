"""The options of ``compare`` alone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flowsim.cli import options


def _cells(text: str) -> tuple[int, int]:
    """WxE, cells along w and along e."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(f"must be COLUMNSxROWS such as 20x20, not {text!r}.")
    return int(parts[0]), int(parts[1])


def _share(text: str) -> float:
    value = options.number(text)
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"must be a number from 0 to 1, not {text!r}.")
    return value


def _option(parser: Any, metavar: str, text: str) -> Any:
    return Annotated[Any, typer.Option(parser=parser, metavar=metavar, help=text)]


Predictor = _option(
    options.one_of("canonical", "uniform", "rank-one"), "NAME",
    "What predicts: canonical (e, w), uniform (attention, e, w, a) or rank-one.",
)  # fmt: skip
Trainer = _option(
    options.one_of("flow", "gd", "sgd", "adamw"), "NAME",
    "flow or gd on the exact population loss, sgd or adamw on sampled batches.",
)  # fmt: skip
Device = _option(options.one_of("cpu", "cuda", "auto"), "DEVICE", "cpu, cuda or auto.")
Grid = _option(_cells, "COLSxROWS", "Cells of the grid of starts.  [default: 20x20]")
WRange = _option(options.interval, "LOW:HIGH", "Grid: window in w.  [default: -2:2]")
ERange = _option(options.interval, "LOW:HIGH", "Grid: window in e.  [default: -2:2]")
A = _option(
    options.finite, "A", "Attention of the grid's starts.  [default: 0.5 with --model uniform]"
)
Cloud = _option(options.positive_integer, "M", "A Gaussian cloud of M starts instead.")
Sigma = _option(options.positive, "S", "Deviation of the cloud.")
Noise = _option(options.positive, "STD", "Gaussian noise on every weight.")
Seed = _option(options.seed, "S", "Seed of cloud, noise and batches.")
Horizon = _option(
    options.positive,
    "T",
    "Time after which a run is unresolved.  [default: long; grows with N]",
)
Steps = _option(
    options.positive_integer, "K",
    "Steps of sgd and adamw, or the most of a run of flow or gd, which is unresolved then.  "
    "[default: 8000; flow and gd without attention: no bound; with it 20000]",
)  # fmt: skip
LearningRate = _option(
    options.positive, "X", "Of sgd and adamw.  [default: 1e-3 for adamw, 0.1 for sgd]"
)
Require = _option(_share, "SHARE", "Exit with 4 if a smaller share of the decided runs agrees.")
