"""What `import flowsim` offers: names, help, and what editors see."""

import pkgutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import flowsim
import full_model

NAMED_IN_HELP = {
    *("model", "find_limits", "trajectories", "hitting_times", "scan", "portrait"),
    *("read_record", "draw", "InputError"),
}


@pytest.mark.parametrize("package", [flowsim, full_model], ids=lambda package: package.__name__)
def test_editors_know_every_name(package):
    assert package.__all__ == dir(package) == sorted(package._HOME)
    assert len(package.__all__) > 28
    for name in package.__all__:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("package", [flowsim, full_model], ids=lambda package: package.__name__)
def test_other_names_are_not(package):
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_importing_the_full_model_imports_no_torch():
    code = "import sys, full_model; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("guess", "meant"),
    [("read_records", "read_record"), ("find_limit", "find_limits")],
)
def test_guessed_names_are_answered_with_the_right_ones(guess, meant):
    with pytest.raises(AttributeError, match=meant):
        getattr(flowsim, guess)


class Alike:
    """A loss of somebody who has not read on."""

    coordinates = "x", "y"

    def loss(self, theta):
        return (theta**2).sum(-1)


MODEL = "flowsim.model('canonical', 0.5, 0.8)"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("flowsim.portrait('canonical')", "takes a model, such as"),
        (f"flowsim.portrait({MODEL}, fix={{}})", "fixed.* unexpected keyword argument 'fix'"),
        (f"flowsim.portrait({MODEL}, window=(1, 2))", "a range by axis"),
        (f"flowsim.scan({MODEL}, [[1.0, 1.0]])", r"Points\(\['e', 'w'\], rows\)"),
        (f"flowsim.draw({MODEL})", "takes a record"),
        ("flowsim.model('rank-one', 0.5, 0.8, N=8)", "N is length"),
        ("flowsim.model('rank_one', 0.5, 0.8)", "rank-one"),
        ("flowsim.models.CanonicalModel(0.5, 0.8)", "takes a chain"),
        (f"flowsim.reference.confirm({MODEL}, 3, 3, 4)", "starts need shape"),
        ("flowsim.find_limits(flowsim.model('rank-one', 0.5, 0.8), [1, -1])", "from_canonical"),
        ("flowsim.chains.successor_counts(3, 1, 2)", "integers of shape"),
        ("flowsim.find_limits(Alike(), [[1.0, 1.0]])", "one derived from flowsim.Model"),
        (f"flowsim.portrait({MODEL}, resolution='a')", "resolution must be a whole number"),
        (f"flowsim.portrait({MODEL}, optimizer='adam')", r"OptimizerChoice\.named"),
        ("flowsim.scan.Scan('canonical', None)", "takes a model or a ModelSpec"),
        ("flowsim.Grid([1.0, 2.0])", "values by name"),
        ("flowsim.Cloud(100, 1.0, 0.5)", "names of coordinates"),
        ("flowsim.scan()", "missing a required argument"),
        ("flowsim.Cloud(100, 1.0)", r"Cloud\(names, count, sigma.*'sigma'"),
        ("flowsim.Cloud(('e', 'w'), 'x', 1.0)", "an integer as count, not 'x'"),
        ("flowsim.BinaryChain(0.5)", r"BinaryChain\(p, q\): .*'q'"),
        ("flowsim.scan.cell_centres(-2, 2, 0)", "cells must be a whole number"),
        ("flowsim.Grid({'e': 'x'})", "values of e must be numbers, not 'x'"),
        (f"flowsim.write_record({MODEL}, 'a.nc')", "a record, .* as record, not Canonical"),
        ("flowsim.read_record(3)", "the path of a file .* as path, not 3"),
        (f"flowsim.chains.sample_chain({MODEL}.chain, 2, 3, 4)", "torch.Generator as generator"),
        (
            "full_model.initial_weights(full_model.Architecture(4, 2), 'balanced', 3)",
            "a list as seeds, not 3",
        ),
    ],
)
def test_wrong_arguments_are_answered_in_one_sentence(call, sentence):
    with pytest.raises(flowsim.InputError, match=sentence):
        eval(call)


def test_the_first_page_of_help_lists_the_names_that_matter():
    lines = flowsim.__doc__.splitlines()
    assert len(lines) < 30
    listed = {line.split("(")[0].split()[0] for line in lines if line.startswith("    ")}
    assert listed >= NAMED_IN_HELP
    assert listed <= set(flowsim.__all__)


HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "pwd", "resource", "termios"):
            raise ModuleNotFoundError(name=name)

for name in ("fcntl", "pwd", "resource", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
import signal
del signal.pthread_sigmask
import importlib, pkgutil
for package in ("flowsim", "full_model"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
from flowsim import *
from flowsim.scan import *
if __name__ == "__main__":
    scan = Scan(ModelSpec.first("canonical"), Grid({"e": [0.5, 1.0], "w": [-0.3, 0.3]}), chunk=2)
    write_scan(scan, sys.argv[1])
    print(read_record(sys.argv[1]).sizes["e"])
"""


@pytest.mark.slow
def test_nothing_needs_what_only_unix_has(tmp_path):
    """What Windows lacks is hidden: everything imports all the same, and scans are written."""
    words = [sys.executable, "-W", "ignore", "-c", HIDDEN, str(tmp_path / "a.nc")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]


def test_the_top_has_at_most_thirty_names_and_others_answer_with_their_place():
    assert len(flowsim.__all__) <= 30
    for old, new in flowsim._MOVED.items():
        with pytest.warns(DeprecationWarning, match=f"flowsim.{old} is now flowsim.{new}"):
            assert getattr(flowsim, old) is pkgutil.resolve_name(f"flowsim.{new}")


def test_a_scan_is_in_memory_or_on_disk(tmp_path):
    model, axes = flowsim.model("canonical", 0.5, 0.8), {"e": [0.5, 1.0], "w": [-1.0, 0.5]}
    found = flowsim.scan(model, axes)
    stored = flowsim.scan(model, axes, tmp_path / "scan.nc", overwrite=True)
    assert np.array_equal(found.label, stored.label)


def test_an_end_answers_by_the_former_name_of_its_dimension():
    end = flowsim.landscape.End("minimum", 0.0, torch.zeros(2), dimension=1)
    with pytest.warns(DeprecationWarning, match="End.flat is now End.dimension"):
        assert end.flat == 1
