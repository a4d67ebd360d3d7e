"""Ensembles against a Python loop over single models, and against the machine's arithmetic.

Every contender takes the same AdamW step (AM Table 2, fresh batches of 16 sequences of N = 64) on
the same 256 transformers of d = 8, r = 32 in float32:

- loop: one model after the other, PyTorch's autograd and torch.optim.AdamW, as one writes it, with
  all threads or with one, whichever is the faster;
- loop of ours: one ensemble of a single model after the other;
- ensemble, torch: all models as one batched PyTorch computation;
- ensemble, compiled: the same with the C++ kernel (full_model/model/kernel.cpp), where there is a
  compiler;
- ensemble, cuda: where there is a GPU.

The contenders take turns, round after round, and the best round of each counts. It prints
models·steps per second, the same per second of CPU time (which neighbours on the machine disturb
less), ratios to the loop, and the share of the arithmetic limit: the step's multiplications and
additions (counted below) at the rate of a large float32 matrix product.

    python benchmarks/ensemble.py [--models 256] [--length 64] [--batch 16] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from full_model import Architecture, MarkovSource, Trainer, Weights, initial_weights, papers_recipe

CHAIN = BinaryChain(0.5, 0.8)


class Contender(NamedTuple):
    """A step of some models, how many they are, and the threads that PyTorch gives it."""

    step: Callable[[], object]
    models: int
    threads: int
    device: str = "cpu"


def rates(contenders: dict[str, Contender], rounds: int) -> dict[str, tuple[float, float]]:
    """Models·steps per second, and per second of CPU time, by name: the best of the rounds."""
    counts = dict.fromkeys(contenders, 0)
    best = dict.fromkeys(contenders, (0.0, 0.0))
    for turn in range(rounds + 1):  # the first one compiles, warms up and counts
        for name, contender in contenders.items():
            torch.set_num_threads(contender.threads)
            if turn == 0:
                contender.step()
            begin, busy, done = time.perf_counter(), time.process_time(), 0
            while done < counts[name] or (turn == 0 and time.perf_counter() - begin < 0.5):
                contender.step()
                done += 1
            if contender.device == "cuda":
                torch.cuda.synchronize()
            counts[name] = done
            work = contender.models * done
            wall, busy = time.perf_counter() - begin, time.process_time() - busy
            best[name] = (max(best[name][0], work / wall), max(best[name][1], work / busy))
    return best


def plain_loop(arch: Architecture, weights: Weights, batch: int) -> Callable[[], object]:
    """One AdamW step of one model, written as one writes it."""
    w = {name: tensor[0].clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.AdamW(w.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-3)
    generator = torch.Generator().manual_seed(0)
    n = arch.length
    mask = torch.full((n, n), -math.inf).triu(1)

    def logits(tokens: Tensor) -> Tensor:
        x = tokens.unsqueeze(-1) * w["embedding"] + w["positions"]
        query, key, value = (x @ w[f"0.{name}"].mT for name in ("query", "key", "value"))
        attention = (query @ key.mT / math.sqrt(arch.d) + mask).softmax(-1)
        y = x + attention @ value @ w["0.out"].mT
        z = y + (y @ w["0.up"].mT).relu() @ w["0.down"].mT
        return z @ w["embedding"] + w["bias"]

    def step() -> None:
        inputs, targets = CHAIN.sample(batch, n, generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits(inputs.float()), targets.float()
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()

    return step


def operations(arch: Architecture, batch: int) -> float:
    """Multiplications and additions of one model's step, forward and backward."""
    n, d, r = arch.length, arch.d, arch.width
    pairs = n * (n + 1) / 2
    matrices = n * (4 * d * d + d * r)  # W_Q, W_K, W_V, W_O, W_1; the tied reader folds W_2 into r
    return batch * 6 * (matrices + pairs * 2 * d)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=256)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    arch, source = Architecture(8, options.length), MarkovSource.of(CHAIN)
    double = initial_weights(arch, "gaussian", range(options.models))
    weights = {name: w.float() for name, w in double.items()}

    def trainer(models: int, fast: bool, device: str = "cpu") -> Trainer:
        own = {name: w[:models].to(device) for name, w in weights.items()}
        generator = torch.Generator(device).manual_seed(0)
        made = Trainer(arch, own, source, papers_recipe(8000, options.batch), generator)
        made.fast = made.fast and fast
        return made

    compiles = trainer(options.models, True).fast
    everyone, threads = options.models, options.threads
    side = 2048
    a = torch.randn(side, side)
    contenders = {
        "loop, one thread": Contender(plain_loop(arch, weights, options.batch), 1, 1),
        "loop, all threads": Contender(plain_loop(arch, weights, options.batch), 1, threads),
        "loop of ours": Contender(trainer(1, compiles).advance, 1, threads),
        "ensemble, torch": Contender(trainer(everyone, False).advance, everyone, threads),
        "matrix product": Contender(lambda: a @ a, 1, threads),
    }
    if compiles:
        fast = trainer(everyone, True).advance
        contenders["ensemble, compiled"] = Contender(fast, everyone, threads)
    if torch.cuda.is_available():
        gpu = trainer(everyone, False, "cuda").advance
        contenders["ensemble, cuda"] = Contender(gpu, everyone, threads, "cuda")
    found = rates(contenders, options.rounds)
    limit = 2 * side**3 * found.pop("matrix product")[0] / operations(arch, options.batch)
    loops = [found.pop(f"loop, {kind}") for kind in ("one thread", "all threads")]
    loop = tuple(map(max, *loops))
    found = {"loop": loop} | found
    ours = found["loop of ours"][0]
    for name, (value, frugal) in found.items():
        line: dict[str, str | float] = {
            "contender": name,
            "models_steps_per_second": round(value),
            "models_steps_per_cpu_second": round(frugal),
            "ratio_to_loop": round(value / loop[0], 2),
            "ratio_to_loop_of_ours": round(value / ours, 2),
        }
        if "cuda" not in name:
            line["share_of_arithmetic_limit"] = round(value / limit, 4)
        print(json.dumps(line))
    print(json.dumps({"threads": threads, "limit_models_steps_per_second": round(limit)}))


if __name__ == "__main__":
    main()
