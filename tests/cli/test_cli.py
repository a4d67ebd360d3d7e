"""The command line as a user meets it: exit codes, and one sentence on stderr."""

import json
import math
import os
import subprocess
import sys

import pytest
from command import assert_refused, run, whole_process

from flowsim import read_record

SMALL = ["--p", "0.5", "--q", "0.8", "--resolution", "24", "--confirm", "4"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    done = run("portrait", *SMALL, "--out", "x.png", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder, json.loads(done.stdout)


def test_summary_for_programs(drawn):
    _, summary = drawn
    assert summary["p"] == 0.5
    assert summary["q"] == 0.8
    assert summary["regime"] == "p + q > 1"
    assert summary["entropy_rate"] == pytest.approx(0.6190145817054232)
    assert summary["stationary_entropy"] == pytest.approx(0.666278442414676)
    assert sum(summary["fraction"].values()) == 1
    assert summary["unresolved"] == 0
    assert summary["largest_energy_drift"] < 1e-8
    assert summary["oracle_agree"] == summary["oracle_cells"]
    assert summary["seconds"] > 0


def test_whole_processes_end_as_commands_do(tmp_path):
    wrong = "--p=1.5", "--q=0.8"
    done = whole_process("portrait", *wrong, cwd=tmp_path)
    assert_refused(done, "--p")
    assert done.stderr == run("portrait", *wrong, cwd=tmp_path).stderr


def test_nothing_is_overwritten_unless_asked(drawn):
    folder, _ = drawn
    before = (folder / "x.png").read_bytes()
    assert_refused(run("portrait", *SMALL, "--out", "x.png", cwd=folder), "--overwrite", "x.png")
    assert_refused(run("portrait", *SMALL, "--out", "x.pdf", cwd=folder), "--overwrite", "x.nc")
    assert (folder / "x.png").read_bytes() == before
    done = run("portrait", *SMALL, "--out", "x.png", "--overwrite", "--quiet", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_wide_window_ends_well(tmp_path):
    words = ["--p", "0.5", "--q", "0.8", "--w-range=-1000:1000", "--e-range=-1000:1000"]
    small = ["--resolution", "12", "--confirm", "8", "--out", "a.png", "--json"]
    done = run("portrait", *words, *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["oracle_agree"] == summary["oracle_cells"]


NEARLY = "0.999999999999"


@pytest.mark.slow
@pytest.mark.parametrize(("p", "q"), [(NEARLY, "0.999999999"), ("1e-12", NEARLY)])
def test_chains_near_0_and_1_are_followed(tmp_path, p, q):
    """Every command ends well, with words on stderr only where it says why not."""
    chain = ["--p", p, "--q", q, "--quiet"]
    for words in (
        ["portrait", *chain, "--resolution", "6", "--out", "a.png"],
        ["scan", *chain, "--grid", "4x4", "--fraction", "0.1", "--out", "b.nc"],
        ["gaussian", *chain, "--sigma", "0.5:2:2", "--samples", "20", "--out", "c.png"],
        ["train", *chain, "--trainer", "gd", "--d", "2", "--length", "3", "--steps", "3"],
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode in (0, 3), (words, done.stderr)
        assert done.stderr == ""


def test_no_arguments_is_help(tmp_path):
    done = run(cwd=tmp_path)
    assert done.returncode == 0
    assert "portrait" in done.stdout


def test_unresolved_cells_have_an_exit_code_of_their_own(tmp_path):
    """A window so narrow around the separatrix that float64 cannot tell its sides apart."""
    squared = 0.16 - math.log(0.4) - (1 + math.log(2)) / 2
    e = squared**0.5
    words = ["--w-range=-0.40000000000001:-0.39999999999999", f"--e-range={e - 1e-14}:{e + 1e-14}"]
    out = ["--p", "0.5", "--q", "0.8", "--resolution", "2", "--out", "a.png", "--json"]
    done = run("portrait", *out, *words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["unresolved"] == 4
    assert done.stderr == (
        "flowsim: some starts are unresolved: try more --max-steps, or a smaller --rtol\n"
    )
    assert run("portrait", *out, *words, "--overwrite", "--quiet", cwd=tmp_path).stderr == ""


def test_help_and_import_load_neither_torch_nor_matplotlib():
    script = (
        "import sys, flowsim, flowsim.cli.main\n"
        "try: flowsim.cli.main.app(['--help'], standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'torchdiffeq', 'matplotlib', 'xarray', 'scipy', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "portrait" in done.stdout


def test_orbits_of_a_portrait_begin_where_a_file_says(flowsim, tmp_path):
    (tmp_path / "a.csv").write_text("w,e\n0.5,1\n-2,1\n")
    words = ["portrait", "--p", "0.5", "--q", "0.8", "--resolution", "8", "--points", "a.csv"]
    assert flowsim(*words, "--confirm", "0", "--out", "a.png")[0] == 0
    record = read_record(tmp_path / "a.nc")
    assert record["orbit_w"][0].values.tolist() == [0.5, -2]
    assert record["orbit_e"][0].values.tolist() == [1, 1]
    assert_refused(flowsim(*words, "--model", "rank-one", "--optimizer", "gd"), "--points")
    assert_refused(flowsim(*words[:-1], "no.csv"), "no.csv")
