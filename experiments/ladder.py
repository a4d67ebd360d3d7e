"""The ladder between the unigram and the bigram loss: positions that die, and where runs end.

From LG's recommended start (W_1 = 1, W_2 = −1) gradient flow at p + q > 1 tends to one of N + 1
losses on the rank-one manifold without attention (dead_positions.py; docs/derivations/17.md).

Criteria: open is a position with ρ_n > 0 or ρ_n + ε > 0; the plateau is the loss at t = √(NG/|Δ*|),
in the middle, on a logarithmic scale, between the time 1 in which it is reached and the time
NG/|Δ*| in which it is left; a run is freed if its loss falls below L∞(k) by 1 % of the gap, k
counted at the start.

    python experiments/ladder.py      an hour on one core
"""

from typing import Any

import numpy as np
import torch
import xarray as xr
from dead_positions import ladder_losses, rung_probabilities
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from papers import BLUE, GREY, experiment, stacked, timed
from torch import Tensor

from flowsim import BinaryChain, trajectories
from flowsim.models import RankOneModel
from full_model import Architecture, initial_weights, wilson
from full_model.comparison.exponential import FIRST_STEP, flow_until
from full_model.comparison.fields import FullField
from full_model.comparison.outcome import open_gap
from full_model.comparison.steps import step_until

CASES = ((0.5, 0.8, 8), (0.5, 0.8, 16), (0.5, 0.8, 64), (0.9, 0.9, 8), (0.9, 0.9, 16))
SPREAD = 0.02
#: Full training is compared at this time; the whole transformer has these sizes.
SEEN, WHOLE_D, WHOLE_LENGTH = 100.0, 4, 6
NOISES = ("all weights", "attention alone", "all but attention", "all but queries and keys")
#: First weights of the whole transformer: one more for each k.
WHOLE_SEEDS = (0, 100)
SPREADS, RUNG_LENGTH, RUNG_TIME = (0.02, 0.08), 8, 50.0
FREED = 0.01


def compute(d: int = 8, seeds: int = 256, horizon: float = 10000.0, seed: int = 0) -> xr.Dataset:
    """Losses of orbits and of full flows by case and k, and counts of rungs."""
    times = np.concatenate([[0.0], np.geomspace(1, 1e7, 57)])
    parts = {}
    for p, q, length in timed(CASES):
        chain, ks = BinaryChain(p, q), np.arange(1, length)
        starts = torch.stack([rank_one_start(chain, length, k, d, seed) for k in ks.tolist()])
        model = RankOneModel(chain, length, attention=True)
        path = trajectories(model, starts, torch.from_numpy(times), rtol=1e-6)
        kept = open_positions(path[-1, :, 0], path[-1, :, 1 : length + 1])
        full_loss, full_open = full_flow(chain, length, d, seed)
        parts[f"p = {p}, q = {q}, N = {length}"] = xr.Dataset({
            "loss": (("k", "time"), model.loss(path).T.numpy()),
            "open_at_end": ("k", kept.double().numpy()),
            "full_loss": ("k", full_loss.numpy()), "full_open": ("k", full_open.double().numpy()),
        }, {"k": ks, "time": times})  # fmt: skip
    record = stacked(parts).assign_attrs(d=d, spread=SPREAD, seed=seed)
    more = whole_transformer(horizon, seed), rung_runs(d, seeds)
    return xr.merge([record, *more], combine_attrs="override")


def signs(length: int, k: int, seed: int) -> Tensor:
    """Signs of positions with k of N open at the start: +1 for open ones, else −1, (N,)."""
    side = torch.full((length,), -1.0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1000 * seed + k)
    side[torch.randperm(length, generator=generator)[:k]] = 1.0
    return side


def rank_one_start(chain: BinaryChain, length: int, k: int, d: int, seed: int) -> Tensor:
    """The recommended start with ε = −0.02 and k positions at 0.02, the others at −0.02."""
    tail = torch.tensor([d, -d, 0, 0, np.log(chain.p / chain.q)], dtype=torch.float64)
    return torch.cat([tail.new_tensor([-SPREAD]), SPREAD * signs(length, k, seed), tail])


def open_positions(eps: Tensor, rho: Tensor) -> Tensor:
    """Number of positions that some symbol opens, w₁ > 0: (...) from ε (...) and ρ (..., N)."""
    return ((rho > 0) | (rho + eps.unsqueeze(-1) > 0)).sum(-1)


def full_start(field: FullField, chain: BinaryChain, ks: range, seed: int) -> Tensor:
    """The same along α = 1/√d, in full weights with noise 0.02 on all of them, (M, K)."""
    arch = field.arch
    weights = initial_weights(
        arch, "recommended", [seed + k for k in ks], noise=SPREAD, excess=chain.p + chain.q - 1
    )
    alpha = torch.full((arch.d,), arch.d**-0.5, dtype=torch.float64)
    side = torch.stack([signs(arch.length, k, seed) for k in ks])
    for name, part in (("embedding", torch.full((len(ks),), -1.0)), ("positions", side)):
        across = weights[name] - (weights[name] @ alpha).unsqueeze(-1) * alpha
        weights[name] = across + SPREAD * part.unsqueeze(-1) * alpha
    weights["bias"][:] = np.log(chain.p / chain.q)
    return field.state(weights)


def along_alpha(field: FullField, state: Tensor) -> tuple[Tensor, Tensor]:
    """ε and ρ of full weights."""
    weights, root = field.weights(state), field.arch.d**0.5
    return weights["embedding"].sum(-1) / root, weights["positions"].sum(-1) / root


def follow(field: FullField, state: Tensor, times: list[float]) -> list[Tensor]:
    """Gradient flow of full weights, in place; the losses (M,) at the times."""
    rows = len(state)
    now, steps = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64)
    width, active = torch.full_like(now, FIRST_STEP), torch.ones(rows, dtype=torch.bool)
    losses = []
    for until in times:
        flow_until(field, state, now, steps, width, until, active)
        losses.append(field.loss(state))
    return losses


def full_flow(chain: BinaryChain, length: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Loss and open positions of the flow of full weights without attention at t = 100."""
    field = FullField(Architecture(d, length, attention="none"), chain, rounding=1e-4)
    state = full_start(field, chain, range(1, length), seed)
    (loss,) = follow(field, state, [SEEN])
    return loss, open_positions(*along_alpha(field, state))


def whole_transformer(horizon: float, seed: int) -> xr.Dataset:
    """Losses (noise, time, first weights, k) of the softmax transformer, its own gradient flow.

    If some have no noise, the others are those of the runs with noise on all. W_V = W_O = 0 stay
    so, and the layer is left out; so do W_Q = W_K = 0, and every past symbol counts alike.
    """
    chain = BinaryChain(*CASES[0][:2])
    field = FullField(Architecture(WHOLE_D, WHOLE_LENGTH), chain, rounding=1e-4)
    free = FullField(Architecture(WHOLE_D, WHOLE_LENGTH, attention="none"), chain, rounding=1e-4)
    ks = range(1, WHOLE_LENGTH)
    first = torch.cat([full_start(field, chain, ks, seed + more) for more in WHOLE_SEEDS])
    times = [float(t) for t in 10 ** np.arange(0, np.log10(horizon) + 0.25, 0.5)]
    weights = field.weights(first)
    still = {name: torch.zeros_like(weights[name]) for name in ("0.query", "0.key")}
    starts = {
        "all weights": (field, first.clone()),
        "attention alone": (field, attention_alone(field, first)),
        "all but attention": (free, free.state({name: weights[name] for name in free.arch.shapes})),
        "all but queries and keys": (field, field.state(weights | still)),
    }
    losses = [torch.stack(follow(*starts[noise], times)).numpy() for noise in NOISES]
    shape = len(NOISES), len(times), len(WHOLE_SEEDS), len(ks)
    axes = ("noise", "whole_time", "whole_seed", "whole_k")
    return xr.Dataset(
        {"whole_loss": (axes, np.stack(losses).reshape(shape))},
        {"noise": list(NOISES), "whole_time": times, "whole_seed": list(WHOLE_SEEDS),
         "whole_k": list(ks)},
    )  # fmt: skip


def attention_alone(field: FullField, state: Tensor) -> Tensor:
    """The same weights, all but attention's put back onto the manifold."""
    weights = field.weights(state)
    alpha = torch.full((field.arch.d,), field.arch.d**-0.5, dtype=torch.float64)
    for name in ("embedding", "positions"):
        weights[name] = (weights[name] @ alpha).unsqueeze(-1) * alpha
    weights["0.up"], weights["0.down"] = (sign * torch.ones_like(weights[name]) for name, sign in
                                          (("0.up", 1.0), ("0.down", -1.0)))  # fmt: skip
    return field.state(weights)


def rung_runs(d: int, seeds: int) -> xr.Dataset:
    """Number of runs of full descent with k open positions at t = 50, by first bias and spread."""
    chain = BinaryChain(*CASES[0][:2])
    arch = Architecture(d, RUNG_LENGTH, attention="none")
    field = FullField(arch, chain)
    biases = {"log(π₁/π₀)": float(np.log(chain.p / chain.q)), "0": 0.0}
    count = np.zeros((len(biases), len(SPREADS), RUNG_LENGTH + 1), dtype=np.int64)
    for i, bias in enumerate(biases.values()):
        for j, spread in enumerate(SPREADS):
            weights = initial_weights(
                arch, "recommended", range(seeds), std=spread, excess=chain.p + chain.q - 1
            )
            weights["bias"][:] = bias
            state = field.state(weights)
            now, steps = torch.zeros(seeds).double(), torch.zeros(seeds, dtype=torch.int64)
            step_until(field, state, now, steps, RUNG_TIME, torch.ones(seeds, dtype=torch.bool))
            found = open_positions(*along_alpha(field, state)).numpy()
            count[i, j] = np.bincount(found, minlength=RUNG_LENGTH + 1)
    return xr.Dataset(
        {"rung_count": (("first_bias", "first_spread", "rung"), count)},
        {"first_bias": list(biases), "first_spread": list(SPREADS),
         "rung": np.arange(RUNG_LENGTH + 1)},
    )  # fmt: skip


def plateau(record: xr.Dataset, case: int) -> np.ndarray:
    """The orbits' losses at t = √(NG/|Δ*|), for k = 1 … N − 1."""
    p, q, length = CASES[case]
    left = length * 4 * record.attrs["d"] ** 2 / -BinaryChain(p, q).target_logit_gap
    nearest = int(np.abs(np.log(record.time.values[1:] ** 2 / left)).argmin())
    return record.loss.values[case, : length - 1, 1 + nearest]


def numbers(record: xr.Dataset) -> dict[str, Any]:
    """Distances between theory, orbits and training, as shares of the gap; counts of rungs."""
    found: dict[str, Any] = {"cases": {}, "rungs": []}
    for c, (p, q, length) in enumerate(CASES):
        chain, steps = BinaryChain(p, q), ladder_losses(BinaryChain(p, q), length)
        loss = record.loss.values[c, : length - 1]
        k, inner = np.arange(1, length), slice(1, length)
        at_seen = loss[:, int(np.abs(record.time.values - SEEN).argmin())]
        flat = open_gap(chain, plateau(record, c)) - open_gap(chain, steps.plateaus[inner])
        end = open_gap(chain, loss[:, -1]) - open_gap(chain, steps.ends[inner])
        full = open_gap(chain, record.full_loss.values[c, : length - 1]) - open_gap(chain, at_seen)
        found["cases"][str(record.case.values[c])] = {
            "orbits": length - 1,
            "keep_k": int((record.open_at_end.values[c, : length - 1] == k).sum()),
            "plateau_off": [float(flat.min()), float(flat.max())],
            "end_off": [float(end.min()), float(end.max())],
            "full_keep_k": int((record.full_open.values[c, : length - 1] == k).sum()),
            "full_off": float(np.abs(full).max()),
        }
    chain = BinaryChain(*CASES[0][:2])
    lowest = open_gap(chain, ladder_losses(chain, WHOLE_LENGTH).ends)[1:WHOLE_LENGTH]
    for i, noise in enumerate(record.noise.values):
        whole = open_gap(chain, record.whole_loss.values[i, -1])
        freed = whole < lowest - FREED
        found[f"whole transformer, noise on {noise}"] = {
            "runs": whole.size, "time": float(record.whole_time[-1]), "share": whole.tolist(),
            "limit": lowest.tolist(), "freed": int(freed.sum()),
            "of them k": sorted((np.nonzero(freed)[1] + 1).tolist()),
        }  # fmt: skip
    gain = 4.0 * record.attrs["d"] ** 2
    for bias in record.first_bias.values:
        for spread in record.first_spread.values:
            count = record.rung_count.sel(first_bias=bias, first_spread=spread).values
            runs, top = int(count.sum()), int(count[-1])
            law = rung_probabilities(chain, RUNG_LENGTH, float(spread), gain)
            found["rungs"].append({
                "bias": str(bias), "spread": float(spread), "runs": runs,
                "count": count.tolist(), "law": law.tolist(), "all_open": top,
                "interval": wilson(top, runs),
            })  # fmt: skip
    return found


def draw(record: xr.Dataset) -> Figure:
    """Orbits on the ladder, and how many runs end on each rung."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_orbits(left, record)
    _draw_rungs(right, record)
    return figure


def _draw_orbits(axes: Axes, record: xr.Dataset) -> None:
    """Every k at N = 8."""
    p, q, length = CASES[0]
    chain = BinaryChain(p, q)
    steps = ladder_losses(chain, length)
    for k in range(1, length):
        share = open_gap(chain, record.loss.values[0, k - 1])
        axes.plot(record.time[1:], share[1:], color=BLUE, lw=1.4)
        axes.plot([1, 300], [open_gap(chain, steps.plateaus[k])] * 2, color="k", lw=1, ls="--")
        axes.plot([1e4, 1e7], [open_gap(chain, steps.ends[k])] * 2, color="k", lw=1, ls=":")
        axes.annotate(f"$k$ = {k}", (1.3e7, share[-1]), fontsize=9, va="center")
    axes.plot([], [], color=BLUE, label="rank-one orbit")
    axes.plot([], [], color="k", ls="--", label="plateau $L_k$")
    axes.plot([], [], color="k", ls=":", label=r"end $L_\infty(k)$")
    axes.set(xscale="log", xlabel="time of the gradient flow", xlim=(0.7, 1.5e8), ylim=(0, 1.02),
             ylabel="open share of the gap\n(bigram 0, unigram 1)")  # fmt: skip
    axes.set_title(f"(a) from the wrong side every orbit ends on a rung\n$k$ of $N$ = {length} "
                   f"positions open, ({p}, {q})", fontsize=10, loc="left")  # fmt: skip
    axes.legend(fontsize=9, loc="lower left")


def _draw_rungs(axes: Axes, record: xr.Dataset) -> None:
    """Shares of the rungs: law, and full descent by first bias, at the middle spread."""
    spread, rung = SPREADS[0], record.rung.values
    law = rung_probabilities(
        BinaryChain(*CASES[0][:2]), RUNG_LENGTH, spread, 4.0 * record.attrs["d"] ** 2
    )
    axes.bar(rung, law, width=0.8, color="0.85", label="law for small weights")
    for bias, colour, mark, shift in (("log(π₁/π₀)", BLUE, "o", -0.15), ("0", GREY, "s", 0.15)):
        count = record.rung_count.sel(first_bias=bias, first_spread=spread).values
        runs = count.sum()
        low, high = np.transpose([wilson(int(n), int(runs)) for n in count])
        share = count / runs
        axes.errorbar(rung + shift, share, np.maximum([share - low, high - share], 0), fmt=mark,
                      color=colour, ms=5, capsize=2,
                      label=f"{runs} runs, first bias {bias}")  # fmt: skip
    axes.set(xlabel="open positions $k$", ylabel="share of runs")
    axes.set_title(f"(b) on which rung descent of all weights ends\n$N$ = {RUNG_LENGTH}, first "
                   f"weights of deviation {spread}", fontsize=10, loc="left")  # fmt: skip
    axes.legend(fontsize=9, loc="upper left")


main = experiment(__name__, compute, numbers, draw)
