"""The installed version of flowsim."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the distribution, "unknown" in a source tree that was never installed."""
    try:
        return version("flowsim-lab")
    except PackageNotFoundError:
        return "unknown"
