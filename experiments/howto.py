"""Pictures and output of the how-to pages, by each page's own commands.

    python experiments/howto.py [PAGE ...]

Runs the code of docs/howto/PAGE.md in an empty folder, as pasted, one block after the other. Writes
the picture to figures/howto_PAGE.png if the page shows one, and the code and the lines that it
prints to figures/howto.json. Pages that were run again alone say there what made them; the rest
is of the last run of all pages. Nothing is written before the last page was run, so that all of
them run at one clean commit. A test compares a page's lines with these.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from papers import FIGURES, made, write_json
from PIL import Image

from flowsim.records.netcdf import write_atomically

ROOT = FIGURES.parent
RECORD = FIGURES / "howto.json"
#: A page, and the file that its code writes.
PICTURES = {
    "compare": "runs.png",
    "continue": "continue.png",
    "distance": "distance.png",
    "in_context": "*.png",
    "noise": "noise.png",
    "optimizer": "adamw.png",
    "overlay": "overlay.png",
    "redraw": "times.png",
    "reduce": "reduced.png",
    "trapped_share": "trapped.png",
    "unresolved": "first.png",
}


def run(page: str) -> tuple[dict[str, list[str]], Image.Image | None]:
    """Run a page: its code and what it prints; and in 256 colours what it draws, if it is shown."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = os.environ | {"MPLBACKEND": "agg", "PATH": path, "PYTHONPATH": str(ROOT)}
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    code, printed, picture = [], [], None
    with tempfile.TemporaryDirectory() as folder:
        for language, block in re.findall(r"```(bash|python)\n(.*?)```", text, flags=re.DOTALL):
            words = ["bash", "-m", "-c"] if language == "bash" else [sys.executable, "-c"]
            done = subprocess.run(
                [*words, block], cwd=folder, env=settings, stdout=subprocess.PIPE, text=True
            )
            if done.returncode not in (0, 3):
                raise SystemExit(f"{page}: exit code {done.returncode}")
            code.append(block)
            printed += done.stdout.splitlines()
        if page in PICTURES:
            drawn = Image.open(next(Path(folder).glob(PICTURES[page]))).convert("RGB")
            picture = drawn.quantize(256, dither=Image.Dither.NONE)
    print(page, flush=True)
    return {"code": code, "printed": printed}, picture


if __name__ == "__main__":
    texts = {path.stem: path.read_text() for path in sorted((ROOT / "docs/howto").glob("*.md"))}
    about = {"made": made(shlex.join(["python", "experiments/howto.py", *sys.argv[1:]]))}
    alone = sys.argv[1:]
    shown = [name for name in texts if name in PICTURES or "```text" in texts[name]]
    found = {name: run(name) for name in alone or shown}
    record = json.loads(RECORD.read_text()) if alone else about
    for name, (entry, picture) in found.items():
        record[name] = about | entry if alone else entry
        if picture is not None:
            save = partial(picture.save, format="png", optimize=True)
            write_atomically(FIGURES / f"howto_{name}.png", save)
    write_json(RECORD, record)
