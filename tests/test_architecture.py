"""The house: which module may know which."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "flowsim").glob("*.py"))


def imports(path):
    """Names of the flowsim and full_model modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            base = node.module
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_nothing_imports_the_command_line():
    for path in PACKAGE:
        assert "flowsim.cli.main" not in imports(path), path.name


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: path.name)
def test_plots_know_nothing_of_integration_and_physics_nothing_of_plots(path):
    known = imports(path)
    if path.name.startswith("portrait"):
        allowed = {"flowsim.records.netcdf", "flowsim.errors", "flowsim.drawing.plane"}
        assert {name for name in known if name.count(".") == 1 and "flowsim" in name} <= allowed
        assert "torch" not in known
    elif not path.name.startswith("cli"):
        assert not any(name.startswith("matplotlib") for name in known)
        assert "flowsim.drawing.plane" not in known
    assert not any(name.startswith(("full_model", "experiments")) for name in known) or (
        path.name.startswith("cli")
    )


def test_imports_point_one_way():
    graph = {
        path.stem: {name.split(".")[1] for name in imports(path) if name.startswith("flowsim.")}
        for path in PACKAGE
        if path.stem != "__init__"
    }
    settled: set[str] = set()
    while len(settled) < len(graph):
        ready = {name for name, needs in graph.items() if needs & graph.keys() <= settled}
        assert ready - settled, f"circle among {sorted(graph.keys() - settled)}"
        settled |= ready


def test_files_stay_readable():
    sizes = sorted(len(path.read_text().splitlines()) for path in PACKAGE)
    assert sizes[len(sizes) // 2] <= 200
    assert sizes[-1] <= 400
