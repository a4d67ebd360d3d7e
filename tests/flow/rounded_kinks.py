"""Flows with kinks, by scipy in a field whose ReLUs are rounded over a width.

Written from the equations; shares nothing with the engines. As the width falls to 0, an orbit goes
to one that slides along a kink as Filippov says, wherever its end does not depend on the width.
"""

import numpy as np
from law_oracle import law_of
from scipy.integrate import solve_ivp
from scipy.special import expit


def relu(z, width):
    """ReLU and its slope."""
    root = np.hypot(z, width)
    return (z + root) / 2, (1 + z / root) / 2


def uniform(chain, length, width):
    """dy/dt at y = (e, w, a, b) of uniform attention."""
    x, n, ones, weight, target = (part.numpy() for part in law_of(chain, length))
    mean = ones / n - 0.5

    def rate(_, y):
        e, w, a, b = y
        s, gain = x - 0.5 + a * mean, 4 * w * abs(w)
        above, slope = relu(s, width)
        omega = weight * (expit(e * e * (s + gain * above) + b) - target)
        by_s = e * e * omega * (1 + gain * slope)
        by_e = 2 * e * omega @ (s + gain * above)
        return -np.array([by_e, 8 * abs(w) * e * e * omega @ above, by_s @ mean, omega.sum()])

    return rate


def rank_one(model, width):
    """dy/dt, and the loss, at y = (e, ρ, w₁, w₂, b[, c]) of rank-one weights without attention."""
    p, q = model.chain.p, model.chain.q
    share, target = np.array([q, p]) / (p + q), np.array([p, 1 - q])
    metric, symbol = np.array(model.metric), np.array([0.0, 1.0])

    def parts(y):
        u = y[0] if model.tied else y[5]
        inner = y[1] + y[0] * symbol
        above, slope = relu(y[2] * inner, width)
        out = inner + 4 * y[3] * above
        return u, inner, above, slope, out, u * out + y[4]

    def rate(_, y):
        u, inner, above, slope, out, logit = parts(y)
        omega = share * (expit(logit) - target)
        by_inner = u * omega * (1 + 4 * y[2] * y[3] * slope)
        by_u = omega @ out
        gradient = [
            by_inner @ symbol + model.tied * by_u,
            by_inner.sum(),
            4 * y[3] * u * omega @ (slope * inner),
            4 * u * omega @ above,
            omega.sum(),
        ]
        return -np.array(gradient + [by_u] * (not model.tied)) / metric

    def loss(y):
        logit = parts(y)[-1]
        return float(share @ (np.logaddexp(0, logit) - target * logit))

    return rate, loss


def rank_one_end(model, start, share, width):
    """(1, when that share of the excess loss is left, end) if an orbit learns, else (0, 0, end).

    One that does not is left at |e| = 1e-8, where b is still on its way.
    """
    rate, loss = rank_one(model, width)
    best = model.end_losses().best
    first = share * (loss(start) - best)
    events = [lambda _, y, left=left: loss(y) - best - left for left in (first, 1e-12)]
    events += [lambda _, y: abs(y[0]) - 1e-8] * model.tied
    for event in events[1:]:
        event.terminal = True
    found = solve_ivp(rate, (0, 1e9), start, "BDF", events=events, rtol=1e-9, atol=1e-12)
    learned = len(found.t_events[1])
    return np.array([learned, found.t_events[0][0] if learned else 0.0, *found.y[:, -1]])
