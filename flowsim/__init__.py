"""flowsim: gradient flow of transformers on Markov chains, from initialization to basin.

The names that matter, all of them attributes of this package:

    model(name, p, q, ...)         a built-in reduced model, such as canonical or rank-one
    find_limits(model, starts)     where the flow from every start ends, and what decided it
    trajectories(model, starts, t) the orbits in physical time
    hitting_times(model, starts)   how long until the loss has fallen
    scan_basins(model, starts)     the limits of a Grid, a Cloud or Points as one labelled record
    write_scan(Scan(...), path)    the same for scans of any size, to disk, resumable
    descend(model, starts, name)   what gradient descent, momentum, Adam and AdamW do instead
    portrait_record(model)         basins, curves, arrows and orbits in the (w, e) plane
    read_record(path)              any record that flowsim wrote; write_record writes it
    draw(record)                   the figure of any record
    InputError                     what bad input raises: one sentence

Starts and times may be numpy arrays, lists or tensors. help(flowsim.find_limits) and the like tell
the rest; dir(flowsim) lists everything. Names load their module on first use, so that importing the
package imports neither torch nor matplotlib. The full transformer is the package full_model.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "AttentionModel": "models.uniform.model",
    "BinaryChain": "chain",
    "CanonicalModel": "models.canonical.model",
    "Cloud": "scan.starts",
    "DirichletPrior": "chains.priors",
    "DoublyStochasticPrior": "chains.priors",
    "End": "landscape.ends",
    "Ends": "landscape.ends",
    "FinitePrior": "chains.priors",
    "Grid": "scan.starts",
    "InductionModel": "models.induction.model",
    "InputError": "errors",
    "Interrupted": "errors",
    "Label": "labels",
    "Ladder": "models.rank_one.ladder",
    "Limits": "flow.options",
    "LinearAttentionModel": "models.linear.model",
    "Levels": "interface",
    "MarkovChain": "markov",
    "MixturePrior": "chains.priors",
    "Model": "interface",
    "ModelSpec": "spec",
    "OptimizerChoice": "training.optimizer_choice",
    "OrderChain": "chains.higher_order",
    "Plane": "interface",
    "Points": "scan.starts",
    "PriorLosses": "chains.exact_losses",
    "RankOneModel": "models.rank_one.model",
    "Recipe": "training.recipe",
    "ReducedTraining": "training.reduced",
    "Rule": "labels",
    "Scan": "scan.plan",
    "StatesAttentionModel": "models.states.attention",
    "StatesModel": "models.states.plane",
    "Status": "labels",
    "SymmetricChain": "markov",
    "Trained": "training.trained",
    "UntiedModel": "models.untied.model",
    "add_boundary": "boundary.in_record",
    "agreement": "reduction.trust",
    "baselines": "chains.baselines",
    "cell_centres": "scan.starts",
    "confirm": "flow.reference",
    "conserved": "reduction.structure",
    "curvatures": "landscape.critical",
    "descend": "training.descent",
    "draw": "drawing.front",
    "draw_boundary": "drawing.boundary_lines",
    "draw_gaussian": "drawing.curves",
    "draw_models_side_by_side": "drawing.plane",
    "draw_phase_space": "drawing.space",
    "draw_portrait": "drawing.plane",
    "draw_refined": "drawing.boundary_lines",
    "draw_scan": "drawing.scan_map",
    "energy": "models.canonical.model",
    "find_limits": "flow.orbits",
    "from_loss": "own",
    "gaussian_probability": "models.canonical.gaussian_integral",
    "gaussian_record": "scan.gaussian",
    "hitting_times": "flow.orbits",
    "in_context": "chains.counting",
    "induction_landscape": "models.induction.ends",
    "integrate": "flow.reference",
    "ladder": "models.rank_one.ladder",
    "minima_curve": "models.canonical.basins",
    "model": "spec",
    "model_of": "spec",
    "open_record": "records.netcdf",
    "phase_space_record": "portraits.in_space",
    "portrait_record": "portraits.in_plane",
    "portrait_summary": "portraits.summaries",
    "prior_losses": "chains.exact_losses",
    "reaches_global_minimum": "models.canonical.basins",
    "read_record": "records.netcdf",
    "reduce": "reduction.found",
    "reference_labels": "flow.reference",
    "reference_limits": "flow.reference",
    "refine_boundary": "boundary.refine",
    "refined_labels": "boundary.refine",
    "rung_law": "models.rank_one.ladder",
    "sample_chain": "chains.paths",
    "sample_kernels": "chains.paths",
    "scan_basins": "scan.record",
    "search_critical_points": "landscape.critical",
    "separatrix": "models.canonical.basins",
    "settling_times": "flow.orbits",
    "successor_counts": "chains.counting",
    "summarize": "portraits.summaries",
    "symmetries": "reduction.structure",
    "trajectories": "flow.orbits",
    "transverse_growth": "reduction.trust",
    "write_record": "records.netcdf",
    "write_scan": "scan.store",
}

__all__ = sorted(_HOME)

#: Hints for names that people guess.
_GUESSED = {
    "ModelChoice": 'ModelSpec("canonical", {"p": 0.5, "q": 0.8}) names a model with its chain',
    "compare": "agreement(model, starts) trains all weights beside what reduce found, "
    "full_model.compare a transformer beside a reduced model",
    "load": "read_record(path) reads a record",
    "plot": "draw(record) draws any record",
    "portrait": "portrait_record(model) computes a portrait, and draw(record) draws it",
    "predict_noise": "agreement(model, starts, noise=...) trains with noise, "
    "transverse_growth(model) says what grows; their product did not foresee it",
    "reduced_model": "model(name, p, q, ...) builds a model, and its class takes a chain",
    "save": "write_record(record, path) writes a record",
    "scan": "scan_basins(model, starts) follows many starts, write_scan(Scan(...), path) to disk",
    "train": "descend(model, starts, name) trains a reduced model, full_model.train a transformer",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("flowsim.version").installed_version()
    if name not in _HOME:
        from difflib import get_close_matches

        meant = _GUESSED.get(name) or ", ".join(get_close_matches(name, _HOME))
        hint = f": {meant}" if meant else "; dir(flowsim) lists what it has"
        raise AttributeError(f"module 'flowsim' has no attribute {name!r}{hint}")
    from flowsim.door import at_the_door

    return at_the_door(f"flowsim.{_HOME[name]}", name)


def __dir__() -> list[str]:
    return __all__
