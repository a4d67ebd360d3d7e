"""The compiled kernel is autograd's numbers, or is not used."""

import stat

import pytest
import torch
from weights import normal_weights

from flowsim.chain import BinaryChain
from full_model import Architecture, MarkovSource
from full_model.model import native
from full_model.model.batches import batch_gradient

CPU = torch.device("cpu")
CHAIN = BinaryChain(0.5, 0.8)
compiles = native.fits(Architecture(4, 5), torch.float64, CPU)
needs_compiler = pytest.mark.skipif(not compiles, reason="no C++ compiler")


def problem(arch, members, batch, dtype, scale):
    generator = torch.Generator().manual_seed(arch.d)
    weights = normal_weights(arch, arch.d, scale, (members,))
    inputs, targets = MarkovSource.of(CHAIN).repeat(members).sample(batch, arch.length, generator)
    return {name: w.to(dtype) for name, w in weights.items()}, inputs, targets


@needs_compiler
@pytest.mark.parametrize(
    "arch, dtype, scale",
    [
        (Architecture(8, 64), torch.float32, 0.5),
        (Architecture(11, 37, hidden=5, tied=False), torch.float64, 0.4),
        (Architecture(4, 20), torch.float64, 4.0),  # saturated attention and logits
    ],
    ids=str,
)
def test_kernel_is_autograd(arch, dtype, scale):
    weights, inputs, targets = problem(arch, 5, 3, dtype, scale)
    loss, gradient = batch_gradient(arch, weights, inputs, targets)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10 if scale > 1 else 1e-12
    size = max(float(g.abs().max()) for g in gradient.values())
    for threads in (1, 2, 9):
        found = native.loss_and_gradient(arch, weights, inputs, targets, threads)
        assert found is not None
        assert ((found[0] - loss) / loss).abs().max() < tolerance
        for name, expected in gradient.items():
            assert (found[1][name] - expected).abs().max() < tolerance * size, name


@needs_compiler
def test_models_that_blew_up_are_seen_and_alone():
    arch = Architecture(4, 9)
    weights, inputs, targets = problem(arch, 3, 2, torch.float64, 0.5)
    clean = native.loss_and_gradient(arch, weights, inputs, targets, 1)
    weights["0.up"][1, 2, 3] = torch.nan
    weights["0.query"][1] = torch.inf
    found = native.loss_and_gradient(arch, weights, inputs, targets, 1)
    assert clean is not None and found is not None
    assert found[0].isfinite().tolist() == [True, False, True]
    assert (found[0][[0, 2]] == clean[0][[0, 2]]).all()


def test_only_the_papers_model_is_compiled(monkeypatch):
    for other in (
        {"layers": 2}, {"heads": 2}, {"activation": "gelu"}, {"window": 2}, {"output": "states"},
        {"attention": "none"}, {"positions": "none"}, {"layer_norm": True},
    ):  # fmt: skip
        assert not native.fits(Architecture(4, 5, **other), torch.float64, CPU)
    assert not native.fits(Architecture(4, 5), torch.float64, torch.device("meta"))
    monkeypatch.setattr(native, "find_compiler", lambda: None)
    assert not native.fits(Architecture(4, 5), torch.float64, CPU)


@needs_compiler
def test_a_compiler_that_fails_leaves_pytorch(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(native, "SOURCE", tmp_path / "kernel.cpp")
    (tmp_path / "kernel.cpp").write_text("not C++")
    arch = Architecture(4, 7)
    weights, inputs, targets = problem(arch, 2, 2, torch.float64, 0.5)
    assert native.loss_and_gradient(arch, weights, inputs, targets, 1) is None
    loss, _ = batch_gradient(arch, weights, inputs, targets, 1)
    assert loss.isfinite().all()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache of compiled kernels, and nothing loaded from another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    native.compiled_kernel.cache_clear()
    yield tmp_path / "cache" / "flowsim" / "kernel"
    native.compiled_kernel.cache_clear()


@pytest.mark.slow
@pytest.mark.turns
@needs_compiler
def test_a_damaged_kernel_is_built_again(cache):
    arch = Architecture(4, 7)
    weights, inputs, targets = problem(arch, 2, 2, torch.float64, 0.5)
    expected = native.loss_and_gradient(arch, weights, inputs, targets, 1)
    (path,) = cache.iterdir()
    whole, middle = path.read_bytes(), path.stat().st_size // 2
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (b"", whole[:middle], flipped):
        path.unlink()  # a new file, for the loaded one is still in use
        path.write_bytes(damaged)
        native.compiled_kernel.cache_clear()
        found = native.loss_and_gradient(arch, weights, inputs, targets, 1)
        assert expected is not None and found is not None
        assert torch.equal(found[0], expected[0])
        assert path.read_bytes() == whole


@needs_compiler
def test_a_compiler_that_hangs_is_given_up(cache, monkeypatch, tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nsleep 600\n')
    compiler.chmod(0o700)
    monkeypatch.setattr(native, "find_compiler", lambda: str(compiler))
    monkeypatch.setattr(native, "PATIENCE", 0.2)
    arch = Architecture(4, 7)
    weights, inputs, targets = problem(arch, 2, 2, torch.float64, 0.5)
    assert native.loss_and_gradient(arch, weights, inputs, targets, 1) is None
    assert list(cache.iterdir()) == []
