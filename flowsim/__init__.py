"""flowsim: gradient flow of transformers on Markov chains, from initialization to basin.

Public names load their module on first use, so that importing the package imports neither torch nor
matplotlib.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("flowsim")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "unknown"

_HOME = {
    "BinaryChain": "chain",
    "CanonicalModel": "models",
    "InputError": "errors",
    "LinearAttentionModel": "linear_attention",
    "Label": "landscape",
    "Limits": "limits",
    "Rule": "orbits",
    "Status": "limits",
    "UntiedModel": "untied",
    "curvatures": "landscape",
    "draw_portrait": "portrait",
    "energy": "models",
    "find_limits": "limits",
    "hitting_times": "limits",
    "integrate": "flow",
    "minima_curve": "landscape",
    "portrait_record": "phase_portrait",
    "portrait_summary": "results",
    "reaches_global_minimum": "landscape",
    "read_record": "results",
    "scan_basins": "basins",
    "separatrix": "landscape",
    "write_record": "results",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'flowsim' has no attribute {name!r}")
    return getattr(import_module(f"flowsim.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
