"""Weights of full models for tests."""

import torch


def normal_weights(arch, seed=0, scale=0.5, ensemble=()):
    """Normal numbers of that deviation in every weight."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: scale * torch.randn((*ensemble, *shape), dtype=torch.float64, generator=generator)
        for name, shape in arch.shapes.items()
    }
