"""What a record says of its making: settings, versions, command and source commit."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: What records of this form have as their attribute ``schema``.
SCHEMA = 2

#: Everything that a number can depend on.
LIBRARIES = (
    "flowsim", "torch", "torchdiffeq", "numpy", "scipy", "numba", "xarray", "h5py", "h5netcdf",
    "safetensors",
)  # fmt: skip


def provenance(settings: dict[str, object]) -> dict[str, object]:
    """What a record says of its making: every setting, versions, command, source commit, device.

    Neither date nor duration, so that the same run writes the same bytes. The device is the CPU
    unless the settings name another, and a seed is one of the settings.
    """
    import torch

    return {
        "schema": SCHEMA,
        "device": "cpu",
        **settings,
        "versions": package_versions(),
        "command": command_line([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def command_line(words: list[str]) -> str:
    """Words as a shell takes them; bytes that are no text, which no file holds, are escaped."""
    return shlex.join(words).encode("utf-8", "backslashreplace").decode()


def package_versions(packages: tuple[str, ...] = LIBRARIES) -> str:
    """The versions of Python and of the named packages that are installed; none is imported."""
    named = []
    for package in packages:
        with suppress(PackageNotFoundError):
            named.append(f"{package} {version(package)}")
    return ", ".join([f"python {platform.python_version()}", *named])


@lru_cache
def source_versions() -> str:
    """The versions of what computes, with the commit where flowsim runs from its sources."""
    return f"{package_versions(LIBRARIES[:6])}, commit {_commit()}"


@lru_cache
def _commit() -> str:
    """The commit of the source tree that runs, "unknown" for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
