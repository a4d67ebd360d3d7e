"""The documentation site: its code runs, its links lead somewhere, it names all in few words."""

import contextlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from command import run_line

import flowsim
import full_model

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
TASKS = sorted(path for path in (DOCS / "howto").glob("*.md") if path.stem != "index")
#: Tasks that take seconds here; the others are run with the slow tests.
QUICK = {"python", "time_to_learn"}
TURNS = [pytest.mark.slow, pytest.mark.turns]
SETTINGS = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
SETTINGS["PATH"] = f"{Path(sys.executable).parent}:{SETTINGS['PATH']}"


def blocks(page):
    """The code of a page: language and text of every block that a reader would run."""
    return re.findall(r"```(bash|python)\n(.*?)```", page.read_text(), flags=re.DOTALL)


#: What makes the code of a page quick: names and options are in question, ``experiments/howto.py``
#: runs it as it stands.
SMALLER = {
    r"--resolution \d+": "--resolution 4",
    r"^(flowsim portrait(?!.*--(resolution|from|view)).*)$": r"\1 --resolution 4",
    r"^(flowsim portrait(?!.*--(confirm|from|view|optimizer)).*)$": r"\1 --confirm 0",
    r"--grid 6x6": "--grid 2x2", r"--grid \d{2,}x\d+": "--grid 6x6",
    r"--steps \d{3,}": "--steps 20", r"steps=\d{3,}": "steps=20", r"range\(300\)": "range(9)",
    r"resolution=\d+": "resolution=4", r", 300, sigma": ", 30, sigma",
    r"0\.0, 2\.0, 41": "0.0, 2.0, 9", r"1\.0, 61\)": "1.0, 13)", r"levels=3": "levels=1",
}  # fmt: skip


def run_blocks(page, folder):
    """All blocks of a page in one folder, one after the other; 3 is "done, some unresolved"."""
    for language, code in blocks(page):
        code = code.replace("\\\n", " ")
        for large, small in SMALLER.items():
            code = re.sub(large, small, code, flags=re.M)
        if language == "python":
            with contextlib.chdir(folder):
                exec(compile(code, page.name, "exec"), {})
            continue
        lines = code.splitlines()
        if any(line.endswith("&") for line in lines):  # by one shell, which keeps what it started
            known = [f"{x} || [ $? = 3 ]" if x.startswith("flowsim ") else x for x in lines]
            lines = ["\n".join(["set -e", *known])]
        for line in lines:
            done = run_line(line, folder)
            assert done.returncode in (0, 3), (page.name, line, done.stderr)


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_task_takes_at_most_fifteen_lines(page):
    code = blocks(page)
    assert code
    assert sum(bool(line.strip()) for _, text in code for line in text.splitlines()) <= 15
    index = (DOCS / "howto/index.md").read_text()
    assert f"\n{page.stem}\n" in index
    timed = re.findall(rf"^\| \[(.+)\]\({page.stem}\.md\) \|", index, flags=re.M)
    assert timed in ([], [page.read_text().splitlines()[0].removeprefix("# ")])


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=() if page.stem in QUICK else TURNS)
     for page in [*TASKS, DOCS / "reference/records.md"]],
)  # fmt: skip
def test_the_code_of_a_page_runs(page, tmp_path):
    run_blocks(page, tmp_path)
    if page.stem == "trapped_share":
        assert (tmp_path / "trapped.png").stat().st_size > 3000


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_page_shows_what_its_code_draws_and_prints(page):
    """``experiments/howto.py`` ran this code; when it changes, picture and lines are due again."""
    about = json.loads((ROOT / "figures/howto.json").read_text()).get(page.stem)
    text, picture = page.read_text(), f"figures/howto_{page.stem}.png"
    assert "![" in text or "```text" in text
    if about:
        assert (picture in text) == (ROOT / picture).exists()
        assert all(code in text or code in text.replace("\\\n", "") for code in about["code"])
        for shown in re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL):
            printed = {untimed(line) for line in about["printed"]}
            assert {untimed(line) for line in shown.splitlines()} <= printed


def untimed(line):
    """A printed line without the seconds that it ends with, which are the machine's."""
    return re.sub(r", [\d.]+ s$", "", line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_file_that_a_page_names_exists(page):
    for name in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / name).exists(), name


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_path_and_name_in_code_type_exists(page):
    """Files are named from the root, or from a package; … stands for a part of a name."""
    text = page.read_text().replace("…", "*")
    top = "benchmarks|docs|examples|experiments|figures|flowsim|full_model|tests"
    paths = set(re.findall(rf"(?<![\w/.-])(?:{top})/[\w./*-]*[\w/]", text)) - {"docs/_build/html"}
    quoted = re.findall(r"`([^`\s]+)`", text)
    paths.update(name for name in quoted if re.fullmatch(r"[\w*]+(/[\w*]+)*(/|/[\w*]+\.py)", name))
    places = [ROOT, *(ROOT / name for name in ("flowsim", "full_model", "flowsim/explorer"))]
    for path in paths:
        assert any(next(place.glob(path), None) for place in places), path
    for name in quoted:
        if re.fullmatch(r"(flowsim|full_model)(\.\w+)+", name):
            pkgutil.resolve_name(name)


def test_a_link_of_the_readme_leads_to_a_page_of_the_site():
    """The site's first page holds the README up to "Where to go on": pages of docs/, no files."""
    shown = (ROOT / "README.md").read_text().partition("## Where to go on")[0]
    for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)]+)\)", shown):
        assert link.startswith(("docs/", "https://")), link


@pytest.mark.parametrize("package", [flowsim, full_model], ids=lambda package: package.__name__)
def test_the_reference_has_every_public_name(package):
    page = (DOCS / "reference/python.md").read_text()
    part = page.partition(f"## {package.__name__}\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"\.\. [\w:]+:: (\w+)$", part, flags=re.M)) == sorted(
        [*package.__all__, *[package.__name__] * part.count("currentmodule")]
    )


@pytest.mark.slow
@pytest.mark.turns
def test_the_blocks_on_extending_run_and_their_command_prints_what_the_page_says(tmp_path):
    page = (ROOT / "docs/extending.md").read_text()
    script = tmp_path / "mine.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    command, said = re.findall(r"`python (.*?)` prints (\S+)\.$", page, re.MULTILINE)[0]
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=tmp_path, env=SETTINGS, capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{said}\n"), done.stderr


@pytest.mark.slow
@pytest.mark.turns
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    """Every warning and dead link ends the build; scripts, styles, images and fonts are local."""
    pytest.importorskip("sphinx", reason="needs the extra docs")
    site = tmp_path / "html"
    command = ["make", "docs", f"PYTHON={sys.executable}", f"SITE={site}"]
    done = subprocess.run(command, cwd=ROOT, env=SETTINGS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.html")}
    assert {
        "index.html",
        "learn/reduced_flow.html",
        "why.html",
        "results/index.html",
    } <= pages.keys()
    loads = r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"([^\"]+)\""
    for name, page in pages.items():
        for address in re.findall(loads, page):
            assert not address.startswith(("http:", "https:", "//")), (name, address)
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s)['\"]?(?:https?:)?//", style.read_text()), style
    assert "checks" in pages["learn/reduced_flow.html"] and "<img" in pages["index.html"]
    helps = pages["reference/commands.html"]
    for command in ("portrait", "scan", "gaussian", "compare", "train", "verify", "chain", "info"):
        assert f"Usage: flowsim {command}" in helps
    records = pages["reference/records.html"]
    assert "where the flow from this start ends: unresolved, global_minimum" in records


MOST = 30_000


def words(text):
    """Words and numbers, those of tables and formulas too; not the code."""
    text = re.sub(r"```(?!math).*?```", "", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def prose(notebook):
    """What is written between the code of a notebook."""
    cells = nbformat.read(notebook, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def test_pages_and_notebooks_have_few_words():
    pages = [page for page in DOCS.rglob("*.md") if not {"_build", "reference"} & {*page.parts}]
    texts = [*(page.read_text() for page in pages), *map(prose, DOCS.glob("learn/*.ipynb"))]
    assert sum(map(words, texts)) <= MOST


def test_a_word_counts_and_code_and_strokes_do_not():
    assert words("| one | 2 |\n|---|---|\n```python\nimport x\n```\n```math\na = b\n```\n") == 5
