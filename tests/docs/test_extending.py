"""The blocks of the page on extending are one file, which runs and has a command of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.turns
def test_the_blocks_run_and_their_command_prints_what_the_page_says(tmp_path):
    page = (ROOT / "docs/extending.md").read_text()
    script = tmp_path / "mine.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    command, said = re.findall(r"`python (.*?)` prints (\S+)\.$", page, re.MULTILINE)[0]
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"{said}\n"), done.stderr
