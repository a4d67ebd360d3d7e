"""A model of a loss that is written in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowsim.errors import InputError
from flowsim.interface import Model
from flowsim.own import of_formula


def from_jax(formula: Callable[..., Any], name: str = "", metric: tuple[float, ...] = ()) -> Model:
    """Make a model of a loss that is a formula in JAX, differentiated by JAX in float64.

    Args:
        formula: the loss as a function of the coordinates, each a scalar, in ``jax.numpy``; what
            has a default is a constant.
        name: of the model; by default that of the function.
        metric: the diagonal of G; by default ones.

    Raises:
        InputError: JAX is not installed, or the function has no arguments without a default.

    >>> from flowsim.exchange.jax_loss import from_jax  # doctest: +SKIP
    >>> well = from_jax(lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2, "well")  # doctest: +SKIP
    >>> well.gradient([[2.0, 1.0]])  # doctest: +SKIP
    array([[6., 1.]])
    """
    try:
        import jax
    except ImportError:
        raise InputError("a loss in JAX needs jax: pip install 'flowsim-lab[jax]'") from None

    def row(theta: Any) -> Any:
        """The loss of one θ, (k,)."""
        return formula(*theta)

    def method(function: Callable[..., Any], order: int) -> Callable[..., Tensor]:
        """Make a method of θ (..., k) of a function of one θ, whose values have ``order`` axes."""
        each = jax.jit(jax.vmap(function))

        def of_rows(self: Model, theta: Tensor) -> Tensor:
            k = theta.shape[-1]
            rows = theta.detach().cpu().numpy().reshape(-1, k)
            size = 1 << max(len(rows) - 1, 0).bit_length()  # JAX compiles for each number of rows
            padded = np.concatenate([rows, np.zeros((size - len(rows), k))])
            with jax.enable_x64(True):
                values = np.array(each(padded))[: len(rows)]
            return torch.from_numpy(values).to(theta).reshape(*theta.shape[:-1], *[k] * order)

        return of_rows

    return of_formula(
        formula, name, metric, loss=method(row, 0), gradient=method(jax.grad(row), 1),
        hessian=method(jax.hessian(row), 2),
    )  # fmt: skip
