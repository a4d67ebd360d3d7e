"""What is frozen of every built-in model: cases, chains, starts, and what is computed from each.

Only the public names of flowsim are used, so that the same file runs with any version of it. Starts
are drawn with numpy alone, rounded, and told apart by a digest; what a model adds to a start of the
(w, e) plane, such as its best bias, is held by the starts' sums.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import flowsim

FOLDER = Path(__file__).parent

#: Starts of every case and chain, and how many of the first of them have paths.
STARTS, PATHS = 1000, 20
#: The times of the paths, each of which begins at 0.
TIMES = np.geomspace(0.01, 100.0, 20)
#: What is allowed: of losses, absolute; of times, relative; of paths, relative to 1 + |θ|.
LOSS, TIME, PATH = 1e-6, 1e-3, 1e-5
#: The part of the excess loss that is left at the settling time.
FRACTION = 1e-3

#: p and q of the models of two states; p of those of S states, on both sides of (S - 1)/S.
BINARY = tuple({"p": p, "q": q} for p, q in ((0.5, 0.8), (0.2, 0.3), (0.9, 0.6)))
OF_STATES = tuple({"p": p} for p in (0.9, 0.5, 0.75))

#: Half of the width of a free start's interval; 2 for all other coordinates.
HALF_WIDTH = {"a": 1.5, "b": 1.5, "o": 1.5, "v": 1.5}


@dataclass(frozen=True)
class Case:
    """A model with its options.

    Attributes:
        name: of its file of goldens.
        model, options: what ``flowsim.model`` takes beside the chain.
        ends: how far an end may move, relative to 1 + |θ| in every coordinate: on a flat set of
            minima ends move with the engine's error.
        same_rules: whether the rule that decided has to be the same too.
        rtol: the tolerance of limits that the goldens were computed with, that engine's own; times
            with a hundredth of it.
        mirror: two coordinates that the flow treats alike. An orbit that begins with both equal
            keeps them so; one that ends with both different was decided by rounding.
    """

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ends: float = 1e-6
    same_rules: bool = True
    rtol: float = 1e-10
    mirror: tuple[str, ...] = ()

    @property
    def chains(self) -> tuple[Mapping[str, float], ...]:
        """Arguments of ``flowsim.model`` that say which chain it is on."""
        return {"induction": ({},), "states": OF_STATES}.get(self.model, BINARY)

    @property
    def path(self) -> Path:
        """The file of goldens."""
        return FOLDER / f"{self.name}.npz"

    def on(self, chain: int) -> Any:
        """The model on its chain of that number."""
        return flowsim.model(self.model, **self.chains[chain], **self.options)

    def raw_starts(self, chain: int, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """500 points (e, w), or (α, β), and 500 free ones of the named coordinates."""
        draw = np.random.default_rng(zlib.crc32(f"{self.name} {chain}".encode()))
        free = draw.uniform(-1, 1, (STARTS // 2, len(names)))
        if self.model == "induction":
            free = free * (6, 5) + (0, 1)
            plane = lattice((-6, 6), (-4, 6))
        else:
            free *= [HALF_WIDTH.get(name, 2.0) for name in names]
            plane = lattice((-1.5, 2), (-2, 2))
        return np.round(plane, 9), np.round(free, 9)

    def digest(self, chain: int, names: tuple[str, ...]) -> str:
        """Of the raw starts and their order."""
        parts = [*self.raw_starts(chain, names), self.order(chain)]
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]

    def order(self, chain: int) -> np.ndarray:
        """Plane and free starts mixed, so that every tenth is a sample of both."""
        draw = np.random.default_rng(zlib.crc32(f"order {self.name} {chain}".encode()))
        return draw.permutation(STARTS)

    def starts(self, chain: int, model: Any) -> np.ndarray:
        """All starts in the coordinates of the model, shape (1000, k)."""
        plane, free = self.raw_starts(chain, model.coordinates)
        return np.concatenate([lifted(model, plane), free])[self.order(chain)]


def lattice(first: tuple[float, float], second: tuple[float, float]) -> np.ndarray:
    """22 × 22 cell centres of a window, and 8 points on each of its two axes, shape (500, 2)."""
    x, y = np.meshgrid(centres(*first, 22), centres(*second, 22), indexing="ij")
    inner = np.stack([x.ravel(), y.ravel()], axis=-1)
    along_y = np.stack([np.zeros(8), centres(*second, 8)], axis=-1)
    along_x = np.stack([centres(*first, 8), np.zeros(8)], axis=-1)
    return np.concatenate([inner, along_y, along_x])


def centres(low: float, high: float, cells: int) -> np.ndarray:
    """Centres of equal cells that fill [low, high]."""
    return low + (high - low) * (np.arange(cells) + 0.5) / cells


def lifted(model: Any, plane: np.ndarray) -> np.ndarray:
    """Points of the plane as starts: a = v = 0, u = e, a bias at its optimum."""
    if model.name == "rank-one":
        held = np.zeros((len(plane), int(model.attention)))
        return model.from_canonical(np.concatenate([plane, held], axis=-1))
    if model.name == "induction":
        return plane
    e, w = plane.T
    columns = {"e": e, "w": w, "u": e}
    theta = np.stack([columns.get(name, 0 * e) for name in model.coordinates], axis=-1)
    if "b" in model.coordinates:
        theta[:, model.coordinates.index("b")] = model.optimal_bias(theta)
    return theta


def near(found: Any, golden: Any, tolerance: float, scale: Any = None) -> np.ndarray:
    """Where two arrays agree to a tolerance, by default times 1 + |golden|, or are both NaN."""
    scale = 1 + np.abs(golden) if scale is None else scale
    with np.errstate(invalid="ignore"):
        close = np.abs(found - golden) <= tolerance * scale
    return close | (found == golden) | (np.isnan(found) & np.isnan(golden))


def agreement(case: Case, found: Any, golden: Any, part: float = 1.0) -> dict[str, np.ndarray]:
    """Where two measurements agree to a part of what is allowed: of each start, and each path."""
    return {
        "label": found["label"] == golden["label"],
        "rule": found["rule"] == golden["rule"],
        "loss": near(found["loss"], golden["loss"], part * LOSS, scale=1),
        "ends": near(found["ends"], golden["ends"], part * case.ends).all(-1),
        "time": near(found["time"], golden["time"], part * TIME, scale=np.abs(golden["time"])),
        "paths": near(found["paths"], golden["paths"], part * PATH).all((0, 2)),
    }


def measure(
    case: Case, chain: int, stride: int = 1, finer: float = 1.0, paths: int = PATHS
) -> dict[str, np.ndarray]:
    """What is frozen of one case on one chain, of every ``stride``-th start.

    Args:
        case, chain: the case, and the number of its chain.
        stride: which starts.
        finer: multiplies the tolerances of the golden engine; 1 leaves every engine its own.
        paths: of how many of the first starts.

    Returns:
        label, rule, status, loss, time (n,), ends (n, k), paths (20 times, paths, k), sums (k,)
        of all starts and their digest.
    """
    model = case.on(chain)
    starts = case.starts(chain, model)
    rows = starts[::stride]
    own = finer == 1
    limits = flowsim.find_limits(model, rows, **({} if own else {"rtol": finer * case.rtol}))
    exact = {} if own else {"rtol": finer * case.rtol / 100}
    along = {} if own else {"rtol": finer * 1e-10}
    times = np.concatenate([[0.0], TIMES])
    return {
        "label": np.asarray(limits.label),
        "rule": np.asarray(limits.rule),
        "status": np.asarray(limits.status),
        "loss": np.asarray(limits.loss),
        "ends": np.asarray(limits.theta),
        "time": flowsim.flow.settling_times(model, rows, FRACTION, limits=limits, **exact),
        "paths": flowsim.trajectories(model, starts[:paths], times, **along)[1:],
        "sums": starts.sum(axis=0),
        "digest": np.array(case.digest(chain, model.coordinates)),
    }


def cases() -> Iterator[Case]:
    """Every built-in model with every option, by engines of three kinds."""
    dynamic: dict[str, Any] = {"ends": 1e-4, "rtol": 1e-6, "same_rules": False}
    smooth: dict[str, Any] = {"ends": 1e-4, "rtol": 1e-6}
    kinked: dict[str, Any] = {"ends": 1e-5, "rtol": 1e-8}
    attention: dict[str, Any] = {"ends": 1e-3, "rtol": 1e-6}
    for name in ("canonical", "linear", "untied"):
        mirror = ("e", "u") if name == "untied" else ()
        yield Case(name, name, mirror=mirror)
        yield Case(f"{name}_dynamic", name, {"bias": "dynamic"}, **dynamic, mirror=mirror)
    yield Case("uniform_8", "uniform", {"length": 8}, **smooth)
    yield Case("uniform_64", "uniform", {"length": 64}, **smooth)
    yield Case("uniform_8_dynamic", "uniform", {"length": 8, "bias": "dynamic"}, **dynamic)
    yield Case("rank_one_8", "rank-one", {"length": 8}, **kinked)
    yield Case("rank_one_1024", "rank-one", {"length": 1024}, **kinked)
    yield Case("rank_one_8_untied", "rank-one", {"length": 8, "tied": False}, **kinked)
    four = {"length": 4, "attention": True}
    yield Case("rank_one_4_attention", "rank-one", four, **attention)
    yield Case("rank_one_4_attention_untied", "rank-one", {**four, "tied": False}, **attention)
    yield Case("states_3", "states", {"states": 3})
    yield Case("states_5", "states", {"states": 5, "hidden_per_state": 2})
    three = {"states": 3, "attention": True, "length": 6}
    # v falls like a power of time, and the any-loss engine follows it further
    yield Case("states_3_attention", "states", three, **{**dynamic, "ends": 2e-3})
    for length in (6, 9):
        yield Case(f"induction_{length}", "induction", {"length": length}, rtol=1e-8)


CASES = tuple(cases())

_BIAS_MOVES = "w is 0 and e falls to 0; the bias was left where it was, and now reaches its optimum"
_FALLS = "w and v are 0 and e falls to 0; when the loss is within reach of the end is now known"
_SLIDES = "it slides along the corner a = −1, which the any-loss engine leaves unresolved"
_BESIDE = "its first step is another, so that it is decided beside neighbours, or not"
_SLOW_SADDLE = "it spends 5e4 of time beside a saddle, where 1e-4 of a step moves the time by 60"
_MORE_STEPS = "it was unresolved after 3 000 steps, and is decided within 30 000"
_FIRST_STEP = "its first step is shorter, which moves its path by less than the error allowed"
_AS_FINER = "it now ends where every finer tolerance from 1e-7 to 1e-10 ends too"
_ROUNDED = "it passes a saddle so slowly that an error of 1e-6 in a step moves its end by 1 %"
_HEADWAY = "its steps made no headway at the edge of a kink; it is now followed more finely"
_LATE = "a drift is now named late, after more than 30 000 steps"
#: Case, number of the chain, reason, starts.
_MANY = (
    ("canonical_dynamic", 0, _BIAS_MOVES, "133 150 252 307 420 507 515 564"),
    ("canonical_dynamic", 2, _BIAS_MOVES, "70 88 266 386 536 577 773 955"),
    ("states_3_attention", 0, _FALLS, "51 120 468 495 556 699 715 772"),
    ("states_3_attention", 2, _FALLS, "153 275 371 448 562 722 779 928"),
    (
        "linear_dynamic", 0, _SLIDES,
        "3 10 30 67 89 106 141 254 352 371 390 409 463 496 542 569 587 632 671 693 699 818 891 916 "
        "947",
    ),
    ("linear_dynamic", 2, _FIRST_STEP, "17"),
    ("linear_dynamic", 1, _SLIDES, "329 347 536"),
    (
        "linear_dynamic", 2, _SLIDES,
        "98 100 106 131 138 176 210 257 281 283 338 357 383 490 503 528 605 616 620 691 715 788",
    ),
    ("rank_one_4_attention", 0, _BESIDE, "603"),
    ("rank_one_4_attention_untied", 0, _BESIDE, "100"),
    ("rank_one_4_attention_untied", 2, _SLOW_SADDLE, "615"),
    (
        "rank_one_4_attention", 0, _MORE_STEPS,
        "4 46 283 285 321 337 373 416 517 592 615 638 639 640 730 749 757 760 766 796 799 812 835 "
        "846 864 937 585",
    ),
    (
        "rank_one_4_attention", 1, _MORE_STEPS,
        "27 32 74 134 143 243 422 477 505 569 587 680 768 790 831 845 921 946 954",
    ),
    (
        "rank_one_4_attention", 2, _MORE_STEPS,
        "24 38 84 163 244 253 285 319 348 372 400 428 431 465 491 577 743",
    ),
    (
        "rank_one_4_attention_untied", 0, _MORE_STEPS,
        "61 292 301 304 387 407 408 560 573 604 738 743 819 867 877 895 926 971",
    ),
    ("rank_one_4_attention_untied", 1, _MORE_STEPS, "301 861 921"),
    ("rank_one_4_attention", 0, _AS_FINER, "22"),
    ("rank_one_4_attention", 0, _ROUNDED, "17"),
    ("rank_one_4_attention", 1, _HEADWAY, "864"),
    ("rank_one_4_attention", 2, _LATE, "784"),
    ("rank_one_4_attention_untied", 0, _LATE, "857"),
    ("rank_one_4_attention_untied", 1, _HEADWAY, "10 82"),
    ("rank_one_4_attention_untied", 2, _MORE_STEPS, "26 247 284 320 322 348 784 928"),
)  # fmt: skip

#: Starts that may differ now: (case, number of the chain) ↦ {number of the start: the reason}.
EXPLAINED: dict[tuple[str, int], dict[int, str]] = {}
for _name, _chain, _reason, _starts in _MANY:
    EXPLAINED.setdefault((_name, _chain), {}).update(
        dict.fromkeys(map(int, _starts.split()), _reason)
    )
