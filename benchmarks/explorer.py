"""How long the explorer's plane takes to be drawn anew after a slider's move, in headless Chromium.

    python benchmarks/explorer.py [MODEL ...]

moves the slider of p 40 times with the mouse, each after a rest of 0.5 s, for every model (or for
those named, as in a link: "model=rank-one&attention=1"), and measures in the browser the time from
the mouse's event to the first frame that shows labels of the new chain, coarse ones where finer
ones follow; where the boundary is found between the cells, also to the frame with its first line.
Printed beside them: the part that the browser spent drawing, the processor's time of the server
for each move, with all the finer labels that it began, and how many processes wanted the processor
meanwhile: on a busy machine all of it takes longer. Needs Playwright and Debian's chromium.
"""

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

MOVES, REST = 40, 500
MODELS = (
    "model=canonical", "model=linear", "model=states", "model=untied",
    "model=canonical&bias=dynamic", "model=uniform", "model=rank-one",
    "model=rank-one&attention=1", "model=rank-one&untied=1",
)  # fmt: skip
#: Watches the slider, the cells (with the code of what is not known) and the line between them.
_WATCH = """(unknown) => {
  const page = Bokeh.documents[0];
  const source = (name) => page.get_model_by_name("plane").renderers
    .find((r) => r.data_source.name === name).data_source;
  window.moves = [];
  let moved = 0, move = null;
  window.addEventListener("pointermove", (event) => { moved = event.timeStamp }, true);
  page.get_model_by_name("p").properties.value.change.connect(() => {
    if (move === null || "labels" in move) window.moves.push(move = {began: moved});
  });
  const seen = (name) => {
    if (move === null || name in move) return;
    const [now, arrived] = [move, performance.now()];
    now[name] = NaN;
    requestAnimationFrame(() => setTimeout(() => {
      now[name] = performance.now() - now.began;
      now[name + " drawn"] = performance.now() - arrived;
    }, 0));
  };
  const cells = source("cells"), border = source("border");
  cells.properties.data.change.connect(() => {
    if (cells.data.image[0].some((code) => code !== unknown)) seen("labels");
  });
  border.properties.data.change.connect(() => { if (border.data.xs.length) seen("line") });
}"""
_UNKNOWN = 4


def main(*queries: str) -> None:
    """Serve, and measure every model on a page of its own."""
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
            for number, query in enumerate(queries or MODELS):
                page = chromium.new_page(viewport={"width": 1366, "height": 650})
                page.goto(f"{address}?{query}")
                page.get_by_text("followed by the flow").first.wait_for(timeout=120_000)
                # the first time other models' engines are made ready meanwhile
                page.wait_for_timeout(20_000 if number == 0 else 2_000)
                used = seconds(server.pid)
                moves = moved(page)
                report(query, moves, (seconds(server.pid) - used) / MOVES)
                page.close()
            chromium.close()
    finally:
        server.terminate()
        server.wait()
    print(f"processes that want the {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}")


def moved(page: Page) -> list[dict[str, Any]]:
    """Milliseconds of every move: to the labels, to the line, and of them drawing."""
    page.evaluate(_WATCH, _UNKNOWN)
    box = page.locator(".noUi-handle").first.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for i in range(MOVES):
        page.mouse.move(x + 2 * (i + 1), y)
        page.wait_for_timeout(REST)
    page.mouse.up()
    return list(page.evaluate("window.moves"))


def report(query: str, moves: list[dict[str, Any]], used: float) -> None:
    """One line for a model."""
    parts = []
    for name in ("labels", "line"):
        times = sorted(move[name] for move in moves if move.get(name))
        if times:
            parts.append(
                f"{name} after {statistics.median(times):.0f} ms in the median of {len(times)} "
                f"moves ({times[0]:.0f} at least, a quarter under {times[len(times) // 4]:.0f})"
            )
    drawn = [move["labels drawn"] for move in moves if move.get("labels drawn")]
    parts.append(f"of it drawing {statistics.median(drawn):.0f}")
    print(f"{query}: {', '.join(parts)}; the server's processor {1000 * used:.0f} a move",
          flush=True)  # fmt: skip


def seconds(pid: int) -> float:
    """The processor's seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(*sys.argv[1:])
