"""The pictures of the how-to pages: what each page's own commands draw.

    python experiments/howto.py [PAGE ...]

Runs the code of docs/howto/PAGE.md in an empty folder, as pasted, one line of the shell or one
block of Python after the other, until the picture is there. Writes it to figures/howto_PAGE.png,
and its command, its commit and the code to figures/howto.json.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from papers import FIGURES, made
from PIL import Image

from flowsim.records.netcdf import write_atomically

ROOT = FIGURES.parent
RECORD = FIGURES / "howto.json"
#: A page, and the file that its code writes.
PICTURES = {
    "compare": "runs.png",
    "distance": "distance.png",
    "in_context": "*.png",
    "optimizer": "adamw.png",
    "overlay": "overlay.png",
    "redraw": "times.png",
    "trapped_share": "trapped.png",
}


def commands(page: str) -> list[list[str]]:
    """What a reader runs: every line of the shell, every block of Python."""
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    found = []
    for language, code in re.findall(r"```(bash|python)\n(.*?)```", text, flags=re.DOTALL):
        if language == "python":
            found.append([sys.executable, "-c", code])
        else:
            lines = code.replace("\\\n", "").strip().splitlines()
            found += [["bash", "-c", line] for line in lines]
    return found


def store(page: str) -> None:
    """Run a page until its picture is there, and keep that in 256 colours."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = os.environ | {"MPLBACKEND": "agg", "PATH": path, "PYTHONPATH": str(ROOT)}
    told: dict[str, object] = made(f"python experiments/howto.py {page}")
    ran = []
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(page):
            done = subprocess.run(command, cwd=folder, env=settings, stdout=subprocess.DEVNULL)
            if done.returncode not in (0, 3):
                raise SystemExit(f"{page}: exit code {done.returncode}")
            ran.append(command[-1])
            if drawn := next(Path(folder).glob(PICTURES[page]), None):
                picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
                break
        else:
            raise SystemExit(f"{page}: no {PICTURES[page]}")
    target = FIGURES / f"howto_{page}.png"
    write_atomically(target, partial(picture.save, format="png", optimize=True))
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record[page] = told | {"code": ran}
    text = json.dumps(dict(sorted(record.items())), indent=1, ensure_ascii=False) + "\n"
    write_atomically(RECORD, lambda path: path.write_text(text))
    print(target, flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        store(name)
