"""Every public name has an example in its docstring, which can be pasted into a new session."""

import doctest

import pytest

import flowsim
import full_model

FINDER = doctest.DocTestFinder(recurse=True, exclude_empty=True)


def offered_once():
    """What both packages offer, by the last of its names; not the type ``Weights``, a dict."""
    inner, found = (getattr(flowsim, name) for name in flowsim._PACKAGES), {}
    for package in (flowsim, *inner, full_model):
        for name in package.__all__:
            offered = getattr(package, name)
            if offered.__module__.partition(".")[0] in ("flowsim", "full_model"):
                found[id(offered)] = f"{package.__name__}.{name}", offered
    return dict(found.values())


OFFERED = offered_once()


def examples():
    """Every docstring with an example, methods included, with no name but Python's own."""
    for path, offered in OFFERED.items():
        found = FINDER.find(offered, path, globs={"__name__": "pasted"})
        yield from (example for example in found if example.examples)


EXAMPLES = [*examples()]
#: Examples that compute for more than a second.
SLOW = {
    "flowsim.portraits.phase_space", "flowsim.drawing.draw_phase_space",
    "flowsim.bifurcation.fold_curves", "flowsim.bifurcation.continuation",
    "flowsim.boundary.edge_state", "flowsim.reduction.transverse_growth",
    "flowsim.reduction.agreement", "flowsim.noise.end_probabilities",
    "flowsim.reduction.origin_of_coordinates",
}  # fmt: skip


@pytest.mark.parametrize(
    "example",
    [pytest.param(x, id=x.name, marks=[pytest.mark.slow] * (x.name in SLOW)) for x in EXAMPLES],
)
def test_an_example_prints_what_it_says(example):
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0


def test_every_public_name_has_an_example():
    assert OFFERED.keys() - {example.name for example in EXAMPLES} == set()
