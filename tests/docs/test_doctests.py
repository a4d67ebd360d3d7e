"""The examples in the docstrings of public names run, and print what they say."""

import doctest

import pytest

import flowsim
import full_model

FINDER = doctest.DocTestFinder(recurse=True, exclude_empty=True)


def examples():
    """Every docstring with an example of what both packages offer, methods included."""
    for package in (flowsim, full_model):
        for name in package.__all__:
            offered = getattr(package, name)
            module = getattr(offered, "__module__", None)
            if isinstance(module, str) and module.partition(".")[0] in ("flowsim", "full_model"):
                path = f"{package.__name__}.{name}"
                yield from (found for found in FINDER.find(offered, path) if found.examples)


@pytest.mark.parametrize("example", [*examples()], ids=lambda example: example.name)
def test_an_example_prints_what_it_says(example):
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0
