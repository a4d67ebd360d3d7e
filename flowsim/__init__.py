"""flowsim: gradient flow of transformers on Markov chains, from initialization to basin.

The names that matter, all of them attributes of this package:

    model(name, p, q, ...)         a built-in reduced model, such as canonical or rank-one
    find_limits(model, starts)     where the flow from every start ends, and what decided it
    trajectories(model, starts, t) the orbits in physical time
    hitting_times(model, starts)   how long until the loss has fallen
    scan(model, starts[, path])    the limits of a Grid, a Cloud or Points as one labelled record
    descend(model, starts, name)   what gradient descent, momentum, Adam and AdamW do instead
    portrait(model)                basins, curves, arrows and orbits in the (w, e) plane
    edge_distance(model, starts)   how far every start is from the nearest place with another end
    continuation(spec, name, ...)  critical points, ends and shares over any parameter
    read_record(path)              any record that flowsim wrote; write_record writes it
    draw(record)                   the figure of any record
    InputError                     what bad input raises: one sentence

Starts and times may be numpy arrays, lists or tensors. help(flowsim.find_limits) and the like tell
the rest; dir(flowsim) lists everything. More is in flowsim.models, flowsim.chains,
flowsim.reduction, flowsim.reference, flowsim.landscape, flowsim.training and flowsim.drawing. Names
load their module on first use, so that importing the package imports neither torch nor matplotlib.
The full transformer is the package full_model.
"""

from importlib import import_module
from typing import Any

from flowsim.public_names import names_of, public_object

_NAMES = names_of(__file__)
#: The module of every public name.
_HOME = {name: home for name, home in _NAMES.items() if home} | {"scan": "scan"}

__all__ = sorted(_HOME)

#: Packages with more names.
_PACKAGES = [name for name, home in _NAMES.items() if not home] + ["scan"]

#: New places of names that were here before version 0.3.
_MOVED = {
    "AttentionModel": "models.UniformAttentionModel",
    "CanonicalModel": "models.CanonicalModel",
    "DirichletPrior": "chains.DirichletPrior",
    "DoublyStochasticPrior": "chains.DoublyStochasticPrior",
    "End": "landscape.End",
    "Ends": "landscape.Ends",
    "FinitePrior": "chains.FinitePrior",
    "InductionModel": "models.InductionModel",
    "Interrupted": "errors.Interrupted",
    "Levels": "interface.EndLosses",
    "Limits": "flow.Limits",
    "LinearAttentionModel": "models.LinearAttentionModel",
    "MixturePrior": "chains.MixturePrior",
    "OrderChain": "chains.OrderChain",
    "PriorLosses": "chains.PriorLosses",
    "RankOneModel": "models.RankOneModel",
    "Recipe": "training.Recipe",
    "ReducedTraining": "training.ReducedTraining",
    "Scan": "scan.Scan",
    "StatesAttentionModel": "models.StatesAttentionModel",
    "StatesModel": "models.StatesModel",
    "SymmetricChain": "chains.SymmetricChain",
    "Trained": "training.Trained",
    "UntiedModel": "models.UntiedModel",
    "add_boundary": "boundary.add_boundary",
    "agreement": "reduction.agreement",
    "baselines": "chains.baselines.baselines",
    "cell_centres": "scan.cell_centres",
    "confirm": "reference.confirm",
    "conserved": "reduction.conserved",
    "curvatures": "landscape.curvatures",
    "draw_boundary": "drawing.draw_boundary",
    "draw_gaussian": "drawing.draw_gaussian",
    "draw_models_side_by_side": "drawing.draw_models_side_by_side",
    "draw_phase_space": "drawing.draw_phase_space",
    "draw_portrait": "drawing.draw_portrait",
    "draw_refined": "drawing.draw_refined",
    "draw_scan": "drawing.draw_scan",
    "energy": "models.energy",
    "gaussian_probability": "models.gaussian_probability",
    "gaussian_record": "gaussian",
    "in_context": "chains.in_context",
    "induction_landscape": "models.induction_landscape",
    "integrate": "reference.integrate",
    "minima_curve": "models.minima_curve",
    "model_of": "spec.model_from_attributes",
    "open_record": "records.open_record",
    "phase_space": "portraits.phase_space",
    "phase_space_record": "portraits.phase_space",
    "portrait_record": "portrait",
    "portrait_summary": "portraits.portrait_summary",
    "prior_losses": "chains.prior_losses",
    "reaches_global_minimum": "models.reaches_global_minimum",
    "reference_labels": "reference.reference_labels",
    "reference_limits": "reference.reference_limits",
    "refined_labels": "boundary.refined_labels",
    "sample_chain": "chains.sample_chain",
    "sample_kernels": "chains.sample_kernels",
    "scan_basins": "scan.scan_basins",
    "separatrix": "models.separatrix",
    "settling_times": "flow.settling_times",
    "successor_counts": "chains.successor_counts",
    "symmetries": "reduction.symmetries",
    "transverse_growth": "reduction.transverse_growth",
    "write_scan": "scan.write_scan",
}

#: Removed names without a successor of the same kind, and what replaces them.
_GONE = {
    "ModelChoice": 'ModelSpec("canonical", {"p": 0.5, "q": 0.8}) names a model with its chain',
    "ladder": "the closed forms of dead positions are in experiments/dead_positions.py",
    "predict_noise": "reduction.agreement(model, starts, noise=...) trains with noise, "
    "reduction.transverse_growth(model) says what grows; their product did not foresee it",
    "reduced_model": "model(name, p, q, ...) builds a model, and its class takes a chain",
    "rung_law": "the closed forms of dead positions are in experiments/dead_positions.py",
    "search_critical_points": "landscape.critical_points_in(model, low, high) searches a box",
}


def __getattr__(attribute: str) -> Any:
    """Load a public name or package on first use; old names warn, unknown ones raise an error."""
    if attribute == "__version__":
        return import_module("flowsim.records.attributes").installed_version()
    if attribute in _PACKAGES:
        return import_module(f"flowsim.{attribute}")
    if attribute in _MOVED:
        import warnings

        message = f"flowsim.{attribute} is now flowsim.{_MOVED[attribute]}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        home, _, new = f"flowsim.{_MOVED[attribute]}".rpartition(".")
        return getattr(import_module(home), new)
    if attribute not in _HOME:
        from difflib import get_close_matches

        meant = _GONE.get(attribute) or ", ".join(get_close_matches(attribute, [*_HOME, *_MOVED]))
        hint = f": {meant}" if meant else "; dir(flowsim) lists what it has"
        raise AttributeError(f"module 'flowsim' has no attribute {attribute!r}{hint}")
    return public_object(f"flowsim.{_HOME[attribute]}", attribute)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
