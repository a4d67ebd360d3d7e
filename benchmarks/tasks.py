"""How long the tasks of docs/howto take: every page's code, run as it would be pasted.

    python benchmarks/tasks.py [PAGE ...]

Each page runs in an empty folder of its own, its blocks one after the other, each line of the
shell and each block of Python in a new process, as a newcomer would start them. Printed for each:
lines of code, seconds, the processor's seconds of all its processes, and its exit code where that
is not 0. On a machine with other work the first is longer, the second hardly.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOW_TO = Path(__file__).parents[1] / "docs" / "howto"
#: Seconds after which a page is given up.
MOST = 900


def main(names: list[str]) -> int:
    """Run and print; 1 if a page fails."""
    index = (HOW_TO / "index.md").read_text()
    pages = names or re.findall(r"^(\w+)$", index.partition("maxdepth: 1\n")[2], flags=re.M)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = os.environ | {"PATH": path, "MPLBACKEND": "agg"}
    failed = 0
    print(f"| {'task':28s} | lines | seconds | of the processor |\n| --- | --- | --- | --- |")
    for name in pages:
        page = (HOW_TO / f"{name}.md").read_text()
        with tempfile.TemporaryDirectory() as folder:
            began, used = time.perf_counter(), processor()
            code = run_page(page, folder, settings)
            took, used = time.perf_counter() - began, processor() - used
        title, lines = (
            page.splitlines()[0].removeprefix("# "),
            sum(bool(line.strip()) for _, text in blocks(page) for line in text.splitlines()),
        )
        wrong = f" exit code {code}" if code else ""
        print(f"| [{title}]({name}.md) | {lines} | {took:.1f} | {used:.1f} |{wrong}", flush=True)
        failed |= bool(code)
    print(f"processes that wanted the {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}")
    return failed


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every block that a reader would run."""
    return re.findall(r"```(bash|python)\n(.*?)```", page, flags=re.DOTALL)


def run_page(page: str, folder: str, settings: dict[str, str]) -> int:
    """The first exit code that is neither 0 nor 3, "done, some unresolved"; 0 if there is none."""
    for language, code in blocks(page):
        words = ["bash", "-m", "-c"] if language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*words, code], cwd=folder, env=settings, capture_output=True, text=True, timeout=MOST
        )
        if done.returncode not in (0, 3):
            print(done.stderr, file=sys.stderr)
            return done.returncode
    return 0


def processor() -> float:
    """The processor's seconds that ended processes of this one have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
