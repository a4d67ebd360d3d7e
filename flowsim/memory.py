"""The memory that a process may still take."""

from __future__ import annotations

import os

from flowsim.errors import InputError

_GIB = 2**30


def available_memory() -> float:
    """Return the bytes this process may still take: the system's estimate, or its control group's.

    Infinity where the system tells neither.
    """
    limits = []
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        limits.append(1024.0 * int(fields["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        try:
            limits.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
        except (AttributeError, OSError, ValueError):
            limits.append(float("inf"))
    try:  # version 2 control groups; "max" means no limit
        with (
            open("/sys/fs/cgroup/memory.max") as limit,
            open("/sys/fs/cgroup/memory.current") as now,
        ):
            limits.append(float(limit.read()) - float(now.read()))
    except (OSError, ValueError):
        pass
    return min(limits)


def require_memory(what: str, needed: float, smaller: str) -> None:
    """Raise InputError, with both sizes, if ``needed`` bytes are more than this machine has free.

    ``what`` needs them, and ``smaller`` names what to choose smaller.
    """
    available = available_memory()
    if needed > available:
        raise InputError(
            f"{what} needs at least {needed / _GIB:.3g} GiB of memory, and "
            f"{available / _GIB:.3g} GiB are free: choose a smaller {smaller}"
        )
