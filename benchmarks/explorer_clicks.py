"""How long a click in the explorer takes to show its dot and its orbit, in headless Chromium.

    python benchmarks/explorer_clicks.py [--picture FILE]

clicks ten times in the square of four models, and prints medians from the mouse's release to the
dot and to the orbit, then how many of eight clicks count that are 0.25 s apart, and how many
processes wanted the processor. With ``--picture`` it writes a picture of the page instead: the one
in docs/explorer.md. Needs Playwright and Debian's chromium.
"""

import os
import statistics
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from visitor import ARGUMENTS, Served, Visitor

#: Notes when dots and orbits come after the mouse's release.
_WATCH = """() => {
  const source = (name) => Bokeh.documents[0].get_model_by_name("plane").renderers
    .find((r) => r.data_source.name === name).data_source;
  const [clicked, starts, orbits] = ["clicked", "starts", "orbits"].map(source);
  window.seen = {};
  const note = (name) => { window.seen[name] ??= performance.now() - window.released; };
  clicked.properties.data.change.connect(() => { if (clicked.data.x.length) note("dot"); });
  orbits.properties.data.change.connect(
    () => { if (orbits.data.xs.length > before) note("orbit"); });
  let before = 0;
  document.addEventListener("pointerup", () => {
    [window.seen, window.released, before] = [{}, performance.now(), orbits.data.xs.length];
  }, true);
  window.started = () => starts.data.x.length;
}"""


def clicks(at: Visitor) -> str:
    """Medians of ten clicks, and how many of eight quick ones count."""
    page = at.page
    page.wait_for_timeout(5000)
    page.evaluate(_WATCH)
    found: list[dict[str, float]] = []
    for i in range(10):
        at.click(-2.5 + 0.5 * i, -1.2 if i % 2 else 1.1 + 0.15 * i)
        page.wait_for_function("() => window.seen.orbit")
        found.append(page.evaluate("window.seen"))
        page.wait_for_timeout(600)
    dot, orbit = (statistics.median(x[name] for x in found) for name in ("dot", "orbit"))
    at.press("Clear all")
    page.wait_for_timeout(1000)
    for i in range(8):
        at.click(-2.3 + 0.6 * i, -2.0 + 0.5 * (i % 3))
        page.wait_for_timeout(250)
    page.wait_for_timeout(3000)
    counted = page.evaluate("window.started()")
    return f"dot {dot:.0f} ms, orbit {orbit:.0f} ms, {counted} of 8 quick clicks"


def picture(at: Visitor, path: str) -> None:
    """The page with two orbits and training from one of them."""
    at.page.set_viewport_size({"width": 1280, "height": 720})
    at.reads("64 × 64 points")
    at.reads("Orbit 2 from")
    at.press("Train")
    at.reads("just as the flow says")
    at.reads("The boundary is")
    at.page.mouse.move(*at.place(-2.0, 1.5))
    at.reads("; its cell")
    at.page.wait_for_timeout(1000)
    at.page.screenshot(path=path)


def main(*words: str) -> None:
    """Serve, click and print, or draw."""
    served = Served()
    try:
        with sync_playwright() as playwright:
            browser: Any = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=ARGUMENTS
            )
            if words[:1] == ("--picture",):
                query = "?model=rank-one&start=2.0,1.0&start=0.4,-0.9"
                picture(Visitor(browser, served.address + query), words[1])
                return
            for model in ("canonical", "rank-one", "states", "uniform"):
                said = clicks(Visitor(browser, f"{served.address}?model={model}"))
                print(f"{model}: {said}; load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        served.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
