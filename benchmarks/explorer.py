"""How long the explorer's plane takes to be drawn anew after a slider's move, in headless Chromium.

    python benchmarks/explorer.py [QUERY]

moves the slider of p 40 times with the mouse, each after a rest of 0.4 s, and measures in the
browser the time from the slider's event to the first frame that shows the new labels. Printed
beside it: the part of it that the browser spent drawing, the processor's time of the server for
each move (with the finer labels that follow), and how many processes wanted the processor
meanwhile: on a busy machine all of it takes longer. Needs Playwright and Debian's chromium.
"""

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

MOVES, REST = 40, 400
_WATCH = """() => {
  const page = Bokeh.documents[0];
  const cells = page.get_model_by_name("plane").renderers
    .find((r) => r.data_source.name === "cells").data_source;
  window.moves = [];
  let began = null;
  const slider = page.get_model_by_name("p").properties.value;
  slider.change.connect(() => { began ??= performance.now() });
  cells.properties.data.change.connect(() => {
    if (began === null) return;
    const [first, arrived] = [began, performance.now()];
    began = null;
    requestAnimationFrame(() => setTimeout(() => {
      const drawn = performance.now();
      window.moves.push([drawn - first, drawn - arrived]);
    }, 0));
  });
}"""


def main(query: str = "") -> None:
    """Serve, move, measure."""
    words = [sys.executable, "-m", "flowsim", "explore", "--no-browser", "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().split()[4]
    try:
        with sync_playwright() as playwright:
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            chromium = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=arguments
            )
            page = chromium.new_page(viewport={"width": 1366, "height": 650})
            page.goto(f"{address}?{query}")
            page.get_by_text("followed by the flow").first.wait_for(timeout=120_000)
            page.wait_for_timeout(20_000)  # other models' engines are made ready meanwhile
            page.evaluate(_WATCH)
            used = seconds(server.pid)
            box = page.locator(".noUi-handle").first.bounding_box()
            assert box is not None
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            page.mouse.move(x, y)
            page.mouse.down()
            for i in range(MOVES):
                page.mouse.move(x + 2 * (i + 1), y)
                page.wait_for_timeout(REST)
            page.mouse.up()
            used = seconds(server.pid) - used
            moves = page.evaluate("window.moves")
            chromium.close()
    finally:
        server.terminate()
        server.wait()
    whole, drawing = sorted(m[0] for m in moves), [m[1] for m in moves]
    print(f"{len(moves)} moves: median {statistics.median(whole):.0f} ms, "
          f"fastest {whole[0]:.0f}, slowest {whole[-1]:.0f}")  # fmt: skip
    print(f"of it drawing in the browser: median {statistics.median(drawing):.0f} ms")
    print(f"processor's time of the server for each move: {1000 * used / len(moves):.0f} ms")
    print(f"processes that want the {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}")


def seconds(pid: int) -> float:
    """The processor's seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(*sys.argv[1:])
