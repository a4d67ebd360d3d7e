"""Every run tries the same examples, whatever else has been loaded."""

import importlib.util
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from properties.drawn import PINNED


def drawn():
    found = []

    @settings(PINNED, max_examples=300)
    @given(st.floats(-1e6, 1e6))
    def note(x):
        found.append(x)

    note()
    return found


def test_a_module_that_was_loaded_changes_no_example(tmp_path, monkeypatch):
    before = drawn()
    source = tmp_path.parent / "with_constants.py"
    source.write_text(f"VALUES = {[1000.0 + i / 7 for i in range(200)]}\n")
    spec = importlib.util.spec_from_file_location("with_constants", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "with_constants", module)
    assert drawn() == before
