"""Rows that meet the corners of a: paths and labels against an event-driven integration in scipy.

The oracle sums over all pasts one by one, in plain coordinates (e, w, a, b), with each ReLU held as
it is between two corners, and with Filippov's combination along them.
"""

import itertools

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from flowsim import BinaryChain, Label, Rule, Status, find_limits, trajectories
from flowsim.models import UniformAttentionModel


class Oracle:
    """Gradient flow with a bias of its own over all pasts of up to ``length`` symbols."""

    def __init__(self, chain, length):
        self.x, self.m, self.weight, self.target = [], [], [], []
        step = [[1 - chain.p, chain.p], [chain.q, 1 - chain.q]]
        for n in range(1, length + 1):
            for past in itertools.product((0, 1), repeat=n):
                chance = chain.stationary[past[0]]
                for before, after in itertools.pairwise(past):
                    chance *= step[before][after]
                self.x.append(past[-1])
                self.m.append(sum(past) / n - 0.5)
                self.weight.append(chance / length)
                self.target.append(step[past[-1]][1])
        columns = self.x, self.m, self.weight, self.target
        self.x, self.m, self.weight, self.target = (np.array(c) for c in columns)
        inner = self.m[self.m != 0], self.x[self.m != 0]
        found = (0.5 - inner[1]) / inner[0]
        self.corners = np.unique(np.round(found, 12))

    def field(self, y, open_at):
        e, w, a, b = y
        gamma, s = 4 * w * abs(w), self.x - 0.5 + a * self.m
        opened = self.x - 0.5 + open_at * self.m > 0
        gain = 1 + gamma * opened
        omega = self.weight * (1 / (1 + np.exp(-(e * e * s * gain + b))) - self.target)
        along_w = e * e * (omega * s * opened).sum() * 8 * abs(w)
        slope = 2 * e * (omega * s * gain).sum(), along_w, e * e * (omega * self.m * gain).sum()
        return -np.array([*slope, omega.sum()])

    def path(self, y, times):
        """y at the increasing ``times``, which begin at the start, and how often it slid."""
        out, slid, now, y = [np.array(y)], 0, times[0], np.array(y, dtype=float)
        below, above = self._beside(y[2], 0)
        slides = False
        for _ in range(40):
            later = times[times > now]

            def rate(_, z, slides=slides, at=(below + above) / 2):
                velocity = self.field(z, at)
                return velocity * [1, 1, 0, 1] if slides else velocity

            if slides:
                corner = y[2]
                events = [lambda _, z, c=corner, s=s: self._rate(z, c, s) for s in (-1, 1)]
            else:
                events = [lambda _, z, c=c: z[2] - c for c in (below, above)]
            for event in events:
                event.terminal = True
            if not slides:
                events[0].direction, events[1].direction = -1, 1
            try:
                found = solve_ivp(
                    rate, (now, times[-1]), y, "LSODA", later, events=events, rtol=1e-11, atol=1e-13
                )
            except ValueError:  # scipy's interpolation has not the sign that its step has
                return None, 0
            out.extend(np.transpose(found.y) if len(found.t) else [])
            if found.status != 1:
                return np.array(out), slid
            which = 0 if len(found.t_events[0]) else 1
            now, y = found.t_events[which][0], found.y_events[which][0].copy()
            if slides:
                side, slides = (1 if which == 1 else -1), False
            else:
                y[2] = corner = (below, above)[which]
                rates = self._rate(y, corner, -1), self._rate(y, corner, 1)
                slides = rates[0] > 0 > rates[1]
                side = 1 if rates[1] > 0 else -1
                slid += slides
            below, above = self._beside(corner, side)
        return None, 0  # its events come back at once, at a corner that is hardly left

    def _rate(self, z, corner, side):
        return self.field(z, corner + side * 1e-9)[2]

    def _beside(self, a, side):
        corners = self.corners + 0.0
        below = [c for c in corners if c < a - 1e-9 or (abs(c - a) <= 1e-9 and side > 0)]
        above = [c for c in corners if c > a + 1e-9 or (abs(c - a) <= 1e-9 and side < 0)]
        return max(below, default=-1e3), min(above, default=1e3)


def compare(p, q, length, number, generator):
    """Compare the paths of random starts; how many of them slid."""
    chain, times = BinaryChain(p, q), np.array([0.0, 0.5, 2.0, 8.0, 25.0])
    model, oracle = UniformAttentionModel(chain, length, "dynamic"), Oracle(chain, length)
    slid = known = 0
    start = 5 * torch.rand(number, 4, dtype=torch.float64, generator=generator) - 2.5
    start[:, 2] = -1.2 + 0.6 * torch.rand(number, dtype=torch.float64, generator=generator)
    paths = trajectories(model, start, times, rtol=1e-9).numpy()
    for row, path in zip(start.numpy(), np.moveaxis(paths, 1, 0), strict=True):
        expected, slides = oracle.path(row, times)
        if expected is None:
            continue
        slid, known = slid + (slides > 0), known + 1
        np.testing.assert_allclose(path, expected, rtol=1e-5, atol=1e-5)
    assert known >= 0.8 * number
    return slid


@pytest.mark.parametrize("length", [1, 3])
def test_paths_slide_where_an_independent_integration_slides(length, generator):
    slid = compare(0.5, 0.8, length, 12, generator)
    assert slid >= 1


def test_a_row_that_counts_ones_ever_more_drifts():
    """Its loss stays above the entropy rate, e²a tends to a constant and |a| grows like t^⅓."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), length=2, bias="dynamic")
    start = torch.tensor([[0.9, -0.3, -1.9, 0.0]], dtype=torch.float64)
    found = find_limits(model, start)
    assert found.label == Label.LOCAL_MINIMUM
    assert found.rule == Rule.DRIFTS
    path = trajectories(model, start, [0.0, 1e6, 1e9, 1e12])[1:, 0]
    e, a = path[:, 0], path[:, 2]
    assert (a[1:] / a[:-1]).tolist() == pytest.approx([10.0, 10.0], rel=0.04)
    assert (e * e * a)[2].item() == pytest.approx((e * e * a)[1].item(), rel=0.04)
    excess = model.loss(path) - model.chain.entropy_rate
    assert (excess > 0.2 * model.chain.mutual_information).all()
    assert (excess.diff() < 0).all()


def test_a_row_whose_best_bias_follows_drifts_too_and_needs_time_to_be_labelled():
    """A valley of the loss leads to a → −∞ while e²|a| stays bounded."""
    model = UniformAttentionModel(BinaryChain(0.5, 0.8), 2)
    start = torch.tensor([[2.2563, 1.8470, -0.7001]], dtype=torch.float64)
    found = find_limits(model, start, max_steps=60)
    assert found.label == Label.UNRESOLVED and found.status == Status.TIMED_OUT
    assert found.theta[0, 2] < -2 and found.loss < model.loss(start)
    found = find_limits(model, start)
    assert found.label == Label.LOCAL_MINIMUM and found.rule == Rule.DRIFTS
    assert found.theta[0, 2] < -20
