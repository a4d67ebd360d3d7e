"""The README's promises that a program can keep, and those of the site's command lines."""

import json
import re
import shlex
from pathlib import Path

import pytest
from command import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SCANS = (ROOT / "docs/reference/scans.md").read_text()


@pytest.mark.slow
def test_the_lines_of_python_run(tmp_path, monkeypatch, capsys):
    code, own = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 6
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    (tmp_path / "mine.py").write_text(own)
    line = re.search(r"`flowsim (portrait --model mine.py[^`]*)`", README)[1]
    done = run(*line.split(), "--resolution", "6", "--out", "own.png", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("mine.py", "own.png", "own.nc"):
        (tmp_path / name).unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["portrait.nc", "portrait.png"]
    (printed,) = re.findall(r"^It prints `(.*)`\.$", README, flags=re.M)
    assert capsys.readouterr().out.splitlines()[0] == printed


def test_the_first_screen_says_what_it_is():
    """The condition, the loss, what is exact, what integrates, and the optimizers."""
    screen = " ".join(README.splitlines()[:20])
    for words in ("p + q > 1", "L(e, w, a)", "exact", "gradient flow", "torchdiffeq",
                  "--integrator torchdiffeq", "AdamW", "whole transformers"):  # fmt: skip
        assert words in screen, words


def test_the_table_of_evidence_is_that_of_the_record():
    """Noise on all weights; a line for each regime and deviation."""
    rows = re.findall(r"^\| (p \+ q [<>] 1)? ?\| (none|0\.\d+) \| ([\d ]+) of ([\d ]+) \| "
                      r"(\d+(?:\.\d)?) %[^|]*\| ([\d ]+) \|$", README, flags=re.M)  # fmt: skip
    assert len(rows) == 6
    lines = json.loads((ROOT / "figures/agreement.json").read_text())["lines"]
    regime = ""
    for name, noise, agree, decided, worst, canonical in rows:
        regime = name or regime
        own = [
            line for line in lines
            if line["noise_on"] == "all" and line["noise"] == float(noise.replace("none", "0"))
            and (sum(map(float, re.findall(r"[pq]=([\d.]+)", line["case"]))) > 1) == (">" in regime)
        ]  # fmt: skip
        found = [sum(line["rank-one"][key] for line in own) for key in ("agree", "decided")]
        assert found == [int(agree.replace(" ", "")), int(decided.replace(" ", ""))]
        assert sum(line["canonical"]["agree"] for line in own) == int(canonical.replace(" ", ""))
        assert 100 * min(line["rank-one"]["agreement"] for line in own) == float(worst)


def test_the_number_of_the_gpu_is_that_of_the_record():
    agree, of = re.search(r"([\d ]+) of ([\d ]+)\s+ended as rank-one says", README).groups()
    found = json.loads((ROOT / "figures/cuda_basins_above.json").read_text())["found"][
        "p = 0.5, q = 0.8"
    ]
    said = [int(number.replace(" ", "")) for number in (agree, of)]
    assert said == [found["agree"], found["decided"]]


def test_every_file_that_the_readme_names_exists():
    for name in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / name).exists(), name


def commands():
    """Every complete command line of flowsim in blocks and in the text, README and site."""
    found = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text().replace("\\\n", " ")
        blocks = re.findall(r"^(flowsim [a-z]+ --.*)$", text, flags=re.M)
        found |= dict.fromkeys([*blocks, *re.findall(r"`(flowsim [a-z]+ --?[^`]*)`", text)])
    return [line.partition(" # ")[0] for line in found]


@pytest.mark.parametrize("line", commands())
def test_the_options_of_every_command_exist(tmp_path, line):
    """Asked for help as well, a command still refuses an option that it does not have."""
    done = run(*shlex.split(line)[1:], "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.turns
def test_the_block_of_scans_can_be_pasted(tmp_path):
    """With fewer cells and draws, since only names and options are in question."""
    (block,) = re.findall(r"```\n(flowsim scan .*? draw any of them\n)```", SCANS, flags=re.DOTALL)
    smaller = {r"\d+x\d+x\d+": "4x4x3", r"\d{2,}x\d+\b": "8x8", r"--cloud \d+": "--cloud 5"}
    for large, small in smaller.items():
        block = re.sub(large, small, block)
    for line in block.splitlines():
        if line.startswith("printf"):
            (tmp_path / "starts.csv").write_text(shlex.split(line)[1].replace("\\n", "\n"))
            continue
        done = run(*shlex.split(line, comments=True)[1:], cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    assert len(list(tmp_path.glob("*.nc"))) == 6
    assert (tmp_path / "scan.png").exists()
