"""The same tasks with diffrax: vmapped, compiled, float64, in the batches that suit it best.

What is used is the fastest of what was tried that gives no wrong label on the grid: batches of 64
among 32 to 512 for the scans, in physical time (within a fifth of each other) and on the rescaled
field. At rtol = 1e-5 a scan in physical time costs ten times as much as at 1e-6, and some starts do
not come to rest.

As a program it is the scan that ``flowsim scan`` is compared with:

    python benchmarks/peers_diffrax.py CELLS OUT.npz
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from worker import GLOBAL_MINIMUM, LOCAL_MINIMUM, UNRESOLVED

jax.config.update("jax_enable_x64", True)

P, Q = 0.5, 0.8
PI0, PI1 = Q / (P + Q), P / (P + Q)
TARGET_GAP = float(np.log((1 - P) * (1 - Q) / (P * Q)))
#: Rows solved together.
BATCH = 64


def entropy(x: float) -> float:
    return float(-x * np.log(x) - (1 - x) * np.log(1 - x))


ENTROPY_RATE, STATIONARY_ENTROPY = PI0 * entropy(P) + PI1 * entropy(Q), entropy(PI1)
MIDDLE = (ENTROPY_RATE + STATIONARY_ENTROPY) / 2


def optimal_logit(gap: jax.Array) -> jax.Array:
    """f₀ at the optimal bias; this form of the root needs p < q."""
    half, log = 0.5 * (gap + np.log(4 * PI0 * PI1)), np.log(PI0 - PI1)
    return np.log(2 * PI1) - jnp.logaddexp(log, jnp.logaddexp(2 * log, 2 * half) / 2)


def cross_entropy(f0: jax.Array, f1: jax.Array) -> jax.Array:
    s = jax.nn.log_sigmoid
    after_zero, after_one = P * s(f0) + (1 - P) * s(-f0), (1 - Q) * s(f1) + Q * s(-f1)
    return -PI0 * after_zero - PI1 * after_one


def logit_gap(y: jax.Array) -> jax.Array:
    return y[0] ** 2 * (1 + 2 * y[1] * jnp.abs(y[1]))


def orbit_field(y: jax.Array) -> jax.Array:
    """The polynomial field whose orbits the gradient flow follows: ∇Δ/2."""
    e, w = y
    return jnp.stack([e * (1 + 2 * w * jnp.abs(w)), 2 * jnp.abs(w) * e * e])


def velocity(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """−∇L of the canonical model."""
    gap = logit_gap(y)
    slope = PI1 * (jax.nn.sigmoid(optimal_logit(gap) + gap) - (1 - Q))
    return -2 * slope * orbit_field(y)


def at_rest(field: Callable[..., jax.Array], size: float) -> diffrax.Event:
    return diffrax.Event(lambda t, y, args, **_: jnp.abs(field(t, y, args)).max() < size)


def solve(
    field: Callable[..., jax.Array], start: jax.Array, horizon: float, rtol: float, **options: Any
) -> diffrax.Solution:
    steps = diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol)
    settings: dict[str, Any] = {"stepsize_controller": steps, "throw": False, "max_steps": 4096}
    term = diffrax.ODETerm(field)
    return diffrax.diffeqsolve(
        term, diffrax.Dopri8(), 0.0, horizon, None, start, **(settings | options)
    )


def in_batches(
    one: Callable[[jax.Array], jax.Array], starts: np.ndarray, size: int
) -> Callable[[], np.ndarray]:
    """``one`` for every start, ``size`` at a time, compiled once; the last batch is filled up."""
    together = jax.jit(jax.vmap(one))
    count = -len(starts) % size
    rows = np.concatenate([starts, np.repeat(starts[-1:], count, axis=0)])

    def run() -> np.ndarray:
        parts = [together(part) for part in np.split(rows, len(rows) // size)]
        return np.concatenate([np.asarray(part) for part in parts])[: len(starts)]

    return run


def end_in_physical_time(start: jax.Array) -> jax.Array:
    """(label, limit loss, e, w) of a start."""
    found = solve(velocity, start, 1e7, 1e-6, event=at_rest(velocity, 1e-7))
    y = found.ys[-1]
    f0 = optimal_logit(logit_gap(y))
    loss = cross_entropy(f0, f0 + logit_gap(y))
    label = jnp.where(loss < MIDDLE, GLOBAL_MINIMUM, LOCAL_MINIMUM)
    rested = found.result == diffrax.RESULTS.event_occurred
    return jnp.stack([jnp.where(rested, label, UNRESOLVED), loss, y[0], y[1]])


def end_on_the_rescaled_field(start: jax.Array) -> jax.Array:
    """(label, e, w): the orbit lands on Δ = Δ*, or e falls to zero on the way."""
    sign = jnp.sign(TARGET_GAP - logit_gap(start))

    def landed(t: Any, y: jax.Array, args: Any, **_: Any) -> jax.Array:
        return sign * (logit_gap(y) - TARGET_GAP) >= 0

    def trapped(t: Any, y: jax.Array, args: Any, **_: Any) -> jax.Array:
        # nothing but e moves any more: w by e² while e falls at the rate |1 + 2w|w||
        gain = sign * (1 + 2 * y[1] * jnp.abs(y[1]))
        return (gain < 0) & (y[0] ** 2 < 1e-4 * gain**2) & (sign * TARGET_GAP >= 0)

    found = solve(
        lambda t, y, args: sign * orbit_field(y),
        start,
        1e4,
        1e-6,
        event=diffrax.Event([landed, trapped]),
    )
    y = found.ys[-1]
    at_minima, at_plane = found.event_mask
    label = jnp.where(at_plane, LOCAL_MINIMUM, UNRESOLVED)
    return jnp.stack([jnp.where(at_minima, GLOBAL_MINIMUM, label), y[0], y[1]])


def limits(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    one = end_on_the_rescaled_field if task.get("rescaled") else end_in_physical_time
    run = in_batches(one, starts, task.get("batch", BATCH))
    return lambda: run()[:, 0].astype(np.int8)


def trajectories(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Paths, shape (times, starts, 2); ``step_to`` makes the steps end on the times."""
    t = jnp.asarray(task["times"], dtype=float)
    steps = diffrax.PIDController(rtol=task["rtol"], atol=task["atol"])
    if task.get("step_to"):
        steps = diffrax.ClipStepSizeController(steps, step_ts=t)
    solver = getattr(diffrax, task["solver"])()

    def one(start: jax.Array) -> jax.Array:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(velocity),
            solver,
            t[0],
            t[-1],
            None,
            start,
            saveat=diffrax.SaveAt(ts=t),
            stepsize_controller=steps,
            max_steps=100_000,
        ).ys

    run = in_batches(one, starts, task["batch"])
    return lambda: run().swapaxes(0, 1)


def attention(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Labels with uniform attention |a| < 1, on the nodes of flowsim's compressed law."""
    from flowsim import BinaryChain
    from flowsim.models.past_law import running_mean_law
    from flowsim.models.uniform.quadrature import GaussTree

    trees = [GaussTree(law) for law in running_mean_law(BinaryChain(P, Q), task["length"])]
    laws = [tree.rule(2.0 ** task["level"]).smooth for tree in trees]
    most = max(len(law.m) for law in laws)  # the shorter rule gets nodes of weight zero
    padded = [np.pad(law, ((0, 0), (0, most - len(law.m)))) for law in laws]
    m, weight = jnp.asarray(np.stack(padded, axis=1))  # (2, nodes) each
    x, target, pi = jnp.array([0.0, 1.0]), jnp.array([P, 1 - Q]), jnp.array([PI0, PI1])

    def logits(theta: jax.Array) -> jax.Array:
        """h = e²[s + ½ + 4w|w| ReLU(s)] and, added, the optimal shift."""
        e, w, a = theta
        gamma = 4 * w * jnp.abs(w) * x[:, None]  # the ReLU is open after a one
        h = e * e * (x[:, None] + (x[:, None] - 0.5) * gamma + a * (1 + gamma) * m)
        mean = (weight * h).sum(1) / pi
        shift = optimal_logit(mean[1] - mean[0]) - mean[0]
        side = jnp.array([1.0, -1.0])
        for _ in range(task["halley"]):
            # log of Σ weight σ(f) after a zero = log of Σ weight σ(−f) after a one
            u = jax.nn.sigmoid(side[:, None] * (h + shift))
            first, second, third = ((weight * power).sum(1) for power in (u, u * u, u * u * u))
            slope = (first - second) / first
            bend = side * ((first - 3 * second + 2 * third) / first - slope**2)
            newton = (side * jnp.log(first)).sum() / slope.sum()
            shift -= newton / jnp.clip(1 - newton * bend.sum() / (2 * slope.sum()), 0.5, 2.0)
        return h + shift

    def field(t: Any, theta: jax.Array, args: Any) -> jax.Array:
        e, w, a = theta
        gamma = 4 * w * jnp.abs(w) * x
        omega = weight * (jax.nn.sigmoid(logits(theta)) - target[:, None])
        zeroth, first = omega.sum(1), (omega * m).sum(1)
        s = (x - 0.5) * zeroth + a * first
        by_e = 2 * e * (s * (1 + gamma)).sum()
        by_w, by_a = 8 * jnp.abs(w) * e * e * s[1], e * e * (first * (1 + gamma)).sum()
        return -jnp.stack([by_e, by_w, by_a])

    def one(start: jax.Array) -> jax.Array:
        steps = diffrax.PIDController(rtol=task["rtol"], atol=task["atol"])
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            getattr(diffrax, task["solver"])(),
            0.0,
            1e7,
            None,
            start,
            stepsize_controller=steps,
            event=at_rest(field, task["rest"]),
            max_steps=100_000,
            throw=False,
        )
        f, t = logits(found.ys[-1]), target[:, None]
        loss = -(weight * (t * jax.nn.log_sigmoid(f) + (1 - t) * jax.nn.log_sigmoid(-f))).sum()
        label = jnp.where(loss < MIDDLE, GLOBAL_MINIMUM, LOCAL_MINIMUM)
        rested = found.result == diffrax.RESULTS.event_occurred
        return jnp.where(rested, label, UNRESOLVED)

    run = in_batches(one, starts, task["batch"])
    return lambda: run().astype(np.int8)


def rank_one(starts: np.ndarray, task: dict[str, Any]) -> Callable[[], np.ndarray]:
    """Label and limit, from (e, rho, w1, w2, b) of the rank-one model without attention."""
    metric = jnp.array([1.0, task["length"], 4.0, 4.0, 1.0])

    def loss(y: jax.Array) -> jax.Array:
        e, rho, w1, w2, b = y
        inner = e * jnp.array([0.0, 1.0]) + rho
        f = e * (inner + 4 * w2 * jax.nn.relu(w1 * inner)) + b
        return cross_entropy(f[0], f[1])

    def field(t: Any, y: jax.Array, args: Any) -> jax.Array:
        return -jax.grad(loss)(y) / metric

    def one(start: jax.Array) -> jax.Array:
        steps = diffrax.PIDController(rtol=task["rtol"], atol=task["atol"])
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(field), getattr(diffrax, task["solver"])(), 0.0, task["horizon"], None,
            start, stepsize_controller=steps, event=at_rest(field, task["rest"]),
            max_steps=task["steps"], throw=False,
        )  # fmt: skip
        label = jnp.where(loss(found.ys[-1]) < MIDDLE, GLOBAL_MINIMUM, LOCAL_MINIMUM)
        rested = found.result == diffrax.RESULTS.event_occurred
        return jnp.append(jnp.where(rested, label, UNRESOLVED), found.ys[-1])

    return in_batches(one, starts, task["batch"])


CONTENDERS = {
    "limits": limits,
    "trajectories": trajectories,
    "attention": attention,
    "rank-one": rank_one,
}


def main(cells: int, out: str) -> None:
    """A scan of a grid as a program of its own, from nothing to a file."""
    centres = (np.arange(cells) + 0.5) / cells * 4 - 2
    e, w = np.meshgrid(centres, centres, indexing="ij")
    found = in_batches(end_in_physical_time, np.stack([e.ravel(), w.ravel()], axis=1), BATCH)()
    names = ("label", "loss", "limit_e", "limit_w")
    np.savez(out, **dict(zip(names, found.T.reshape(4, cells, cells), strict=True)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
