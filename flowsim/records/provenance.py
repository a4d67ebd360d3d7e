"""What a record says of its making: settings, versions, command and source commit."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

SCHEMA = 1


def provenance(settings: dict[str, object]) -> dict[str, object]:
    """What a record says of its making: every setting, versions, command, source commit.

    Neither date nor duration, so that the same run writes the same bytes.
    """
    import torch

    return {
        "schema": SCHEMA,
        **settings,
        "versions": package_versions("flowsim", "torch", "torchdiffeq", "numpy", "xarray"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "threads": torch.get_num_threads(),
    }


def package_versions(*packages: str) -> str:
    """The versions of Python and of the named packages."""
    named = [f"{package} {version(package)}" for package in packages]
    return ", ".join([f"python {platform.python_version()}", *named])


@lru_cache
def source_versions() -> str:
    """The versions of what computes, with the commit where flowsim runs from its sources."""
    return f"{package_versions('flowsim', 'torch', 'torchdiffeq', 'numpy')}, commit {_commit()}"


@lru_cache
def _commit() -> str:
    """The commit of the source tree that runs, "unknown" for an installed package."""
    here = Path(__file__).parent
    if not (here.parent / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
