import pytest
import torch
from conftest import CHAINS

from flowsim import BinaryChain, Label
from flowsim.labels import CriticalPoint, Rule, Status
from flowsim.landscape import curvatures
from flowsim.landscape.critical import classify_critical
from flowsim.models import (
    CanonicalModel,
    LinearAttentionModel,
    energy,
    minima_curve,
    reaches_global_minimum,
    separatrix,
)
from flowsim.models.canonical.basins import SADDLE_ENERGY, SADDLE_W

W = torch.linspace(-3, 3, 400, dtype=torch.float64)


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_separatrix_has_the_saddles_energy_and_splits_the_basins(p, q):
    chain = BinaryChain(p, q)
    e = separatrix(chain, W)
    on = torch.isfinite(e)
    assert on.any()
    boundary = torch.stack([e, W], dim=-1)[on]
    assert (energy(boundary) - SADDLE_ENERGY).abs().max() < 1e-12
    outside = boundary + torch.tensor([1e-6, 0.0])
    inside = boundary - torch.tensor([1e-6, 0.0])
    inside = inside[inside[:, 0] > 0]
    assert reaches_global_minimum(chain, outside).all()
    assert not reaches_global_minimum(chain, inside).any()


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_the_separatrix_begins_at_the_saddle_and_never_meets_the_plane_w_0(p, q):
    w = torch.tensor([SADDLE_W, 0.0, 1e-3], dtype=torch.float64)
    e = separatrix(BinaryChain(p, q), w)
    assert 0 <= float(e[0]) < 1e-7
    assert torch.isnan(e[1:]).all()


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_linear_attention_turns_the_side_of_the_feed_forward_layer(p, q):
    """Behind a = -1 at small e the basin is that of the plane's other side; far out it is all."""
    chain = BinaryChain(p, q)
    side = 1.0 if chain.second_eigenvalue > 0 else -1.0
    found = LinearAttentionModel(chain).basin(
        torch.tensor(
            [[0.1, 0.2, 1.0], [0.1, 0.2, -3.0], [2.9, 0.2, -3.0], [2.8, 0.2, -3.0],
             [0.1, 0.2, -0.9], [0.1, 0.2, -1.1]], dtype=torch.float64,
        ),
    )  # fmt: skip
    behind = side > 0
    assert found.tolist() == [behind, not behind, True, not behind, behind, not behind]


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_minima_curve_has_the_entropy_rate_and_no_gradient(p, q):
    chain = BinaryChain(p, q)
    model = CanonicalModel(chain)
    e = minima_curve(chain, W)
    theta = torch.stack([e, W], dim=-1)[torch.isfinite(e)]
    assert len(theta) > 50
    assert (model.loss(theta) - chain.entropy_rate).abs().max() < 1e-14
    assert model.gradient(theta).abs().max() < 1e-11
    assert (classify_critical(model, theta) == Label.GLOBAL_MINIMUM).all()


@pytest.mark.parametrize(("p", "q"), CHAINS)
def test_critical_line_by_sign_agrees_with_its_hessian(p, q):
    chain = BinaryChain(p, q)
    model = CanonicalModel(chain)
    line = torch.stack([torch.zeros_like(W), W], dim=-1)
    values = curvatures(model, line)
    kind = model.plane.axis_kinds(W, {})
    expected = torch.sign(-(1 + 2 * W * W.abs()) * chain.target_logit_gap)
    assert torch.equal(kind, expected.to(torch.int8))
    assert ((values[:, 1] > 1e-12) == (kind == CriticalPoint.LOCAL_MINIMUM)).all()
    assert ((values[:, 0] < -1e-12) == (kind == CriticalPoint.LOCAL_MAXIMUM)).all()
    label = classify_critical(model, line)
    assert ((label == Label.LOCAL_MINIMUM) == (kind == CriticalPoint.LOCAL_MINIMUM)).all()
    saddle = torch.tensor([[0.0, SADDLE_W]], dtype=torch.float64)
    assert model.plane.axis_kinds(saddle[:, 1], {}) == CriticalPoint.SADDLE
    assert classify_critical(model, saddle) == Label.SADDLE
    close = -torch.tensor([0.5 - 5e-8, 0.5 + 5e-8], dtype=torch.float64).sqrt()
    expected = -torch.tensor([1, -1]) * torch.sign(torch.tensor(chain.target_logit_gap))
    assert torch.equal(model.plane.axis_kinds(close, {}), expected.to(torch.int8))


def test_without_information_there_are_no_bad_minima():
    chain = BinaryChain(0.3, 0.7)
    model = CanonicalModel(chain)
    line = torch.stack([torch.zeros_like(W), W], dim=-1)
    assert torch.isnan(separatrix(chain, W)).all()
    assert reaches_global_minimum(chain, line).all()
    assert (model.plane.axis_kinds(W, {}) == CriticalPoint.GLOBAL_MINIMUM).all()
    assert (classify_critical(model, line) == Label.GLOBAL_MINIMUM).all()


def test_codes_of_records_never_change():
    assert {label.name: label.value for label in Label} == {
        "UNRESOLVED": 0, "GLOBAL_MINIMUM": 1, "LOCAL_MINIMUM": 2, "SADDLE": 3,
        "PERIODIC": 4, "BOUNDED": 5, "DIVERGED": 6, "INFINITY": 7,
    }  # fmt: skip
    assert {code.name: code.value for code in Status} == {
        "CONVERGED": 0, "TIMED_OUT": 1, "DIVERGED": 2, "FAILED": 3, "PERIODIC": 4,
    }  # fmt: skip
    assert [rule.name for rule in sorted(Rule)] == [
        "NONE", "CRITICAL_START", "TRAPPED_BY_PLANE", "REACHED_MINIMA", "CAME_TO_REST", "SHADOWS",
        "DRIFTS", "REFERENCE", "LEARNED", "STEPS", "RETURNS", "KINK",
        "BELOW_PASS",
    ]  # fmt: skip
    assert sorted(map(int, Rule)) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    assert {point.name: point.value for point in CriticalPoint} == {
        "LOCAL_MAXIMUM": -1, "SADDLE": 0, "LOCAL_MINIMUM": 1, "GLOBAL_MINIMUM": 2,
    }  # fmt: skip
