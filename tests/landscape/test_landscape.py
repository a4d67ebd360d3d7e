import math

import pytest
import torch
from conftest import CHAINS

from flowsim import (
    BinaryChain,
    CanonicalModel,
    Label,
    curvatures,
    energy,
    minima_curve,
    reaches_global_minimum,
    separatrix,
)
from flowsim.landscape.basins import SADDLE_ENERGY, SADDLE_W
from flowsim.landscape.curvature import classify_critical, critical_plane
from flowsim.landscape.labels import CriticalPoint

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
    kind = critical_plane(model, line)
    expected = torch.sign(-(1 + 2 * W * W.abs()) * chain.target_logit_gap)
    assert torch.equal(kind, expected.to(torch.int8))
    assert ((values[:, 1] > 1e-12) == (kind == CriticalPoint.LOCAL_MINIMUM)).all()
    assert ((values[:, 0] < -1e-12) == (kind == CriticalPoint.LOCAL_MAXIMUM)).all()
    label = classify_critical(model, line)
    assert ((label == Label.LOCAL_MINIMUM) == (kind == CriticalPoint.LOCAL_MINIMUM)).all()
    saddle = torch.tensor([[0.0, SADDLE_W]], dtype=torch.float64)
    assert critical_plane(model, saddle) == CriticalPoint.SADDLE
    assert classify_critical(model, saddle) == Label.SADDLE


def test_without_information_there_are_no_bad_minima():
    chain = BinaryChain(0.3, 0.7)
    model = CanonicalModel(chain)
    line = torch.stack([torch.zeros_like(W), W], dim=-1)
    assert torch.isnan(separatrix(chain, W)).all()
    assert reaches_global_minimum(chain, line).all()
    assert (critical_plane(model, line) == CriticalPoint.GLOBAL_MINIMUM).all()
    assert (classify_critical(model, line) == Label.GLOBAL_MINIMUM).all()


def test_saddle_energy_is_the_energy_at_the_saddle():
    assert math.isclose(SADDLE_ENERGY, -(1 + math.log(2)) / 2)
    saddle = torch.tensor([0.0, SADDLE_W], dtype=torch.float64)
    assert energy(saddle).item() == pytest.approx(SADDLE_ENERGY, rel=1e-15)
