"""The rank-one model without attention: how many starts stay undecided, and at what cost.

    python benchmarks/rank_one.py [--starts 100000] [--lengths 8 1024]
    python benchmarks/rank_one.py --peer 64 [--lengths 8 1024] [--rtol 1e-4] [--own-rtol 1e-8]

- Without ``--peer``: for five chains on both sides of p + q = 1 and each N, labels of ``--starts``
  lifts of canonical starts drawn evenly from [−3, 3]², and of as many starts with five coordinates
  (e, ρ, w₁, w₂, b) from N(0, 1): how many learn, how many are unresolved, milliseconds of CPU time
  for a start. The draws are seeded.
- With ``--peer COUNT …``: the chain is p = 0.5, q = 0.8; CPU time for so many lifted starts beside
  diffrax with Kvaerno3, an implicit method, on the same field, at the tolerance ``--rtol``;
  flowsim has its own, 1e-8 per step unless ``--own-rtol`` is given. The two take turns. An error
  is how far the limit of a start is from that of flowsim at 1e-11, in its worst coordinate; the
  table has its median and its 99th percentile over the starts that both decide. It needs the extra
  ``benchmark``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from worker import UNRESOLVED, Worker, take_turns

from flowsim import BinaryChain, Label, find_limits
from flowsim.models import RankOneModel

CHAINS = [(0.5, 0.8), (0.2, 0.3), (0.9, 0.9), (0.97, 0.6), (0.04, 0.11)]
#: Of diffrax, besides its tolerances.
PEER = {"solver": "Kvaerno3", "batch": 16, "steps": 4096, "horizon": 1e9, "rest": 1e-7}


def starts_of(model: RankOneModel, kind: str, count: int) -> torch.Tensor:
    """(count, 5) starts, the same in every run."""
    generator = torch.Generator().manual_seed(20261122)
    if kind == "Gaussian":
        return torch.randn(count, 5, dtype=torch.float64, generator=generator)
    box = 6 * torch.rand(count, 2, dtype=torch.float64, generator=generator) - 3
    return model.from_canonical(box)


def sweep(lengths: list[int], count: int) -> None:
    """One line for each chain, N and kind of start."""
    print(f"{'p':>6}{'q':>6}{'N':>9}  {'starts':>10}{'learn':>8}{'unresolved':>12}{'ms/start':>10}")
    total = unresolved = 0
    for p, q in CHAINS:
        for length in lengths:
            model = RankOneModel(BinaryChain(p, q), length)
            for kind in ("lifted", "Gaussian"):
                starts = starts_of(model, kind, count)
                find_limits(model, starts[:1])  # compiled, or taken from the disk
                began = time.process_time()
                label = find_limits(model, starts).label
                spent = 1e3 * (time.process_time() - began) / count
                learn = (label == Label.GLOBAL_MINIMUM).double().mean().item()
                open_ = int((label == Label.UNRESOLVED).sum())
                total, unresolved = total + count, unresolved + open_
                print(f"{p:6}{q:6}{length:9}  {kind:>10}{learn:8.2%}{open_:12}{spent:10.3f}",
                      flush=True)  # fmt: skip
    print(f"{unresolved} of {total} starts unresolved")


def beside_diffrax(
    lengths: list[int], counts: list[int], rounds: int, rtol: float, own: float
) -> None:
    """CPU time of both, the errors of their limits, and whether labels differ where both decide."""
    peer = PEER | {"rtol": rtol, "atol": 1e-2 * rtol}
    print(f"{'N':>8}{'starts':>8}{'flowsim ms':>12}{'diffrax ms':>12}{'ratio':>9}{'undecided':>12}"
          f"{'theirs':>9}{'differing':>11}{'error':>17}{'theirs':>18}")  # fmt: skip
    for length in lengths:
        for count in counts:
            model = RankOneModel(BinaryChain(0.5, 0.8), length)
            starts = starts_of(model, "lifted", count).numpy()
            workers = {
                "ours": Worker("peers_flowsim", "rank-one", starts, length=length, rtol=own),
                "theirs": Worker("peers_diffrax", "rank-one", starts, length=length, **peer),
            }
            label = {name: worker.result[:, 0] for name, worker in workers.items()}
            open_ = {name: int((found == UNRESOLVED).sum()) for name, found in label.items()}
            both = np.logical_and.reduce([found != UNRESOLVED for found in label.values()])
            differing = int((label["ours"] != label["theirs"])[both].sum())
            limit = find_limits(model, starts, 1e-11).theta
            error = {}
            for name, worker in workers.items():
                away = np.abs(worker.result[:, 1:] - limit).max(axis=1)
                middle, most = np.quantile(away[both], [0.5, 0.99])
                error[name] = f"{middle:.0e} to {most:.0e}"
            cost = {name: row["cpu_us"] / 1e3 for name, row in take_turns(workers, rounds).items()}
            print(f"{length:8}{count:8}{cost['ours']:12.3f}{cost['theirs']:12.3f}"
                  f"{cost['ours'] / cost['theirs']:9.4f}{open_['ours']:12}{open_['theirs']:9}"
                  f"{differing:11}{error['ours']:>18}{error['theirs']:>18}",
                  flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 8, 64, 1024, 10**6])
    parser.add_argument("--peer", type=int, nargs="+", metavar="COUNT")
    parser.add_argument("--rounds", type=int, default=3, help="the medians of these are printed")
    parser.add_argument("--rtol", type=float, default=1e-4, help="of diffrax; its atol is 1/100")
    parser.add_argument("--own-rtol", type=float, default=1e-8, help="of flowsim, beside a peer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peer:
        beside_diffrax(
            options.lengths, options.peer, options.rounds, options.rtol, options.own_rtol
        )
    else:
        sweep(options.lengths, options.starts)


if __name__ == "__main__":
    main()
