"""Two modes of word2vec, learned one after the other."""

from torch import Tensor

import flowsim


class Word2Vec(flowsim.Model):
    """L = ¼Σᵢ(σᵢ* − wᵢ²)², so that σᵢ = wᵢ² obeys σ′ = 2σ(σ* − σ): a logistic curve.

    Karkada, Simon, Bahri, DeWeese, "Closed-Form Training Dynamics Reveal Learned Features and
    Linear Structure in Word2Vec-like Models", arXiv 2502.09863.

    Args:
        first, second: σ*, eigenvalues of the target matrix.
    """

    coordinates = ("w1", "w2")

    def __init__(self, first: float = 1.0, second: float = 0.3) -> None:
        self.targets = (first, second)

    def loss(self, theta: Tensor) -> Tensor:
        return ((theta.new_tensor(self.targets) - theta**2) ** 2).sum(-1) / 4
