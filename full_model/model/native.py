"""The papers' single layer in C++, compiled on first use: the ensembles' fast path on a CPU.

PyTorch's batched operators at d = 8 are bound by memory traffic between them; one loop that keeps a
sequence in the cache does the same arithmetic several times faster (benchmarks/ensemble.py). Where
there is no compiler, or FLOWSIM_KERNEL=0 is set, the same numbers come from PyTorch to rounding.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from flowsim.records.netcdf import write_atomically
from full_model.model.architecture import Architecture, Weights

SOURCE = Path(__file__).with_name("kernel.cpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
          "-fno-tree-loop-distribute-patterns", "-fPIC", "-shared")  # fmt: skip
_WIDE = "-mprefer-vector-width=512"
_ORDER = ("embedding", "positions", "0.query", "0.key", "0.value", "0.out", "0.up", "0.down",
          "unembedding", "bias")  # fmt: skip
#: Seconds that the compiler may take; it needs about five.
PATIENCE = 90.0
#: Bytes of a SHA-256.
_DIGEST = 32
_REAL = {torch.float32: "float", torch.float64: "double"}


def fits(arch: Architecture, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernel is written for this model, and there is a compiler for it."""
    small = arch.length <= 4096 and arch.width <= 512 and arch.d <= 64 and arch.logits == 1
    known = dtype in _REAL and device.type == "cpu"
    return arch.plain_softmax and small and known and bool(find_compiler())


def loss_and_gradient(
    arch: Architecture, weights: Weights, inputs: Tensor, targets: Tensor, threads: int
) -> tuple[Tensor, Weights] | None:
    """Mean cross-entropy (M,) of each model's batch and its gradient, or None if not compiled.

    For a model for which ``fits`` holds and symbols (M, batch, N), uint8; no number depends on the
    number of threads, over which the models are split.
    """
    members, batch, length = inputs.shape
    dtype = weights["bias"].dtype
    compiled = compiled_kernel(_REAL[dtype], arch.d, arch.width, length, batch)
    if compiled is None:
        return None
    plain = {name: w.detach().contiguous() for name, w in weights.items()}
    inputs, targets = inputs.contiguous(), targets.contiguous()
    loss = plain["bias"].new_empty(members)
    gradient = {name: torch.empty_like(w) for name, w in plain.items()}

    def work(start: int, stop: int) -> None:
        """Compute the models ``start`` to ``stop`` − 1, in place."""

        def at(tensor: Tensor) -> ctypes.c_void_p:
            return ctypes.c_void_p(tensor[start:].data_ptr())

        failed = compiled(
            ctypes.c_int64(stop - start),
            ctypes.c_int64(arch.tied),
            at(inputs),
            at(targets),
            *(at(plain.get(name, plain["bias"])) for name in _ORDER),
            at(loss),
            *(at(gradient.get(name, loss)) for name in _ORDER),
        )
        if failed:
            raise MemoryError("no memory for one model's activations")

    threads = min(threads, members)
    bounds = [members * i // threads for i in range(threads + 1)]
    parts = list(pairwise(bounds))
    if threads == 1:
        work(*parts[0])
    else:
        list(_pool(threads).map(work, *zip(*parts, strict=True)))
    return loss, gradient


@lru_cache(maxsize=1)
def find_compiler() -> str | None:
    """Path of g++, or None: not on Linux, not installed, or FLOWSIM_KERNEL=0."""
    if os.environ.get("FLOWSIM_KERNEL") == "0" or platform.system() != "Linux":
        return None
    return shutil.which("g++")


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    """Make a pool of so many threads, kept for later calls."""
    return ThreadPoolExecutor(threads)


@lru_cache(maxsize=64)
def compiled_kernel(real: str, *sizes: int) -> Callable[..., int] | None:
    """Load the kernel for these sizes (d, r, N, batch), from the user's cache or newly compiled.

    None if there is no compiler or anything fails. The function returns 0, or else lacked memory.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    numbers = [f"-D{name}={size}" for name, size in zip("DRNB", sizes, strict=True)]
    flags = [*FLAGS, f"-DREAL={real}", *numbers]
    if platform.machine() == "x86_64":
        flags.append(_WIDE)
    try:
        # named after all that decides its code: source, compiler, flags, CPU
        cpu = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        kept = [line for line in cpu if line.startswith(("model", "flags", "Features"))]
        version = _output([compiler, "--version"], 10)
        key = hashlib.sha256(SOURCE.read_bytes() + version + repr((flags, kept)).encode())
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        path = base / "flowsim" / "kernel" / f"{key.hexdigest()[:32]}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o700)  # OSError if it is another user's
        content = path.read_bytes() if path.is_file() else b""
        code, digest = content[:-_DIGEST], content[-_DIGEST:]
        if not code or hashlib.sha256(code).digest() != digest:
            write_atomically(path, lambda name: _compile(compiler, flags, name))
        function = ctypes.CDLL(str(path)).loss_and_gradient
    except (OSError, ValueError, AttributeError, RuntimeError, subprocess.SubprocessError):
        return None
    function.restype = ctypes.c_int
    return function


def _compile(compiler: str, flags: list[str], output: Path) -> None:
    """Compile the kernel into ``output`` and append the code's digest, which loading ignores."""
    _output([compiler, *flags, "-o", str(output), str(SOURCE)], PATIENCE)
    digest = hashlib.sha256(output.read_bytes()).digest()
    with output.open("ab") as file:
        file.write(digest)


def _output(command: list[str], seconds: float) -> bytes:
    """Run a command and return what it prints; SubprocessError if it fails or takes longer.

    One that takes longer than ``seconds`` is killed with all its children.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        found, _ = process.communicate(timeout=seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return found
