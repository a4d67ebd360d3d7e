"""Every published number that the models of examples/ have to reproduce, and what flowsim finds.

    python benchmarks/published_models.py

writes docs/published_models.csv, which the page "Published models" shows.
"""

from __future__ import annotations

import csv
import importlib.util
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq

import flowsim

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "published_models.csv"


class Published(NamedTuple):
    """A number of a paper.

    Attributes:
        model: the file in examples/ and the class in it.
        paper: arXiv number, or address.
        formula: the loss or the field.
        quantity: what is compared.
        theirs: the paper's numbers, or what its formula gives.
        tolerance: allowed difference.
        ours: computes the same with flowsim.
    """

    model: str
    paper: str
    formula: str
    quantity: str
    theirs: tuple[float, ...]
    tolerance: float
    ours: Callable[[], Any]


def example(model: str, **arguments: Any) -> Any:
    """The model of "file:Class" in examples/."""
    name, kind = model.split(":")
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kind)(**arguments)


def at(model: Any, start: list[float], t: float) -> Any:
    """Where the flow is at the time t."""
    return flowsim.trajectories(model, [start], [0.0, t])[-1, 0]


def end(model: Any, *starts: list[float]) -> Any:
    """Where the flow ends."""
    return flowsim.find_limits(model, starts)


def sharpness(model: Any, theta: Any) -> Any:
    """The largest curvature at points (n, k)."""
    return np.linalg.eigvalsh(model.hessian(theta))[:, -1]


def crossing(inside: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """The value between ``low``, inside, and ``high``, outside, where a property is lost."""
    while high - low > 1e-7 * abs(high):
        values = np.linspace(low, high, 18)
        first = int(np.argmin([*inside(values[1:-1]), False])) + 1
        low, high = float(values[first - 1]), float(values[first])
    return (low + high) / 2


def linear_network() -> Any:
    model = example("linear_network:LinearNetwork")
    return at(model, [0.1**0.5, 0.1**0.5], 1.5).prod()


def lora() -> Any:
    model = example("lora:LoRA")
    return flowsim.flow.settling_times(model, [[0.3, 0.0]], fraction=0.01)  # L ∝ (s − u)²


def deep_linear() -> Any:
    """λ at which both minima have the loss ½, by the secant through two values beside it."""
    decays = np.array([0.3968, 0.3969])
    models = [example("deep_linear:DeepLinear", decay=decay) for decay in decays]
    losses = [end(model, [1.0, 1.0, 1.0]).loss[0] for model in models]
    return np.interp(0.5, losses, decays)


def slow_drift() -> Any:
    model = example("slow_drift:SlowDrift")
    return model.difference(at(model, [2.0, 0.2], 100.0))


def linear_estimator() -> Any:
    model = example("linear_estimator:LinearEstimator")
    losses = model.generalization(flowsim.trajectories(model, [[1.0, 1.0]], [0.0, 400.0, 600.0]))
    return 200 / math.log(losses[1, 0] / losses[2, 0])


def diagonal_net() -> Any:
    model = example("diagonal_net:DiagonalNet")
    return model.beta(end(model, [1.0] * 4, [0.1] * 4).theta)


def edge_of_stability() -> Any:
    model = example("edge_of_stability:EdgeOfStability")
    found = []
    for x, rate in ((3.0, 0.13), (2.6, 0.2)):
        run = flowsim.descend(model, [[x, 1 / x + 0.02]], "gd", learning_rate=rate, steps=20_000)
        found.append(rate * sharpness(model, run.theta)[0])
    return found


def product_stability() -> Any:
    model = example("product_stability:ProductStability")
    return sharpness(model, end(model, [0.5, 0.5]).theta)


def ellipse() -> Any:
    model = example("ellipse:Ellipse")
    return sharpness(model, end(model, [0.0, 0.5], [0.5, 0.0]).theta)


def self_stabilization() -> Any:
    return end(example("self_stabilization:SelfStabilization"), [1.001, 0.0]).period


def scale_invariance() -> Any:
    model, start = example("scale_invariance:ScaleInvariance"), [math.atan(2), math.log(1.25) / 2]
    phi, ln_r = at(model, start, math.expm1(0.6) / (2 * 0.1 * 1.25))  # t = 3
    ends = flowsim.find_limits(model, [start])
    vanishes = ends.label.item() == flowsim.Label.INFINITY and ends.theta[0, 1] == -math.inf
    return math.tan(phi), math.exp(ln_r), float(vanishes)


def simsiam() -> Any:
    """The edge of the collapsed basin on s = p², and the end above it."""
    model = example("simsiam:SimSiam")

    def collapses(p: np.ndarray) -> np.ndarray:
        return np.asarray(end(model, *np.stack([p, p**2], 1).tolist()).theta[:, 0] < 0.1)

    return crossing(collapses, 0.01, 0.2), end(model, [0.5, 0.25]).theta[0, 0]


def dirac_gan() -> Any:
    """The radius after a turn without penalty, and the rates with γ = 2."""
    limits = end(example("dirac_gan:DiracGAN"), [1.0, 0.0])
    turns = float(limits.label[0] == flowsim.Label.PERIODIC)
    rates = np.linalg.eigvals(example("dirac_gan:DiracGAN", penalty=2.0).jacobian([[0.0, 0.0]]))
    return turns * float(np.linalg.norm(limits.theta)), *sorted(rates.real.ravel())


def policy_gradient() -> Any:
    model = example("policy_gradient:PolicyGradient")
    x, y = at(model, [0.0, 0.0], (10 + math.exp(5) - math.exp(-5)) / 2)
    far = end(model, [0.0, 0.0])
    return x - y, float(far.label[0] == flowsim.Label.INFINITY)


def separable_logistic() -> Any:
    limits = end(example("separable_logistic:SeparableLogistic"), [1.0, 0.0], [-3.0, 3.0])
    return limits.theta[:, 1]


def superposition() -> Any:
    """b/a and the loss from ab > 0, and the loss from ab < 0."""
    limits = end(example("superposition:Superposition"), [0.3, 0.9], [-0.3, 0.9])
    return limits.theta[0, 1] / limits.theta[0, 0], *limits.loss


def label_noise() -> Any:
    return np.sinh(2 * at(example("label_noise:LabelNoise"), [1.0], 0.5))


def word2vec() -> Any:
    return at(example("word2vec:Word2Vec"), [0.1, 0.1], 3.0) ** 2


def two_factor() -> Any:
    """Where on the invariant ellipse a start of it is after 500 steps of μ = 1.7."""
    model, mu = example("two_factor:TwoFactor"), 1.7
    wide, high = 2 * math.sqrt((2 + mu) / mu), 2 * math.sqrt((2 - mu) / mu)
    s, d = wide * math.cos(1.0), high * math.sin(1.0)
    start = [[(s + d) / 2, (s - d) / 2]]
    a, b = flowsim.descend(model, start, "gd", learning_rate=mu, steps=20).theta[0]
    return ((a + b) / wide) ** 2 + ((a - b) / high) ** 2


def linear_attention() -> Any:
    model = example("linear_attention:LinearAttention", eigenvalue=1.3, trace=2.0, length=6)
    return end(model, [1.5, 0.9, 0.2]).theta.prod(1)


def competing_heads() -> Any:
    """The loss at the end, and whether the head that looks more at position 1 takes it."""
    limits = end(example("competing_heads:CompetingHeads"), [0.7, 0.4, 0.0, 0.0, 0.0, 0.0])
    return limits.loss[0], float(limits.theta[0, 0] > limits.theta[0, 1])


def value_softmax() -> Any:
    """u₂ − u₁ at the edge of the basins, at δ = 1."""
    model = example("value_softmax:ValueSoftmax")

    def first(u: np.ndarray) -> np.ndarray:
        starts = np.stack([0 * u, u, 1 + 0 * u], 1).tolist()
        return np.isposinf(end(model, *starts).theta[:, 0])

    return crossing(first, 1.0, 1.1)


def coopetition() -> Any:
    """The time that a ten times smaller start adds beside the saddle."""
    model = example("coopetition:Coopetition", alpha=0.0)
    starts = [[size, size, 0.0, 1.0] for size in (1e-4, 1e-5)]
    return np.diff(flowsim.flow.settling_times(model, starts, fraction=0.3))


def sign_flow() -> Any:
    """Where the flow ends and is at t = ½, from (0.1, 0.1), and |a| − |b| at another end."""
    model = example("sign_flow:SignFlow")
    limits = end(model, [0.1, 0.1], [0.1, 0.5])
    kept = limits.theta[1, 1] - limits.theta[1, 0]
    return limits.theta[0, 0], at(model, [0.1, 0.1], 0.5)[0], kept


def catapult() -> Any:
    """ηλ at the end of a catapult is below 2 (1 stands for yes), and at the edge of divergence."""
    model = example("catapult:Catapult")

    def stays(curvature: np.ndarray) -> np.ndarray:
        starts = np.stack([0 * curvature + 0.1, curvature], 1)
        return np.asarray(flowsim.descend(model, starts, steps=600).label != flowsim.Label.DIVERGED)

    run = flowsim.descend(model, [[0.1, 3.0]], steps=2000)
    return float(run.theta[0, 1] < 2 and run.loss[0] < 1e-12), crossing(stays, 3.5, 4.5)


def spectral_radius(model: Any, memory: list[float], remembered: str) -> float:
    """Of the step beside θ = 0, in the first coordinate and one number of the memory."""
    theta, kept = torch.full((1, 2), 1e-30).double(), torch.tensor([memory]).double()
    parts = torch.autograd.functional.jacobian(model.step, (theta, kept))
    i = model.memory.index(remembered)
    (xx, xm), (mx, mm) = parts
    block = [[xx[0, 0, 0, 0], xm[0, 0, 0, i]], [mx[0, i, 0, 0], mm[0, i, 0, i]]]
    return float(np.abs(np.linalg.eigvals(np.array(block, dtype=float))).max())


def adam_power() -> Any:
    """η times the preconditioned curvature 1/√v at which x loses stability, v at rest."""
    model = example("adam_power:AdamPower", beta2=1.0, epsilon=0.0)

    def radius(curvature: float) -> float:
        return spectral_radius(model, [0.0, 0.0, curvature**-2, curvature**-2], "mx") - 1

    return model.rate * brentq(radius, 300.0, 500.0)


def schedule_free() -> Any:
    """The curvature at which z loses stability, late, when the average rests."""

    def radius(curvature: float) -> float:
        model = example("schedule_free:ScheduleFree", curvature=curvature)
        return spectral_radius(model, [0.0, 0.0, 1e12], "d1") - 1

    return brentq(radius, 150.0, 300.0)


def logistic_curve(t: float, u0: float, s: float) -> float:
    """The solution of u′ = 2u(s − u)."""
    return s * math.exp(2 * s * t) / (math.exp(2 * s * t) - 1 + s / u0)


PUBLISHED = (
    Published("linear_network:LinearNetwork", "1312.6120", "½(s − ab)²", "ab at t = 1.5",
              (logistic_curve(1.5, 0.1, 2.0),), 1e-6, linear_network),
    Published("lora:LoRA", "2409.14623", "½(s − ab)², b₀ = 0", "time to ab = 0.9 s",
              (1.9100385,), 1e-6, lora),
    Published("deep_linear:DeepLinear", "2205.12510", "½(1 − w₁w₂w₃)² + ½λ‖w‖²",
              "λ of equal losses", (2 ** (-4 / 3),), 1e-6, deep_linear),
    Published("slow_drift:SlowDrift", "2505.20172", "½(1 − ab)² + ½λ(a² + b²)",
              "a² − b² at t = 1/λ", (3.96 * math.exp(-2),), 1e-6, slow_drift),
    Published("linear_estimator:LinearEstimator", "2310.16441", "½(λ₁x² + λ₂y²)",
              "time of generalization, 1/(2λ₂)", (50.0,), 1e-6, linear_estimator),
    Published("diagonal_net:DiagonalNet", "2002.09277", "½(x·(u² − v²) − y)²",
              "β for α = 1 and 0.1", (0.19921138, 0.40039431, 0.06685802, 0.46657099), 1e-6,
              diagonal_net),
    Published("edge_of_stability:EdgeOfStability", "2210.03294", "¼(1 − x²y²)²",
              "step × sharpness, two starts", (1.9926177, 1.9854720), 1e-6, edge_of_stability),
    Published("product_stability:ProductStability", "2604.02653", "log(1 + e^{xy}) − pxy",
              "least sharpness, p = 0.8", (2 * math.log(4) * 0.16,), 1e-6, product_stability),
    Published("ellipse:Ellipse", "github.com/rfangit/edge-of-stability-browser",
              "(1 − ax² − y²)²", "sharpness at the two tips, 8 and 8a", (8.0, 24.0), 1e-6, ellipse),
    Published("self_stabilization:SelfStabilization", "2209.15594", "x′ = xy, y′ = 1 − x²",
              "period near the centre", (2 * math.pi / math.sqrt(2),), 1e-6, self_stabilization),
    Published("scale_invariance:ScaleInvariance", "2010.02916", "x²/(x² + y²) + ½λ‖·‖²",
              "tan φ and r at t = 3; the end is at r → 0",
              (2 * math.exp(-(math.exp(0.6) - 1) / 0.125), math.sqrt(1.25) * math.exp(-0.3), 1.0),
              1e-6, scale_invariance),
    Published("simsiam:SimSiam", "2102.06810", "p′ = s(τ − (1 + σ²)p) − ηp, …",
              "p at the edge of the basin and at the end", (0.0544466578, 0.6122200088), 1e-6,
              simsiam),
    Published("dirac_gan:DiracGAN", "1801.04406", "θ′ = −ψf′(θψ), ψ′ = θf′(θψ) − γψ",
              "radius of the closed orbit from 1; rates at γ = 2",
              (1.0, -1 - math.sqrt(0.75), -1 + math.sqrt(0.75)), 1e-6, dirac_gan),
    Published("policy_gradient:PolicyGradient", "2005.06392", "Δσ(y − x)",
              "θ = 5 at its time; the end is at infinity", (5.0, 1.0), 1e-6, policy_gradient),
    Published("separable_logistic:SeparableLogistic", "1710.10345", "Σ log(1 + e^{−w·xᵢ})",
              "limit of w₂, two starts", (math.log(4) / 2.5,) * 2, 1e-6, separable_logistic),
    Published("superposition:Superposition", "2209.10652",
              "⅓[(1 − a²)² + (1 − b²)² + 2 max(ab, 0)²]", "b/a kept; the two losses",
              (3.0, 1 / 3, 0.0), 1e-6, superposition),
    Published("label_noise:LabelNoise", "2110.06914", "s′ = −2c tanh 2s",
              "sinh 2s at t = ½", (math.sinh(2) * math.exp(-2),), 1e-6, label_noise),
    Published("word2vec:Word2Vec", "2502.09863", "¼Σ(σᵢ* − wᵢ²)²", "σ of two modes at t = 3",
              (logistic_curve(3.0, 0.01, 1.0), logistic_curve(3.0, 0.01, 0.3)), 1e-6, word2vec),
    Published("two_factor:TwoFactor", "2605.21292", "½(ab − 1)², steps of μ = 1.7",
              "the invariant ellipse after 20 steps", (1.0,), 1e-6, two_factor),
    Published("linear_attention:LinearAttention", "2501.16265",
              "½TrΛ − λ²vkq + ½λ²(vkq)²[λ(1 + 1/N) + TrΛ/N]", "vkq at the end",
              (1 / (1.3 * (1 + 1 / 6) + 2 / 6),), 1e-6, linear_attention),
    Published("competing_heads:CompetingHeads", "2602.19143", "v̇ₖ = (G − P)sₖ, …",
              "least loss; the first head takes position 1", (0.0, 1.0), 1e-6, competing_heads),
    Published("value_softmax:ValueSoftmax", "2603.06248", "log(1 + e^{−u·σ(a)})",
              "u₂ − u₁ at the edge of the basins, δ = 1", (2 * math.sinh(0.5),), 1e-6,
              value_softmax),
    Published("coopetition:Coopetition", "2503.05631",
              "(½(abc − 1)² + μ₁)(½(dbc − 1)² + μ₂) + ½α(ad)²",
              "time beside the saddle per factor ten", (math.log(10) / math.hypot(0.6, 0.7),),
              1e-3, coopetition),
    Published("sign_flow:SignFlow", "2603.00742", "θ′ = −sign ∇L, L = ½(ab − 1)²",
              "end from (0.1, 0.1); at t = ½; |b| − |a| kept", (1.0, 0.6, 0.4), 1e-6, sign_flow),
    Published("catapult:Catapult", "2003.02218", "steps of (f, λ)",
              "a catapult ends below ηλ = 2; diverges above", (1.0, 4.0), 1e-6, catapult),
    Published("adam_power:AdamPower", "2603.09581", "steps of (x, m, v)",
              "η × preconditioned curvature at the edge", (38.0,), 1e-6, adam_power),
    Published("schedule_free:ScheduleFree", "2405.15682", "steps of (x, z)",
              "curvature at the edge, 2/((1 − β)η)", (200.0,), 1e-6, schedule_free),
)  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    flowsim.find_limits(example("ellipse:Ellipse"), [[0.5, 0.1]])  # the compiled parts are loaded
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "paper", "loss or field", "number", "theirs", "ours", "seconds"])
        for row in PUBLISHED:
            began = time.process_time()
            ours = np.ravel(row.ours()).tolist()
            took = time.process_time() - began
            print(f"{row.model:40} {took:6.2f} s {ours} {row.theirs}", flush=True)
            texts = ["; ".join(f"{x + 0.0:.7g}" for x in values) for values in (row.theirs, ours)]
            name = row.model.partition(":")[0]
            table.writerow([name, row.paper, row.formula, row.quantity, *texts, f"{took:.1f}"])


if __name__ == "__main__":
    main()
