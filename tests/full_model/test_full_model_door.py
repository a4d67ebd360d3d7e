"""The package's front door: every public name opens, editors see the same ones, and it is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import full_model


def test_every_name_opens_and_the_stub_has_the_same():
    stub = ast.parse(Path(full_model.__file__).with_suffix(".pyi").read_text())
    listed = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(listed) == full_model.__all__ == dir(full_model)
    for name in full_model.__all__:
        assert getattr(full_model, name) is not None
        assert listed[name] == f"full_model.{full_model._HOME[name]}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = full_model.nothing


def test_importing_it_imports_no_torch():
    code = "import sys, full_model; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
