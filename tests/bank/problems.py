"""The bank: systems whose ends are known by a closed form, or by scipy. A new one is one entry."""

# ruff: noqa: E501, RUF005
from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from bank.outcomes import (
    INF,
    MINIMA,
    NAN,
    Outcome,
    Problem,
    box,
    closed,
    follow,
    followed,
    infinity,
    minimum,
    of_loss,
    saddle,
    stays,
    system,
    when,
)
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import lambertw

from flowsim import Label, Model

SIN, COS, EXP, LOG = torch.sin, torch.cos, torch.exp, torch.log
softplus = torch.nn.functional.softplus
LEFT = 1e-3  # the part of the excess loss that is left at a hitting time


# --- closed forms -----------------------------------------------------------------------------
def downhill(slope: Callable[[float], float], low: float, high: float) -> Callable[[float], float]:
    """Where x′ = −slope(x) leads, in one dimension: the next zero of the slope on the way down."""
    grid = np.linspace(low, high, 20011) + 1e-7 * (high - low)  # no zero is at one of them
    values = np.array([slope(x) for x in grid])
    change = np.flatnonzero(values[:-1] * values[1:] < 0)
    zeros = np.array([brentq(slope, grid[i], grid[i + 1], xtol=1e-15) for i in change])

    def end(x: float) -> float:
        down = slope(x) < 0
        return float(zeros[zeros > x].min() if down else zeros[zeros < x].max())

    return end


def on_product(x: float, y: float) -> Outcome:
    """On xy = 1, where x² − y² is kept; to the side of x + y."""
    kept = x * x - y * y
    side = math.copysign(1.0, x + y)
    end = side * math.sqrt((kept + math.hypot(kept, 2)) / 2)
    return minimum((end, 1 / end), key=f"hyperbola {side}")


def deep(layers: int) -> Callable[..., float]:
    """The hitting time of (1 − a₁…a_L)²/2 from equal weights: a quadrature."""

    def time(*start: float) -> float:
        a = start[0]
        if max(start) > a or min(start) < a or not 0 < a < 1:
            return NAN
        last = (1 - math.sqrt(LEFT) * (1 - a**layers)) ** (1 / layers)
        if layers == 2:  # also of (1 − xy)²/2 below its hyperbola
            return 0.5 * (math.log(last**2 / (1 - last**2)) - math.log(a**2 / (1 - a**2)))
        smooth = quad(lambda x: x / (1 - x**layers), a, last, epsabs=1e-13)[0]
        return (a ** (2 - layers) - last ** (2 - layers)) / (layers - 2) + smooth

    return time


def layers_problem(layers: int, sizes: tuple[float, ...]) -> Problem:
    names = " ".join(f"a{i}" for i in range(1, layers + 1))
    model = of_loss(f"DeepLinear{layers}", names, lambda *a: (1 - math.prod(a)) ** 2 / 2)
    even = np.outer(sizes, np.ones(layers))
    uneven = np.outer(sizes, 1 + np.arange(layers) / 10)
    starts = np.stack([even, uneven], 1).reshape(-1, layers)

    def end(*start: float) -> Outcome:
        """Differences of squares are kept, the product is 1."""
        kept = np.square(start) - start[0] ** 2
        low = -kept.min() + 1e-300
        first = brentq(lambda s: math.prod(s + kept) - 1, low, 4 + low, xtol=1e-15)
        return minimum(np.sqrt(first + kept), key="product 1")

    return Problem(
        model, starts, closed(end), {"a1": (0.1, 1.3), "a2": (0.05, 1.5)},
        fixed=dict.fromkeys(model.coordinates[2:], 1.0), hits=deep(layers), few=len(starts),
    )  # fmt: skip


def circle_time(x: float, y: float) -> float:
    u = x * x + y * y
    if u in (0.0, 1.0):
        return NAN
    last = 1 + math.sqrt(LEFT) * (u - 1)
    return 0.5 * math.log((u - 1) / u / ((last - 1) / last))


def saddle_time(x: float, y: float) -> float:
    if y == 0:
        return NAN

    def excess(t: float) -> float:
        s = 1 / (1 + (1 / y**2 - 1) * math.exp(-2 * t))
        return (x * math.exp(-t)) ** 2 / 2 + (1 - s) ** 2 / 4

    return when(excess, LEFT * excess(0.0), 1e-3, 1e4)


def well(name: str, size: float, unit: float, shift: float = 0.0) -> Problem:
    """Two wells at ±size about a shift, the loss in some unit."""

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = (x - shift) / size, (y - shift) / size
        return unit * ((x**2 - 1) ** 2 / 4 + y**2 / 2)

    def end(x: float, y: float) -> Outcome:
        if x == shift:
            return saddle((shift, shift), 1e-4 * size)
        return minimum((shift + math.copysign(size, x - shift), shift), 1e-4 * size)

    def time(x: float, y: float) -> float:
        x, y = (x - shift) / size, (y - shift) / size

        def excess(t: float) -> float:
            s = 1 / (1 + (1 / x**2 - 1) * math.exp(-2 * t))
            return (s - 1) ** 2 / 4 + (y * math.exp(-t)) ** 2 / 2

        return when(excess, LEFT * excess(0.0), 1e-4, 1e3) * size**2 / unit

    low, high = shift - 2.1 * size, shift + 1.9 * size
    return Problem(
        of_loss(name, "x y", loss), box((low, high), (low, high)), closed(end),
        {"x": (low, high), "y": (low, high)}, hits=time, at=size**2 / unit,
    )  # fmt: skip


def dead_unit(w: float, b: float) -> Outcome:
    return minimum((w, b), key="dead", loss=0.7)


def monkey(x: float, y: float) -> Outcome:
    """Along Re z³ downhill Im z³ is kept; three ways to −∞."""
    third = math.atan2(y, x) % (2 * math.pi) / (2 * math.pi / 3)
    return infinity([(INF, INF), (-INF, NAN), (INF, -INF)][int(third)], -INF)


def cube_root(x: float, y: float) -> Outcome:
    """z³ − 1 shrinks along a straight line, so that z ends at the nearest root by its angle."""
    angle = 2 * math.pi / 3 * round(math.atan2(y, x) / (2 * math.pi / 3))
    return minimum((math.cos(angle), math.sin(angle)))


def beale(model: Model, starts: np.ndarray) -> list[Outcome]:
    """(3, ½), or along a valley: y → ±∞ with x → 0 (7.3125), or x → ±∞ with y → 1 (0.452041)."""
    found = []
    for start in starts:
        x, y = follow(model, start[None], [1e4], rtol=1e-7)[-1, 0]
        if math.hypot(x - 3, y - 0.5) < 1e-3:
            found.append(minimum((3, 0.5)))
        elif abs(y) > 3:
            found.append(infinity((0, math.copysign(INF, y)), 7.3125, near=0.3))
        else:
            found.append(infinity((math.copysign(INF, x), 1), 0.452041, near=0.3))
    return found


def lasso(name: str, matrix: np.ndarray, target: np.ndarray, price: float) -> Problem:
    """½|Ax − b|² + λ|x|₁; its minimum by coordinate descent."""
    a, b = torch.from_numpy(matrix), torch.from_numpy(target)

    def loss(*x: torch.Tensor) -> torch.Tensor:
        x_ = torch.stack(x, -1)
        return ((x_ @ a.T - b) ** 2).sum(-1) / 2 + price * x_.abs().sum(-1)

    best = np.zeros(matrix.shape[1])
    for _ in range(2000):
        for i in range(len(best)):
            rest = target - matrix @ best + matrix[:, i] * best[i]
            pull = matrix[:, i] @ rest
            best[i] = math.copysign(max(abs(pull) - price, 0), pull) / (matrix[:, i] ** 2).sum()
    names = " ".join("xyz"[: len(best)])
    starts = box(*[(-2, 2)] * len(best))
    window = {"x": (-2.1, 1.9), "y": (-1.8, 2.2)}
    return Problem(of_loss(name, names, loss), starts, closed(lambda *x: minimum(best, 1e-3)),
                   window)  # fmt: skip


def diagonal(x: tuple[float, ...], y: float) -> Callable[..., Outcome]:
    """½(Σ xᵢ(uᵢ² − vᵢ²) − y)² from uᵢ = vᵢ = α: uᵢ = α exp(xᵢφ), vᵢ = α exp(−xᵢφ)."""

    def end(*start: float) -> Outcome:
        alpha, features = start[0], np.array(x)

        def excess(phi: float) -> float:
            return float(features @ (2 * alpha**2 * np.sinh(2 * features * phi))) - y

        phi = brentq(excess, 0, 2 - 2 * math.log(alpha), xtol=1e-14)
        u, v = alpha * np.exp(features * phi), alpha * np.exp(-features * phi)
        return minimum([*u, *v], key="interpolates")

    return end


def one_feature(u: float, v: float) -> Outcome:
    """On u² − v² = 1, where uv is kept; to the side of u."""
    end = math.copysign(math.sqrt((1 + math.hypot(1, 2 * u * v)) / 2), u)
    return minimum((end, u * v / end), key=f"hyperbola {math.copysign(1, u)}")


def one_feature_time(alpha: float, _: float) -> float:
    last = math.asinh(-(math.sqrt(LEFT) - 1) / (2 * alpha**2)) / 2
    return quad(lambda s: 0.5 / (1 - 2 * alpha**2 * math.sinh(2 * s)), 0, last,
                epsabs=1e-13, limit=500, points=[max(last - 1, 0), max(last - 5, 0)])[0]  # fmt: skip


def epidemic(s: float, i: float) -> Outcome:
    """S′ = −2SI, I′ = 2SI − I: S − log(S)/2 + I is kept."""
    last = -0.5 * float(lambertw(-2 * s * math.exp(-2 * (s + i))).real)
    return minimum((last, 0), 1e-3, key="over")


def iterated(
    step: Callable[..., tuple[float, ...]], memory: int = 0, steps: int = 20_000
) -> Callable:
    """What a map does, by taking its steps in Python; it starts from rest where it has a memory."""

    def end(*start: float) -> Outcome:
        now = (*start, *start[: memory * len(start)])
        last = []
        for number in range(steps):
            now = step(*now)
            if not all(abs(x) < 1e12 for x in now):
                return Outcome((Label.DIVERGED,), key="diverged")
            if number >= steps - 200:
                last.append(now[: len(start)])
        back = [n for n in range(1, 65) if np.allclose(last[-1 - n], last[-1], 1e-9, 1e-11)]
        if not back:
            return Outcome((Label.BOUNDED,), key="bounded")
        if back[0] > 1:
            return Outcome((Label.PERIODIC,), key="periodic", period=back[0])
        return minimum(last[-1])

    return end


def logistic(r: float) -> Problem:
    """Gradient descent at rate 1 of (1 − r)x²/2 + r x³/3 is x ↦ r x(1 − x)."""
    model = of_loss(f"LogisticMap{r}", "x", lambda x: (1 - r) * x**2 / 2 + r * x**3 / 3)
    starts = np.array([[0.3], [0.71], [1.2], [0.11], [0.93], [-0.2]])
    gd = {"optimizer": "gd", "learning_rate": 1.0, "steps": 4000}
    return Problem(model, starts, closed(iterated(lambda x: (r * x * (1 - x),))), optimizer=gd)


def product_map(rate: float) -> Problem:
    """Gradient descent of (1 − xy)²/2."""
    model = of_loss(f"ProductMap{rate}", "x y", lambda x, y: (1 - x * y) ** 2 / 2)

    def step(x: float, y: float) -> tuple[float, float]:
        gap = rate * (1 - x * y)
        return x + gap * y, y + gap * x

    def end(x: float, y: float) -> Outcome:
        found = iterated(step)(x, y)
        return found if found.labels != MINIMA else minimum(found.place, key="product 1")

    gd = {"optimizer": "gd", "learning_rate": rate, "steps": 8000}
    return Problem(model, box((-2, 2), (-2, 2), seed=3), closed(end), optimizer=gd)


def heavy_ball(x: float, before: float) -> tuple[float, float]:
    slope = 25 * x if x < 1 else x + 24 if x < 2 else 25 * x - 24
    return x - slope / 9 + 4 / 9 * (x - before), x


def kinked_parabola(x: torch.Tensor) -> torch.Tensor:
    middle = x**2 / 2 + 24 * x - 12
    return torch.where(x < 1, 12.5 * x**2, torch.where(x < 2, middle, 12.5 * x**2 - 24 * x + 36))


def rosenbrock(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def by_torch(optimizer: type[torch.optim.Optimizer], steps: int, **numbers: float) -> Callable:
    """Where torch's own optimizer is after so many steps."""

    def outcomes(model: Model, starts: np.ndarray) -> list[Outcome]:
        theta = torch.tensor(starts, requires_grad=True)
        trained = optimizer([theta], **numbers)
        for _ in range(steps):
            trained.zero_grad()
            model.loss(theta).sum().backward()
            trained.step()
        return [Outcome(tuple(Label), row, 1e-6) for row in theta.detach().numpy().tolist()]

    return outcomes


# --- formulas that are used more than once, or are long ------------------------------------------
def himmelblau(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def goldstein_price(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    one = 19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2
    two = 18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2
    return (1 + (x + y + 1) ** 2 * one) * (30 + (2 * x - 3 * y) ** 2 * two)


def mueller_brown(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    hills = ((-200, -1, 0, -10, 1, 0), (-100, -1, 0, -10, 0, 0.5),
             (-170, -6.5, 11, -6.5, -0.5, 1.5), (15, 0.7, 0.6, 0.7, -1, 1))  # fmt: skip
    return sum(
        high * EXP(a * (x - at) ** 2 + b * (x - at) * (y - up) + c * (y - up) ** 2)
        for high, a, b, c, at, up in hills
    )


def ackley(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    cone = -20 * EXP(-0.2 * torch.sqrt((x**2 + y**2) / 2))
    waves = EXP((COS(2 * math.pi * x) + COS(2 * math.pi * y)) / 2)
    return cone - waves + math.e + 20


def levy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    waves = (1 + SIN(3 * math.pi * y) ** 2, 1 + SIN(2 * math.pi * y) ** 2)
    return SIN(3 * math.pi * x) ** 2 + (x - 1) ** 2 * waves[0] + (y - 1) ** 2 * waves[1]


def relu_unit(w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = torch.linspace(-2, 2, 41, dtype=w.dtype)
    out = torch.relu(w[..., None] * x + b[..., None])
    return ((out - torch.relu(x)) ** 2).mean(-1)


def factors(*w: torch.Tensor) -> torch.Tensor:
    u, v = (torch.stack(part, -1).unflatten(-1, (2, 2)) for part in (w[:4], w[4:]))
    return ((u @ v - torch.tensor([[2.0, 0.5], [0.0, 1.0]]).to(u)) ** 2).sum((-1, -2)) / 2


RAYS = torch.tensor([[1.0, 0.3], [-0.4, 1.2], [0.8, -0.9]], dtype=torch.float64)


def phase_retrieval(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    seen = (RAYS @ torch.tensor([1.0, -0.5], dtype=torch.float64)) ** 2
    return (((torch.stack([x, y], -1) @ RAYS.T) ** 2 - seen) ** 2).mean(-1) / 4


def bandit(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    law = torch.softmax(torch.stack([a, b, c], -1), -1)
    return -(law * law.new_tensor([1.0, 0.5, 0.2])).sum(-1)


def bandit_keeps(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    return softplus(-(a * torch.sigmoid(d) + b * torch.sigmoid(-d)))


def separable(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return softplus(-(x + 0.3 * y)) + softplus(-(0.2 * x + y))


def magnets(x, y, u, v):
    ax, ay = -0.2 * u - 0.25 * x, -0.2 * v - 0.25 * y
    for angle in (0.5, 0.5 + 2 * math.pi / 3, 0.5 + 4 * math.pi / 3):
        dx, dy = math.cos(angle) - x, math.sin(angle) - y
        far = (dx**2 + dy**2 + 0.3**2) ** 1.5
        ax, ay = ax + dx / far, ay + dy / far
    return u, v, ax, ay


def robertson(a, b, c):
    return (
        -0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - 3e7 * b**2, 3e7 * b**2,
    )  # fmt: skip


def rock_paper_scissors(loses: float) -> Callable:
    """The replicator's field; a constant added to all gains lets a + b + c = 1 attract."""

    def rate(a, b, c):
        gains = (3 + c - loses * b, 3 + a - loses * c, 3 + b - loses * a)
        mean = a * gains[0] + b * gains[1] + c * gains[2]
        return tuple(x * (g - mean) for x, g in zip((a, b, c), gains, strict=True))

    return rate


def predators(k: float, name: str, outcomes: Callable) -> Problem:
    """Rosenzweig and MacArthur; coexistence is stable for 3/7 < K < 13/7."""

    def rate(x, y):
        eats = x / (1 + x)
        return x * (1 - x / k) - eats * y, y * (eats - 0.3)

    return Problem(
        system(name, "x y", rate), box((0.1, k), (0.1, 3.0), seed=2), outcomes,
        {"x": (0.03 * k, 1.1 * k), "y": (0.1, 3.1)}, at=10.0, logs=True,
    )  # fmt: skip


# --- constants of some problems ----------------------------------------------------------------
TILTED = np.sort(np.roots([1, 0, -1, 0.2]).real)
TANG = downhill(lambda x: 2 * x**3 - 16 * x + 2.5, -6, 6)
RASTRIGIN = downhill(lambda x: 2 * x + 20 * math.pi * math.sin(2 * math.pi * x), -6, 6)
DIP = downhill(
    lambda x: -2 * x / (1 + x * x) ** 2
    + 2e-2 * (x - 300) / 2500 * math.exp(-(((x - 300) / 50) ** 2)), 0.1, 420
)  # fmt: skip
RING = np.sort(np.roots([4, 0, -4, 0.1]).real)
TOGGLE = 2 + math.sqrt(3)  # where x + y = 4 and xy = 1
CORNERS = np.array(list(product((-1.7, -0.2, 0.6), repeat=3)))[::2]
CENTRE = (0.9 / 0.11, 0.7 / 0.3)
INTEGERS = np.array(list(product(range(-7, 8), repeat=2))) + [0.21, -0.33]
WIDE = {"x": (-2.1, 1.9), "y": (-1.8, 2.2)}


def toggle(x: float, y: float) -> Outcome:
    low = 1 / TOGGLE
    if x == y:
        both = brentq(lambda s: s * (1 + s**2) - 4, 0, 4, xtol=1e-15)
        return saddle((both, both))
    return minimum((TOGGLE, low) if x > y else (low, TOGGLE))


def competing(x: float, y: float) -> Outcome:
    if x == y:
        return saddle((1 / 3, 1 / 3))
    return minimum((1, 0) if x > y else (0, 1))


def turned(x: float, y: float) -> tuple[float, float]:
    """Where r' = r(1 - r), angle' = 1 - r ends: the angle grows by log(1/r)."""
    angle = math.atan2(y, x) - math.log(math.hypot(x, y))
    return math.cos(angle), math.sin(angle)


def ring_end(x: float, y: float) -> Outcome:
    """On r = 1 tilted by x/10 one minimum, at the least root of 4x³ − 4x + 1/10, y = 0."""
    return minimum((RING[0], 0))


PROBLEMS = [
    # isolated minima
    Problem(of_loss("Bowl", "x y", lambda x, y: x**2 + y**2), box((-3, 3), (-3, 3)),
            closed(lambda x, y: minimum((0, 0))), WIDE, hits=lambda x, y: math.log(1000) / 4,
            at=1.0),
    Problem(of_loss("TiltedWells", "x y", lambda x, y: (x**2 - 1) ** 2 / 4 + y**2 / 2 + 0.2 * x),
            box((-2, 2), (-2, 2)),
            closed(lambda x, y: minimum((TILTED[0 if x < TILTED[1] else 2], 0))), WIDE, at=1.0),
    Problem(of_loss("Himmelblau", "x y", himmelblau), box((-5, 5), (-5, 5)), followed(20.0),
            {"x": (-5, 5), "y": (-5, 5)}, at=0.05),
    Problem(of_loss("HimmelblauAt100", "x y", lambda x, y: himmelblau(x - 100, y - 100)),
            box((95, 105), (95, 105)), followed(20.0), {"x": (95, 105), "y": (95, 105)}, at=0.05),
    Problem(of_loss("Rosenbrock", "x y", rosenbrock), box((-2, 2), (-1, 3)),
            closed(lambda x, y: minimum((1, 1), 1e-3)), {"x": (-2, 2), "y": (-1, 3)}, at=0.01),
    Problem(of_loss("GoldsteinPrice", "x y", goldstein_price), box((-2, 2), (-2, 2)),
            followed(10.0), {"x": (-2, 2), "y": (-2, 2)}, at=1e-3),
    Problem(of_loss("MuellerBrown", "x y", mueller_brown), box((-1.5, 1.2), (-0.2, 2)),
            followed(5.0), {"x": (-1.5, 1.2), "y": (-0.2, 2)}, at=1e-2),
    Problem(of_loss("ThreeHump", "x y",
                    lambda x, y: 2 * x**2 - 1.05 * x**4 + x**6 / 6 + x * y + y**2),
            box((-2.5, 2.5), (-2.5, 2.5)), followed(100.0), {"x": (-2.4, 2.6), "y": (-2.5, 2.5)},
            at=1.0),
    Problem(of_loss("StyblinskiTang", "x y",
                    lambda x, y: (x**4 - 16 * x**2 + 5 * x + y**4 - 16 * y**2 + 5 * y) / 2),
            box((-5, 5), (-5, 5)), closed(lambda x, y: minimum((TANG(x), TANG(y)))),
            {"x": (-5, 5), "y": (-5, 5)}, at=0.1),
    Problem(of_loss("Rastrigin", "x y",
                    lambda x, y: 20 + x**2 + y**2 - 10 * COS(2 * math.pi * x)
                    - 10 * COS(2 * math.pi * y)),
            box((-5, 5), (-5, 5)), closed(lambda x, y: minimum((RASTRIGIN(x), RASTRIGIN(y)))),
            {"x": (-1.3, 1.2), "y": (-1.2, 1.3)}, at=1e-3),
    Problem(of_loss("Levy13", "x y", levy), box((-9, 9), (-9, 9)), followed(10.0),
            {"x": (-2, 2), "y": (-2, 2)}, at=1e-2),
    Problem(of_loss("Matyas", "x y", lambda x, y: 0.26 * (x**2 + y**2) - 0.48 * x * y),
            box((-10, 10), (-10, 10)), closed(lambda x, y: minimum((0, 0), 1e-3)),
            {"x": (-9, 10), "y": (-10, 9)}, at=1.0),
    Problem(of_loss("Booth", "x y", lambda x, y: (x + 2 * y - 7) ** 2 + (2 * x + y - 5) ** 2),
            box((-10, 10), (-10, 10)), closed(lambda x, y: minimum((1, 3))),
            {"x": (-9, 10), "y": (-10, 9)}, at=0.1),
    Problem(of_loss("Easom", "x y",
                    lambda x, y: -COS(x) * COS(y) * EXP(-((x - math.pi) ** 2) - (y - math.pi) ** 2)),
            box((2.2, 4.1), (2.2, 4.1)), closed(lambda x, y: minimum((math.pi, math.pi))),
            {"x": (2.2, 4.1), "y": (2.3, 4.2)}, at=1.0),
    Problem(of_loss("CorneredCube", "x y z",
                    lambda x, y, z: ((x**2 - 1) ** 2 + (y**2 - 1) ** 2 + (z**2 - 1) ** 2) / 4),
            CORNERS, closed(lambda *x: minimum(np.sign(x))), WIDE, {"z": 0.3}, at=1.0),
    Problem(of_loss("WellsOnIntegers", "x y",
                    lambda x, y: (x**2 + y**2) / 200 - COS(2 * math.pi * x) - COS(2 * math.pi * y)),
            INTEGERS, closed(lambda x, y: minimum((round(x) * (1 - 2.5e-4), round(y) * (1 - 2.5e-4)),
                                                  1e-3, f"well {round(x)} {round(y)}")),
            {"x": (-6.6, 6.7), "y": (-6.7, 6.6)}, at=0.01, few=225),
    Problem(of_loss("GaussianWell", "x y", lambda x, y: -EXP(-(x**2 + y**2) / 2)),
            np.array([[2.0, 0.1], [-5, 1], [0.3, 6], [6, -4], [-0.1, 0.2], [3, 3]]),
            closed(lambda x, y: minimum((0, 0))), {"x": (-3, 3.2), "y": (-3, 3.1)}, at=1.0),
    # minima whose curvature vanishes, or is very different one way
    Problem(of_loss("Quartic", "x y", lambda x, y: x**2 + y**4), box((-2, 2), (-2, 2)),
            closed(lambda x, y: minimum((0, 0), 1e-2)), WIDE, at=1.0),
    Problem(of_loss("TurnedQuartic", "x y", lambda x, y: (x - y) ** 4 + (x + y) ** 2),
            box((-2, 2), (-2, 2)), closed(lambda x, y: minimum((0, 0), 1e-2)), WIDE, at=1.0),
    Problem(of_loss("TwoFourSix", "x y z", lambda x, y, z: (x**2 + y**4 + z**6) / 2),
            box((-2, 2), (-2, 2), (-2, 2)), closed(lambda *x: minimum((0, 0, 0), 0.1)), WIDE,
            {"z": 0.5}, at=1.0),
    Problem(of_loss("Powell", "a b c d",
                    lambda a, b, c, d: (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4
                    + 10 * (a - d) ** 4),
            box(*[(-2, 2)] * 4), closed(lambda *x: minimum((0, 0, 0, 0), 3e-2)),
            {"a": (-2, 1.9), "b": (-1.9, 2)}, {"c": 0.3, "d": -0.4}, at=0.1),
    *(Problem(of_loss(f"Stiff1e{n}", "x y", lambda x, y, n=n: (10.0**n * x**2 + y**2) / 2),
              box((-2, 2), (-2, 2)), closed(lambda x, y: minimum((0, 0))), WIDE, at=1.0)
      for n in (6, 9, 12)),
    # scales
    well("WellsTiny", 1e-9, 1.0),
    well("WellsHuge", 1e9, 1.0),
    well("WellsFaint", 1.0, 1e-12),
    well("WellsLoud", 1.0, 1e12),
    well("WellsFar", 0.01, 1.0, 300.0),
    well("WellsFarWide", 1.0, 1.0, 1e6),
    Problem(of_loss("WellsUneven", "x y", lambda x, y: ((1e-6 * x) ** 2 - 1) ** 2 / 4 + (1e6 * y - 0.5) ** 2 / 2),
            np.array([[3e5, 1e-7], [-7e5, 2e-6], [-1.5e6, -1e-6]]),
            closed(lambda x, y: minimum((math.copysign(1e6, x), 5e-7), 1e2)), None, few=3),
    Problem(of_loss("LogBesideSlow", "x y", lambda x, y: softplus(-1e6 * x) + (1e-6 * y - 1) ** 2 / 2),
            np.array([[1e-6, 2e5], [-2e-6, -1e6], [0, 2e6]]),
            closed(lambda x, y: infinity((INF, 1e6), 0.0, 1e2)), None, few=3),
    Problem(of_loss("FromFar", "x", lambda x: (x**2 - 1) ** 2 / 4 + 0.1 * x),
            np.array([[1e3], [1e5], [1e8], [-1e6]]),
            closed(lambda x: minimum((0.9456492739235914 if x > 0 else -1.046680531804602,), 1e-8)),
            None, few=3),
    # arcs and surfaces of minima
    Problem(of_loss("Circle", "x y", lambda x, y: (x**2 + y**2 - 1) ** 2 / 4),
            np.array([[0.5, 0.2], [-2, 1], [1e-8, 2e-8], [0, -1e-20], [1.5, -1.5], [3e-3, 0],
                      [-1e-12, 1e-14]]),
            closed(lambda x, y: minimum((x / math.hypot(x, y), y / math.hypot(x, y)),
                                        key="circle")), WIDE, hits=circle_time, at=1.0, few=5),
    Problem(of_loss("Product", "x y", lambda x, y: (1 - x * y) ** 2 / 2),
            np.array([[1e-8, 1e-8], [2, -1], [-1.5, 1], [3e-7, 1e-7], [-1e-20, -3e-20], [0.4, 2],
                      [-1e-10, 3e-10]]),
            closed(on_product), WIDE, hits=deep(2), at=1.0, few=5),
    Problem(of_loss("Sphere", "x y z", lambda x, y, z: (x**2 + y**2 + z**2 - 1) ** 2 / 4),
            box((-2, 2), (-2, 2), (-2, 2)),
            closed(lambda *x: minimum(np.array(x) / np.linalg.norm(x), key="sphere")), WIDE,
            {"z": 0.1}, at=1.0),
    Problem(of_loss("TiltedRing", "x y", lambda x, y: (x**2 + y**2 - 1) ** 2 + 0.1 * x),
            box((-2, 2), (-2, 2)), closed(ring_end), WIDE, at=1.0),
    Problem(system("RingOfRest", "x y",
                   lambda x, y: (x * (1 - x * x - y * y), y * (1 - x * x - y * y))),
            np.array([[0.5, 0.2], [-2, 1], [0, 0]]),
            closed(lambda x, y: minimum((x / math.hypot(x, y), y / math.hypot(x, y)), key="ring")
                   if x or y else saddle((0, 0))), WIDE, at=1.0, few=3),
    Problem(system("SpiralToRing", "x y", lambda x, y: (
                (x - y) * (1 - torch.sqrt(x * x + y * y)), (x + y) * (1 - torch.sqrt(x * x + y * y)))),
            np.array([[0.5, 0.2], [-2, 1], [1e-3, 0]]),
            closed(lambda x, y: minimum(turned(x, y), key="ring")), at=1.0),
    Problem(of_loss("RingAcrossSaddle", "x y z",
                    lambda x, y, z: (x * x + y * y - 1) ** 2 / 4 + (z * z - 1) ** 2 / 4),
            np.array([[0.5, 0.2, 0.1], [-2, 1, -0.3], [0.3, 0.4, 0]]),
            closed(lambda x, y, z: minimum(
                (x / math.hypot(x, y), y / math.hypot(x, y), math.copysign(1, z)),
                key=f"ring {z > 0}") if z else saddle(
                (x / math.hypot(x, y), y / math.hypot(x, y), 0))), at=1.0, few=3),
    Problem(of_loss("HalfLines", "x y", lambda x, y: y**2 / (2 * x**2), metric=(1.0, 1.0)),
            box((0.5, 2), (-1, 1)),
            closed(lambda x, y: minimum((math.hypot(x, y), 0), 1e-3, key="half line")),
            {"x": (0.5, 2), "y": (-1, 1)}, at=0.1),
    # flat regions
    Problem(of_loss("FlatDisc", "x y",
                    lambda x, y: torch.relu(x**2 + y**2 - 1) ** 2 / 4),
            np.array([[0.3, 0.2], [2, 1], [-1.5, 0.7], [0.1, -0.9], [-3, -3]]),
            closed(lambda x, y: minimum(np.array([x, y]) / max(1, math.hypot(x, y)), 1e-3,
                                        key="disc")), WIDE, at=1.0),
    Problem(of_loss("Constant", "x y", lambda x, y: 0 * (x + y) + 3), box((-2, 2), (-2, 2)),
            closed(lambda x, y: minimum((x, y), key="plane")), WIDE, at=1.0),
    Problem(of_loss("DeadUnit", "w b", relu_unit),
            np.array([[0.0, -2], [-0.3, -1.1], [0.2, -3], [-1, -2.5]]), closed(dead_unit)),
    Problem(of_loss("DyingUnit", "w b", relu_unit), np.array([[-1.0, -1.5]]),
            closed(lambda w, b: Outcome(MINIMA, (-0.8013, -1.6026), 2e-3, 0.7))),
    Problem(of_loss("EasomFar", "x y",
                    lambda x, y: -COS(x) * COS(y) * EXP(-((x - math.pi) ** 2) - (y - math.pi) ** 2)),
            np.array([[40.0, 1], [-60, 30], [33, -30]]),
            closed(lambda x, y: Outcome((Label.UNRESOLVED,)))),
    # half-stable points, and orbits that end in saddles
    Problem(of_loss("HalfStable", "x y", lambda x, y: x**3 / 3 + y**2 / 2),
            np.array([[1.0, 0.5], [0.2, -1], [-0.5, 1], [-1e-3, 0.2]]),
            closed(lambda x, y: saddle((0, 0), 1e-2) if x > 0 else infinity((-INF, NAN), -INF)),
            WIDE, at=0.5),
    Problem(of_loss("Inflection", "x y", lambda x, y: x**3 + x**4 + y**2 / 2),
            np.array([[1.0, 0.5], [0.2, -1], [-0.5, 1], [-1e-3, 0.2], [-2, 0.1]]),
            closed(lambda x, y: saddle((0, 0), 1e-2) if x > 0 else minimum((-0.75, 0))), WIDE,
            at=0.5),
    Problem(of_loss("FlatInflection", "x y", lambda x, y: x**5 + x**6 + y**2 / 2),
            np.array([[1.0, 0.5], [0.3, -1], [-0.5, 1], [-0.1, 0.2]]),
            closed(lambda x, y: saddle((0, 0), 0.1) if x > 0 else minimum((-5 / 6, 0))), WIDE,
            at=0.5),
    Problem(of_loss("Saddle", "x y", lambda x, y: x**2 / 2 - y**2 / 2 + y**4 / 4),
            np.array([[0.3, 1e-8], [0.3, -1e-8], [1, 0], [0, -1e-20], [2, 1e-30], [-1, 0.5],
                      [0.1, -1e-12]]),
            closed(lambda x, y: minimum((0, np.sign(y))) if y else saddle((0, 0))), WIDE,
            hits=saddle_time, at=1.0, few=7),
    # small first weights
    layers_problem(2, (1e-3, 1e-10, 1e-30)),
    layers_problem(3, (1e-3, 1e-6, 1e-10)),
    layers_problem(4, (1e-3, 1e-6, 1e-10)),
    layers_problem(5, (1e-3, 1e-6, 1e-8)),
    layers_problem(6, (1e-2, 1e-4, 1e-6)),
    Problem(of_loss("DiagonalNetwork", "u v", lambda u, v: (u**2 - v**2 - 1) ** 2 / 2),
            np.outer([1e-3, 1e-6, 0.1, 1e-9, 1e-12], [1.0, 1.0]), closed(one_feature),
            {"u": (-1.3, 1.6), "v": (-1.2, 1.4)}, hits=one_feature_time, at=1.0, few=5),
    Problem(of_loss("TwoFeatures", "u1 u2 v1 v2",
                    lambda a, b, c, d: (2 * (a**2 - c**2) + b**2 - d**2 - 2) ** 2 / 2),
            np.outer([1e-2, 1e-5, 0.3, 1e-9], np.ones(4)), closed(diagonal((2.0, 1.0), 2.0)),
            at=0.5),
    Problem(of_loss("MatrixFactors", "a b c d e f g h", factors),
            np.concatenate([box(*[(-1, 1)] * 8, count=6), box(*[(-1e-6, 1e-6)] * 8, count=6)])[::-1],
            closed(lambda *w: Outcome(MINIMA, loss=0.0)), at=0.5),
    Problem(of_loss("PhaseRetrieval", "x y", phase_retrieval), box((-2, 2), (-2, 2)),
            followed(200.0), WIDE, at=1.0),
    # kinks
    Problem(of_loss("Abs", "x y", lambda x, y: x.abs() + y**2), box((-2, 2), (-2, 2)),
            closed(lambda x, y: minimum((0, 0), 1e-3)), WIDE),
    Problem(of_loss("Cone", "x y", lambda x, y: torch.sqrt(x**2 + y**2)), box((-2, 2), (-2, 2)),
            closed(lambda x, y: minimum((0, 0), 1e-3)), WIDE),
    Problem(of_loss("Diamond", "x y", lambda x, y: (x - 0.3).abs() + 2 * (y + 0.4).abs()),
            box((-2, 2), (-2, 2)), closed(lambda x, y: minimum((0.3, -0.4), 1e-3)), WIDE),
    Problem(of_loss("LargestOf", "x y", lambda x, y: torch.maximum(x**2 + y, y**2 - y)),
            box((-2, 2), (-2, 2)), closed(lambda x, y: minimum((0, 0), 2e-3)), WIDE),
    Problem(of_loss("SlideToMinimum", "x y", lambda x, y: (x + y).abs() + (y - 1) ** 2),
            box((-2, 2), (-2, 2)),
            closed(lambda x, y: minimum((-1.0, 1.0), 2e-3)), WIDE),
    Problem(of_loss("SlideToInfinity", "x y", lambda x, y: x.abs() - y), box((-1, 1), (-1, 1)),
            closed(lambda x, y: infinity((0, INF), -INF)), None, few=2),
    *(Problem(of_loss(f"KinkLeadsOn{i}", "x y", lambda x, y, rest=rest: x.abs() + rest(y)),
              np.array([[0.5, 0], [-0.3, 0.4]]),
              closed(lambda x, y, loss=loss: infinity((0, INF), loss)), None)
      for i, (rest, loss) in enumerate([(lambda y: EXP(-y), 0.0), (lambda y: -1e-5 * y, -INF)])),
    lasso("Lasso2", np.array([[1.0, 0.5], [0.3, 1.0], [0.2, -0.4]]), np.array([1.0, 0.2, -0.5]), 0.5),
    lasso("Lasso3", np.array([[1.0, 0.5, 0.2], [0.3, 1.0, -0.6], [0.2, -0.4, 0.9]]),
          np.array([1.0, -0.2, 0.5]), 0.3),
    Problem(of_loss("Ackley", "x y", ackley), np.array([[0.2, 0.1], [-0.1, 0.3], [1.05, 0.1],
                                                        [3.1, -2.9], [0.9, 1.1]]),
            lambda model, starts: [minimum((0, 0), 1e-3) if np.hypot(*s) < 0.5
                                   else followed(1.0)(model, s[None])[0] for s in starts],
            {"x": (-0.4, 0.35), "y": (-0.35, 0.35)}),
    Problem(of_loss("Bukin6", "x y",
                    lambda x, y: 100 * torch.sqrt((y - 0.01 * x**2).abs()) + 0.01 * (x + 10).abs()),
            np.array([[-8.0, 1.0], [-12, 2]]), closed(lambda x, y: minimum((-10, 1), 1e-2)), None),
    # infinity: slow, fast, and in finite time
    Problem(of_loss("Exponential", "x y", lambda x, y: EXP(-x) + y**2 / 2),
            np.array([[0.0, 0], [1, 0], [-2, 1], [3, -1], [2.5, 0.3]]),
            closed(lambda x, y: infinity((INF, 0), 0.0)), WIDE,
            hits=lambda x, y: 999 * math.exp(x) if y == 0 else NAN, at=1.0, few=5),
    Problem(of_loss("LogLog", "x y", lambda x, y: EXP(-EXP(x)) + y**2 / 2),
            np.array([[0.0, 0.5], [1, 1], [-1, 0.2]]), closed(lambda x, y: infinity((INF, 0), 0.0)),
            None, at=1.0, few=2),
    Problem(of_loss("Bump", "x y", lambda x, y: 1 / (1 + x**2) + y**2 / 2),
            np.array([[0.5, 0], [-1, 0.5], [1e-6, 1], [-3, -1]]),
            closed(lambda x, y: infinity((math.copysign(INF, x), 0), 0.0)), WIDE, at=1.0),
    Problem(of_loss("DipAt300", "x y",
                    lambda x, y: 1 / (1 + x**2) - 0.01 * EXP(-(((x - 300) / 50) ** 2)) + y**2 / 2),
            np.array([[0.5, 0], [10, 0.5], [200, 1], [-3, -1]]),
            closed(lambda x, y: minimum((DIP(x), 0), 1e-2) if x > 0 else infinity((-INF, 0), 0.0)),
            {"x": (1, 400), "y": (-1, 1)}, at=1.0),
    Problem(of_loss("Cubic", "x y", lambda x, y: x**3 / 3 - x + y**2 / 2), box((-3, 3), (-2, 2)),
            closed(lambda x, y: minimum((1, 0)) if x > -1 else infinity((-INF, NAN), -INF)), WIDE,
            at=0.2),
    Problem(of_loss("BlowUp", "x y", lambda x, y: -(x**4) / 4 + y**2 / 2),
            np.array([[1.0, 1], [-0.5, 0.3], [0.1, -1], [-2, 0]]),
            closed(lambda x, y: infinity((math.copysign(INF, x), NAN), -INF)), WIDE, at=0.1),
    Problem(of_loss("BlowUpLikeCosh", "x", lambda x: -torch.cosh(x)),
            np.array([[0.2], [-1.5], [0.01]]),
            closed(lambda x: infinity((math.copysign(INF, x),), -INF)), few=1),
    Problem(of_loss("GrowthToTheFloor", "x y", lambda x, y: EXP(2 * x - 60) / 2 - EXP(x) + y**2 / 2),
            np.array([[0.1, 0.5], [3, -1]]), closed(lambda x, y: minimum((60, 0), 1e-3)), few=1),
    Problem(of_loss("Hyperbolic", "x y", lambda x, y: (y**2 - x**2) / 2), box((-2, 2), (-2, 2)),
            closed(lambda x, y: infinity((math.copysign(INF, x), 0), -INF)), WIDE, at=1.0),
    Problem(of_loss("MonkeySaddle", "x y", lambda x, y: x**3 - 3 * x * y**2), box((-2, 2), (-2, 2)),
            closed(monkey), WIDE, at=0.05),
    Problem(of_loss("Beale", "x y",
                    lambda x, y: (1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2
                    + (2.625 - x + x * y**3) ** 2),
            box((-4.5, 4.5), (-4.5, 4.5), seed=5), beale, {"x": (-4.5, 4.5), "y": (-4.5, 4.5)},
            at=1e-3),
    Problem(of_loss("SoftmaxBandit", "a b c", bandit),
            np.array([[0.0, 0, 0], [0, 3, 0], [-5, 5, 0], [1, -1, 0.5]]),
            closed(lambda *x: infinity((INF, -INF, -INF), -1.0)), None, at=1.0),
    Problem(of_loss("ValueSoftmax", "u1 u2 d", bandit_keeps, metric=(1.0, 1.0, 0.5)),
            box((-1, 1), (-1, 1), (-1, 1)), closed(lambda *x: infinity((NAN, NAN, NAN), 0.0)),
            None, at=1.0),
    Problem(of_loss("SeparableLogistic", "x y", separable), box((-2, 2), (-2, 2)),
            closed(lambda *x: infinity((INF, INF), 0.0)), WIDE, at=1.0),
    *(Problem(of_loss(f"RidgeLogistic1e{n}", "x y",
                      lambda x, y, n=n: softplus(-x) + 10.0**n * x**2 / 2 + y**2 / 2),
              box((-2, 3), (-1, 1)),
              closed(lambda x, y, n=n: minimum((brentq(
                  lambda s: 1 / (1 + math.exp(s)) - 10.0**n * s, 0, 40), 0), 1e-3)), WIDE, at=1.0)
      for n in (-3, -9)),
    # sinks of fields
    Problem(system("SlowSpiral", "x y", lambda x, y: (-0.1 * x - 5 * y, 5 * x - 0.1 * y)),
            box((-2, 2), (-2, 2)), closed(lambda x, y: minimum((0, 0))), WIDE, at=1.0,
            hits=lambda x, y: math.log(1000) / 0.2),
    Problem(system("DampedPendulum", "x v", lambda x, v: (v, -SIN(x) - 0.3 * v)),
            box((-6, 6), (-3, 3)), followed(150.0), {"x": (-6, 6.3), "v": (-3, 3)}, at=1.0),
    Problem(system("Duffing", "x v", lambda x, v: (v, x - x**3 - 0.1 * v)), box((-2, 2), (-2, 2)),
            followed(400.0), {"x": (-2.1, 1.9), "v": (-1.8, 2.2)}, at=1.0),
    Problem(system("LightlyDampedDuffing", "x v", lambda x, v: (v, x - x**3 - 0.02 * v)),
            box((-2, 2), (-2, 2)), followed(2000.0), None, at=1.0, few=1),
    Problem(system("MagneticPendulum", "x y u v", magnets),
            np.c_[box((-2, 2), (-2, 2)), np.zeros((24, 2))], followed(250.0), None, at=1.0, few=1),
    Problem(system("CubeRoots", "x y", lambda x, y: (
                -(x - (x**2 - y**2) / (x**2 + y**2) ** 2) / 3,
                -(y + 2 * x * y / (x**2 + y**2) ** 2) / 3)),
            box((-2, 2), (-2, 2)), closed(cube_root), WIDE, at=1.0),
    Problem(system("ToggleSwitch", "x y", lambda x, y: (4 / (1 + y**2) - x, 4 / (1 + x**2) - y)),
            np.array([[1.0, 0.5], [0.2, 3], [2, 2.1], [3, 1], [0.1, 0.1]]), closed(toggle),
            {"x": (0, 4.1), "y": (0, 4)}, at=1.0, few=5),
    Problem(system("Competition", "x y", lambda x, y: (x * (1 - x - 2 * y), y * (1 - y - 2 * x))),
            np.array([[0.5, 0.4], [1e-10, 1e-12], [1e-20, 0.3], [0.3, 0.31], [0.2, 0.2]]),
            closed(competing), {"x": (0.01, 1.5), "y": (0.02, 1.5)}, at=1.0, few=5),
    Problem(system("Coexistence", "x y",
                   lambda x, y: (x * (1 - x - 0.5 * y), y * (1 - y - 0.5 * x))),
            np.array([[0.5, 1e-20], [1e-12, 1e-15], [1e-9, 1], [2, 1], [0.7, 0]]),
            closed(lambda x, y: minimum((2 / 3, 2 / 3)) if x * y else saddle((1, 0))),
            {"x": (0.01, 1.5), "y": (0.02, 1.5)}, at=1.0, few=5),
    Problem(system("Epidemic", "s i", lambda s, i: (-2 * s * i, 2 * s * i - i)),
            np.array([[1.0, 1e-6], [0.9, 0.1], [2, 1e-10], [0.3, 0.5]]), closed(epidemic),
            {"s": (0.02, 2), "i": (0.01, 1)}, at=1.0),
    Problem(system("StiffKinetics", "a b c", lambda a, b, c: (-a, a - 2000 * b, 2000 * b)),
            np.array([[1.0, 0, 0], [0.5, 0.5, 0.1], [2, 0, 1]]),
            closed(lambda a, b, c: minimum((0, 0, a + b + c), key="line")), None, at=1.0),
    Problem(system("Robertson", "a b c", robertson), np.array([[1.0, 0, 0], [0.5, 1e-5, 0.5]]),
            closed(lambda a, b, c: Outcome(MINIMA, (0, 0, a + b + c), 1e-2)), None, at=40.0),
    Problem(system("LorenzAtRest", "x y z",
                   lambda x, y, z: (10 * (y - x), x * (10 - z) - y, x * y - 8 / 3 * z)),
            box((-5, 5), (-5, 5), (1, 9)), followed(60.0), {"x": (-5, 5.2), "y": (-5, 5.1)},
            {"z": 5.0}, at=0.5),
    Problem(system("BrusselatorAtRest", "x y",
                   lambda x, y: (1 + x * x * y - 2.5 * x, 1.5 * x - x * x * y)),
            box((0.2, 3), (0.2, 3)), closed(lambda x, y: minimum((1, 1.5))),
            {"x": (0.2, 3), "y": (0.2, 3)}, at=1.0),
    predators(1.5, "PredatorsAtRest", closed(
        lambda x, y: minimum((3 / 7, (1 - 2 / 7) * 10 / 7)))),
    predators(0.4, "PreyAlone", closed(lambda x, y: minimum((0.4, 0)))),
    # nothing comes to rest
    predators(40.0, "PredatorsInCycles", closed(lambda x, y: stays())),
    Problem(system("VanDerPol", "x v", lambda x, v: (v, (1 - x**2) * v - x)),
            box((-3, 3), (-3, 3)), closed(lambda x, v: stays()), {"x": (-3, 3), "v": (-3, 3)},
            at=5.0),
    Problem(system("HopfCycle", "x y", lambda x, y: (x - 2 * y - x * (x**2 + y**2),
                                                     2 * x + y - y * (x**2 + y**2))),
            box((-2, 2), (-2, 2)), closed(lambda x, y: stays()), WIDE, at=1.0),
    Problem(system("HalfStableCycle", "x y", lambda x, y: (
                -2 * y - x * (x**2 + y**2 - 1) ** 2, 2 * x - y * (x**2 + y**2 - 1) ** 2)),
            np.array([[0.5, 0.2], [0.9, 0], [1.5, 0.3], [-2, 1]]),
            closed(lambda x, y: minimum((0, 0)) if math.hypot(x, y) < 1 else stays()), WIDE, at=1.0),
    Problem(system("Oscillator", "x v", lambda x, v: (v, -x)), box((-2, 2), (-2, 2)),
            closed(lambda x, v: stays()), {"x": (-2.1, 1.9), "v": (-1.8, 2.2)}, at=3.0),
    Problem(system("LotkaVolterra", "x y", lambda x, y: (0.7 * x - 0.3 * x * y,
                                                         0.11 * x * y - 0.9 * y)),
            np.concatenate([[CENTRE], box((1, 20), (0.5, 6))]), closed(lambda x, y: stays()),
            {"x": (0.5, 20), "y": (0.5, 6)}, at=5.0, logs=True),
    Problem(system("Pendulum", "x v", lambda x, v: (v, -SIN(x))), box((-1.5, 1.5), (-1, 1)),
            closed(lambda x, v: stays()), {"x": (-1.5, 1.4), "v": (-1, 1.1)}, at=3.0),
    Problem(system("DiracGAN", "theta psi", lambda t, p: (-p * torch.sigmoid(-t * p),
                                                          t * torch.sigmoid(-t * p)),
                   lambda t, p: -softplus(-t * p)),
            np.array([[1.0, 0], [0.1, 0.2], [2, 2], [-1, 0.5]]), closed(lambda t, p: stays()),
            {"theta": (-2.1, 1.9), "psi": (-1.8, 2.2)}, at=3.0),
    Problem(system("MayLeonard", "a b c", lambda a, b, c: (
                a * (1 - a - 0.8 * b - 1.3 * c), b * (1 - b - 0.8 * c - 1.3 * a),
                c * (1 - c - 0.8 * a - 1.3 * b))),
            box((0.1, 1), (0.1, 1), (0.1, 1)), closed(lambda *x: stays(periodic=False)), None,
            at=1000.0, logs=True),
    Problem(system("RockPaperScissors", "a b c", rock_paper_scissors(2.0)),
            box((0.1, 1), (0.1, 1), (0.1, 1)) / box((0.1, 1), (0.1, 1), (0.1, 1)).sum(1)[:, None],
            closed(lambda *x: stays(periodic=False)), None, at=100.0, logs=True),
    Problem(system("Lorenz", "x y z",
                   lambda x, y, z: (10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z)),
            box((-10, 10), (-10, 10), (10, 30)), closed(lambda *x: stays(periodic=False)), None,
            at=1.0),
    Problem(system("SpiralOut", "x v", lambda x, v: (v, v - 2 * x)), box((-2, 2), (-2, 2)),
            closed(lambda x, v: Outcome((Label.INFINITY,), key="away")),
            {"x": (-2.1, 1.9), "v": (-1.8, 2.2)}, at=1.0),
    Problem(system("CubicDamping", "x v", lambda x, v: (v, -x - v**3)),
            np.array([[0.01, 0], [1e-3, 0], [2, 1], [0.5, 0.3]]),
            closed(lambda x, v: Outcome((Label.LOCAL_MINIMUM, Label.UNRESOLVED), (0, 0), 0.1)), at=3.0),
    Problem(system("CubicPush", "x y", lambda x, y: (
                x * (x * x + y * y) / 100 - y, y * (x * x + y * y) / 100 + x)),
            np.array([[0.01, 0], [0.5, 0.3]]),
            closed(lambda x, y: Outcome((Label.INFINITY, Label.UNRESOLVED))), at=3.0),
    *(Problem(system(f"SlowBesideCycle{n}", "x y z", lambda x, y, z, n=n: (
                x - y - x * (x * x + y * y), x + y - y * (x * x + y * y), -(10.0**n) * z)),
              np.array([[0.5, 0.3, 1], [-1, 0.2, -3]]),
              closed(lambda *x: stays()), at=3.0)
      for n in (-3, -6)),
    *(Problem(system(f"{name}", "x y", field), np.array([[0.7, 0.3], [1, -1], [-2, 0.1]]), closed(end))
      for name, field, end in (
          ("SignsRest", lambda x, y: (-torch.sign(x), -torch.sign(y)),
           lambda x, y: minimum((0, 0))),
          ("SignLeadsOn", lambda x, y: (-torch.sign(x), 1),
           lambda x, y: Outcome((Label.INFINITY, Label.UNRESOLVED))))),
    # of training, mechanics, chemistry: a place far from 0, a bound of the domain, a jump both ways
    Problem(of_loss("Entropy", "p q", lambda p, q: p * LOG(p) + q * LOG(q) - p),
            np.array([[0.5, 0.5], [2, 0.1], [0.01, 3]]),
            closed(lambda p, q: minimum((1, math.exp(-1))))),
    Problem(of_loss("Barrier", "x y", lambda x, y: x + y**2 - 1e-3 * LOG(x)),
            np.array([[0.5, 1], [2, -1], [1e-4, 0.5]]),
            closed(lambda x, y: minimum((1e-3, 0), 1e-5))),
    Problem(of_loss("TwoParabolas", "x y",
                    lambda x, y: torch.minimum((x - 1) ** 2, (x + 1) ** 2) + y**2),
            box((-3, 3), (-2, 2)), closed(lambda x, y: minimum((math.copysign(1, x), 0))), at=0.2),
    Problem(of_loss("WellsCloseTogether", "x y",
                    lambda x, y: ((x - 1) ** 2 * 1e6 - 0.25) ** 2 + y**2),
            np.array([[1.001, 0.5], [0.9993, -0.2], [1.00001, 1]]),
            closed(lambda x, y: minimum((1 + math.copysign(5e-4, x - 1), 0), 1e-6))),
    Problem(of_loss("LargestOfSix", "x y z", lambda x, y, z: torch.stack(
                [x, -x, 2 * y, -y, 3 * z, -z], -1).amax(-1)),
            box((-2, 2), (-2, 2), (-2, 2)), closed(lambda *x: minimum((0, 0, 0), 1e-2)), few=2),
    Problem(of_loss("LennardJones", "r z", lambda r, z: 4 * (r**-12 - r**-6) + z**2 / 2),
            np.array([[0.9, 0.5], [2, 1], [5, -1]]), closed(lambda r, z: minimum((2 ** (1 / 6), 0)))),
    Problem(of_loss("SixWells", "a b c d e f", lambda *x: sum(
                (i + 1) * (y * y - 1) ** 2 / 4 for i, y in enumerate(x))),
            box(*[(-2, 2)] * 6), closed(lambda *x: minimum(np.sign(x))), few=2),
    Problem(system("NormalisedDescent", "x y", lambda x, y: (
                -x / (x * x + 4 * y * y).sqrt(), -2 * y / (x * x + 4 * y * y).sqrt())),
            np.array([[1.0, 0.5], [-0.6, 0.4]]), closed(lambda x, y: minimum((0, 0), 1e-2)), few=1),
    Problem(system("TinyCycle", "x y", lambda x, y: (
                x * (1e-8 - x * x - y * y) - y, y * (1e-8 - x * x - y * y) + x)),
            np.array([[1e-5, 0], [3e-4, 1e-5], [1, 0]]), closed(lambda *x: stays()), few=2),
    Problem(system("Kuramoto", "a b c", lambda a, b, c: (
                SIN(b - a) + SIN(c - a), SIN(a - b) + SIN(c - b), SIN(a - c) + SIN(b - c))),
            box((0, 1.5), (0, 1.5), (0, 1.5)),
            closed(lambda *x: minimum([sum(x) / 3] * 3, key="in phase")), at=1.0),
    Problem(system("LineOfRest", "x y", lambda x, y: (-x * y * y, -y)),
            np.array([[1.0, 1], [2, -0.5]]),
            closed(lambda x, y: minimum((x * math.exp(-(y**2) / 2), 0), 1e-3, key="line")), at=1.0),
    Problem(system("WeaklyDampedGAN", "t p", lambda t, p: (-p, t - 0.2 * p)), box((-2, 2), (-2, 2)),
            closed(lambda t, p: minimum((0, 0))), at=1.0),
    # the steps of optimizers
    *(logistic(r) for r in (0.5, 2.5, 3.2, 3.5, 3.83, 3.9)),
    *(product_map(rate) for rate in (0.3, 1.1)),
    Problem(of_loss("HeavyBallCycle", "x", kinked_parabola), np.array([[3.3], [3.25], [0.4]]),
            closed(iterated(heavy_ball, 1)),
            optimizer={"optimizer": "momentum", "learning_rate": 1 / 9, "momentum": 4 / 9,
                       "steps": 4000}),
    Problem(of_loss("AdamOnRosenbrock", "x y", rosenbrock), np.array([[-1.2, 1.0], [0.5, 2]]),
            by_torch(torch.optim.Adam, 100, lr=3e-3),
            optimizer={"optimizer": "adam", "learning_rate": 3e-3, "steps": 100}),
    Problem(of_loss("MomentumOnHimmelblau", "x y", himmelblau), np.array([[-1.2, 1.0], [0.5, 2]]),
            by_torch(torch.optim.SGD, 100, lr=1e-4, momentum=0.9),
            optimizer={"optimizer": "momentum", "learning_rate": 1e-4, "steps": 100}),
]  # fmt: skip
