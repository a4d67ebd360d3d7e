"""A server of the explorer, and pages of it in headless Chromium."""

import os
import signal
import subprocess
import sys

from command import processor_seconds

#: Debian's Chromium, without what it would ask the internet for.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Served:
    """``flowsim explore`` in a process of its own, on a free port."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flowsim", "explore", "--no-browser", "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert "http://127.0.0.1:" in line, self.process.stderr.read()
        self.address = line.split()[4]

    def seconds(self):
        """The processor's seconds that it has used so far."""
        return processor_seconds(self.process.pid)

    def end(self, number=signal.SIGINT):
        """Its exit code and stderr, after that signal."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


class Visitor:
    """One page, as a visitor uses it: with the mouse, the keyboard and the eyes."""

    def __init__(self, browser, address):
        context = browser.new_context(viewport={"width": 1366, "height": 650})
        self.page, self.foreign, self.errors = context.new_page(), [], []
        self.page.set_default_timeout(60_000)
        self.page.on("request", self._requested)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(address)
        self.reads("Of this square")
        self.reads("each followed by the flow")

    def _requested(self, request):
        if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "blob:", "data:")):
            self.foreign.append(request.url)

    def reads(self, text):
        """Wait until the page says so."""
        self.page.get_by_text(text).first.wait_for()

    def press(self, name):
        self.page.get_by_role("button", name=name, exact=True).click()

    def place(self, w, e):
        """Where a point of the plane is on the screen."""
        return self.page.evaluate(
            """([w, e]) => {
                const plane = Bokeh.documents[0].get_model_by_name("plane");
                const view = Object.values(Bokeh.index.roots ?? Bokeh.index)
                    .find((v) => v.model === plane);
                const box = view.el.getBoundingClientRect();
                return [box.left + view.frame.x_scale.compute(w),
                        box.top + view.frame.y_scale.compute(e)];
            }""",
            [w, e],
        )

    def click(self, w, e):
        self.page.mouse.click(*self.place(w, e))

    def drag(self, start, end, hold=0):
        """After ``hold`` milliseconds; without them at once: Bokeh takes 300 for a held click."""
        here, there = self.place(*start), self.place(*end)
        self.page.mouse.move(*here)
        self.page.mouse.down()
        if hold:
            self.page.wait_for_timeout(hold)
        self.page.mouse.move(*there, steps=8)
        self.page.mouse.up()

    def link_has(self, part, there=True):
        """Wait until the address holds these letters, or no longer does."""
        self.page.wait_for_function(
            "([part, there]) => location.search.includes(part) === there", arg=[part, there]
        )
