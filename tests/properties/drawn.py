"""What the properties are tried on, and how often: the one place where hypothesis is set.

Examples come from the test's own text (``derandomize``), no database is kept and no time is
limited, so that every run tries the same ones. Hypothesis would also draw constants out of the
source of all local modules loaded by then, which other tests and every edit change.
"""

import math

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

import flowsim

if hasattr(providers, "is_local_module_file"):  # since 6.131
    providers.is_local_module_file = lambda path: False

#: What every property has in common. Explaining a failure would run it many times more.
PINNED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def law(few, many, **strategies):
    """Decorator: try a property on a few examples by default, on many among the slow tests.

    Args:
        few, many: numbers of examples.
        strategies: one for each argument of the property.
    """

    def decorate(check):
        @pytest.mark.parametrize(
            "examples", [few, pytest.param(many, marks=pytest.mark.slow)], ids=["few", "many"]
        )
        def test(examples):
            settings(PINNED, max_examples=examples)(given(**strategies)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def magnitudes(low=-12.0, high=3.0):
    """±10ˣ with x between ``low`` and ``high``."""
    exponents = st.floats(low, high)
    return st.builds(lambda x, sign: sign * 10.0**x, exponents, st.sampled_from([-1.0, 1.0]))


#: Coordinates of starts: of every size, on invariant sets, and on the saddle's line.
coordinates = st.one_of(
    magnitudes(), magnitudes(-1, 0.7), st.sampled_from([0.0, -math.sqrt(0.5), -1.0, 1.0])
)
_small = st.floats(-9.0, math.log10(0.5)).map(lambda x: 10.0**x)
#: From 1e-9 to 1 − 1e-9, as close to 1 as to 0.
probabilities = st.one_of(_small, _small.map(lambda x: 1 - x), st.floats(0.05, 0.95))


@st.composite
def chances(draw, near=True):
    """(p, q), now and then with p + q close to 1, or 1."""
    p = draw(probabilities)
    if near and draw(st.integers(0, 4)) == 0:
        q = 1 - p + draw(st.one_of(st.just(0.0), magnitudes(-9, -2)))
        if 1e-9 <= q <= 1 - 1e-9:
            return p, q
    return p, draw(probabilities)


@st.composite
def starts(draw, columns, rows=6, values=coordinates):
    """Some starts, float64, shape (n, columns)."""
    row = st.tuples(*[values] * columns)
    return torch.tensor(draw(st.lists(row, min_size=1, max_size=rows)), dtype=torch.float64)


#: The models without positions, with the bias minimised out: L = ℓ(Δ).
PLANAR = ("canonical", "linear", "untied")


@st.composite
def gap_models(draw, names=(*PLANAR, "states")):
    """A model whose loss is a function of the logit gap."""
    name = draw(st.sampled_from(names))
    if name != "states":
        return flowsim.model(name, *draw(chances()))
    states, hidden = draw(st.sampled_from([2, 3, 17, 1000])), draw(st.sampled_from([1, 4, 64]))
    return flowsim.model(name, draw(probabilities), states=states, hidden_per_state=hidden)


@st.composite
def models(draw, longest=12):
    """Any built-in model, with any of its arguments."""
    kind = draw(st.sampled_from(["gap", "dynamic", "uniform", "rank-one", "attention"]))
    if kind == "gap":
        return draw(gap_models())
    p, q = draw(chances())
    if kind == "dynamic":
        return flowsim.model(draw(st.sampled_from(PLANAR)), p, q, bias="dynamic")
    length = draw(st.integers(1, longest))
    if kind == "uniform":
        bias = draw(st.sampled_from(["optimal", "dynamic"]))
        return flowsim.model("uniform", p, q, length=length, bias=bias)
    tied = draw(st.booleans())
    if kind == "attention":
        return flowsim.model("rank-one", p, q, length=min(length, 6), attention=True, tied=tied)
    length = draw(st.one_of(st.just(length), st.integers(1, 10**6)))
    return flowsim.model("rank-one", p, q, length=length, tied=tied)
