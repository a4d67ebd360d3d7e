"""The README's promises that a program can keep."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_seven_lines_of_python_run(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 7
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["portrait.nc", "portrait.png"]
    assert "'oracle_agree'" in done.stdout


def test_every_file_that_the_readme_names_exists():
    root = Path(__file__).parents[1]
    for name in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / name).exists(), name
