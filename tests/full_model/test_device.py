"""What computes on a device: the same as on the CPU, to 1e-10 in float64.

``pytest -m device --device cuda`` runs these tests on a GPU. On the CPU the slow suite does: they
say there that whatever takes a device works.
"""

import pytest
import torch

import flowsim
from flowsim import BinaryChain
from flowsim.flow.any_loss import BatchState
from flowsim.flow.options import SolverOptions, Steps
from flowsim.flow.orbits import limits_by
from full_model import (
    Architecture,
    Comparison,
    MarkovSource,
    PopulationLoss,
    Recipe,
    Trainer,
    compare,
    grid_points,
    initial_weights,
    lift_canonical,
    project,
)
from full_model.comparison.fields import FullField
from full_model.model.batches import batch_gradient
from full_model.training.trainer import CudaGraphCallable

pytestmark = pytest.mark.device

CHAIN = BinaryChain(0.5, 0.8)
CLOSE = {"rtol": 0, "atol": 1e-10}
KINDS = [
    Architecture(4, 5),
    Architecture(4, 5, tied=False, heads=2, layers=2, layer_norm=True, activation="gelu", window=3),
    Architecture(4, 5, output="states", positions="relative-values"),
    Architecture(4, 5, attention="uniform", positions="none"),
    Architecture(4, 5, attention="none"),
]


def weights_of(arch, members=3, seed=0):
    return initial_weights(arch, "gaussian", range(seed, seed + members), std=0.4)


def there(weights, device):
    return {name: w.to(device) for name, w in weights.items()}


def assert_same(here, found, device):
    """Weights or gradients computed on the device, beside those of the CPU."""
    assert all(w.device.type == device for w in found.values())
    torch.testing.assert_close(there(found, "cpu"), here, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("arch", KINDS, ids=str)
def test_losses_and_gradients(arch, device):
    weights, source = weights_of(arch), MarkovSource.of(CHAIN)
    losses = [PopulationLoss(arch, source, device=d) for d in ("cpu", device)]
    here = losses[0].value_and_gradient(weights)
    found = losses[1].value_and_gradient(there(weights, device))
    torch.testing.assert_close(found[0].cpu(), here[0], **CLOSE)
    assert_same(here[1], found[1], device)
    batch = source.repeat(3).sample(4, 5, torch.Generator().manual_seed(1))
    here = batch_gradient(arch, weights, *batch)
    found = batch_gradient(arch, there(weights, device), *(x.to(device) for x in batch))
    torch.testing.assert_close(found[0].cpu(), here[0], **CLOSE)
    assert_same(here[1], found[1], device)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 2])
def test_fused_attention_in_single_precision(heads, device):
    arch = Architecture(8, 64, heads=heads, layers=2)
    weights = weights_of(arch)
    batch = MarkovSource.of(CHAIN).repeat(3).sample(4, 64, torch.Generator().manual_seed(1))
    here = batch_gradient(arch, weights, *batch)
    single = {name: w.to(device, torch.float32) for name, w in weights.items()}
    found = batch_gradient(arch, single, *(x.to(device) for x in batch))
    torch.testing.assert_close(found[0].cpu().double(), here[0], rtol=1e-5, atol=0)
    for name, gradient in here[1].items():
        error = (found[1][name].cpu() - gradient).norm()
        assert error < 1e-4 * gradient.norm(), name


@pytest.mark.slow
def test_lifts_and_projections(device):
    arch = Architecture(4, 5)
    points = torch.tensor([[0.9, -1.1, 0.3], [-0.6, 0.4, -0.2]], dtype=torch.float64)
    here, found = lift_canonical(points, arch), lift_canonical(points.to(device), arch)
    assert_same(here, found, device)
    noisy = {name: w + 0.01 * torch.cos(torch.arange(w.numel()).view(w.shape) + 1.0)
             for name, w in here.items()}  # fmt: skip
    near, far = project(arch, noisy), project(arch, there(noisy, device))
    for name in ("canonical", "distance", "relative_distance", "alpha"):
        torch.testing.assert_close(getattr(far, name).cpu(), getattr(near, name), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("trainer, numbers", [
    ("gd", {}), ("sgd", {"momentum": 0.9, "clip": 0.1, "weight_decay": 0.01}), ("adamw", {}),
    ("flow", {"method": "rk4", "horizon": 1.0}),
])  # fmt: skip
def test_trainers(trainer, numbers, device):
    arch, source = Architecture(4, 4, tied=False), MarkovSource.of(CHAIN)
    recipe = Recipe(trainer, steps=6, loss="population", **numbers)
    runs = [Trainer(arch, there(weights_of(arch), d), source, recipe) for d in ("cpu", device)]
    losses = [run.advance(6).cpu() for run in runs]
    torch.testing.assert_close(losses[1], losses[0], **CLOSE)
    assert_same(runs[0].weights, runs[1].weights, device)


@pytest.mark.parametrize("loss", ["population", "sampled"])
def test_a_captured_step_is_the_step(loss, device):
    """On the CPU what is captured is the work itself, on memory that stays."""
    arch, source = Architecture(4, 6), MarkovSource.of(CHAIN)
    recipe = Recipe("adamw", steps=9, loss=loss, batch=2, clip=1.0)
    runs = []
    for captured in (False, True):
        generator = torch.Generator(device).manual_seed(3)
        run = Trainer(arch, there(weights_of(arch), device), source, recipe, generator)
        plain = run._descent.function
        capture = CudaGraphCallable.on(torch.device(device), plain).capture or (lambda work: work)
        run._descent = CudaGraphCallable(plain, capture if captured else None)
        losses = [run.advance() for _ in range(9)]
        runs.append((torch.stack(losses), run.weights, generator.get_state()))
    assert torch.equal(runs[0][0], runs[1][0]) and torch.equal(runs[0][2], runs[1][2])
    torch.testing.assert_close(runs[1][1], runs[0][1], rtol=0, atol=0)


def test_a_captured_step_takes_weights_that_are_not_its_own(device):
    """Such as those of a checkpoint."""
    arch = Architecture(4, 4)
    loss = PopulationLoss(arch, MarkovSource.of(CHAIN), device=device)
    plain = loss.value_and_gradient
    repeated = CudaGraphCallable(
        plain, CudaGraphCallable.on(torch.device(device), plain).capture or (lambda x: x)
    )
    for seed in range(5):
        weights = there(weights_of(arch, seed=seed), device)
        torch.testing.assert_close(repeated(weights), plain(weights), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["none", "softmax"])
def test_fields_of_comparisons(attention, device):
    arch = Architecture(4, 4, attention=attention)
    weights = weights_of(arch)
    here, found = FullField(arch, CHAIN), FullField(arch, CHAIN, device=device)
    torch.testing.assert_close(
        found(found.state(there(weights, device)))[0].cpu(), here(here.state(weights))[0], **CLOSE
    )


@pytest.mark.slow
def test_comparisons(device):
    points, seeds = grid_points(2, 2), {"noise": 0.01, "seed": 3}
    runs = [compare(Comparison(0.5, 0.8, d=2, length=3, device=d, **seeds), points)
            for d in ("cpu", device)]  # fmt: skip
    for name in ("predicted", "outcome", "end_reason"):
        assert runs[0][name].equals(runs[1][name])


@pytest.mark.slow
def test_any_loss(device):
    """The bias moves, so that the engine for any loss follows it."""
    model = flowsim.model("canonical", 0.5, 0.8, bias="dynamic")
    generator = torch.Generator().manual_seed(5)
    starts = torch.randn(16, 3, dtype=torch.float64, generator=generator)
    for quantity in (model.loss, model.gradient, model.hessian):
        torch.testing.assert_close(quantity(starts.to(device)).cpu(), quantity(starts), **CLOSE)
    here, found = (
        BatchState.at(model, starts.to(d), Steps(1e-8, 1e-10, 1)) for d in ("cpu", device)
    )
    for _ in range(3):
        h = here.h  # one for both: a step's length magnifies the rounding of its error
        here.advance(h)
        found.advance(h.to(device))
    torch.testing.assert_close(found.y.cpu(), here.y, **CLOSE)
    labels = [limits_by(model, starts, SolverOptions(device=d)).label for d in ("cpu", device)]
    assert torch.equal(*labels)


@pytest.mark.parametrize("arch", KINDS, ids=str)
def test_every_tensor_lies_on_the_device_of_the_weights(arch):
    """Seen without a GPU: on torch's meta device, where tensors have no numbers to look at."""
    weights = {name: torch.zeros(2, *shape, dtype=torch.float64, device="meta")
               for name, shape in arch.shapes.items()}  # fmt: skip
    batch = [torch.zeros(2, 3, 5, dtype=torch.uint8, device="meta") for _ in range(2)]
    found = batch_gradient(arch, weights, *batch)
    exact = PopulationLoss(arch, MarkovSource.of(CHAIN), device="meta").value_and_gradient(weights)
    for value, gradient in (found, exact):
        assert value.device.type == "meta"
        assert {g.device.type for g in gradient.values()} == {"meta"}
