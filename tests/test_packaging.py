"""Wheel and sdist: built from the tracked files, installed without the repository, and used."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Files that are no Python and that the packages need.
DATA = ("flowsim/__init__.pyi", "flowsim/py.typed", "full_model/__init__.pyi",
        "full_model/py.typed", "full_model/model/kernel.cpp")  # fmt: skip

COMPILES = """
from full_model.model import native
assert native.compiled_kernel("double", 4, 16, 4, 16) is not None
"""


def shell(*words, cwd):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def test_the_citation_is_of_this_version():
    version = (ROOT / "pyproject.toml").read_text().partition('\nversion = "')[2].partition('"')[0]
    citation = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {version}" in citation and "type: software" in citation
    (holder,) = [line for line in (ROOT / "LICENSE").read_text().splitlines() if "(c)" in line]
    (author,) = [line.partition('"')[2][:-1] for line in citation if "- name:" in line]
    assert author in holder or author.lower() in holder.lower()


def test_the_architecture_page_says_what_each_library_gives():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    more = project["optional-dependencies"]
    wanted = project["dependencies"] + more["explore"] + more["cluster"]
    _, _, page = (ROOT / "docs/architecture.md").read_text().partition("what would be lost")
    rows = page.partition("\n\n")[0].splitlines()[2:]
    said = {name for row in rows for name in re.findall(r"[a-z0-9]+", row.split("|")[1])}
    assert {re.match(r"\w+", name)[0] for name in wanted} <= said


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist of the tracked files, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    source.mkdir()
    names = shell("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    shell(sys.executable, "-m", "build", "--outdir", folder / "dist", source, cwd=folder)
    (sdist,), (wheel,) = ((folder / "dist").glob(kind) for kind in ("*.tar.gz", "*.whl"))
    return sdist, wheel


@pytest.mark.slow
@pytest.mark.turns
def test_both_hold_what_the_packages_need(built):
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
    tracked = shell("git", "ls-files", "flowsim", "full_model", cwd=ROOT).split()
    assert set(DATA) <= set(tracked)
    assert set(tracked) <= packed and set(tracked) <= installed
    assert {"README.md", "LICENSE", "pyproject.toml"} <= packed
    assert not {name for name in installed if name.startswith(("tests", "docs", "experiments"))}


@pytest.mark.slow
@pytest.mark.turns
def test_the_wheel_works_without_the_repository(built, tmp_path, monkeypatch):
    """A notebook's first cell installs it, where pip is shown it; the libraries are borrowed."""
    _, wheel = built
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name, value in (("FIND_LINKS", wheel.parent), ("NO_INDEX", 1), ("NO_DEPS", 1),
                        ("FORCE_REINSTALL", 1)):  # fmt: skip
        monkeypatch.setenv(f"PIP_{name}", str(value))
    shell(sys.executable, "-m", "venv", tmp_path / "bare", cwd=tmp_path)
    (own,) = (tmp_path / "bare").glob("lib/*/site-packages")
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    binaries = tmp_path / "bare/bin"
    first = (ROOT / "docs/learn/edges.py").read_text().split("# %%")[2].partition("\n")[2]
    shell(binaries / "python", "-c", first, cwd=tmp_path)
    where = shell(
        binaries / "python", "-c", "import flowsim; print(flowsim.__file__)", cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(own)
    flowsim = binaries / "flowsim"
    assert shell(flowsim, "--version", cwd=tmp_path).startswith("flowsim 0.")
    if shutil.which("g++"):  # the transformer's kernel is compiled from its source there
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        shell(binaries / "python", "-c", COMPILES, cwd=tmp_path)
        assert list((tmp_path / "cache").rglob("*.so"))
    words = ["--p", "0.5", "--q", "0.8", "--d", "4", "--length", "4", "--steps", "3", "--plot"]
    shell(flowsim, "train", *words, cwd=tmp_path)
    (record,) = tmp_path.glob("*.nc")
    assert "commit" in shell(flowsim, "info", record.name, cwd=tmp_path)
    assert list(tmp_path.glob("*.png"))
