"""Run the notebooks top to bottom and write them, outputs included, beside their .py files.

    python docs/learn/execute.py [reduced_flow ...]

The .py files are the source; the .ipynb beside each is made from it. No time stamps and no random
cell names: the same outputs give the same bytes. The kernel is the Python that runs this script.
Needs the extra "notebooks".
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
NAMES = (
    "reduced_flow", "reduced_against_full", "initializations", "optimizers", "more_states",
    "counting_in_context", "found_by_machine", "hidden_chains", "attention", "edges",
)  # fmt: skip


def executed(source: Path) -> nbformat.NotebookNode:
    """The notebook of a percent script with its outputs; the first error is raised."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder) / "kernels" / "this-python"
        kernel.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        argv += ["--log-level=ERROR"]
        words = {"argv": argv, "display_name": "this Python", "language": "python"}
        (kernel / "kernel.json").write_text(json.dumps(words))
        before = dict(os.environ)
        os.environ |= {
            "JUPYTER_PATH": folder,
            "JUPYTER_RUNTIME_DIR": folder,
            "IPYTHONDIR": folder,
        }
        try:
            NotebookClient(
                notebook,
                kernel_name="this-python",
                timeout=600,
                record_timing=False,
                resources={"metadata": {"path": str(source.parent)}},
            ).execute()
        finally:
            os.environ.clear()
            os.environ.update(before)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    notebook.metadata["kernelspec"] = jupytext.read(source).metadata["kernelspec"]
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs, with what was printed in one go in one piece: where it is cut, time decides."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = found[-1] if found else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            found.append(output)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    for name in parser.parse_args(arguments).names or NAMES:
        if name not in NAMES:
            print(f"there is no notebook {name!r}, only {', '.join(NAMES)}", file=sys.stderr)
            return 2
        began = time.perf_counter()
        notebook = executed(HERE / f"{name}.py")
        path = HERE / f"{name}.ipynb"
        nbformat.write(notebook, path)
        seconds = time.perf_counter() - began
        print(f"{path.name}: {seconds:.0f} s, {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
