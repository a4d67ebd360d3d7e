"""What ``flowsim.reduce`` costs against the number of weights P and of coordinates k.

Two-layer ReLU networks, in whose start k − 1 inputs have the same row of weights in every unit, so
that there are k coordinates: seconds of one core, and the most memory of the process so far.

    python benchmarks/reduce.py
"""

from __future__ import annotations

import resource
import time

import torch

import flowsim


def cost(inputs: int, width: int) -> tuple[int, int, float]:
    """Weights, coordinates and seconds of the reduction of one network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, inputs, generator=generator, dtype=torch.float64)
    y = torch.randn(64, generator=generator, dtype=torch.float64)
    row = torch.randn(inputs, generator=generator, dtype=torch.float64)
    start = {"first": row.repeat(width, 1), "second": torch.full((width,), 0.1).double()}

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return ((torch.relu(x @ weights["first"].T) @ weights["second"] - y) ** 2).mean()

    began = time.process_time()
    model = flowsim.reduce(loss, start)
    seconds = time.process_time() - began
    return model.exactness.weights, len(model.coordinates), seconds


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("weights  coordinates  seconds  MB so far")
    for inputs in (3, 9, 29):  # k = inputs + 1
        for weights in (100, 1_000, 10_000, 100_000):
            p, k, seconds = cost(inputs, weights // (inputs + 1))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{p:7d}  {k:11d}  {seconds:7.2f}  {memory:9.0f}", flush=True)
