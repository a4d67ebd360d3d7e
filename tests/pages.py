"""A server of the explorer and a browser, for tests that open pages of it."""

import shutil

import pytest
from visitor import ARGUMENTS, Served, Visitor


@pytest.fixture(scope="module")
def served():
    server = Served()
    yield server
    if server.process.poll() is None:
        code, errors = server.end()
        assert code == 0 and "Traceback" not in errors, errors


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def visit(served, browser):
    """Opens pages; at the end none may have asked for anything foreign, or failed."""
    visitors = []

    def opens(query=""):
        visitors.append(Visitor(browser, served.address + query))
        return visitors[-1]

    yield opens
    for visitor in visitors:
        assert visitor.foreign == [] and visitor.errors == []
        visitor.page.context.close()
