"""Surroundings that refuse: no home, strict interpreters, small terminals, little memory, SIGTERM.

Streams and full disks are in ``test_streams``, compiled code on disk in ``test_compiled`` and
``test_native``, full disks during a scan in ``test_store``.
"""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from command import wait_until_it_computes, without_notices

from flowsim import read_record

CHAIN = ["--p", "0.5", "--q", "0.8"]
SCAN = ["scan", *CHAIN, "--grid", "4x4", "--confirm", "0", "--out", "a.nc"]
TRAIN = ["train", *CHAIN, "--d", "2", "--length", "3", "--steps", "3", "--out", "a.nc"]


def start(words, cwd, python=(), variables=None, **options):
    """A command in a process of its own, with other variables and options of Python."""
    command = [sys.executable, *python, "-m", "flowsim", *words]
    environment = {**os.environ, **(variables or {})}
    for name in [name for name, value in environment.items() if value is None]:
        del environment[name]
    return subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def end(process):
    """Exit code as a shell has it, stdout, and stderr without what depends on times.

    A signal that came while Python ran a text, as dataclasses do, ends the process once more at its
    exit: of SIGINT, which a shell calls 130 as well.
    """
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()  # or it would warn in the middle of a later test
        process.communicate()
        raise
    code = process.returncode
    return 128 - code if code < 0 else code, out, without_notices(err)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The record of a scan that nothing disturbed."""
    folder = tmp_path_factory.mktemp("calm")
    assert end(start(SCAN, folder))[0] == 0
    return read_record(folder / "a.nc")


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("home", [None, "/proc"])
def test_homes_that_are_none_and_a_strict_interpreter(tmp_path, calm, home):
    """None at all, by a strict interpreter, and one in which not even root may write.

    Warnings of other packages' syntax and of torch's own parts are theirs.
    """
    strict = [
        "-O",
        "-W",
        "error",
        "-W",
        "ignore::DeprecationWarning",
        "-W",
        "ignore::SyntaxWarning",
    ]
    places = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "XDG_CONFIG_HOME")
    variables = {"HOME": home, **dict.fromkeys(places)}
    code, _, err = end(start(SCAN, tmp_path, () if home else strict, variables))
    assert code == 0 and "Traceback" not in err, err
    assert home or err == ""
    assert read_record(tmp_path / "a.nc").identical(calm)


@pytest.mark.slow
@pytest.mark.turns
def test_no_compiler(tmp_path):
    (tmp_path / "empty").mkdir()
    records = []
    for path in (os.environ["PATH"], str(tmp_path / "empty")):
        folder = tmp_path / f"run{len(records)}"
        folder.mkdir()
        variables = {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
        code, _, err = end(start(TRAIN, folder, variables=variables))
        assert (code, err) == (0, "")
        records.append(read_record(folder / "a.nc"))
    assert records[0]["loss"].to_numpy() == pytest.approx(records[1]["loss"].to_numpy(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.turns
def test_two_processes_fill_one_cache(tmp_path):
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "NUMBA_CACHE_DIR": None}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    running = [start(SCAN, tmp_path / name, variables=variables) for name in ("one", "two")]
    assert [end(process)[0] for process in running] == [0, 0]
    contents = {(tmp_path / name / "a.nc").read_bytes() for name in ("one", "two")}
    assert len(contents) == 1


def little_memory(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    return limit


@pytest.mark.slow
@pytest.mark.turns
def test_little_memory(tmp_path):
    """More than there is, with what the program needs itself: refused before it is asked for."""
    words = ["train", *CHAIN, "--d", "4", "--length", "512", "--batch", "20000", "--steps", "2",
             "--out", "a.nc"]  # fmt: skip
    process = start(words, tmp_path, preexec_fn=little_memory(3 * 2**30))
    code, out, err = end(process)
    assert (code, out) == (2, ""), err
    assert "memory" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("words", [
    ["scan", *CHAIN, "--grid", "400x400", "--model", "rank-one", "--jobs", "2", "--out", "a.nc"],
    ["train", *CHAIN, "--steps", "10000000", "--d", "2", "--length", "4", "--out", "a.nc"],
])  # fmt: skip
def test_the_system_ends_it_like_ctrl_c(tmp_path, words):
    process = start(words, tmp_path, start_new_session=True)
    if words[0] == "train":
        wait_until_it_computes(process)
    while words[0] == "scan" and not (tmp_path / "a.nc.parts").exists():  # others compute for it
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    code, _, err = end(process)
    assert code == 130 and "interrupted" in err and "Traceback" not in err, err
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"a.nc.parts", "a.safetensors"}  # from which --resume goes on
    with pytest.raises(ProcessLookupError):  # no worker is left of its session
        for _ in range(100):
            os.killpg(process.pid, 0)
            time.sleep(0.1)


LOADING = """
import os, sys
import flowsim.__main__
class Pressed:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), int(sys.argv[1]))
sys.meta_path.insert(0, Pressed())
flowsim.__main__.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_modules_are_loaded(number):
    """It ends like a later one."""
    words = [sys.executable, "-c", LOADING, str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "flowsim: interrupted; nothing is left half written\n"
