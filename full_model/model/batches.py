"""Loss and gradient of an ensemble on sampled batches, in pieces that stay in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from full_model.model import native
from full_model.model.architecture import Architecture, Weights
from full_model.model.transformer import cross_entropy, forward

#: Numbers in the widest activation of one piece: 4 MiB of float32 on a CPU, whose cache holds it,
#: and 2 GiB on a GPU, of which backpropagation holds about ten.
PIECE, PIECE_ON_GPU = 2**20, 2**29


def widest(arch: Architecture, n: int) -> int:
    """Return how many numbers the widest activation holds at one of n positions."""
    scores = arch.heads * n if arch.attention in ("softmax", "selective") else 0
    return max(arch.width, arch.d, arch.states_kept, scores)


def threads_for(numbers: int) -> int:
    """Number of threads for arrays of so many numbers: one if a cache holds them."""
    return 1 if numbers < PIECE else torch.get_num_threads()


def batch_gradient(
    arch: Architecture, weights: Weights, inputs: Tensor, targets: Tensor, fast: int = 0
) -> tuple[Tensor, Weights]:
    """Compute the mean cross-entropy (M,) of each model's own batch, and its gradient by name.

    For symbols (M, batch, n), in pieces: a model's numbers do not depend on its piece beyond
    rounding. ``fast`` is the number of threads for the compiled kernel, where it fits; 0 for
    PyTorch.
    """
    like = weights["bias"]
    if fast and native.fits(arch, like.dtype, like.device):
        found = native.loss_and_gradient(arch, weights, inputs, targets, fast)
        if found is not None:
            return found
    members, batch, n = inputs.shape
    numbers = PIECE if inputs.device.type == "cpu" else PIECE_ON_GPU
    size = max(1, min(members, numbers // (batch * n * widest(arch, n))))
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
