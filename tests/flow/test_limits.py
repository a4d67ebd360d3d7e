import math

import pytest
import torch
from conftest import REFERENCE, relative_error, rows

from flowsim import BinaryChain, InputError, Label, Status, find_limits, hitting_times
from flowsim.models import CanonicalModel, LinearAttentionModel, reaches_global_minimum

NAMES = {"global": Label.GLOBAL_MINIMUM, "local": Label.LOCAL_MINIMUM}


def model_at(p, q):
    return CanonicalModel(BinaryChain(p, q))


@pytest.mark.parametrize("row", REFERENCE["limit"], ids=lambda r: f"{r['p']},{r['q']},{r['e0']}")
def test_reference_limits(row):
    limit = find_limits(model_at(row["p"], row["q"]), rows(row["e0"], row["w0"]))
    assert limit.label == NAMES[row["label"]]
    assert limit.status == Status.CONVERGED
    assert (limit.theta - rows(row["e"], row["w"])).abs().max() <= 1e-11
    assert limit.gradient_norm < 1e-9


@pytest.mark.parametrize("row", REFERENCE["hitting_time"], ids=lambda r: f"{r['p']},{r['q']}")
def test_reference_hitting_times(row):
    start = rows(row["e0"], row["w0"])
    time = hitting_times(model_at(row["p"], row["q"]), start, row["excess_fraction"])
    assert relative_error(time.item(), row["time"]) <= 1e-11


@pytest.mark.parametrize("delta", [1e-9, -1e-15])
def test_next_to_a_switching_factor_of_one(delta):
    model = model_at(0.5, 0.5 + delta)
    axis = torch.linspace(-2.97, 2.97, 60, dtype=torch.float64)
    start = torch.cartesian_prod(axis, axis)
    expected = reaches_global_minimum(model.chain, start)
    assert torch.equal(find_limits(model, start).label == Label.GLOBAL_MINIMUM, expected)


@pytest.mark.parametrize("rtol", [0.0, -1e-3, math.nan, math.inf])
def test_bad_tolerances_are_refused(rtol):
    with pytest.raises(InputError, match="rtol must be a positive number"):
        find_limits(model_at(0.5, 0.8), rows(1.0, 1.0), rtol=rtol)


def test_bad_shapes_and_fractions_are_refused():
    with pytest.raises(InputError, match=r"\(e, w\)"):
        find_limits(model_at(0.5, 0.8), torch.zeros(4, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        hitting_times(model_at(0.5, 0.8), rows(1.0, 1.0), fraction=1.0)
    assert torch.isnan(hitting_times(model_at(0.5, 0.8), rows(0.0, 1.0)))


def test_large_weights_a_hair_from_the_minima_are_on_them():
    """Δ is 0 at a = −1, but the minima are 5e-13 away; it had been taken for a plateau."""
    model = LinearAttentionModel(BinaryChain(0.9, 0.25))
    limits = find_limits(model, rows([-1000, -1000, -1], [-1000, 0, -1], [0, -1000, -1]))
    assert (limits.label == Label.GLOBAL_MINIMUM).tolist() == [True, True, False]
