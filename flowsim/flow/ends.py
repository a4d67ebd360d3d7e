"""The ends of trajectories, as ``find_limits`` gives them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import torch
from torch import Tensor


@dataclass
class Limits:
    """Ends of trajectories, one entry per leading index of the starts.

    Attributes:
        theta: end points, shape (..., k).
        label: ``Label`` values, int8; UNRESOLVED unless the flow itself decided.
        status: ``Status`` values, int8.
        rule: ``Rule`` values, int8.
        loss: loss at the end point, in nats.
        gradient_norm: ‖∇L‖ at the end point.
        evaluations: evaluations of the field, int64.
        kinks: how many times the orbit met a surface where its field jumps, such as a ReLU's kink,
            int32; 0 where the engine looks for none.
        sliding_time: time that it spent sliding along them, physical gradient-flow time.
    """

    theta: Tensor
    label: Tensor
    status: Tensor
    rule: Tensor
    loss: Tensor
    gradient_norm: Tensor
    evaluations: Tensor
    kinks: Tensor = field(default_factory=lambda: torch.zeros(0))
    sliding_time: Tensor = field(default_factory=lambda: torch.zeros(0))

    def __post_init__(self) -> None:
        if self.kinks.shape != self.label.shape:
            self.kinks = torch.zeros_like(self.label, dtype=torch.int32)
            self.sliding_time = torch.zeros_like(self.loss)

    def on(self, device: str) -> Limits:
        """The same on another device."""
        return Limits(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    @classmethod
    def joined(cls, parts: list[Limits], lead: torch.Size) -> Limits:
        """All rows of the parts, with the leading shape ``lead``."""
        columns = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        return cls(**{name: c.reshape(lead + c.shape[1:]) for name, c in columns.items()})
