"""What ``flowsim.reduce`` costs against the number of weights P and of coordinates k.

Two-layer ReLU networks, in whose start k − 1 inputs have the same row of weights in every unit, so
that there are k coordinates: seconds of one core, and the most memory of the process so far. Then
what the model that is found costs: its loss and gradient at many starts at once.

    python benchmarks/reduce.py
"""

from __future__ import annotations

import resource
import time

import torch

import flowsim


def reduced(inputs: int, width: int) -> tuple[flowsim.Model, float]:
    """The reduced model of one network, and seconds."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, inputs, generator=generator, dtype=torch.float64)
    y = torch.randn(64, generator=generator, dtype=torch.float64)
    row = torch.randn(inputs, generator=generator, dtype=torch.float64)
    start = {"first": row.repeat(width, 1), "second": torch.full((width,), 0.1).double()}

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return ((torch.relu(x @ weights["first"].T) @ weights["second"] - y) ** 2).mean()

    began = time.process_time()
    model = flowsim.reduce(loss, start)
    return model, time.process_time() - began


def many(model: flowsim.Model, starts: int) -> float:
    """Seconds of one gradient at so many starts, the best of three."""
    theta = torch.randn(starts, len(model.coordinates), dtype=torch.float64)
    taken = []
    for _ in range(3):
        began = time.process_time()
        model.gradient(theta)
        taken.append(time.process_time() - began)
    return min(taken)


def megabytes() -> float:
    """The most memory of the process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("weights  starts  milliseconds  MB so far")
    for weights in (100, 1_000, 10_000):
        model, _ = reduced(3, weights // 4)
        for starts in (1, 16, 256):
            taken = many(model, starts)
            print(f"{weights:7d}  {starts:6d}  {1e3 * taken:12.2f}  {megabytes():9.0f}", flush=True)
    print("weights  coordinates  seconds  MB so far")
    for inputs in (3, 9, 29):  # k = inputs + 1
        for weights in (100, 1_000, 10_000, 100_000):
            model, taken = reduced(inputs, weights // (inputs + 1))
            k = len(model.coordinates)
            print(f"{weights:7d}  {k:11d}  {taken:7.2f}  {megabytes():9.0f}", flush=True)
