"""Loss and gradient of an ensemble on sampled batches, in pieces that stay in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from full_model.transformer import Architecture, Weights, cross_entropy, forward

#: Numbers in the widest activation of one piece on the CPU: 4 MiB of float32.
_PIECE = 2**20


def batch_gradient(
    arch: Architecture, weights: Weights, inputs: Tensor, targets: Tensor
) -> tuple[Tensor, Weights]:
    """Mean cross-entropy of each model's own batch, (M,), and its gradient by name.

    Args:
        arch, weights: M models, weights of shape (M, *shape).
        inputs, targets: symbols, (M, batch, n).

    On a CPU the models go through in pieces whose activations fit the cache: a model's numbers do
    not depend on the piece it falls into beyond rounding.
    """
    members, batch, n = inputs.shape
    widest = max(arch.width, arch.heads * n if arch.attention == "softmax" else 0)
    size = members
    if inputs.device.type == "cpu":
        size = max(1, min(members, _PIECE // (batch * n * widest)))
    losses, pieces = [], []
    for start in range(0, members, size):
        part = slice(start, start + size)
        free = {name: w[part].detach().requires_grad_() for name, w in weights.items()}
        logits = forward(arch, free, inputs[part])
        loss = cross_entropy(arch, logits, targets[part]).mean((-2, -1))
        pieces.append(torch.autograd.grad(loss.sum(), list(free.values())))
        losses.append(loss.detach())
    gradient = {name: torch.cat([piece[i] for piece in pieces]) for i, name in enumerate(weights)}
    return torch.cat(losses), gradient
