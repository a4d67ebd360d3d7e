"""The options that train the rank-one model's starts by an optimizer instead of the flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flowsim.cli import options, sizes
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.models.base import ReducedModel
    from flowsim.training.optimizer_choice import OptimizerChoice

#: The papers' clipping of AdamW's gradients (AM Table 2), as ``train`` has it.
_CLIP = 1.0
_PANEL = options.OPTIMIZER


@dataclass(frozen=True)
class OptimizerOptions:
    """Which optimizer, and its numbers."""

    optimizer: Annotated[
        Literal["gd", "momentum", "adam", "adamw"] | None,
        typer.Option(
            metavar="NAME", rich_help_panel=_PANEL,
            help="Train by steps of gd, momentum (0.9), adam or adamw; else follow the flow.",
        ),
    ] = None  # fmt: skip
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-300, max=1e300, metavar="X", rich_help_panel=_PANEL,
            help="Learning rate.  [default: 1e-3 for adam and adamw, else 0.1]",
        ),
    ] = None  # fmt: skip
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**9, metavar="K", rich_help_panel=_PANEL, help="Steps.  [default: 8000]"
        ),
    ] = None
    loss: Annotated[
        Literal["population", "sampled"] | None,
        typer.Option(
            metavar="KIND", rich_help_panel=_PANEL,
            help="population (exact; default of gd and momentum) or sampled batches, the same for "
            "all starts (of adam and adamw).",
        ),
    ] = None  # fmt: skip
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**6, metavar="B", rich_help_panel=_PANEL,
            help="Sequences per step.  [default: 16]",
        ),
    ] = None  # fmt: skip
    schedule: Annotated[
        Literal["constant", "cosine"] | None,
        typer.Option(
            metavar="KIND", rich_help_panel=_PANEL,
            help="Of the learning rate: constant, or cosine with 2 % warm-up.  [default: cosine "
            "for adam and adamw]",
        ),
    ] = None  # fmt: skip
    d: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**6, metavar="D", rich_help_panel=_PANEL,
            help="Embedding dimension of the transformer; gd does not depend on it.  [default: 8]",
        ),
    ] = None  # fmt: skip
    nudge: Annotated[
        float | None,
        typer.Option(
            min=0, max=0.1, metavar="X", rich_help_panel=_PANEL,
            help="Relative displacement of the starts off the set w1 = ±w2, which rounding does "
            "not keep in full training; 0 for none.  [default: 1e-12]",
        ),
    ] = None  # fmt: skip

    def choice_of_optimizer(self, seed: int) -> OptimizerChoice | None:
        """The optimizer with all its numbers; None where the flow is followed."""
        from flowsim.training.optimizer_choice import USUAL_NUDGE, OptimizerChoice

        if self.optimizer is None:
            return None
        names = ("learning_rate", "steps", "loss", "batch", "schedule")
        numbers: dict[str, Any] = {name: getattr(self, name) for name in names}
        numbers = {name: value for name, value in numbers.items() if value is not None}
        if self.optimizer in ("adam", "adamw"):
            numbers["clip"] = _CLIP
        nudge = USUAL_NUDGE if self.nudge is None else self.nudge
        choice = OptimizerChoice.named(self.optimizer, self.d or 8, seed, nudge, **numbers)
        if self.batch is not None and choice.recipe.loss == "population":
            raise InputError("--batch goes with --loss sampled; the population loss is exact")
        return choice

    def check_optimizer(self, model: str, rtol: float | None, atol: float, integrator: str) -> None:
        """InputError for numbers without an optimizer, and for what only the flow has."""
        if self.optimizer is None:
            own = ("learning_rate", "steps", "loss", "batch", "schedule", "d", "nudge")
            for name in own:
                if getattr(self, name) is not None:
                    raise InputError(f"--{name.replace('_', '-')} goes with --optimizer")
            return
        if model != "rank-one":
            raise InputError(
                "--optimizer needs --model rank-one: only there is training a map of its own"
            )
        if (rtol, atol, integrator) != (None, 1e-12, "flowsim"):
            raise InputError(
                "--rtol, --atol and --integrator are of the flow; omit them with --optimizer"
            )
        self.choice_of_optimizer(0)

    def check_optimizer_size(self, model: ReducedModel, starts: int) -> None:
        """InputError if training so many starts together needs more memory than there is."""
        from flowsim.models.rank_one import RankOneModel

        choice = self.choice_of_optimizer(0)
        if choice is None or not isinstance(model, RankOneModel):
            return
        batch = choice.recipe.batch if choice.recipe.loss == "sampled" else 0
        sizes.check_optimizer(batch, model.length, model.attention, starts)

    def optimizer_words(self) -> list[str]:
        """The optimizer as a file's name says it."""
        if self.optimizer is None:
            return []
        words: list[str] = [self.optimizer]
        words += [] if self.learning_rate is None else [f"rate{self.learning_rate:g}"]
        words += [] if self.steps is None else [f"steps{self.steps}"]
        words += [] if self.loss is None else [self.loss]
        return words + ([] if self.d is None else [f"d{self.d}"])
