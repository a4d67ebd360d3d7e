"""Numbers in, numbers out: tensors, numpy arrays and lists are all welcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from flowsim.errors import InputError

#: Numbers of any shape, as public functions accept them.
Numbers = Tensor | np.ndarray | Sequence[Any] | float

_Function = TypeVar("_Function", bound=Callable[..., Any])


def to_tensor(values: Any, argument: str = "values") -> Tensor:
    """Return real numbers of any shape as a float64 tensor; a tensor stays on its device.

    Args:
        values: a tensor, an array (also of xarray), a number, or nested lists of numbers or of
            tensors.
        argument: what to call them in messages.

    Raises:
        InputError: they are not real numbers, or rows differ in length.
    """
    if isinstance(values, Tensor):
        if values.is_complex():
            raise InputError(f"{argument} must be real numbers, not {values.dtype}")
        return values.to(torch.float64)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"{argument} must be numbers, in rows of one length") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{argument} must be real numbers, not {array.dtype}")
    return torch.from_numpy(np.array(array, dtype=np.float64))  # a copy, which may be written to


def resolve_device(device: str) -> str:
    """Return "cpu" or "cuda" for a device's name; "auto" takes CUDA if there is one.

    Raises:
        InputError: another word, or CUDA asked for without a CUDA device.
    """
    if device not in ("cpu", "cuda", "auto"):
        raise InputError(f"device must be cpu, cuda or auto, not {device!r}")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda is asked for, and this machine has no CUDA device")
    return device


def accepts_arrays(function: _Function) -> _Function:
    """Let a function of tensors take arrays, lists and numbers too, and answer in kind.

    Given tensors, the function is called unchanged. Otherwise every argument that is an array, a
    list, a tuple or a number becomes a float64 tensor, and tensors that come back become numpy
    arrays.
    """

    @wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        plain = [_is_plain(value) for value in args]
        named = {name for name, value in keywords.items() if _is_plain(value)}
        if not any(plain) and not named:
            return function(*args, **keywords)
        tensors = any(isinstance(value, Tensor) for value in (*args, *keywords.values()))
        args = tuple(to_tensor(v) if p else v for v, p in zip(args, plain, strict=True))
        keywords = {n: to_tensor(v) if n in named else v for n, v in keywords.items()}
        found = function(*args, **keywords)
        return found.numpy() if isinstance(found, Tensor) and not tensors else found

    return called  # type: ignore[return-value]


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, list, tuple or array, and no tensor."""
    if isinstance(value, Tensor | bool | str):
        return False
    return isinstance(value, float | int | list | tuple) or hasattr(value, "__array__")
