"""Progress of a run on a terminal: loss, the two losses it lies between, time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from tqdm import tqdm

from full_model.training.session import Progress
from full_model.training.settings import RunSettings


@contextmanager
def terminal_progress(settings: RunSettings, quiet: bool = False) -> Iterator[Progress | None]:
    """A callback for ``train`` that draws one line on stderr; None where stderr is no terminal.

    The line shows the median train loss of the models, the unigram loss h(π₁), the entropy rate
    (both of the first chain, with "…" where chains differ) and the time left.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    chain = settings.chains[0]
    more = "…" if len(set(settings.chains)) > 1 else ""
    targets = f"h(π₁) {chain.stationary_entropy:.4f}{more} rate {chain.entropy_rate:.4f}{more}"
    with tqdm(total=settings.recipe.steps, file=sys.stderr, unit="step") as bar:

        def show(step: int, loss: Tensor) -> None:
            bar.set_postfix_str(f"loss {float(loss.median()):.4f} {targets}", refresh=False)
            bar.update(step - bar.n)

        yield show
