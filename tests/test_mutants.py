"""What is said of mutants is said of modules and code that exist."""

import ast
import re

import pytest
from mutants import OTHERS, PAGE, PLACES, PLAIN_TESTS, REASONS, ROOT, TESTS, modules, source_of

SAID = {**REASONS, **OTHERS}


@pytest.mark.parametrize("name", sorted({module for module, _ in SAID}))
def test_every_reason_is_of_code_that_its_module_has(name):
    nodes = ast.walk(ast.parse(source_of(name).read_text()))
    code = {
        " ".join(ast.unparse(node).split())[:80]
        for node in nodes
        if isinstance(node, ast.expr | ast.stmt)
    }
    for module, fault in SAID:
        if module == name:
            assert re.match("`(.*?)` becomes `", fault)[1] in code


def test_the_page_names_modules_that_exist():
    named = re.findall(r"^(?:\| |- )`([\w.]+)`", PAGE.read_text(), re.MULTILINE)
    assert len(named) > 50 and set(named) <= set(modules())


def test_places_and_tests_exist():
    assert all((ROOT / place).exists() for place in PLACES)
    for name in [*TESTS, *PLAIN_TESTS]:
        file, _, test = name.partition("::")
        path = ROOT / "tests" / file
        assert path.exists() and (not test or f"def {test}(" in path.read_text()), name
