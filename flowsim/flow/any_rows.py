"""Rows in the flow of any loss: one step of all of them, each of its own length."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from flowsim.flow.chart import Chart
from flowsim.flow.tableau import GAMMA, ORDER, STAGES
from flowsim.flow.tableau import A as _A
from flowsim.flow.tableau import C as _C
from flowsim.interface import Model

#: Trials by false position to land on a loss.
_LANDINGS = 60
#: log|θᵢ| below which θᵢ is zero for everything else, and its error does not count.
_GONE = -600.0
#: A step is very short below this, in units of 1/|∂(dy/dt)/∂y|.
_SHORT = 1e-4
#: A row this many times larger than it was, or than 1, has diverged.
_FAR = 1e12
#: Numbers that torch takes at once, with AVX-512; it rounds those that are left otherwise.
_AT_ONCE = 16


def filled(which: Tensor) -> Tensor:
    """The numbers of the rows (m,) that are True, the last again and again until they fill vectors.

    So the rounding of no row depends on its place; a row that is there twice goes the same way
    twice.
    """
    index = which.nonzero()[:, 0]
    return torch.cat([index, index[-1:].expand(-len(index) % _AT_ONCE)]) if len(index) else index


@dataclass
class Rows:
    """Rows on their way.

    Attributes:
        model: whose flow it is.
        relative, absolute: the error allowed per step, for each coordinate of the chart.
        chart: of these rows.
        index: their numbers among the starts, (m,).
        y, theta: where they are, in the chart and outside it, (m, k).
        field, jacobian: dy/dt and its derivative there.
        h, time: the next step's length, and the time so far, (m,).
        far: |y| beyond which a row has diverged.
        stuck: which rows can be followed no further.
        short: how many steps were very short beside 1/|∂(dy/dt)/∂y|: on a kink many are.
    """

    model: Model
    relative: Tensor
    absolute: Tensor
    chart: Chart
    index: Tensor
    y: Tensor
    theta: Tensor
    field: Tensor
    jacobian: Tensor
    h: Tensor
    time: Tensor
    far: Tensor
    stuck: Tensor
    short: Tensor

    @classmethod
    def at(cls, model: Model, theta: Tensor, rtol: float, atol: float) -> Rows:
        """The finite rows of θ (n, k), ``filled``."""
        index = filled(theta.isfinite().all(1))
        theta = theta[index].detach()
        chart = Chart.at(model, theta)
        y = chart.to_chart(theta)
        relative = torch.where(chart.logarithmic, 1e-15, rtol)
        absolute = torch.where(chart.logarithmic, rtol, atol)
        zero, far = torch.zeros_like(y[:, 0]), _FAR * y.abs().amax(1).clamp_min(1.0)
        rows = cls(
            model, relative, absolute, chart, index, y, theta, y, y, zero, zero, far, zero > 0, zero
        )
        rows._linearise()
        rows.h = 0.1 / rows.field.abs().amax(1)
        return rows

    def some(self, which: Tensor | slice) -> Rows:
        """Some of the rows; what one of the two does leaves the other as it is."""
        parts = (getattr(self, f.name)[which] for f in fields(self)[4:])
        return Rows(self.model, self.relative, self.absolute, self.chart.rows(which), *parts)

    def size(self) -> Tensor:
        """|y|, (m, k), but of no coordinate that has fallen to zero more than that."""
        return torch.where(self.chart.logarithmic, self.y.clamp_min(_GONE), self.y).abs()

    def advance(self, h: Tensor) -> Tensor:
        """Attempt a step of length h (m,) with every row; which rows moved."""
        new, error = self._step(h)
        allowed = self.absolute + self.relative * torch.maximum(self.y.abs(), new.abs())
        gone = self.chart.logarithmic & (new < _GONE)
        ratio = (error.abs() / allowed).where(~gone, 0.0).amax(1)
        ratio = torch.where(ratio.isfinite(), ratio, torch.inf)
        moved = ratio <= 1
        self.short = self.short + (self.h * self.jacobian.abs().amax((1, 2)) < _SHORT)
        factor = (0.9 * ratio.clamp_min(1e-10) ** (-1.0 / ORDER)).clamp(0.1, 6.0)
        cut = moved & (h < self.h)  # which says nothing against a longer step
        self.h = torch.where(cut, torch.maximum(factor * h, self.h), factor * h)
        self.y = torch.where(moved.unsqueeze(1), new, self.y)
        self.time = torch.where(moved, self.time + h, self.time)
        self._linearise()
        self.stuck = ~(self.h > 1e-15 * self.time) | ~self.field.isfinite().all(1)
        return moved

    def land(self, h: Tensor, wanted: Tensor) -> Tensor:
        """Lengths ≤ h of steps that end on the losses ``wanted``, which steps of length h pass.

        By false position, where an end of the bracket that stays counts half (Illinois).
        """
        low, high = torch.zeros_like(h), h
        above, below = self.model.loss(self.theta) - wanted, self._loss_after(h) - wanted
        length = h
        for _ in range(_LANDINGS):
            length = low + (high - low) * (above / (above - below)).nan_to_num(0.5)
            excess = self._loss_after(length) - wanted
            up = excess > 0
            low, high = torch.where(up, length, low), torch.where(up, high, length)
            above, below = torch.where(up, excess, above / 2), torch.where(up, below / 2, excess)
            if bool(((high - low <= 1e-15 * h) | (excess == 0)).all()):
                break
        return length

    def _loss_after(self, h: Tensor) -> Tensor:
        return self.model.loss(self.chart.to_theta(self._step(h.clamp_min(1e-300))[0]))

    def _linearise(self) -> None:
        self.theta = self.chart.to_theta(self.y)
        self.field = self.chart.velocity(self.model, self.y)
        jacobian = self.model.jacobian(self.theta)
        self.jacobian = self.chart.push_jacobian(self.theta, self.field, jacobian)

    def _step(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """The rows after one step of Rodas5P of length h (m,), and its error."""
        m, k = self.y.shape
        rate = (1 / h).unsqueeze(1)
        matrix = torch.diag_embed((rate / GAMMA).expand(m, k)) - self.jacobian
        inverse, _ = torch.linalg.inv_ex(matrix)
        stages = self.y.new_empty(m, STAGES, k)
        # products of each row alone: in one of all rows, rounding would depend on a row's place
        a, c = (h.new_tensor(x).expand(m, -1, -1) for x in (_A, _C))
        point, right = self.y, self.field
        for s in range(STAGES):
            if s:
                point = self.y + torch.bmm(a[:, s : s + 1, :s], stages[:, :s]).view(m, k)
                right = self.chart.velocity(self.model, point)
                right = right + torch.bmm(c[:, s : s + 1, :s], stages[:, :s]).view(m, k) * rate
            stages[:, s] = torch.bmm(inverse, right.unsqueeze(2)).view(m, k)
        error = stages[:, -1]
        return point + error, error
