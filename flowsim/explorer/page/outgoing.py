"""What leaves the page: its address, saved files, and the commands that make it again."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from html import escape

from bokeh.models import ColumnDataSource, CustomJS

from flowsim.explorer.page.page_parts import Page
from flowsim.explorer.reproduce import command_lines, python_lines
from flowsim.explorer.saved import Stopped, saved_file

_ADDRESS = """
  const query = cb_obj.data.query[0];
  if (query !== undefined) window.history.replaceState(null, "", "?" + query);
"""
_DOWNLOAD = """
  const {name, kind, content} = cb_obj.data;
  if (name.length) {
    const bytes = Uint8Array.from(atob(content[0]), c => c.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], {type: kind[0]}));
    link.download = name[0];
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
"""
_KINDS = {"png": "image/png", "svg": "image/svg+xml", "nc": "application/x-netcdf"}


class Outgoing:
    """Address, files and commands of a page.

    Args:
        visit: the page.
    """

    def __init__(self, visit: Page) -> None:
        self.visit = visit
        self.address = ColumnDataSource({"query": []}, name="address")
        self.address.js_on_change("data", CustomJS(code=_ADDRESS))
        self.download = ColumnDataSource({"name": [], "kind": [], "content": []}, name="download")
        self.download.js_on_change("data", CustomJS(code=_DOWNLOAD))
        c = visit.controls
        c.problem.tags = [self.address, self.download]
        for key, suffix in (("png", "png"), ("svg", "svg"), ("record", "nc")):
            c.saving[key].on_click(partial(self.save, suffix))
        c.code.on_click(self.show_commands)
        c.code.js_on_event(
            "button_click", CustomJS(code="document.getElementById('commands').showModal()")
        )

    def show_address(self, query: str) -> None:
        """Write the query into the address bar; the page is not loaded again."""
        self.address.data = {"query": [query]}

    def save(self, suffix: str) -> None:
        """Draw or record what is on the screen, and hand it to the browser."""
        visit = self.visit
        view, orbits, runs = visit.view, list(visit.orbits), list(visit.training_runs)
        visit.say_problem("Being drawn …" if suffix != "nc" else "Being written …")

        def work(stop: Callable[[], bool]) -> Iterator[tuple[str, bytes]]:
            with suppress(Stopped):
                yield saved_file(view, orbits, runs, suffix, stop)

        def show(found: tuple[str, bytes]) -> None:
            name, content = found
            visit.say_problem("")
            self.download.data = {
                "name": [name], "kind": [_KINDS[suffix]], "content": [b64encode(content).decode()],
            }  # fmt: skip

        visit.jobs.start("saving", work, show)

    def show_commands(self) -> None:
        """The lines that make the page's contents again."""
        visit = self.visit
        starts_trained = [run.start for run in visit.training_runs]
        lines = command_lines(visit.view, visit.training_settings, starts_trained)
        code = python_lines(visit.view, visit.training_settings, starts_trained)
        visit.controls.lines.text = (
            f"<p><b>In a shell</b></p><pre>{escape(lines)}</pre>"
            f"<p style='margin-top:12px'><b>In Python</b></p><pre>{escape(code)}</pre>"
        )
