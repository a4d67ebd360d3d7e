"""Attention patterns of trained two-layer transformers in context, by layer and head.

    python experiments/in_context_heads.py            # minutes on one core
    python experiments/in_context_heads.py --full     # d = 64, N = 256, 25 000 steps; hours

Two layers of two heads with feed-forward layers, relative positions and values, not tied, are
trained by AdamW on sequences of two states whose kernels are drawn anew: of order 1 with
Dirichlet(1) rows, and of order 2 with Dirichlet(0.3) rows, from which there is more to learn. Draws
figures/in_context_heads.png from the patterns that ``forward(..., trace)`` keeps as "0.pattern" and
"1.pattern" of seed 0: of the first layer their mean over held-out sequences, of the second one
sequence, with a ring where the k symbols before are those at the end of the query; and attention by
distance of the first layer, of every seed. Writes figures/in_context_heads.json: losses over the
same sequences beside those of counting with β added to every count, Bayes's where the k symbols
before are those of the order; attention of every first head to the symbol i before; and of every
second head the attention to rings beside the share of places that have one, both over queries that
have at least one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import experiment
from torch import Tensor
from torch.nn.functional import cross_entropy

from flowsim import DirichletPrior, in_context
from flowsim.drawing.style import INK, new_figure
from full_model import Architecture, PriorSource, Recipe, RunSettings, Weights, forward, train

SEEDS, HEADS, LAYERS = (0, 1), 2, 2
#: Last positions that are drawn, and distances.
SHOWN, BACK = 16, 6
#: Seed of the held-out sequences.
HELD_OUT = 1234


@dataclass(frozen=True)
class Sizes:
    """How large and how long an order is trained; ``beta`` of its Dirichlet rows."""

    order: int
    d: int = 16
    length: int = 32
    steps: int = 800
    beta: float = 1.0
    batch: int = 32
    rate: float = 3e-3
    test: int = 1024


KINDS = {
    "usual": (Sizes(1), Sizes(2, 32, 64, 4000, 0.3)),
    "full": tuple(Sizes(order, 64, 256, 25_000, batch=16, rate=1e-3) for order in (1, 2)),
}


@dataclass(frozen=True)
class Seen:
    """What trained models do on held-out sequences.

    Attributes:
        tokens: (B, N).
        rings: whether x_i follows the context that ends at n, (B, N, N) over (n, i).
        patterns: attention by layer, (seeds, B, heads, N, N).
        line: what is tabulated.
    """

    tokens: Tensor
    rings: Tensor
    patterns: list[Tensor]
    line: dict[str, Any]


def compute(kind: str = "usual") -> dict[int, Seen]:
    """Both orders trained, and looked at."""
    return {each.order: looked_at(each, *trained(each)) for each in KINDS[kind]}


def numbers(seen: dict[int, Seen]) -> dict[str, Any]:
    """What the heads look at."""
    return {"heads": HEADS, "seeds": SEEDS, "cases": [found.line for found in seen.values()]}


def trained(sizes: Sizes) -> tuple[Architecture, Weights]:
    """All seeds, trained side by side."""
    arch = Architecture(
        sizes.d, sizes.length, LAYERS, heads=HEADS, states=2, output="states", tied=False,
        hidden=4 * sizes.d, positions="relative-values",
    )  # fmt: skip
    recipe = Recipe.named(
        "adamw-papers", steps=sizes.steps, batch=sizes.batch, learning_rate=sizes.rate
    )
    settings = RunSettings(
        arch, recipe, seeds=SEEDS, data=DirichletPrior(2, sizes.order, sizes.beta), init_std=0.05,
        telemetry_every=sizes.steps, test_batch=64, dtype="float32",
    )  # fmt: skip
    return arch, train(settings)[1]


def looked_at(sizes: Sizes, arch: Architecture, weights: Weights) -> Seen:
    """Losses and patterns over held-out sequences."""
    order = sizes.order
    source = PriorSource(DirichletPrior(2, order, sizes.beta))
    drawn = source.sample(sizes.test, sizes.length, torch.Generator().manual_seed(HELD_OUT))
    tokens, targets = (part[0].long() for part in drawn)
    trace: dict[str, Tensor] = {}
    with torch.no_grad():
        logits = forward(arch, weights, tokens, trace)
    patterns = [trace[f"{layer}.pattern"].double() for layer in range(LAYERS)]
    counted = [in_context(tokens, j, 2, sizes.beta).log() for j in range(order + 1)]
    own = [cross_entropy(x.double().flatten(0, 1), targets.flatten()).item() for x in logits]
    rings = follows(tokens, order)
    some = rings.any(-1)
    places = torch.arange(1, sizes.length + 1)
    mass = [[float((patterns[1][s, :, h] * rings).sum(-1)[some].mean()) for h in range(HEADS)]
            for s in range(len(SEEDS))]  # fmt: skip
    line = {
        "order": order, "beta": sizes.beta, "d": sizes.d, "length": sizes.length,
        "steps": sizes.steps,
        "counting": [cross_entropy(x.flatten(0, 1), targets.flatten()).item() for x in counted],
        "loss": own, "back": by_distance(patterns[0]).tolist(),
        "rings": mass, "chance": float((rings.sum(-1) / places)[some].mean()),
    }  # fmt: skip
    return Seen(tokens, rings, patterns, line)


def follows(tokens: Tensor, order: int) -> Tensor:
    """Whether the k symbols before place i are the k last ones at n, i ≤ n; (B, N, N)."""
    batch, length = tokens.shape
    found = torch.ones(batch, length, length, dtype=torch.bool).tril()
    for j in range(order):
        query, key = tokens.roll(j, 1), tokens.roll(j + 1, 1)
        found &= query[:, :, None] == key[:, None, :]
    found[:, :, :order] = False  # where fewer than k symbols lie before
    return found


def by_distance(pattern: Tensor) -> Tensor:
    """Mean attention to the symbol i before, over sequences and later places, (seeds, heads, i)."""
    means = [pattern.diagonal(-i, -2, -1)[..., BACK:].mean((1, -1)) for i in range(BACK)]
    return torch.stack(means, dim=-1)


def drawn(seen: dict[int, Seen]) -> Figure:
    """A row an order: heads of the first layer, their distances, heads of the second layer."""
    figure = new_figure(15.5, 7.4)
    grid = figure.subplots(len(seen), 2 * HEADS + 1)
    for row, (order, each) in zip(grid, seen.items(), strict=True):
        shown = example(each.tokens)
        first, second = each.patterns[0][0].mean(0), each.patterns[1][0, shown]
        for head in range(HEADS):
            heat(row[head], first[head], f"layer 1, head {head + 1}: mean")
            later, words = row[HEADS + 1 + head], "one sequence,\nring: after the same context"
            heat(later, second[head], f"layer 2, head {head + 1}: {words}")
            marks(later, each, shown)
        distances(row[HEADS], each)
        row[0].set_ylabel(f"order {order}\nquery at position")
    bar = figure.colorbar(grid[0, 0].images[0], ax=grid, fraction=0.012, pad=0.01)
    bar.set_ticks(bar.ax.get_ylim(), labels=["0", "most"])
    bar.set_label("attention, in each panel's own scale")
    figure.suptitle("The first layer looks back; the second at what followed the same context")
    return figure


def heat(ax: Axes, pattern: Tensor, title: str) -> None:
    """Attention of the last queries to the last places."""
    length, part = pattern.shape[-1], pattern[-SHOWN:, -SHOWN:]
    masked = np.ma.masked_array(part.numpy(), ~np.tri(len(part), dtype=bool))
    ends = (length - len(part) + 0.5, length + 0.5)
    ax.imshow(masked, cmap="cividis", vmin=0, extent=(*ends, *ends[::-1]),
              interpolation="nearest", aspect="auto")  # fmt: skip
    ax.set_title(f"{title}\nat most {float(part.max()):.2f}", fontsize=9)
    ax.set_xlabel("attends to position")


def example(tokens: Tensor) -> int:
    """The first sequence that moves between its symbols at half of the places that are drawn."""
    moves = (tokens[:, -SHOWN:].diff() != 0).sum(-1)
    return int((moves == SHOWN // 2).double().argmax())


def marks(ax: Axes, each: Seen, shown: int) -> None:
    """Rings where the context before is that of the query, and the symbols along the axis."""
    rings = each.rings[shown, -SHOWN:, -SHOWN:]
    n, i = rings.nonzero().T
    low = each.tokens.shape[1] - len(rings) + 1
    ax.plot(i + low, n + low, "o", markersize=3.2, markerfacecolor="none", markeredgewidth=0.7,
            color="white")  # fmt: skip
    places = range(low, low + len(rings))
    ax.set_xticks(places, [str(int(x)) for x in each.tokens[shown, -SHOWN:]], fontsize=7)
    ax.set_xlabel("attends to this symbol")


def distances(ax: Axes, each: Seen) -> None:
    """Attention by distance, a line for each head and seed."""
    colours = (INK["global_minimum"], INK["local_minimum"])
    for s, back in enumerate(each.line["back"]):
        for head, values in enumerate(back):
            ax.plot(values, "o-" if not s else "s--", color=colours[head], markersize=4,
                    linewidth=1, label=f"head {head + 1}, seed {SEEDS[s]}")  # fmt: skip
    highest = float(np.max(each.line["back"]))
    ax.set(ylim=(0, 1.4 * highest), xlabel="symbols back")
    ax.set_title("layer 1: mean attention", fontsize=9)
    ax.legend(fontsize=7, frameon=False, ncols=2, loc="upper center")


main = experiment(__name__, compute, numbers, drawn, record=False, full={"kind": "full"})
