"""Execution of PyTorch: number of threads, and captured graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from full_model.model.architecture import Weights

#: Loss (M,) and gradient by name, from weights and what else there is.
Descent = Callable[..., tuple[Tensor, Weights]]
#: Calls of a function before it is captured, in which libraries set themselves up.
_WARM = 2


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """A function that repeats its work on the same memory: one launch of a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class CudaGraphCallable:
    """A loss and its gradient, asked for again and again with tensors of the same shapes.

    On a small ensemble Python takes longer to launch the operators than a GPU to run them. So there
    they are captured after two calls, and each later call launches all of them at once, with the
    same numbers: its arguments are copied to where they were then, and what it returns is
    overwritten by the next call. On a CPU every call is the function's own.

    Args:
        function: of weights and tensors; looks at no number.
        capture: makes what repeats a piece of work; without it nothing is captured.
    """

    def __init__(
        self,
        function: Descent,
        capture: Callable[[Callable[[], None]], Callable[[], None]] | None = None,
    ) -> None:
        self.function, self.capture, self.calls = function, capture, 0
        self._replay: Callable[[], None] | None = None
        self._weights: Weights = {}
        self._others: tuple[Tensor, ...] = ()
        self._found: tuple[Tensor, Weights]

    @classmethod
    def on(cls, device: torch.device, function: Descent) -> CudaGraphCallable:
        """The function, captured on a GPU and plain on a CPU."""
        return cls(function, cuda_graph if device.type == "cuda" else None)

    def __call__(self, weights: Weights, *others: Tensor) -> tuple[Tensor, Weights]:
        self.calls += 1
        if self.capture is None or self.calls <= _WARM:
            return self.function(weights, *others)
        if self._replay is None:
            self._weights, self._others = dict(weights), tuple(x.clone() for x in others)
            self._replay = self.capture(self._work)
        else:
            pairs = [(self._weights[name], w) for name, w in weights.items()]
            for mine, given in [*pairs, *zip(self._others, others, strict=True)]:
                if mine.data_ptr() != given.data_ptr():
                    mine.copy_(given)
        self._replay()
        return self._found

    def _work(self) -> None:
        self._found = self.function(self._weights, *self._others)
