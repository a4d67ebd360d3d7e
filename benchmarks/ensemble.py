"""Ensembles against a Python loop over single models, and against the machine's arithmetic.

Every contender takes the same AdamW step (AM Table 2, fresh batches of 16 sequences of N = 64) on
the same 256 transformers of d = 8, r = 32 in float32:

- loop: one model after the other, PyTorch's autograd and torch.optim.AdamW, as one writes it;
- loop of ours: one ensemble of a single model after the other;
- ensemble, torch: all models as one batched PyTorch computation;
- ensemble, compiled: the same with the C++ kernel (full_model/kernel.cpp), where there is a
  compiler;
- ensemble, cuda: where there is a GPU.

It prints models·steps per second, ratios to the loop, and the share of the arithmetic limit: the
step's multiplications and additions (counted below) at the rate of a large float32 matrix product.

    python benchmarks/ensemble.py [--models 256] [--length 64] [--batch 16] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from flowsim.chain import BinaryChain
from full_model.data import MarkovSource
from full_model.initial import initial_weights
from full_model.training import Trainer, papers_recipe
from full_model.transformer import Architecture, Weights

CHAIN = BinaryChain(0.5, 0.8)


def seconds(step: Callable[[], object], least: float = 2.0, device: str = "cpu") -> float:
    """Seconds per call: the best of three rounds that last at least ``least`` in total."""
    step()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < least / 4:
        step()
        count += 1
    best = math.inf
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / count)
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
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
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
    found = {
        "loop": 1 / seconds(plain_loop(arch, weights, options.batch)),
        "loop of ours": 1 / seconds(trainer(1, compiles).advance),
        "ensemble, torch": options.models / seconds(trainer(options.models, False).advance),
    }
    if compiles:
        fast = trainer(options.models, True)
        found["ensemble, compiled"] = options.models / seconds(fast.advance)
    if torch.cuda.is_available():
        gpu = trainer(options.models, False, "cuda")
        found["ensemble, cuda"] = options.models / seconds(gpu.advance, device="cuda")
    side = 2048
    a = torch.randn(side, side)
    rate = 2 * side**3 / seconds(lambda: a @ a)
    limit = rate / operations(arch, options.batch)
    for name, value in found.items():
        line = {
            "contender": name,
            "models_steps_per_second": round(value),
            "ratio_to_loop": round(value / found["loop"], 2),
            "ratio_to_loop_of_ours": round(value / found["loop of ours"], 2),
        }
        if "cuda" not in name:
            line["share_of_arithmetic_limit"] = round(value / limit, 4)
        print(json.dumps(line))
    print(json.dumps({"threads": options.threads, "limit_models_steps_per_second": round(limit)}))


if __name__ == "__main__":
    main()
