"""Grokking in a linear estimator: the training loss falls long before the generalization loss."""

import torch
from torch import Tensor

import flowsim


class LinearEstimator(flowsim.Model):
    """L = ½(λ₁x² + λ₂y²), with the generalization loss ½(x² + y²); x and y are errors.

    Levi, Beck, Bar-Sinai, "Grokking in Linear Estimators", arXiv 2310.16441. λ are eigenvalues of
    the training covariance: the training loss falls in 1/(2λ₁), generalization in 1/(2λ₂).

    Args:
        large, small: λ₁ and λ₂.
    """

    coordinates = ("x", "y")

    def __init__(self, large: float = 1.0, small: float = 0.01) -> None:
        self.eigenvalues = (large, small)

    def loss(self, theta: Tensor) -> Tensor:
        return (theta.new_tensor(self.eigenvalues) * theta.square()).sum(-1) / 2

    def generalization(self, theta: Tensor) -> Tensor:
        return torch.as_tensor(theta).square().sum(-1) / 2
