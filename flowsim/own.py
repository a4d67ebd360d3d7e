"""Models of a formula alone, and the check of a user's loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowsim.errors import InputError
from flowsim.sources import check_coordinates, first_line_of

if TYPE_CHECKING:
    from torch import Tensor

    from flowsim.interface import Model


def from_loss(
    formula: Callable[..., Tensor], name: str = "", metric: tuple[float, ...] = ()
) -> Model:
    """A model of a formula alone.

    Args:
        formula: the loss as a function of the coordinates, each a tensor of the same shape; what
            has a default is a constant.
        name: of the model; by default that of the function.
        metric: the diagonal of G; by default ones.

    Raises:
        InputError: the function has no arguments without a default.

    >>> import flowsim
    >>> well = flowsim.from_loss(lambda x, y, g=0.2: (x**2 - 1) ** 2 / 4 + y**2 / 2 + g * x, "well")
    >>> well.coordinates
    ('x', 'y')
    """

    def loss(self: Model, theta: Tensor) -> Tensor:
        return formula(*theta.unbind(-1))

    return of_formula(formula, name, metric, loss=loss, formula=staticmethod(formula))


def of_formula(
    formula: Callable[..., Any], title: str, metric: tuple[float, ...], /, **members: Any
) -> Model:
    """A model with these members, whose coordinates are the arguments of a formula."""
    from flowsim.interface import Model

    arguments = inspect.signature(formula).parameters.values()
    coordinates = tuple(a.name for a in arguments if a.default is a.empty)
    title = title or getattr(formula, "__name__", "formula").strip("<>")
    check_coordinates(title, coordinates)
    members |= {"metric": metric} if metric else {}
    members |= {"coordinates": coordinates, "__module__": formula.__module__, "__doc__": title}
    return type(title, (Model,), members)()


def check_own(model: Model, theta: Tensor) -> Tensor:
    """The starts (n, k), those outside the domain of the loss or of the field as NaN.

    Raises:
        InputError: the loss cannot be followed from any start, or is not written as it must be.
    """
    import torch

    name = model.name
    check_coordinates(name, getattr(model, "coordinates", None))
    rows = theta.isfinite().all(1).nonzero()[:, 0]
    finite = theta[rows]
    if not len(finite):
        return theta
    few = torch.cat([finite[:2], 1.01 * finite[:1] + 0.01])
    given = few.clone()
    loss = _called(name, "loss", model.loss, given)
    if not isinstance(loss, torch.Tensor):
        raise InputError(f"the loss of {name} is {type(loss).__name__}, not a tensor: use torch")
    if loss.shape != few.shape[:1]:
        shapes = f"{tuple(loss.shape)} for θ of shape {tuple(few.shape)}"
        raise InputError(f"the loss of {name} has the shape {shapes}; it must be ({len(few)},)")
    if loss.dtype != few.dtype:
        raise InputError(f"the loss of {name} is {loss.dtype}; it must be float64, as θ is")
    if not torch.equal(given, few):
        raise InputError(f"the loss of {name} changes its argument θ; it must leave it as it is")
    alone = torch.cat([_called(name, "loss", model.loss, few[i : i + 1]) for i in range(len(few))])
    if not torch.allclose(alone, loss.detach(), rtol=1e-9, atol=1e-12, equal_nan=True):
        raise InputError(f"the loss of {name} mixes the rows of a batch, which are separate starts")
    inside = torch.ones(len(finite), dtype=torch.bool, device=theta.device)
    for what in ("loss", "gradient", "field"):
        found = _called(name, what, getattr(model, what), finite)
        if what != "loss":
            _check_shape(name, what, found, finite.shape)
        inside &= found.reshape(len(finite), -1).isfinite().all(1)
        if not bool(inside.any()):
            values = zip(model.coordinates, finite[0].tolist(), strict=True)
            place = ", ".join(f"{coordinate} = {value:g}" for coordinate, value in values)
            raise InputError(f"the {what} of {name} is finite at no start, such as {place}")
    tried = finite[inside][:2]
    jacobian = _called(name, "jacobian", model.jacobian, tried)
    _check_shape(name, "jacobian", jacobian, (*tried.shape, tried.shape[1]))
    theta = theta.clone()
    theta[rows[~inside]] = torch.nan
    return theta


def _check_shape(title: str, what: str, found: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(found.shape) != tuple(shape):
        raise InputError(
            f"the {what} of {title} has the shape {tuple(found.shape)}; it must be {tuple(shape)}"
        )


def _called(title: str, what: str, function: Callable[[Tensor], Any], theta: Tensor) -> Any:
    """Call a function of the model called ``title``; InputError with its name where it fails."""
    try:
        return function(theta)
    except InputError:
        raise
    except RuntimeError as error:
        if "does not require grad" in str(error):
            raise InputError(
                f"the loss of {title} is not differentiable: it must be written in torch, of θ"
            ) from None
        raise InputError(f"the {what} of {title} failed: {first_line_of(error)}") from None
    except Exception as error:
        raise InputError(f"the {what} of {title} failed: {first_line_of(error)}") from None
