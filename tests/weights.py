"""Weights and runs of full models for tests."""

import torch

from full_model import Architecture, Recipe, RunSettings

#: A short run of gradient descent; tests replace a part of it.
RUN = RunSettings(Architecture(4, 6), Recipe("gd", steps=40, learning_rate=0.2), (0.5,), (0.8,))


def normal_weights(arch, seed=0, scale=0.5, ensemble=()):
    """Normal numbers of that deviation in every weight."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: scale * torch.randn((*ensemble, *shape), dtype=torch.float64, generator=generator)
        for name, shape in arch.shapes.items()
    }
