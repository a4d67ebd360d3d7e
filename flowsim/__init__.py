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
    "AttentionModel": "attention",
    "BinaryChain": "chain",
    "CanonicalModel": "models",
    "Cloud": "starts",
    "Grid": "starts",
    "InputError": "errors",
    "Interrupted": "errors",
    "LinearAttentionModel": "linear_attention",
    "Label": "landscape",
    "Limits": "limits",
    "ModelChoice": "catalogue",
    "Points": "points",
    "RankOneModel": "rank_one",
    "Rule": "orbits",
    "Scan": "scans",
    "Status": "limits",
    "UntiedModel": "untied",
    "add_boundary": "boundary",
    "cell_centres": "starts",
    "curvatures": "landscape",
    "draw_boundary": "portrait_boundary",
    "draw_gaussian": "portrait_gaussian",
    "draw_phase_space": "portrait_3d",
    "draw_portrait": "portrait",
    "draw_refined": "portrait_boundary",
    "energy": "models",
    "find_limits": "limits",
    "gaussian_probability": "gaussian",
    "gaussian_record": "gaussian",
    "hitting_times": "times",
    "integrate": "flow",
    "minima_curve": "landscape",
    "phase_space_record": "phase_space",
    "portrait_record": "phase_portrait",
    "portrait_summary": "results",
    "reaches_global_minimum": "landscape",
    "read_record": "results",
    "reduced_model": "catalogue",
    "refine_boundary": "boundary",
    "refined_labels": "boundary",
    "scan_basins": "basins",
    "search_critical_points": "critical",
    "separatrix": "landscape",
    "trajectories": "paths",
    "write_record": "results",
    "write_scan": "store",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'flowsim' has no attribute {name!r}")
    return getattr(import_module(f"flowsim.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
