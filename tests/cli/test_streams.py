"""Streams, folders and disks that refuse: ASCII, closed pipes, full devices, full disks."""

import os
import resource
import signal
import subprocess
import sys
from unittest.mock import patch

import pytest
from command import FLOWSIM, assert_refused, run, without_notices

from flowsim import read_record

CHAIN = ["--p", "0.5", "--q", "0.8"]
SCAN = ["scan", *CHAIN, "--grid", "2x2", "--confirm", "0", "--out", "a.nc"]
PORTRAIT = ["portrait", *CHAIN, "--resolution", "8", "--confirm", "0", "--out", "a.png"]


def shell(words, cwd, **options):
    return subprocess.run(
        [FLOWSIM, *words], cwd=cwd, text=True, stderr=subprocess.PIPE, check=False, **options
    )


def test_greek_letters_meet_an_ascii_terminal(tmp_path):
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C", "PYTHONUTF8": "0"}
    done = shell(["gaussian", "-h"], tmp_path, stdout=subprocess.PIPE, env=ascii_only)
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    assert "Usage" in done.stdout


def test_a_full_device_is_one_sentence(tmp_path):
    with open("/dev/full", "w") as full:
        done = shell(["--version"], tmp_path, stdout=full)
    assert done.returncode == 2
    assert done.stderr == "flowsim: cannot print the result: No space left on device\n"


@pytest.fixture(scope="module")
def by_the_module(tmp_path_factory):
    """The bytes of a record that ``python -m flowsim`` wrote with nothing in its way."""
    folder = tmp_path_factory.mktemp("module")
    words = [sys.executable, "-m", "flowsim", *SCAN]
    done = subprocess.run(words, cwd=folder, text=True, capture_output=True, check=False)
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    assert "a.nc" in done.stdout
    assert read_record(folder / "a.nc").sizes["w"] == 2
    return (folder / "a.nc").read_bytes()


@pytest.mark.slow
@pytest.mark.turns
def test_a_result_that_cannot_be_printed_is_in_its_record(tmp_path, by_the_module):
    with open("/dev/full", "w") as full:
        done = shell(SCAN, tmp_path, stdout=full)
    assert (done.returncode, without_notices(done.stderr)) == (2, (
        "flowsim: cannot print the result: No space left on device; a.nc is complete\n"
    ))  # fmt: skip
    assert (tmp_path / "a.nc").read_bytes() == by_the_module


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_where_nothing_can_be_said_the_code_says_it(tmp_path, stderr):
    line = f'"{FLOWSIM}" chain --p 2 --q 1 >out {stderr}'
    assert subprocess.run(line, shell=True, cwd=tmp_path, check=False).returncode == 2
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.slow
@pytest.mark.turns
def test_closed_streams_change_no_record_of_the_script_and_of_the_module(tmp_path, by_the_module):
    line = f'"{FLOWSIM}" {" ".join(SCAN)} <&- >&- 2>&-'
    assert subprocess.run(line, shell=True, cwd=tmp_path, check=False).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
    assert (tmp_path / "a.nc").read_bytes() == by_the_module


def test_a_folder_that_was_removed_is_one_sentence(tmp_path):
    line = f'mkdir gone && cd gone && rmdir ../gone && exec "{FLOWSIM}" scan --p 0.5 --q 0.8'
    done = subprocess.run(
        f"{line} --grid 2x2", shell=True, cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "flowsim: there is no working directory any more (No such file or directory): change into "
        "a folder\n"
    )


def test_a_reader_that_has_gone_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        done = shell(["--version"], tmp_path, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def limit_files(size):
    """Let every file of this process end at some size, as a full disk would."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


COMMANDS = {
    "portrait": PORTRAIT,
    "train": ["train", *CHAIN, "--d", "2", "--length", "2", "--trainer", "gd", "--steps", "3",
              "--plot", "--out", "a.nc"],
    "scan": ["scan", *CHAIN, "--grid", "20x20", "--out", "a.nc"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize(("name", "size"), [
    ("portrait", 20_000), ("train", 0), ("scan", 2000),
])  # fmt: skip
def test_a_full_disk_leaves_neither_figure_nor_record(tmp_path, name, size):
    """The limit lies below the record, or between record and figure."""
    compiled = {**os.environ, "NUMBA_CACHE_DIR": "", "TORCH_HOME": str(tmp_path)}
    done = shell(
        COMMANDS[name], tmp_path, stdout=subprocess.PIPE, preexec_fn=limit_files(size), env=compiled
    )
    assert done.returncode == 2, done
    assert done.stderr.splitlines()[-1].startswith("flowsim: ")
    assert "Traceback" not in done.stderr and done.stdout == ""
    kept = {p.name for p in tmp_path.iterdir()}
    assert not kept & {"a.png", "a.nc"}
    assert kept <= {"a.safetensors", "a.nc.parts"}


def test_ctrl_c_inside_compiled_code_is_an_interruption_too(tmp_path):
    """While compiled code starts, numba turns a KeyboardInterrupt into the cause of another."""

    def compiled(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemError("returned a result with an exception set") from None

    with patch("flowsim.cli.main.app", compiled):
        done = run("--version", cwd=tmp_path)
    assert done.returncode == 130 and done.stderr.count("\n") == 1, done.stderr
    with patch("flowsim.cli.main.app", side_effect=SystemError), pytest.raises(SystemError):
        run("--version", cwd=tmp_path)


@pytest.mark.parametrize(
    "words", ["DefaultCPUAllocator: can't allocate memory: 8 bytes.", "CUDA out of memory. Tried"]
)
def test_torchs_way_to_have_no_memory_is_one_sentence(tmp_path, words):
    with patch("flowsim.cli.main.app", side_effect=RuntimeError(f"[enforce fail] {words}")):
        assert_refused(run("--version", cwd=tmp_path), "more memory than there is")
    with patch("flowsim.cli.main.app", side_effect=RuntimeError), pytest.raises(RuntimeError):
        run("--version", cwd=tmp_path)


def test_bytes_that_are_no_text_reach_a_record_escaped(tmp_path):
    """An option may be given twice, and its first value be anything."""
    words = ["--p", "0.5", "--q", "\udcff", "--q", "0.8", "--sigma", "1", "--samples", "5"]
    done = run("gaussian", *words, "--out", "a.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\\udcff" in read_record(tmp_path / "a.nc").attrs["command"]
