"""Surroundings that refuse: streams, folders, disks, homes, interpreters, memory, signals.

Compiled code on disk is in ``test_compiled`` and ``test_native``, full disks during a scan in
``test_store``.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from unittest.mock import patch

import pytest
from command import FLOWSIM, assert_refused, run, wait_until_it_computes, without_notices

from flowsim import read_record

CHAIN = ["--p", "0.5", "--q", "0.8"]
SCAN = ["scan", *CHAIN, "--grid", "4x4", "--confirm", "0", "--out", "a.nc"]
TRAIN = ["train", *CHAIN, "--d", "2", "--length", "3", "--steps", "3", "--out", "a.nc"]
MODULE = (sys.executable, "-m", "flowsim")


def start(words, cwd, command=MODULE, variables=None, **options):
    """A command in a process of its own, with other variables; None removes one."""
    environment = {n: v for n, v in {**os.environ, **(variables or {})}.items() if v is not None}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, *words], cwd=cwd, env=environment, text=True,
                            **streams | options)  # fmt: skip


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


def bounded(what, size):
    """Bounds a resource of the process that begins: files, as a full disk would, or memory."""

    def bound():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(what, (size, size))

    return bound


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The bytes of the record of a scan that nothing disturbed."""
    folder = tmp_path_factory.mktemp("calm")
    code, out, err = end(start(SCAN, folder))
    assert (code, err) == (0, "") and "a.nc" in out
    assert read_record(folder / "a.nc").sizes["w"] == 4
    return (folder / "a.nc").read_bytes()


def test_greek_letters_meet_an_ascii_terminal(tmp_path):
    ascii_only = {"PYTHONIOENCODING": "ascii", "LANG": "C", "PYTHONUTF8": "0"}
    code, out, err = end(start(["gaussian", "-h"], tmp_path, variables=ascii_only))
    assert (code, err) == (0, "") and "Usage" in out


def test_a_full_device_is_one_sentence(tmp_path):
    with open("/dev/full", "w") as full:
        code, _, err = end(start(["--version"], tmp_path, stdout=full))
    assert (code, err) == (2, "flowsim: cannot print the result: No space left on device\n")


@pytest.mark.slow
@pytest.mark.turns
def test_a_result_that_cannot_be_printed_is_in_its_record(tmp_path, calm):
    with open("/dev/full", "w") as full:
        code, _, err = end(start(SCAN, tmp_path, stdout=full))
    said = "cannot print the result: No space left on device; a.nc is complete"
    assert (code, err) == (2, f"flowsim: {said}\n")
    assert (tmp_path / "a.nc").read_bytes() == calm


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_where_nothing_can_be_said_the_code_says_it(tmp_path, stderr):
    line = f'"{FLOWSIM}" chain --p 2 --q 1 >out {stderr}'
    assert subprocess.run(line, shell=True, cwd=tmp_path, check=False).returncode == 2
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.slow
@pytest.mark.turns
def test_closed_streams_change_no_record_of_the_script_and_of_the_module(tmp_path, calm):
    line = f'"{FLOWSIM}" {" ".join(SCAN)} <&- >&- 2>&-'
    assert subprocess.run(line, shell=True, cwd=tmp_path, check=False).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
    assert (tmp_path / "a.nc").read_bytes() == calm


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
        code, _, err = end(start(["--version"], tmp_path, stdout=write))
    finally:
        os.close(write)
    assert (code, err) == (0, "")


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize(("words", "size"), [
    (["portrait", *CHAIN, "--resolution", "8", "--confirm", "0", "--out", "a.png"], 20_000),
    ([*TRAIN, "--trainer", "gd", "--plot"], 0),
    (["scan", *CHAIN, "--grid", "20x20", "--out", "a.nc"], 2000),
], ids=["portrait", "train", "scan"])  # fmt: skip
def test_a_full_disk_leaves_neither_figure_nor_record(tmp_path, words, size):
    """The limit lies below the record, or between record and figure."""
    compiled = {"NUMBA_CACHE_DIR": "", "TORCH_HOME": str(tmp_path)}
    bound = bounded(resource.RLIMIT_FSIZE, size)
    code, out, err = end(start(words, tmp_path, variables=compiled, preexec_fn=bound))
    assert (code, out) == (2, ""), err
    assert err.splitlines()[-1].startswith("flowsim: ") and "Traceback" not in err
    kept = {path.name for path in tmp_path.iterdir()}
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


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("home", [None, "/proc"])
def test_homes_that_are_none_and_a_strict_interpreter(tmp_path, calm, home):
    """None at all, by a strict interpreter, and one in which not even root may write.

    Warnings of other packages' syntax and of torch's own parts are theirs.
    """
    ignored = ("ignore::DeprecationWarning", "ignore::SyntaxWarning")
    warns = (word for kind in ("error", *ignored) for word in ("-W", kind))
    strict = [sys.executable, "-O", *warns, *MODULE[1:]]
    places = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "XDG_CONFIG_HOME")
    variables = {"HOME": home, **dict.fromkeys(places)}
    code, _, err = end(start(SCAN, tmp_path, MODULE if home else strict, variables))
    assert code == 0 and "Traceback" not in err, err
    assert home or err == ""
    assert (tmp_path / "a.nc").read_bytes() == calm


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


@pytest.mark.slow
@pytest.mark.turns
def test_little_memory(tmp_path):
    """More than there is, with what the program needs itself: refused before it is asked for."""
    words = ["train", *CHAIN, "--d", "4", "--length", "512", "--batch", "20000", "--steps", "2",
             "--out", "a.nc"]  # fmt: skip
    bound = bounded(resource.RLIMIT_AS, 3 * 2**30)
    code, out, err = end(start(words, tmp_path, preexec_fn=bound))
    assert (code, out) == (2, ""), err
    assert "memory" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


LONG = {
    "portrait": ["portrait", *CHAIN, "--resolution", "2000"],
    "scan": ["scan", *CHAIN, "--grid", "400x400", "--model", "rank-one", "--jobs", "2", "--out",
             "a.nc"],
    "train": ["train", *CHAIN, "--steps", "10000000", "--d", "2", "--length", "4", "--out", "a.nc"],
    "compare": ["compare", *CHAIN, "--grid", "8x8", "--d", "2", "--length", "512", "--noise",
                "0.02", "--noise-on", "others", "--out", "a.png"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize(("name", "number"), [
    *((name, signal.SIGTERM) for name in LONG), ("portrait", signal.SIGINT),
    ("scan", signal.SIGINT), ("scan", signal.SIGKILL),
])  # fmt: skip
def test_a_signal_ends_a_command_like_ctrl_c_and_its_workers_with_it(tmp_path, name, number):
    """SIGINT goes to all processes of a terminal. Workers end with a process that is killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = start(LONG[name], tmp_path, variables={"TMPDIR": str(temporary)},
                    start_new_session=True)  # fmt: skip
    if name == "scan":  # others compute for it
        while process.poll() is None and not (tmp_path / "a.nc.parts").exists():
            time.sleep(0.1)
    else:
        wait_until_it_computes(process)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    code, _, err = end(process)
    if number != signal.SIGKILL:  # which leaves a lock that nobody holds
        assert code == 130 and "interrupted" in err and err.count("\n") == 1, err
        left = {path.name for path in tmp_path.iterdir()}
        assert left <= {"temporary", "a.nc.parts", "a.safetensors"}  # from which --resume goes on
    assert list(temporary.iterdir()) == []
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
