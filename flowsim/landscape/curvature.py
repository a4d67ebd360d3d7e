"""The loss's second derivatives, and the kind of a critical point."""

from __future__ import annotations

import torch
from torch import Tensor

from flowsim.arrays import accepts_arrays
from flowsim.interface import Model
from flowsim.labels import Label


@accepts_arrays
def curvatures(model: Model, theta: Tensor) -> Tensor:
    """Eigenvalues of the loss's Hessian G^−½ ∇∇L G^−½, ascending, shape (..., k).

    Of a flow that is no gradient flow: −Re of those of its Jacobian, the rates of return.
    """
    return _curvatures(model, theta)


def _curvatures(model: Model, theta: Tensor) -> Tensor:
    if type(model).field is not Model.field:
        return -torch.linalg.eigvals(model.jacobian(theta)).real.sort(descending=True).values
    root = torch.tensor(model.metric, dtype=theta.dtype, device=theta.device).rsqrt()
    return torch.linalg.eigvalsh(root * model.hessian(theta) * root.unsqueeze(-1))


def classify_critical(model: Model, theta: Tensor, decisive: bool = False) -> Tensor:
    """The kind of a critical point: what the model says, or else by its loss and curvature.

    The best loss: global minimum. A negative curvature: saddle. None negative and one positive:
    local minimum (minima here are curves and planes, flat along themselves). All zero: a point
    between minima and maxima of a critical plane, a saddle. Where float64 cannot tell the best loss
    from the trap's, the answer is unresolved. A model without levels has no global minima: which of
    its minima is the lowest, a point alone cannot tell.

    Args:
        model: any model.
        theta: critical points, shape (n, k).
        decisive: the points are critical only within an integrator's error: a curvature must be
            a thousandth of the largest to count (a millionth where there are no levels, since the
            engine for any loss leaves less of the way), and a flat point is unresolved.

    Returns:
        ``Label`` values, int8, shape (n,).
    """
    known = model.classify(theta, decisive)
    if known is not None:
        return known
    values, levels = _curvatures(model, theta), model.levels()
    largest = values.abs().amax(dim=-1)
    if levels is None:
        zero = (1e-6 if decisive else 1e-9) * largest
    else:
        zero = (1e-3 if decisive else 1e-9) * (levels.difference + largest)
    local = (values[:, 0] >= -zero) & (values[:, -1] > zero)
    label = torch.where(local, Label.LOCAL_MINIMUM, Label.SADDLE)
    if decisive:
        label = torch.where(largest > zero, label, Label.UNRESOLVED)
    if levels is not None:
        lowest = Label.UNRESOLVED if levels.blurred else Label.GLOBAL_MINIMUM
        label = torch.where(levels.reached(model.loss(theta)), lowest, label)
    return label.to(torch.int8)
