"""Labels next to p + q = 1, where the losses of unigram and bigram differ by rounding alone.

An end's loss above the entropy rate is taken in 40 digits from the model's formulas: it is none of
the mutual information where a row has learned, and all of it in a trap at e = 0.
"""

import mpmath
import numpy as np
import pytest
import torch
from law_oracle import law_of

import flowsim
from flowsim import Label, Rule
from flowsim.models.states.distribution import share_law

mp = mpmath.mp.clone()
mp.dps = 40
P = 0.4
#: Models of the binary chain that are compiled, and their options.
MODELS = [
    ("canonical", {}), ("linear", {}), ("untied", {}),
    ("uniform", {"length": 3}), ("uniform", {"length": 3, "bias": "dynamic"}),
    ("rank-one", {"length": 4}), ("rank-one", {"length": 4, "tied": False}),
    ("rank-one", {"length": 2, "attention": True}),
    ("rank-one", {"length": 2, "attention": True, "tied": False}),
    ("states", {"states": 3}),
]  # fmt: skip
#: Others are followed in torch, by several hundred steps a start.
IN_TORCH = [
    ("canonical", {"bias": "dynamic"}), ("linear", {"bias": "dynamic"}),
    ("untied", {"bias": "dynamic"}),
    ("states", {"states": 3, "attention": True, "length": 2}),
]  # fmt: skip
#: Models and distances.
CASES = [
    *[
        pytest.param(case, (1e-3, 1e-12), marks=[pytest.mark.slow] * (case == MODELS[7]))
        for case in MODELS
    ],
    pytest.param(IN_TORCH[0], (1e-8,), marks=pytest.mark.slow),
]


def model_at(name, options, distance):
    """On the chain with 1 − p − q next to ``distance``, or ⅔ − p of three states."""
    if name == "states":
        return flowsim.model(name, p=2 / 3 - distance, **options)
    return flowsim.model(name, P, 1 - P - distance, **options)


def starts_of(model, count=4):
    """Lifted and free starts."""
    random = np.random.default_rng(5)
    free = random.uniform(-2, 2, (count, len(model.coordinates)))
    if model.name != "rank-one":
        return free
    plane = random.uniform(-2, 2, (count, 2))
    held = random.uniform(-0.8, 0.8, (count, int(model.attention)))
    return np.concatenate([model.from_canonical(np.concatenate([plane, held], 1)), free])


def _attends(model):
    return model.name == "uniform" or getattr(model, "attention", False)


def logits_of(model, theta):
    """(weight, how far the logit is beyond that of the target, target) of every context."""
    chain = model.chain
    p, q = mp.mpf(chain.p), mp.mpf(chain.q)
    named = dict(zip(model.coordinates, map(mp.mpf, theta), strict=True))
    length = getattr(model, "length", 1)
    attends = _attends(model)
    e, rank_one = named["e"], model.name == "rank-one"
    u = named.get("c", named.get("u", e))
    for x, n, ones, weight, _ in zip(*map(list, law_of(chain, length)), strict=True):
        x, n, ones = int(x), int(n), int(ones)
        if rank_one:
            rho = [
                named[f"rho{i}"] if attends else named["rho"]
                for i in range(1, n + 1 if attends else 2)
            ]
            seen = (e * ones + sum(rho)) / n if attends else 0
            inner = e * x + rho[-1] + named.get("o", 0) * named.get("v", 0) * seen
            f = u * (inner + 4 * named["w2"] * max(named["w1"] * inner, 0))
        else:
            half = mp.mpf(1) / 2
            mean = mp.mpf(ones) / n - half if attends else x - half
            s = x - half + named.get("a", 0) * mean
            w = named["w"]
            f = u * e * (s + 4 * w * abs(w) * max(s, 0))
        target = 1 - q if x else p
        yield mp.mpf(float(weight)), f - mp.log(target / (1 - target)), target


def exact_excess_of_states(model, theta):
    """(L − entropy rate)/I of S states in 40 digits, with the logits of docs/derivations/20.md."""
    states, p, m = model.chain.states, mp.mpf(model.chain.p), model.hidden_per_state
    e, w, v = [mp.mpf(x) for x in (*theta, 0.0)][:3]
    c, a = mp.mpf(states) / (states - 1), v * abs(v)
    big_a = c * e * e
    big_b = c * m * w * abs(w) * big_a
    kernel, total = (1 - p, p / (states - 1)), mp.mpf(0)
    law = share_law(model.chain, getattr(model, "length", 1))
    for weight, shares, many in zip(*(part.tolist() for part in law), strict=True):
        u = [(t == 0) + a * share - (1 + a) / states for t, share in enumerate(shares)]
        d = [big_a * x + big_b * max(x, 0) - mp.log(kernel[t > 0]) for t, x in enumerate(u)]
        targets = [mp.mpf(number) * kernel[t > 0] for t, number in enumerate(many)]
        below = mp.fsum(t * x for t, x in zip(targets, d, strict=True))
        above = mp.log(mp.fsum(t * mp.exp(x) for t, x in zip(targets, d, strict=True)))
        total += mp.mpf(weight) * (above - below)
    others = (states - 1) * kernel[1] * mp.log(states * kernel[1])
    return float(total / (kernel[0] * mp.log(states * kernel[0]) + others))


def exact_excess(model, theta):
    """(L − entropy rate)/I in 40 digits, the bias that is no coordinate at its best."""
    if model.name == "states":
        return exact_excess_of_states(model, theta)
    parts = list(logits_of(model, theta))

    def excess(b):
        return sum(w * (mp.log1p(t * mp.expm1(f + b)) - t * (f + b)) for w, f, t in parts)

    def slope(b):
        return sum(
            w * t * (1 - t) * mp.expm1(f + b) / (1 + t * mp.expm1(f + b)) for w, f, t in parts
        )

    if "b" in model.coordinates:
        b = mp.mpf(theta[model.coordinates.index("b")])
    else:
        b = mp.findroot(slope, (mp.mpf(-60), mp.mpf(60)), solver="anderson", tol=mp.mpf(10) ** -35)
    p, q = mp.mpf(model.chain.p), mp.mpf(model.chain.q)
    pi = q / (p + q), p / (p + q)
    kernel = (1 - p, p), (q, 1 - q)
    information = sum(
        pi[i] * kernel[i][j] * mp.log(kernel[i][j] / pi[j]) for i in (0, 1) for j in (0, 1)
    )
    return float(excess(b) / information)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("case, distances", CASES, ids=str)
def test_labels_agree_with_the_loss_in_forty_digits(case, sign, distances):
    decided = 0
    for distance in distances:
        model = model_at(*case, sign * distance)
        starts = starts_of(model, 2 if case in IN_TORCH else 4)
        found = flowsim.find_limits(model, starts)
        decided += (found.label != Label.UNRESOLVED).mean() / len(distances)
        for i in range(len(starts)):
            if found.rule[i] in (Rule.DRIFTS, Rule.NONE) or not np.isfinite(found.theta[i]).all():
                continue
            share = exact_excess(model, found.theta[i])
            if found.label[i] == Label.GLOBAL_MINIMUM:
                assert share <= 0.01, (distance, i, share)
            elif found.rule[i] == Rule.TRAPPED_BY_PLANE:
                assert share == pytest.approx(1, rel=0.02), (distance, i)
                assert model.tied or _attends(model), (distance, i)
            else:
                assert share >= 0.05, (distance, i, share)
        basin = model.basin(torch.from_numpy(starts))
        if basin is not None:
            learned = found.label == Label.GLOBAL_MINIMUM
            assert (learned == basin.numpy()).all()
    assert decided >= 0.65  # with attention some starts are open, one at every distance


@pytest.mark.parametrize("case", MODELS, ids=str)
@pytest.mark.parametrize("pair", [(0.98, 0.02), (0.4, 0.6)], ids=str)
def test_where_p_and_q_sum_to_one_nothing_is_trapped(case, pair):
    model = flowsim.model(case[0], *pair, **case[1]) if case[0] != "states" else model_at(*case, 0)
    if model.chain.second_eigenvalue == 0:
        found = flowsim.find_limits(model, starts_of(model, 10))
        assert (found.label == Label.GLOBAL_MINIMUM).all()


@pytest.mark.parametrize("pair, tied", [((0.4, 0.599), True), ((0.15, 0.851), False)], ids=str)
def test_lifts_beside_independence_are_not_trapped(pair, tied):
    """Below p + q = 1 every lift learns; untied none is trapped on either side."""
    model = flowsim.model("rank-one", *pair, length=4, attention=True, tied=tied)
    starts = np.random.default_rng(2).uniform(-1, 1, (20, 3)) * (2, 2, 0.8)
    label = flowsim.find_limits(model, model.from_canonical(starts)).label
    assert (label != Label.LOCAL_MINIMUM).all() and (label == Label.GLOBAL_MINIMUM).mean() > 0.8


def test_the_excess_loss_of_every_model_keeps_its_digits():
    random = np.random.default_rng(3)
    for name, options in [*MODELS, *IN_TORCH]:
        for distance in (0.1, -1e-6, 1e-11):
            model = model_at(name, options, distance)
            for theta in random.uniform(-1, 1, (2, len(model.coordinates))):
                for size in (1.0, 1e-4):
                    point = size * theta
                    if "b" in model.coordinates:
                        point[model.coordinates.index("b")] += np.log(model.chain.p / model.chain.q)
                    exact = exact_excess(model, point)
                    found = float(model.excess(point)) / model.chain.mutual_information
                    assert found == pytest.approx(exact, rel=1e-7 + 1e-15 / abs(distance))


def test_the_loss_of_a_drift_is_its_limit():
    """With k of N positions open it is the k-th of N + 1 numbers: ¼ of the information at k = 3."""
    model = flowsim.model("rank-one", 0.5, 0.8, length=4, attention=True)
    starts = np.random.default_rng(0).uniform(-2, 2, (60, len(model.coordinates)))
    found = flowsim.find_limits(model, starts)
    drifts = found.rule == Rule.DRIFTS
    share = (found.loss[drifts] - model.chain.entropy_rate) / model.chain.mutual_information
    closed = np.abs(share[:, None] - np.array([0.25, 0.5, 0.75, 1.0])).min(1)
    assert drifts.sum() >= 3 and np.median(closed) < 2e-4
