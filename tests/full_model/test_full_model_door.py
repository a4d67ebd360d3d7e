"""The package's front door is light, and refuses other names."""

import subprocess
import sys

import pytest

import full_model


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = full_model.nothing


def test_importing_it_imports_no_torch():
    code = "import sys, full_model; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
